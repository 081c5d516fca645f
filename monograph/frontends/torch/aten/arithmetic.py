"""Arithmetic of two tensors or numbers: add, div, pow, maximum, bitwise ops, lerp, addcmul…"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value
from monograph.ir.types import bool_

_OVERLOADS = ("Tensor", "Scalar", "Scalar_Tensor", "Tensor_Scalar", "Scalar_Self", "default")

_BINARY: Mapping[str, Callable[[Value, Value], Value]] = {
    "atan2": F.atan2,
    "bitwise_and": F.bitwise_and,
    "bitwise_left_shift": F.shift_left,
    "bitwise_or": F.bitwise_or,
    "bitwise_right_shift": F.shift_right,
    "bitwise_xor": F.bitwise_xor,
    "copysign": F.copysign,
    "floor_divide": F.floor_divide,
    "fmod": F.fmod,
    "maximum": F.maximum,
    "minimum": F.minimum,
    "mul": F.multiply,
    "remainder": F.remainder,
}
"""Functions of ``self`` and ``other`` in the dtype in which they meet."""

_TO_FLOAT = frozenset({"atan2", "copysign"})


def _binary(name: str, function: Callable[[Value, Value], Value]) -> Callable[[TorchNode], Value]:
    def convert(node: TorchNode) -> Value:
        if name in _TO_FLOAT:
            return function(*node.as_result(node["self"], node["other"]))
        return function(*node.promote(node["self"], node["other"]))

    return convert


for _name, _function in _BINARY.items():
    for _overload in _OVERLOADS:
        converter(f"aten.{_name}.{_overload}")(_binary(_name, _function))

for _alias, _original in (("__and__", "bitwise_and"), ("__or__", "bitwise_or")):
    for _overload in ("Tensor", "Scalar"):
        converter(f"aten.{_alias}.{_overload}")(_binary(_original, _BINARY[_original]))
for _alias, _original in (
    ("__xor__", "bitwise_xor"),
    ("__lshift__", "bitwise_left_shift"),
    ("__rshift__", "bitwise_right_shift"),
):
    for _overload in ("Tensor", "Scalar"):
        converter(f"aten.{_alias}.{_overload}")(_binary(_original, _BINARY[_original]))


@converter("aten.add.Tensor", "aten.add.Scalar")
def _add(node: TorchNode) -> Value:
    a, b = node.promote(node["self"], node["other"])
    return F.add(a, _scale(node, b, node["alpha"]))


@converter("aten.sub.Tensor", "aten.sub.Scalar")
def _subtract(node: TorchNode) -> Value:
    a, b = node.promote(node["self"], node["other"])
    return F.subtract(a, _scale(node, b, node["alpha"]))


@converter("aten.rsub.Tensor", "aten.rsub.Scalar")
def _reverse_subtract(node: TorchNode) -> Value:
    a, b = node.promote(node["self"], node["other"])
    return F.subtract(b, _scale(node, a, node["alpha"]))


def _scale(node: TorchNode, value: Value, factor: Any) -> Value:
    """``value * factor``; itself where the factor is 1."""
    if isinstance(factor, int | float) and factor == 1:
        return value
    return F.multiply(value, node.value(factor, value.dtype))


@converter(
    "aten.div.Tensor",
    "aten.div.Scalar",
    "aten.true_divide.Tensor",
    "aten.true_divide.Scalar",
)
def _divide(node: TorchNode) -> Value:
    return F.divide(*node.as_result(node["self"], node["other"]))


@converter("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _divide_rounded(node: TorchNode) -> Value:
    mode = node["rounding_mode"]
    if mode is None:
        return F.divide(*node.as_result(node["self"], node["other"]))
    a, b = node.promote(node["self"], node["other"])
    return F.floor_divide(a, b) if mode == "floor" else F.truncate_divide(a, b)


@converter(
    "aten.pow.Tensor_Tensor",
    "aten.pow.Tensor_Scalar",
    "aten.pow.Scalar",
    "aten.float_power.Tensor_Tensor",
    "aten.float_power.Tensor_Scalar",
    "aten.float_power.Scalar",
)
def _power(node: TorchNode) -> Value:
    base, exponent = node["self"], node["exponent"]
    if isinstance(base, Value) and isinstance(exponent, int | float):
        x = node.value(base, node.result_dtype)
        if exponent == 2:
            return F.square(x)
        if exponent == 0.5 and x.dtype.is_float:
            return F.sqrt(x)
        if exponent == -1 and x.dtype.is_complex:
            return F.reciprocal(x)
    return F.power(*node.as_result(base, exponent))


@converter("aten.fmax.default")
def _fmax(node: TorchNode) -> Value:
    return _ignoring_nan(node, F.maximum)


@converter("aten.fmin.default")
def _fmin(node: TorchNode) -> Value:
    return _ignoring_nan(node, F.minimum)


def _ignoring_nan(node: TorchNode, choose: Callable[[Value, Value], Value]) -> Value:
    """The smaller or larger of two, as ``choose`` says; where one is NaN, the other."""
    a, b = node.promote(node["self"], node["other"])
    chosen = choose(a, b)
    if not a.dtype.is_float:
        return chosen
    return F.where(F.is_nan(a), b, F.where(F.is_nan(b), a, chosen))


@converter("aten.hypot.default")
def _hypot(node: TorchNode) -> Value:
    a, b = (F.abs(x) for x in node.promote(node["self"], node["other"]))
    large, small = F.maximum(a, b), F.minimum(a, b)
    ratio = F.divide(small, F.where(F.equal(large, 0.0), 1.0, large))
    length = F.multiply(large, F.sqrt(F.add(1.0, F.square(ratio))))
    infinite = F.logical_or(F.is_inf(a), F.is_inf(b))
    return F.where(infinite, float("inf"), length)


@converter("aten.heaviside.default")
def _heaviside(node: TorchNode) -> Value:
    x, at_zero = node.promote(node["self"], node["values"])
    step = node.value(F.greater(x, F.zeros_like(x)), x.dtype)
    chosen = F.where(F.equal(x, F.zeros_like(x)), at_zero, step)
    return F.where(F.is_nan(x), 0.0, chosen) if x.dtype.is_float else chosen


@converter("aten.logaddexp.default")
def _logaddexp(node: TorchNode) -> Value:
    a, b = node.promote(node["self"], node["other"])
    return _log_of_sum(a, b, F.exp, F.log1p)


@converter("aten.logaddexp2.default")
def _logaddexp2(node: TorchNode) -> Value:
    a, b = node.promote(node["self"], node["other"])

    def log2_of_one_plus(x: Value) -> Value:
        return F.divide(F.log1p(x), 0.6931471805599453)

    return _log_of_sum(a, b, F.exp2, log2_of_one_plus)


def _log_of_sum(
    a: Value, b: Value, power: Callable[[Value], Value], log: Callable[[Value], Value]
) -> Value:
    """The larger of two plus the logarithm of one plus their ratio; equal infinities stay."""
    large = F.maximum(a, b)
    distance = F.negate(F.abs(F.subtract(a, b)))
    same = F.logical_and(F.equal(a, b), F.is_inf(a))
    return F.where(same, a, F.add(large, log(power(distance))))


@converter("aten.lerp.Scalar", "aten.lerp.Tensor")
def _lerp(node: TorchNode) -> Value:
    start, end, weight = node.as_result(node["self"], node["end"], node["weight"])
    difference = F.subtract(end, start)
    near = F.less(F.abs(weight), 0.5)
    from_start = F.add(start, F.multiply(weight, difference))
    from_end = F.subtract(end, F.multiply(F.subtract(1.0, weight), difference))
    return F.where(near, from_start, from_end)


@converter("aten.addcmul.default")
def _addcmul(node: TorchNode) -> Value:
    x, a, b = node.as_result(node["self"], node["tensor1"], node["tensor2"])
    return F.add(x, F.multiply(_scale(node, a, node["value"]), b))


@converter("aten.addcdiv.default")
def _addcdiv(node: TorchNode) -> Value:
    x, a, b = node.as_result(node["self"], node["tensor1"], node["tensor2"])
    return F.add(x, F.divide(_scale(node, a, node["value"]), b))


@converter("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", "aten.clip.Tensor")
def _clamp(node: TorchNode) -> Value:
    return _clamp_between(node, node["self"], node["min"], node["max"])


@converter("aten.clamp_min.default", "aten.clamp_min.Tensor")
def _clamp_min(node: TorchNode) -> Value:
    return _clamp_between(node, node["self"], node["min"], None)


@converter("aten.clamp_max.default", "aten.clamp_max.Tensor")
def _clamp_max(node: TorchNode) -> Value:
    return _clamp_between(node, node["self"], None, node["max"])


def _clamp_between(node: TorchNode, x: Value, low: Any, high: Any) -> Value:
    x = node.value(x, node.result_dtype)
    bounds = (low, high)
    plain = all(bound is None or isinstance(bound, int | float) for bound in bounds)
    if plain and x.dtype.is_float and not any(bound != bound for bound in bounds):
        return F.clip(x, *(None if bound is None else float(bound) for bound in bounds))
    if low is not None:
        x = F.maximum(x, node.value(low, x.dtype))
    return x if high is None else F.minimum(x, node.value(high, x.dtype))


@converter("aten.gcd.default")
def _gcd(node: TorchNode) -> Value:
    """Euclid's algorithm in torch's order: the least integer has no absolute value, and then the
    order decides the sign.
    """
    a, b = node.promote(node["self"], node["other"])
    a, b = F.abs(a), F.abs(b)

    def goes_on(pair: tuple[Value, Value]) -> Value:
        return F.any(F.not_equal(pair[1], F.zeros_like(pair[1])))

    def step(pair: tuple[Value, Value]) -> tuple[Value, Value]:
        x, y = pair
        done = F.equal(y, F.zeros_like(y))
        rest = F.fmod(x, F.where(done, F.ones_like(y), y))
        return F.where(done, x, y), F.where(done, y, rest)

    shape = node.result_type().shape
    found: tuple[Value, Value] = F.while_loop(
        goes_on, step, (F.expand(b, shape), F.expand(a, shape))
    )
    return found[0]


@converter("aten.xlogy.Tensor", "aten.xlogy.Scalar_Self", "aten.xlogy.Scalar_Other")
def _xlogy(node: TorchNode) -> Value:
    return _x_times(node, F.log)


@converter(
    "aten.special_xlog1py.default",
    "aten.special_xlog1py.self_scalar",
    "aten.special_xlog1py.other_scalar",
)
def _xlog1py(node: TorchNode) -> Value:
    return _x_times(node, F.log1p)


def _x_times(node: TorchNode, log: Callable[[Value], Value]) -> Value:
    """x times a logarithm; 0 where x is 0, whatever the logarithm, but NaN where it is NaN."""
    x, y = node.as_result(node["self"], node["other"])
    product = F.where(F.equal(x, 0.0), 0.0, F.multiply(x, log(y)))
    return F.where(F.is_nan(y), float("nan"), product)


@converter("aten.logical_and.default")
def _logical_and(node: TorchNode) -> Value:
    return F.logical_and(*node.values([node["self"], node["other"]], bool_))


@converter("aten.logical_or.default")
def _logical_or(node: TorchNode) -> Value:
    return F.logical_or(*node.values([node["self"], node["other"]], bool_))


@converter("aten.logical_xor.default")
def _logical_xor(node: TorchNode) -> Value:
    return F.logical_xor(*node.values([node["self"], node["other"]], bool_))


_COMPARISONS: Mapping[str, Callable[[Value, Value], Value]] = {
    "eq": F.equal,
    "ge": F.greater_equal,
    "gt": F.greater,
    "le": F.less_equal,
    "lt": F.less,
    "ne": F.not_equal,
}


def _comparison(function: Callable[[Value, Value], Value]) -> Callable[[TorchNode], Value]:
    return lambda node: function(*node.promote(node["self"], node["other"]))


for _name, _function in _COMPARISONS.items():
    for _overload in ("Tensor", "Scalar"):
        converter(f"aten.{_name}.{_overload}")(_comparison(_function))


@converter(
    "aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar"
)
def _where(node: TorchNode) -> Value:
    return F.where(node["condition"], *node.promote(node["self"], node["other"]))


@converter("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def _masked_fill(node: TorchNode) -> Value:
    x: Value = node["self"]
    return F.where(node["mask"], node.value(node["value"], x.dtype), x)
