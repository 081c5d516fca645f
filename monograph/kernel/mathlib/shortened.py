"""Shorter formulas, for results of which no more than a bf16 or an f16 is kept.

A bf16 keeps 8 digits of a result and an f16 11, so their formulas take polynomials of degree 3 and
4 where an f32 takes degree 6: errors of 2^-13.2 and 2^-18.4, relative to the result. The exponent
is counted in powers of two, whose rounding an f32 would show. Numbers that are not of ordinary size
take the long formulas, so NaN, infinities and what is subnormal are as they always are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from monograph.ir.types import DType, bf16, f16
from monograph.kernel import expr as e
from monograph.kernel.mathlib import activations, exponential
from monograph.kernel.mathlib.activations import (
    GELU_TANH_ORDINARY,
    GELU_TANH_POWER,
    GELU_TANH_POWER_CUBIC,
    UNSCALE,
)
from monograph.kernel.mathlib.exponential import (
    HEADROOM,
    LOG2_E,
    TABLES,
    power_of_two,
    with_exponent_raised,
)
from monograph.kernel.mathlib.number import Number, fma, horner

BINARY: Final[dict[DType, tuple[float, ...]]] = {
    # 2^r for |r| ≤ 1/2, exactly 1 at 0; error relative to 2^r: 2^-13.2 and 2^-18.4
    bf16: (
        1.0,
        float.fromhex("0x1.62f5fap-1"),
        float.fromhex("0x1.f00c4ep-3"),
        float.fromhex("0x1.c2a218p-5"),
    ),
    f16: (
        1.0,
        float.fromhex("0x1.62e12cp-1"),
        float.fromhex("0x1.ec0378p-3"),
        float.fromhex("0x1.c9fc46p-5"),
        float.fromhex("0x1.3a02ccp-7"),
    ),
}
BINARY_LESS_ONE: Final[dict[DType, tuple[float, ...]]] = {
    # (2^r - 1) / r for |r| ≤ 1/2; relative error: 2^-16.0 and 2^-21.1
    bf16: (
        float.fromhex("0x1.62e2d6p-1"),
        float.fromhex("0x1.ebff08p-3"),
        float.fromhex("0x1.c96b48p-5"),
        float.fromhex("0x1.3b2a90p-7"),
    ),
    f16: (
        float.fromhex("0x1.62e42ep-1"),
        float.fromhex("0x1.ebfa4ep-3"),
        float.fromhex("0x1.c6b26ep-5"),
        float.fromhex("0x1.3cbe58p-7"),
        float.fromhex("0x1.5d87dep-10"),
    ),
}
GELU: Final[dict[DType, tuple[float, ...]]] = {
    # Φ(-a) e^(a²/2) (a + c) in a / (a + c), for a up to GELU_FAR; relative error: 2^-14.1, 2^-18.9
    bf16: (
        float.fromhex("0x1.fff894p+0"),
        float.fromhex("-0x1.1888e8p+2"),
        float.fromhex("0x1.512e12p+2"),
        float.fromhex("-0x1.b86102p+1"),
        float.fromhex("0x1.ebb128p-1"),
    ),
    f16: (
        float.fromhex("0x1.c0003ap+0"),
        float.fromhex("-0x1.9191d8p+1"),
        float.fromhex("0x1.593108p+1"),
        float.fromhex("-0x1.6d1f30p-1"),
        float.fromhex("-0x1.078824p-1"),
        float.fromhex("0x1.4cb9e8p-2"),
    ),
}
GELU_CENTER: Final[dict[DType, float]] = {bf16: 4.0, f16: 3.5}
GELU_FAR: Final[dict[DType, float]] = {bf16: 14.5, f16: 6.0}
"""Beyond this size a Φ(-a) is less than half of the smallest number that is kept."""
TANH_FAR = 10.0
"""From here on tanh is 1, to all digits that are kept."""


def _shorten(full: Number, usual: Number) -> Number:
    """A function with another formula for numbers of ordinary size."""
    condition, seldom, _ = full.expr.operands
    return Number(e.rarely(condition, seldom, usual.expr))


def _power(x: Number, slope: Number | float, kept: DType) -> Number:
    """2 to the (x slope), a normal number."""
    shifted = fma(x, slope, x.format.shifter)
    rest = fma(x, slope, x.format.shifter - shifted)
    return with_exponent_raised(horner(rest, BINARY[kept]), shifted.unsigned_bits())


def _exp(x: Number, kept: DType) -> Number:
    return _shorten(exponential.exp(x), _power(x, LOG2_E, kept))


def _sigmoid(x: Number, kept: DType) -> Number:
    return _shorten(activations.sigmoid(x), 1.0 / (_power(x, -LOG2_E, kept) + 1.0))


def _silu(x: Number, kept: DType) -> Number:
    return _shorten(activations.silu(x), x / (_power(x, -LOG2_E, kept) + 1.0))


def _gelu_tanh(x: Number, kept: DType) -> Number:
    held = x.at_most(GELU_TANH_ORDINARY[1])
    slope = fma(held * held, GELU_TANH_POWER_CUBIC, GELU_TANH_POWER)
    return _shorten(activations.gelu_tanh(x), x / (_power(held, slope, kept) + 1.0))


def _decay(x: Number, kept: DType) -> Number:
    """Without a branch, as the long one; a NaN stays one because the factors are multiplied."""
    held = x.at_least(TABLES[x.dtype].nearly_zero)
    shifter = x.format.shifter + x.format.bias
    shifted = fma(held, LOG2_E, shifter)
    rest = fma(held, LOG2_E, shifter - shifted)
    return horner(rest, BINARY[kept]) * power_of_two(shifted.unsigned_bits(), x.dtype)


def _tanh(x: Number, kept: DType) -> Number:
    """(e^2a - 1) / (e^2a + 1) with the sign of x, where e^2a - 1 keeps its digits near 0."""
    size = abs(x).at_most(TANH_FAR)
    shifter = x.format.shifter + x.format.bias
    shifted = fma(size, 2.0 * LOG2_E, shifter)
    rest = fma(size, 2.0 * LOG2_E, shifter - shifted)
    scale = power_of_two(shifted.unsigned_bits(), x.dtype)
    growth = fma(scale, rest * horner(rest, BINARY_LESS_ONE[kept]), scale - 1.0)
    return (growth / (growth + 2.0)).with_sign_of(x)


def _gelu_erf(x: Number, kept: DType) -> Number:
    """max(x, 0) - a Φ(-a); as in the long formula the tail is computed 2^96 times too large."""
    size = abs(x).at_most(GELU_FAR[kept])
    square = size * size
    shifter = x.format.shifter + HEADROOM
    shifted = fma(square, -0.5 * LOG2_E, shifter)
    rest = fma(square, -0.5 * LOG2_E, shifter - shifted)
    decay = with_exponent_raised(horner(rest, BINARY[kept]), shifted.unsigned_bits())
    quotient = size / (size + GELU_CENTER[kept])
    tail = horner(quotient, GELU[kept]) * quotient * decay * UNSCALE
    return x.at_least(-0.0) - tail


_FORMULAS: Final[dict[str, Callable[[Number, DType], Number]]] = {
    "decay": _decay,
    "exp": _exp,
    "gelu_erf": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "tanh": _tanh,
}
SHORTENED: Final = {
    f"{function}_{kept}": (function, kept) for function in _FORMULAS for kept in BINARY
}
"""The name of each short formula: what it computes, and how many digits of it."""
RELATIVE_BOUNDS: Final[dict[DType, float]] = {bf16: 2.0**-12.5, f16: 2.0**-17.5}
"""How far a short formula's result may be from the exact one, relative to that."""


def name_of(function: str, kept: DType) -> str | None:
    """The short formula of a function, if there is one."""
    name = f"{function}_{kept}"
    return name if name in SHORTENED else None


def formula(name: str) -> Callable[[Number], Number]:
    """The short formula of that name."""
    function, kept = SHORTENED[name]
    return lambda x: _FORMULAS[function](x, kept)
