"""Functions of one tensor, element by element: exp, sqrt, floor, isnan…"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value
from monograph.ir.types import Kind, bool_, f32, f64
from monograph.ops.rules import require

_SAME: Mapping[str, Callable[[Value], Value]] = {
    "ceil": F.ceil,
    "floor": F.floor,
    "neg": F.negate,
    "round": F.round,
    "square": F.square,
    "trunc": F.trunc,
}
"""Functions that keep the dtype."""


def _same_converter(function: Callable[[Value], Value]) -> Callable[[TorchNode], Value]:
    return lambda node: function(node["self"])


for _name, _function in _SAME.items():
    converter(f"aten.{_name}.default")(_same_converter(_function))


@converter("aten.positive.default")
def _positive(node: TorchNode) -> Value:
    return node["self"]  # type: ignore[no-any-return]  # an argument is Any


@converter("aten.abs.default", "aten.absolute.default")
def _abs(node: TorchNode) -> Value:
    x: Value = node["self"]
    return x if x.dtype is bool_ else F.abs(x)


@converter("aten.sign.default", "aten.sgn.default")
def _sign(node: TorchNode) -> Value:
    """Torch's sign of what is not a number is 0."""
    x: Value = node["self"]
    if x.dtype is bool_:
        return x
    return F.where(F.is_nan(x), 0, F.sign(x)) if x.dtype.is_float else F.sign(x)


@converter("aten.frac.default")
def _frac(node: TorchNode) -> Value:
    return F.subtract(node["self"], F.trunc(node["self"]))


@converter("aten.round.decimals")
def _round_decimals(node: TorchNode) -> Value:
    x: Value = node["self"]
    decimals = int(node["decimals"])
    if not x.dtype.is_float or decimals == 0:
        return F.round(x)
    scale = float(10 ** abs(decimals))
    if decimals > 0:
        return F.divide(F.round(F.multiply(x, scale)), scale)
    return F.multiply(F.round(F.divide(x, scale)), scale)


@converter("aten.signbit.default")
def _signbit(node: TorchNode) -> Value:
    x: Value = node["self"]
    if not x.dtype.is_float:
        return F.full(x.shape, False, bool_) if x.dtype is bool_ else F.less(x, 0)
    return F.less(F.copysign(F.ones_like(x), x), 0.0)


@converter("aten.isnan.default")
def _isnan(node: TorchNode) -> Value:
    x: Value = node["self"]
    if x.dtype.is_complex:
        return F.logical_or(F.is_nan(F.real(x)), F.is_nan(F.imag(x)))
    return F.is_nan(x) if x.dtype.is_float else F.full(x.shape, False, bool_)


@converter("aten.isinf.default")
def _isinf(node: TorchNode) -> Value:
    x: Value = node["self"]
    if x.dtype.is_complex:
        return F.logical_or(F.is_inf(F.real(x)), F.is_inf(F.imag(x)))
    return F.is_inf(x) if x.dtype.is_float else F.full(x.shape, False, bool_)


@converter("aten.isfinite.default")
def _isfinite(node: TorchNode) -> Value:
    x: Value = node["self"]
    if x.dtype.is_complex:
        return F.logical_and(F.is_finite(F.real(x)), F.is_finite(F.imag(x)))
    return F.is_finite(x) if x.dtype.is_float else F.full(x.shape, True, bool_)


@converter("aten.isposinf.default")
def _isposinf(node: TorchNode) -> Value:
    return _is_infinity(node["self"], math.inf)


@converter("aten.isneginf.default")
def _isneginf(node: TorchNode) -> Value:
    return _is_infinity(node["self"], -math.inf)


def _is_infinity(x: Value, infinity: float) -> Value:
    if not x.dtype.is_float:
        return F.full(x.shape, False, bool_)
    return F.equal(x, infinity)


@converter("aten.logical_not.default")
def _logical_not(node: TorchNode) -> Value:
    return F.equal(node["self"], F.zeros_like(node["self"]))


@converter("aten.bitwise_not.default")
def _bitwise_not(node: TorchNode) -> Value:
    return F.bitwise_not(node["self"])


