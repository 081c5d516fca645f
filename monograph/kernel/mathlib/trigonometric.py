"""sin, cos and tan, by way of x modulo π/2 (see ``reduction``).

An f32 is computed in f64 throughout and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from monograph.ir.types import DType, f32, f64
from monograph.kernel.mathlib.number import Number, constant, fma, horner, rarely, where
from monograph.kernel.mathlib.reduction import (
    Reduced,
    is_moderate,
    reduce_moderate,
    reduce_quadrant,
)

# (sin(r) - r) / r³ in r² for |r| ≤ π/4; error relative to sin: 2^-37.6 and 2^-57.5
SINE: dict[DType, tuple[float, ...]] = {
    f32: (
        float.fromhex("-0x1.5555554cb9d79p-3"),
        float.fromhex("0x1.11110895e1483p-7"),
        float.fromhex("-0x1.a00f9d28d4669p-13"),
        float.fromhex("0x1.6cd8351a4a2d0p-19"),
    ),
    f64: (
        float.fromhex("-0x1.5555555555549p-3"),
        float.fromhex("0x1.111111110f887p-7"),
        float.fromhex("-0x1.a01a019c12ccdp-13"),
        float.fromhex("0x1.71de35787966ap-19"),
        float.fromhex("-0x1.ae5e66a50dbeap-26"),
        float.fromhex("0x1.5d931538531a0p-33"),
    ),
}
# (cos(r) - 1 + r²/2) / r⁴ in r² for |r| ≤ π/4; error: 2^-33.3 and 2^-60.0
COSINE: dict[DType, tuple[float, ...]] = {
    f32: (
        float.fromhex("0x1.55554ab406e0bp-5"),
        float.fromhex("-0x1.6c0c8b2f24307p-10"),
        float.fromhex("0x1.9a02196cba8c3p-16"),
    ),
    f64: (
        float.fromhex("0x1.555555555554cp-5"),
        float.fromhex("-0x1.6c16c16c1517fp-10"),
        float.fromhex("0x1.a01a019cb1c78p-16"),
        float.fromhex("-0x1.27e4f809f02a9p-22"),
        float.fromhex("0x1.1ee9ebe50c05bp-29"),
        float.fromhex("-0x1.8fae98dc74c05p-37"),
    ),
}


def sine_and_cosine(r: Number, low: Number | None, dtype: DType) -> tuple[Number, Number]:
    """The sine and cosine of an f64 angle up to π/4 and a little more, good enough for a dtype."""
    square = r * r
    cube = square * r
    sine_tail = horner(square, SINE[dtype])
    cosine_tail = horner(square, COSINE[dtype])
    if low is None:
        cosine = fma(square, fma(square, cosine_tail, -0.5), 1.0)
        return fma(cube, sine_tail, r), cosine
    # sin(r + l) = sin(r) + l cos(r), and l is tiny.
    sine = r + fma(cube, sine_tail, fma(square * -0.5, low, low))
    half = square * 0.5
    head = 1.0 - half
    lost = (1.0 - head) - half
    square_lost = fma(r, r, -square) * -0.5
    cosine = head + (lost + (fma(square * square, cosine_tail, square_lost) - r * low))
    return sine, cosine


def _finite_only(x: Number, result: Number) -> Number:
    """``result``, but NaN where x is infinite or NaN."""
    return where(abs(x) < math.inf, result, constant(math.nan, x.dtype))


def _with_sign(value: Number, sign: Number) -> Number:
    return (value.unsigned_bits() ^ sign).as_float(f64)


def sin(x: Number) -> Number:
    """The sine of an angle in radians."""
    return _of_any_size(_sine_of, x)


def _sine_of(x: Number, reduced: Reduced) -> Number:
    sine, cosine = sine_and_cosine(reduced.high, reduced.low, x.dtype)
    chosen = where(reduced.is_odd(), cosine, sine)
    result = _with_sign(chosen, reduced.sign(0)).cast(x.dtype)
    return where(x.equals(0.0), x, result)


def cos(x: Number) -> Number:
    """The cosine of an angle in radians."""
    return _of_any_size(_cosine_of, x)


def _cosine_of(x: Number, reduced: Reduced) -> Number:
    sine, cosine = sine_and_cosine(reduced.high, reduced.low, x.dtype)
    chosen = where(reduced.is_odd(), sine, cosine)
    return _with_sign(chosen, reduced.sign(1)).cast(x.dtype)


def tan(x: Number) -> Number:
    """The tangent of an angle in radians."""
    return _of_any_size(_tangent_of, x)


def _tangent_of(x: Number, reduced: Reduced) -> Number:
    sine, cosine = sine_and_cosine(reduced.high, reduced.low, x.dtype)
    odd = reduced.is_odd()
    quotient = where(odd, -cosine, sine) / where(odd, sine, cosine)
    return where(x.equals(0.0), x, quotient.cast(x.dtype))


def _of_any_size(function: Callable[[Number, Reduced], Number], x: Number) -> Number:
    """A function of an angle, which is seldom huge."""
    huge = _finite_only(x, function(x, reduce_quadrant(x)))
    return rarely(~is_moderate(x), huge, function(x, reduce_moderate(x)))
