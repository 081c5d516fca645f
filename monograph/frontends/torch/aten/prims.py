"""torch's primitives (``prims.*``), which its decompositions may be written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.dims import Dim
from monograph.ir.graph import Value

_UNARY: Mapping[str, Callable[[Value], Value]] = {
    "abs": F.abs,
    "acos": F.acos,
    "acosh": F.acosh,
    "asin": F.asin,
    "asinh": F.asinh,
    "atan": F.atan,
    "atanh": F.atanh,
    "bitwise_not": F.bitwise_not,
    "ceil": F.ceil,
    "conj": F.conj,
    "conj_physical": F.conj,
    "cos": F.cos,
    "cosh": F.cosh,
    "erf": F.erf,
    "erf_inv": F.erf_inv,
    "erfc": F.erfc,
    "exp": F.exp,
    "exp2": F.exp2,
    "expm1": F.expm1,
    "floor": F.floor,
    "imag": F.imag,
    "isfinite": F.is_finite,
    "log": F.log,
    "log10": F.log10,
    "log1p": F.log1p,
    "log2": F.log2,
    "neg": F.negate,
    "real": F.real,
    "reciprocal": F.reciprocal,
    "round": F.round,
    "sign": F.sign,
    "sin": F.sin,
    "sinh": F.sinh,
    "sqrt": F.sqrt,
    "rsqrt": F.rsqrt,
    "tan": F.tan,
    "tanh": F.tanh,
    "trunc": F.trunc,
    "view_of": lambda x: x,
}

_BINARY: Mapping[str, Callable[[Value, Value], Value]] = {
    "add": F.add,
    "atan2": F.atan2,
    "bitwise_and": F.bitwise_and,
    "bitwise_or": F.bitwise_or,
    "bitwise_xor": F.bitwise_xor,
    "copysign": F.copysign,
    "eq": F.equal,
    "fmod": F.fmod,
    "ge": F.greater_equal,
    "gt": F.greater,
    "le": F.less_equal,
    "lt": F.less,
    "maximum": F.maximum,
    "minimum": F.minimum,
    "mul": F.multiply,
    "ne": F.not_equal,
    "pow": F.power,
    "remainder": F.remainder,
    "shift_left": F.shift_left,
    "shift_right_arithmetic": F.shift_right,
    "sub": F.subtract,
}


def _first(function: Callable[[Value], Value]) -> Callable[[TorchNode], Value]:
    return lambda node: function(next(iter(node.all_arguments().values())))


def _both(function: Callable[[Value, Value], Value]) -> Callable[[TorchNode], Value]:
    def convert(node: TorchNode) -> Value:
        a, b = list(node.all_arguments().values())[:2]
        return function(*node.promote(a, b))

    return convert


for _name, _unary in _UNARY.items():
    converter(f"prims.{_name}.default")(_first(_unary))
for _name, _binary in _BINARY.items():
    converter(f"prims.{_name}.default")(_both(_binary))


@converter("prims.div.default")
def _divide(node: TorchNode) -> Value:
    a, b = list(node.all_arguments().values())[:2]
    a, b = node.promote(a, b)
    return F.truncate_divide(a, b) if a.dtype.is_integer else F.divide(a, b)


@converter("prims.fma.default")
def _fused_multiply_add(node: TorchNode) -> Value:
    """What torch's optimizers are written in where they are compiled; kernels fuse it again."""
    a, b, c = node.as_result(node["a"], node["b"], node["c"])
    return F.add(F.multiply(a, b), c)


@converter("prims.where.default")
def _where(node: TorchNode) -> Value:
    condition, a, b = list(node.all_arguments().values())[:3]
    return F.where(condition, *node.promote(a, b))


@converter("prims.broadcast_in_dim.default")
def _broadcast_in_dim(node: TorchNode) -> Value:
    x, shape, axes = node["a"], node.result_type().shape, node["broadcast_dimensions"]
    spread: list[Dim] = [1] * len(shape)
    for axis, dim in zip(axes, x.shape, strict=True):
        spread[axis] = dim
    return F.expand(F.reshape(x, spread), shape)


@converter(
    "prims.collapse_view.default",
    "prims.collapse.default",
    "prims.split_dim.default",
    "prims.squeeze.default",
    "prims.reshape.default",
)
def _reshape(node: TorchNode) -> Value:
    return F.reshape(next(iter(node.all_arguments().values())), node.result_type().shape)


@converter("prims.transpose.default")
def _transpose(node: TorchNode) -> Value:
    return F.transpose(node["a"], node["permutation"])


@converter("prims.cat.default")
def _cat(node: TorchNode) -> Value:
    return F.concat(node.values(node["tensors"], node.result_dtype), node["dim"])


@converter("prims.rev.default")
def _reverse(node: TorchNode) -> Value:
    return F.flip(node["a"], node["dims"]) if node["dims"] else node["a"]


@converter("prims.iota.default")
def _iota(node: TorchNode) -> Value:
    type_ = node.result_type()
    ramp = F.multiply(F.iota(type_.shape, 0, type_.dtype), node.value(node["step"], type_.dtype))
    return F.add(ramp, node.value(node["start"], type_.dtype))


def _reduction(function: Callable[..., Value]) -> Callable[[TorchNode], Value]:
    def convert(node: TorchNode) -> Any:
        x = node.value(node["inp"], node.result_dtype)
        return function(x, node["dims"]) if x.rank else x

    return convert


converter("prims.sum.default")(_reduction(F.sum))
converter("prims.prod.default")(_reduction(F.prod))
converter("prims.amax.default")(_reduction(F.max))
converter("prims.amin.default")(_reduction(F.min))
