"""a ** b: 2 to the b log2 |a|, with the sign and the special cases of C99.

The logarithm must be better than the result, since b magnifies its error. For f32 all is done in
f64. For f64 the logarithm is a sum of two f64: log m = 2s + s³ (2/3 + s² P(s²)) with
s = (m - 1) / (m + 1), of which s, s² and the sum are kept in two parts each.
"""

from __future__ import annotations

import math

from monograph.ir.types import f32, f64
from monograph.kernel.mathlib.exponential import exp2_in_parts, power_of_two
from monograph.kernel.mathlib.logarithm import LOG2_E, normal, take_apart
from monograph.kernel.mathlib.number import (
    Condition,
    Number,
    constant,
    fast_two_sum,
    fma,
    horner,
    two_product,
    where,
)

# log2(1 + f) / f for √½ ≤ 1 + f ≤ √2; relative error: 2^-35.8
LOG2_RATIO = (
    float.fromhex("0x1.71547652a1e41p+0"),
    float.fromhex("-0x1.715476565cd31p-1"),
    float.fromhex("0x1.ec709ebbceca8p-2"),
    float.fromhex("-0x1.7154709876ba7p-2"),
    float.fromhex("0x1.277651e47e3e5p-2"),
    float.fromhex("-0x1.ec72b5032b9b7p-3"),
    float.fromhex("0x1.a63f4ab33ba30p-3"),
    float.fromhex("-0x1.71418556a87a4p-3"),
    float.fromhex("0x1.4528c9999c211p-3"),
    float.fromhex("-0x1.252e0551dbf6ep-3"),
    float.fromhex("0x1.2872bf1665886p-3"),
    float.fromhex("-0x1.248f39e227dfbp-3"),
    float.fromhex("0x1.3cf35d9243376p-4"),
)
# (2^r - 1) / r for |r| ≤ 1/2; error relative to 2^r: 2^-34.3
EXP2_RATIO = (
    float.fromhex("0x1.62e42fef7aba6p-1"),
    float.fromhex("0x1.ebfbe07a94620p-3"),
    float.fromhex("0x1.c6b08df76f5b8p-5"),
    float.fromhex("0x1.3b29f119901cfp-7"),
    float.fromhex("0x1.5d871f7f4953bp-10"),
    float.fromhex("0x1.445e58da9d3bdp-13"),
    float.fromhex("0x1.00f3e95603d12p-16"),
)
# ((log((1 + s) / (1 - s)) - 2s) / s³ - 2/3) / s² in s² for |s| ≤ 0.1716; error relative to the
# logarithm: 2^-65.4
ODD = (
    float.fromhex("0x1.9999999999b33p-2"),
    float.fromhex("0x1.24924924577f2p-2"),
    float.fromhex("0x1.c71c722debd6bp-3"),
    float.fromhex("0x1.745ce9b209071p-3"),
    float.fromhex("0x1.3b1ef57d3dcfap-3"),
    float.fromhex("0x1.0f7f021f8fe17p-3"),
    float.fromhex("0x1.0e4b6e90b97d6p-3"),
)
TWO_THIRDS = (float.fromhex("0x1.5555555555555p-1"), float.fromhex("0x1.5555555555555p-55"))
HUGE = 2.0**66
"""Exponents beyond it are no different: even the base next to 1 over- or underflows."""

Parts = tuple[Number, Number]
"""A number as a sum of a float and a far smaller one."""


def power(base: Number, exponent: Number) -> Number:
    """base ** exponent."""
    size = abs(base)
    held = exponent.at_least(-HUGE).at_most(HUGE)
    if base.dtype is f32:
        result = _moderate_f32(size.cast(f64), held.cast(f64)).cast(f32)
    else:
        result = _moderate_f64(size, held)
    return _special_cases(base, exponent, result)


def _moderate_f32(size: Number, exponent: Number) -> Number:
    """size ** exponent for a positive finite size, in f64 and good to 2^-28."""
    whole, m, _ = take_apart(size)
    f = m - 1.0
    logarithm = fma(f, horner(f, LOG2_RATIO), whole)
    scaled = (exponent * logarithm).at_least(-152.0).at_most(129.0)
    shifter = scaled.format.shifter + scaled.format.bias
    shifted = scaled + shifter
    rest = scaled - (shifted - shifter)
    significand = horner(rest, (1.0, *EXP2_RATIO))
    return significand * power_of_two(shifted.unsigned_bits(), f64)


def _moderate_f64(size: Number, exponent: Number) -> Number:
    """size ** exponent for a positive finite size."""
    high, low = _log2_in_parts(size)
    scaled, lost = two_product(exponent, high)
    rest = fma(exponent, low, lost)
    # Where the product is out of range the rest is, too; the result is 0 or inf whatever it is.
    return exp2_in_parts(scaled.at_least(-1100.0).at_most(1100.0), rest.at_least(-0.5).at_most(0.5))


def _times(a: Parts, b: Parts) -> Parts:
    """The product of two sums, in two parts."""
    high, lost = two_product(a[0], b[0])
    return fast_two_sum(high, fma(a[0], b[1], fma(a[1], b[0], lost)))


def _log2_in_parts(x: Number) -> Parts:
    """log2 of a positive finite f64, good to 2^-65."""
    lifted, correction = normal(x)
    whole, m, _ = take_apart(lifted)
    f = m - 1.0
    below, below_low = fast_two_sum(constant(2.0, f64), f)
    quotient = f / below
    remainder = fma(-quotient, below_low, fma(-quotient, below, f))
    s = (quotient, remainder / below)
    square = _times(s, s)
    polynomial = square[0] * horner(square[0], ODD)
    head, lost = fast_two_sum(constant(TWO_THIRDS[0], f64), polynomial)
    cube = _times(_times(s, square), (head, lost + TWO_THIRDS[1]))
    doubled, low = fast_two_sum(s[0] * 2.0, cube[0])
    logarithm = fast_two_sum(doubled, low + fma(s[1], 2.0, cube[1]))
    high_factor, low_factor = (constant(part, f64) for part in LOG2_E[f64])
    fraction = _times(logarithm, (high_factor, low_factor))
    total, rest = fast_two_sum(whole + correction, fraction[0])
    return total, rest + fraction[1]


def _is_whole(x: Number) -> Condition:
    """Whether x is an integer; an infinity is one."""
    return x.floor().equals(x)


def _special_cases(base: Number, exponent: Number, result: Number) -> Number:
    """``result``, |base| ** exponent for finite positive sizes, made right for all others."""
    size = abs(base)
    dtype = base.dtype
    nothing = size.equals(0.0)
    # 0 and inf, to a positive exponent, stay what they are, and change places to a negative one.
    edge = where(exponent > 0.0, size, where(nothing, constant(math.inf, dtype), 0.0))
    result = where(nothing | size.equals(math.inf), edge, result)
    whole = _is_whole(exponent)
    odd = whole & ~_is_whole(exponent * 0.5)
    result = where(odd, result.with_sign_of(base), result)
    undefined = (base < 0.0) & (base > -math.inf) & ~whole
    defined = ~undefined & base.equals(base) & exponent.equals(exponent)
    result = where(defined, result, constant(math.nan, dtype))
    return where(base.equals(1.0) | exponent.equals(0.0), 1.0, result)