@converter("aten.deg2rad.default")
def _deg2rad(node: TorchNode) -> Value:
    return F.multiply(node.value(node["self"], node.result_dtype), math.pi / 180)


@converter("aten.rad2deg.default")
def _rad2deg(node: TorchNode) -> Value:
    return F.multiply(node.value(node["self"], node.result_dtype), 180 / math.pi)


@converter("aten.sinc.default", "aten.special_sinc.default")
def _sinc(node: TorchNode) -> Value:
    x = node.value(node["self"], node.result_dtype)
    angle = F.multiply(x, math.pi)
    zero = F.equal(x, 0.0)
    return F.where(zero, 1.0, F.divide(F.sin(angle), F.where(zero, 1.0, angle)))


@converter("aten.logit.default", "aten.special_logit.default")
def _logit(node: TorchNode) -> Value:
    x = node.value(node["self"], node.result_dtype)
    if node["eps"] is not None:
        eps = float(node["eps"])
        x = F.minimum(F.maximum(x, eps), 1.0 - eps)
    return F.log(F.divide(x, F.subtract(1.0, x)))


@converter("aten.nan_to_num.default")
def _nan_to_num(node: TorchNode) -> Value:
    x: Value = node["self"]
    if x.dtype.kind is not Kind.FLOAT:
        return x
    from monograph.ops.elementwise import float_facts

    facts = float_facts(x.dtype)
    nan = 0.0 if node["nan"] is None else float(node["nan"])
    high = float(facts.max) if node["posinf"] is None else float(node["posinf"])
    low = float(facts.min) if node["neginf"] is None else float(node["neginf"])
    finite = F.where(F.equal(x, math.inf), high, F.where(F.equal(x, -math.inf), low, x))
    return F.where(F.is_nan(x), nan, finite)


@converter("aten.real.default", "aten.view_as_real_real.default")
def _real(node: TorchNode) -> Value:
    return F.real(node["self"])


@converter("aten.imag.default")
def _imag(node: TorchNode) -> Value:
    return F.imag(node["self"])


@converter(
    "aten.conj.default",
    "aten._conj.default",
    "aten.conj_physical.default",
    "aten._conj_physical.default",
)
def _conj(node: TorchNode) -> Value:
    return F.conj(node["self"])


@converter("aten.resolve_conj.default", "aten.resolve_neg.default")
def _resolved(node: TorchNode) -> Value:
    return node["self"]  # type: ignore[no-any-return]  # an argument is Any


@converter("aten._neg_view.default")
def _neg_view(node: TorchNode) -> Value:
    return F.negate(node["self"])


@converter("aten.angle.default")
def _angle(node: TorchNode) -> Value:
    x: Value = node["self"]
    if x.dtype.is_complex:
        return F.atan2(F.imag(x), F.real(x))
    real = node.value(x, node.result_dtype)
    turned = F.where(F.less(real, 0.0), math.pi, 0.0)
    return F.where(F.is_nan(real), real, node.value(turned, real.dtype))


@converter("aten.complex.default")
def _complex(node: TorchNode) -> Value:
    real, imaginary = node["real"], node["imag"]
    require(
        real.dtype is imaginary.dtype,
        "complex: the parts have different dtypes",
        expected=str(real.dtype),
        found=imaginary.dtype,
    )
    wide = real.dtype if real.dtype in (f32, f64) else f32
    return F.complex(node.value(real, wide), node.value(imaginary, wide))


@converter("aten.polar.default")
def _polar(node: TorchNode) -> Value:
    length, angle = node["abs"], node["angle"]
    return F.complex(F.multiply(length, F.cos(angle)), F.multiply(length, F.sin(angle)))


@converter("aten.view_as_real.default")
def _view_as_real(node: TorchNode) -> Value:
    """A choice by the last position: it is computed where the number is, not from two arrays."""
    number = F.unsqueeze(node["self"], -1)
    return F.where(F.less(F.iota((2,)), 1), F.real(number), F.imag(number))


@converter("aten.view_as_complex.default")
def _view_as_complex(node: TorchNode) -> Value:
    x: Value = node["self"]
    wide = x if x.dtype in (f32, f64) else node.value(x, f32)
    real, imaginary = F.unstack(wide, -1)
    return F.complex(real, imaginary)
