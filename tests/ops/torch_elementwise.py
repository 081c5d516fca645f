"""What torch computes for the elementwise, math and activation ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


def _plain(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A torch function that takes the operands alone."""
    return lambda _, *tensors: function(*tensors)


def _power(_: Any, a: Tensor, b: Tensor) -> Tensor:
    """torch's powers, but for a complex zero, of which its vector code gives infinity or NaN.

    1 where the exponent is 0, 0 where its real part is positive, and NaN elsewhere.
    """
    found = torch.pow(a, b)
    if not a.is_complex():
        return found
    undefined = torch.full_like(found, complex(math.nan, math.nan))
    of_zero = torch.where(b.real > 0, torch.zeros_like(found), undefined)
    of_zero = torch.where(b == 0, torch.ones_like(found), of_zero)
    return torch.where(a == 0, of_zero, found)


def _integer_safe(divide: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Division that torch traps or leaves undefined for integers: by 0 and by -1."""

    def reference(_: Any, a: Tensor, b: Tensor) -> Tensor:
        if a.is_floating_point():
            return divide(a, b)
        trapping = (b == 0) | ((b == -1) & a.dtype.is_signed)
        result = divide(a, torch.where(trapping, torch.ones_like(b), b))
        by_minus_one = divide(-a, torch.ones_like(b))
        result = torch.where((b == -1) & a.dtype.is_signed, by_minus_one, result)
        return torch.where(b == 0, torch.zeros_like(result), result)

    return reference


def _floor_divide(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode="floor")


def _truncate_divide(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode="trunc")


def _sign(_: Any, x: Tensor) -> Tensor:
    """torch.sign, with NaN for NaN."""
    if not x.is_floating_point():
        return torch.sgn(x)
    return torch.where(torch.isnan(x), x, torch.sign(x))


def _at_infinity(
    function: Callable[..., Tensor], below: float | None, above: float | None = None
) -> Callable[..., Tensor]:
    """A torch function with its limits where torch computes inf * 0."""

    def reference(op: Any, x: Tensor) -> Tensor:
        result = function(op, x)
        if below is not None:
            result = torch.where(x == -math.inf, torch.full_like(result, below), result)
        if above is not None:
            result = torch.where(x == math.inf, torch.full_like(result, above), result)
        return result

    return reference


def _clip(op: Any, x: Tensor) -> Tensor:
    if op.low is None and op.high is None:
        return x.clone()
    if x.dtype is torch.uint8:
        return x.clone()  # torch wraps a bound that u8 cannot hold
    high = None if op.high == math.inf else op.high
    return torch.clamp(x, op.low, high)


def _prelu(_: Any, x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x > 0, x, x * slope)


TORCH: dict[str, Callable[..., Any]] = {
    "add": _plain(torch.add),
    "subtract": _plain(torch.subtract),
    "multiply": _plain(torch.multiply),
    "divide": _plain(torch.divide),
    "floor_divide": _integer_safe(_floor_divide),
    "truncate_divide": _integer_safe(_truncate_divide),
    "remainder": _integer_safe(torch.remainder),
    "fmod": _integer_safe(torch.fmod),
    "power": _power,
    "maximum": _plain(torch.maximum),
    "minimum": _plain(torch.minimum),
    "atan2": _plain(torch.atan2),
    "copysign": _plain(torch.copysign),
    "equal": _plain(torch.eq),
    "not_equal": _plain(torch.ne),
    "less": _plain(torch.lt),
    "less_equal": _plain(torch.le),
    "greater": _plain(torch.gt),
    "greater_equal": _plain(torch.ge),
    "logical_and": _plain(torch.logical_and),
    "logical_or": _plain(torch.logical_or),
    "logical_xor": _plain(torch.logical_xor),
    "logical_not": _plain(torch.logical_not),
    "bitwise_and": _plain(torch.bitwise_and),
    "bitwise_or": _plain(torch.bitwise_or),
    "bitwise_xor": _plain(torch.bitwise_xor),
    "bitwise_not": _plain(torch.bitwise_not),
    "shift_left": _plain(torch.bitwise_left_shift),
    "shift_right": _plain(torch.bitwise_right_shift),
    "where": _plain(torch.where),
    "clip": _clip,
    "negate": _plain(torch.neg),
    "abs": _plain(torch.abs),
    "sign": _sign,
    "floor": _plain(torch.floor),
    "ceil": _plain(torch.ceil),
    "round": _plain(torch.round),
    "trunc": _plain(torch.trunc),
    "is_nan": _plain(torch.isnan),
    "is_inf": _plain(torch.isinf),
    "is_finite": _plain(torch.isfinite),
    "real": _plain(torch.real),
    "imag": _plain(torch.imag),
    "conj": _plain(lambda x: torch.conj(x).resolve_conj()),
    "complex": _plain(lambda a, b: torch.complex(*torch.broadcast_tensors(a, b))),
    "stop_gradient": _plain(torch.detach),
    "exp": _plain(torch.exp),
    "exp2": _plain(torch.exp2),
    "expm1": _plain(torch.expm1),
    "log": _plain(torch.log),
    "log2": _plain(torch.log2),
    "log10": _plain(torch.log10),
    "log1p": _plain(torch.log1p),
    "sqrt": _plain(torch.sqrt),
    "rsqrt": _plain(torch.rsqrt),
    "reciprocal": _plain(torch.reciprocal),
    "square": _plain(torch.square),
    "sin": _plain(torch.sin),
    "cos": _plain(torch.cos),
    "tan": _plain(torch.tan),
    "asin": _plain(torch.asin),
    "acos": _plain(torch.acos),
    "atan": _plain(torch.atan),
    "sinh": _plain(torch.sinh),
    "cosh": _plain(torch.cosh),
    "tanh": _plain(torch.tanh),
    "asinh": _plain(torch.asinh),
    "acosh": _plain(torch.acosh),
    "atanh": _plain(torch.atanh),
    "erf": _plain(torch.erf),
    "erfc": _plain(torch.erfc),
    "sigmoid": _plain(torch.sigmoid),
    "relu": _plain(F.relu),
    "relu6": _plain(F.relu6),
    "leaky_relu": lambda op, x: F.leaky_relu(x, op.slope),
    "prelu": _prelu,
    "elu": lambda op, x: F.elu(x, op.alpha),
    "selu": _plain(F.selu),
    "celu": lambda op, x: F.celu(x, op.alpha),
    "silu": _at_infinity(_plain(F.silu), -0.0),
    # With AVX-512, torch computes inf * 0 at +inf too, in f32.
    "gelu": _at_infinity(lambda op, x: F.gelu(x, approximate=op.approximate), -0.0, math.inf),
    # torch overflows without a threshold; beyond 40 the two forms are one in float64.
    "softplus": lambda op, x: F.softplus(x, op.beta, min(op.threshold, 40.0)),
    "softsign": _at_infinity(_plain(F.softsign), -1.0, 1.0),
    "mish": _at_infinity(_plain(F.mish), -0.0),
    "hardswish": _at_infinity(_plain(F.hardswish), -0.0),
    "hardsigmoid": _plain(F.hardsigmoid),
    "hardtanh": lambda op, x: F.hardtanh(x, op.low, op.high),
    "log_sigmoid": _plain(F.logsigmoid),
}
