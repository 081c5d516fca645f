"""tanh, sinh, cosh and their inverses.

tanh is a polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel, and that form further out.

sinh and cosh split x = n ln 2 + r as exp does and sum 2^n e^r and 2^-n e^-r, two polynomials and no
division; sinh is a polynomial of its own near 0.
"""

from __future__ import annotations

import math

from monograph.ir.types import DType, f32, f64
from monograph.kernel.mathlib.exponential import (
    exp_in_range,
    exp_of_rest,
    power_of_two,
    rest_of,
    split,
)
from monograph.kernel.mathlib.logarithm import LN2, log1p
from monograph.kernel.mathlib.number import Number, constant, fma, horner, where

# (tanh(x) - x) / x³ in x² for |x| ≤ 0.625; error relative to tanh: 2^-27.8 and 2^-57.7
TANH: dict[DType, tuple[float, ...]] = {
    f32: (
        float.fromhex("-0x1.555534p-2"),
        float.fromhex("0x1.110760p-3"),
        float.fromhex("-0x1.b84340p-5"),
        float.fromhex("0x1.52509ep-6"),
        float.fromhex("-0x1.76922ap-8"),
    ),
    f64: (
        float.fromhex("-0x1.5555555555552p-2"),
        float.fromhex("0x1.1111111110c39p-3"),
        float.fromhex("-0x1.ba1ba1b9d1155p-5"),
        float.fromhex("0x1.664f4870c0be8p-6"),
        float.fromhex("-0x1.226e32d127b23p-7"),
        float.fromhex("0x1.d6d35aa4159a5p-9"),
        float.fromhex("-0x1.7d9c3a030448ep-10"),
        float.fromhex("0x1.350bcb934247cp-11"),
        float.fromhex("-0x1.f1168b8ba4b80p-13"),
        float.fromhex("0x1.8027a7d505f17p-14"),
        float.fromhex("-0x1.faf87e7d52142p-16"),
        float.fromhex("0x1.9661a87675a6fp-18"),
    ),
}
# (sinh(x) - x) / x³ in x² for |x| ≤ 1; error relative to sinh: 2^-31.6 and 2^-56.8
SINH: dict[DType, tuple[float, ...]] = {
    f32: (
        float.fromhex("0x1.555556p-3"),
        float.fromhex("0x1.1110e0p-7"),
        float.fromhex("0x1.a022bcp-13"),
        float.fromhex("0x1.756c1ep-19"),
    ),
    f64: (
        float.fromhex("0x1.5555555555555p-3"),
        float.fromhex("0x1.1111111111111p-7"),
        float.fromhex("0x1.a01a01a019fc1p-13"),
        float.fromhex("0x1.71de3a5573f7bp-19"),
        float.fromhex("0x1.ae6456741b755p-26"),
        float.fromhex("0x1.61246afa3f6f5p-33"),
        float.fromhex("0x1.ae756e8d0219cp-41"),
        float.fromhex("0x1.9a794436d1992p-49"),
    ),
}
SINH_NEAR = 1.0
OVERFLOW: dict[DType, float] = {f32: 89.5, f64: 710.5}
"""From here on sinh and cosh are infinite."""
SQUARE_DWARFS_ONE: dict[DType, float] = {f32: 2.0**30, f64: 2.0**100}
TANH_NEAR = 0.625
TANH_IS_ONE: dict[DType, float] = {f32: 9.125, f64: 19.25}
"""From here on tanh rounds to 1."""


def tanh(x: Number) -> Number:
    """The hyperbolic tangent."""
    size = abs(x)
    square = x * x
    near = fma(square * horner(square, TANH[x.dtype]), size, size)
    growth = exp_in_range(size.at_most(TANH_IS_ONE[x.dtype]) * 2.0)
    far = 1.0 - 2.0 / (growth + 1.0)
    return where(size < TANH_NEAR, near, far).with_sign_of(x)


def _exponentials(x: Number) -> tuple[Number, Number]:
    """e^|x| / 4 and e^-|x| / 4, which do not overflow where sinh and cosh do not."""
    layout = x.format
    whole, exact, shifted = split(abs(x).at_most(OVERFLOW[x.dtype]), layout.bias - 2)
    rest = rest_of(whole, exact)
    scale = power_of_two(shifted, x.dtype)
    # The exponent fields of 2^k and 2^-k sum up to twice the bias.
    both = constant((2 * layout.bias - 4) << layout.mantissa, layout.unsigned)
    inverse = (both - scale.unsigned_bits()).as_float(x.dtype)
    inverse = where(whole < 100.0, inverse, 0.0)
    return exp_of_rest(rest) * scale, exp_of_rest(-rest) * inverse


def sinh(x: Number) -> Number:
    """(e^x - e^-x) / 2."""
    size, square = abs(x), x * x
    near = fma(square * horner(square, SINH[x.dtype]), size, size)
    grown, shrunk = _exponentials(x)
    return where(size < SINH_NEAR, near, (grown - shrunk) * 2.0).with_sign_of(x)


def cosh(x: Number) -> Number:
    """(e^x + e^-x) / 2."""
    grown, shrunk = _exponentials(x)
    return (grown + shrunk) * 2.0


def asinh(x: Number) -> Number:
    """The number whose hyperbolic sine is x: log(a + √(a² + 1)), by log1p."""
    size = abs(x)
    far = size > SQUARE_DWARFS_ONE[x.dtype]
    square = size * size
    near = size + square / (1.0 + (square + 1.0).sqrt())
    doubled = where(far, constant(sum(LN2[x.dtype]), x.dtype), 0.0)
    return (log1p(where(far, size, near)) + doubled).with_sign_of(x)


def acosh(x: Number) -> Number:
    """The number that is not negative and whose hyperbolic cosine is x; NaN below 1."""
    far = x > SQUARE_DWARFS_ONE[x.dtype]
    above = x - 1.0
    near = above + (above * (above + 2.0)).sqrt()
    doubled = where(far, constant(sum(LN2[x.dtype]), x.dtype), 0.0)
    result = log1p(where(far, x, near)) + doubled
    return where(x < 1.0, constant(math.nan, x.dtype), result)


def atanh(x: Number) -> Number:
    """The number whose hyperbolic tangent is x; infinite at ±1, NaN beyond."""
    size = abs(x)
    return (log1p(size * 2.0 / (1.0 - size)) * 0.5).with_sign_of(x)
