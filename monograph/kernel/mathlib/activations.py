"""Sigmoid and the activations around it, each in one exponential.

With a = |x|, x Φ(x) = max(x, 0) - a Φ(-a) for every distribution Φ that is symmetric around 0, the
normal one (gelu) and the logistic one (silu, gelu by tanh) among them. The product a Φ(-a) has no
cancellation, so the negative tail keeps its relative accuracy, and it is computed 2^96 times too
large, so that a subnormal result is rounded once. That is for what is far out; for numbers of
ordinary size the sigmoid is 1 / (1 + e^-x) as it stands.
"""

from __future__ import annotations

from monograph.ir.types import DType, f32, f64
from monograph.kernel.mathlib.exponential import (
    HEADROOM,
    LOG2_E,
    TABLES,
    exp_of_negative,
    exp_scaled,
    is_ordinary,
    ordinary_exp,
    with_exponent_raised,
)
from monograph.kernel.mathlib.logarithm import log1p_of_unit
from monograph.kernel.mathlib.number import Number, fma, horner, rarely, two_product, where

UNSCALE = 2.0**-HEADROOM

GELU_NEAR = 1.0
# (Φ(x) - 1/2) / x in x² for |x| ≤ 1, for f64; error relative to Φ(-|x|): 2^-52.2
GELU_INNER: dict[DType, tuple[float, ...]] = {
    f64: (
        float.fromhex("0x1.9884533d43651p-2"),
        float.fromhex("-0x1.1058377e2ced7p-4"),
        float.fromhex("0x1.46d0429768b19p-7"),
        float.fromhex("-0x1.37403f6b7b148p-10"),
        float.fromhex("0x1.e42b0d431039ep-14"),
        float.fromhex("-0x1.3ce8f8ebebb77p-17"),
        float.fromhex("0x1.6589d7473121bp-21"),
        float.fromhex("-0x1.621aab9edc847p-25"),
        float.fromhex("0x1.37f09da17c62bp-29"),
        float.fromhex("-0x1.e52793b34249ap-34"),
        float.fromhex("0x1.1a48e62b1e0b8p-38"),
    ),
}
GELU_CENTER: dict[DType, float] = {f32: 3.5, f64: 5.0}
# Φ(-a) e^(a²/2) (a + c) in (a - c) / (a + c) for 0 ≤ a ≤ 14.5 (f32) and 1 ≤ a ≤ 40 (f64);
# relative error: 2^-27.0 and 2^-55.9
GELU: dict[DType, tuple[float, ...]] = {
    f32: (
        float.fromhex("0x1.7d241ap-1"),
        float.fromhex("-0x1.219150p-1"),
        float.fromhex("0x1.42fec8p-2"),
        float.fromhex("-0x1.db5a6ep-4"),
        float.fromhex("0x1.1d2fa4p-6"),
        float.fromhex("0x1.a98868p-8"),
        float.fromhex("-0x1.a031b8p-9"),
        float.fromhex("-0x1.037e1ep-11"),
        float.fromhex("0x1.ba6402p-12"),
        float.fromhex("0x1.d042c8p-14"),
    ),
    f64: (
        float.fromhex("0x1.89d3abe1f95aep-1"),
        float.fromhex("-0x1.54ad03f27ca16p-1"),
        float.fromhex("0x1.fb31653876f9ep-2"),
        float.fromhex("-0x1.410ed5f875b71p-2"),
        float.fromhex("0x1.51f6329f0137dp-3"),
        float.fromhex("-0x1.1b1c254c928ecp-4"),
        float.fromhex("0x1.54b4d4f4e125ep-6"),
        float.fromhex("-0x1.88590eb88e9bfp-9"),
        float.fromhex("-0x1.a25037fa091d2p-11"),
        float.fromhex("0x1.1daf1ef3321fbp-11"),
        float.fromhex("-0x1.f214558205c0bp-15"),
        float.fromhex("-0x1.a1714efe5519cp-15"),
        float.fromhex("0x1.17dcb33c60a4fp-16"),
        float.fromhex("0x1.0b3286b281c2dp-18"),
        float.fromhex("-0x1.73a2bc82678b6p-19"),
        float.fromhex("-0x1.6ab856b38921cp-22"),
        float.fromhex("0x1.d059685716738p-22"),
        float.fromhex("0x1.76bb11952bf0ap-25"),
        float.fromhex("-0x1.17bdc214369c0p-24"),
        float.fromhex("-0x1.5d6288acdd0bdp-27"),
        float.fromhex("0x1.e904c60df32d7p-28"),
        float.fromhex("0x1.10dcb19d4a65ep-29"),
    ),
}
GELU_LOWEST = -6.0
"""From here on the short formula for f32 holds: there e^(-a²/2) is far from the subnormals."""
GELU_SHORT_CENTER = 3.4375
# The same for 0 ≤ a ≤ 6, for f32; relative error: 2^-26.0
GELU_SHORT: tuple[float, ...] = (
    float.fromhex("0x1.7c4e3ap-1"),
    float.fromhex("-0x1.1e6840p-1"),
    float.fromhex("0x1.38d754p-2"),
    float.fromhex("-0x1.b71866p-4"),
    float.fromhex("0x1.a88a5cp-7"),
    float.fromhex("0x1.de3000p-8"),
    float.fromhex("-0x1.768eb4p-9"),
    float.fromhex("-0x1.172abap-10"),
)
# Beyond these sizes a Φ(-a) is less than half of the smallest number.
SILU_FAR: dict[DType, float] = {f32: 110.0, f64: 753.0}
GELU_FAR: dict[DType, float] = {f32: 14.5, f64: 38.875}
GELU_TANH_FAR: dict[DType, float] = {f32: 11.0, f64: 21.75}

# 2 √(2/π) in two parts, the first so short that taking it from a sum is exact, and 2 √(2/π)
# 0.044715 in two parts.
GELU_TANH_LINEAR: dict[DType, tuple[float, float]] = {
    f32: (float.fromhex("0x1.9888p+0"), float.fromhex("-0x1.d6615ep-15")),
    f64: (float.fromhex("0x1.9884534p+0"), float.fromhex("-0x1.5e4d7b9781a62p-31")),
}
GELU_TANH_CUBIC: dict[DType, tuple[float, float]] = {
    f32: (float.fromhex("0x1.2444f2p-4"), float.fromhex("0x1.49b16ap-29")),
    f64: (float.fromhex("0x1.2444f2a4d8b4bp-4"), float.fromhex("-0x1.3023b0e5fbc6ep-58")),
}


# The exponent of GELU by tanh in powers of two: -2 √(2/π) log2(e) (x + 0.044715 x³).
GELU_TANH_POWER = -2.302208198144325
GELU_TANH_POWER_CUBIC = -0.10294323958002349
GELU_TANH_ORDINARY = (-6.0, 9.75)
"""From the first on the short formula is accurate; from the second on the result is x."""


def sigmoid(x: Number) -> Number:
    """1 / (1 + e^-x)."""
    decay = exp_of_negative(-abs(x))
    any_size = where(x < 0.0, decay, 1.0) / (decay + 1.0)
    return rarely(~is_ordinary(x), any_size, 1.0 / (ordinary_exp(x, -1.0) + 1.0))


def silu(x: Number) -> Number:
    """x sigmoid(x)."""
    size = abs(x).at_most(SILU_FAR[x.dtype])
    any_size = _less_tail(x, _logistic_tail(size, exp_scaled(-size)))
    return rarely(~is_ordinary(x), any_size, x / (ordinary_exp(x, -1.0) + 1.0))


def gelu_tanh(x: Number) -> Number:
    """x sigmoid(2 √(2/π) (x + 0.044715 x³))."""
    if x.dtype is f64:
        return _accurate_gelu_tanh(x)
    lowest, highest = GELU_TANH_ORDINARY
    held = x.at_most(highest)
    square = held * held
    slope = fma(square, GELU_TANH_POWER_CUBIC, GELU_TANH_POWER)
    lost = fma(square, GELU_TANH_POWER_CUBIC, GELU_TANH_POWER - slope)
    shifted = fma(held, slope, x.format.shifter)
    rest = fma(held, lost, fma(held, slope, x.format.shifter - shifted))
    growth = with_exponent_raised(
        horner(rest, (1.0, *TABLES[x.dtype].binary)), shifted.unsigned_bits()
    )
    return rarely(~(x > lowest), _accurate_gelu_tanh(x), x / (growth + 1.0))


def _accurate_gelu_tanh(x: Number) -> Number:
    """The same with the exponent to twice the precision, which the negative tail needs."""
    size = abs(x).at_most(GELU_TANH_FAR[x.dtype])
    linear, linear_low = GELU_TANH_LINEAR[x.dtype]
    cubic, cubic_low = GELU_TANH_CUBIC[x.dtype]
    square, square_low = two_product(size, size)
    slope = fma(square, cubic, linear)
    slope_low = fma(square, cubic, linear - slope)
    slope_low = slope_low + fma(square, cubic_low, fma(square_low, cubic, linear_low))
    depth, depth_low = two_product(size, slope)
    decay = exp_scaled(-depth, -fma(size, slope_low, depth_low))
    return _less_tail(x, _logistic_tail(size, decay))


def gelu_erf(x: Number) -> Number:
    """x Φ(x), where Φ is the normal distribution."""
    if x.dtype is f32:
        return rarely(~(x > GELU_LOWEST), _gelu_erf_far(x), _short_gelu_erf(x))
    near = x * fma(x, horner(x * x, GELU_INNER[x.dtype]), 0.5)
    return where(abs(x) < GELU_NEAR, near, _gelu_erf_far(x))


def _gelu_erf_far(x: Number) -> Number:
    """The same, however far out x is."""
    size = abs(x).at_most(GELU_FAR[x.dtype])
    square, lost = two_product(size, size)
    decay = exp_scaled(square * -0.5, lost * -0.5)
    quotient = size / (size + GELU_CENTER[x.dtype])
    ratio = horner(fma(quotient, 2.0, -1.0), GELU[x.dtype]) * quotient
    return _less_tail(x, decay * ratio * UNSCALE)


def _short_gelu_erf(x: Number) -> Number:
    """The same from -6 on; what is larger than 6 has no tail to speak of.

    The exponent is carried twice as large, which spares two products: the polynomial halves it.
    """
    tables = TABLES[x.dtype]
    size = abs(x).at_most(-GELU_LOWEST)
    square, lost = two_product(size, size)
    shifted = fma(square, -0.5 * LOG2_E, x.format.shifter)
    whole = shifted - x.format.shifter
    twice = fma(whole, -2.0 * tables.ln2_high, -square)
    twice = fma(whole, -2.0 * tables.ln2_low, twice) - lost
    halved = [coefficient * 0.5**k for k, coefficient in enumerate((1.0, 1.0, *tables.natural))]
    decay = with_exponent_raised(horner(twice, halved), shifted.unsigned_bits())
    quotient = size / (size + GELU_SHORT_CENTER)
    ratio = horner(fma(quotient, 2.0, -1.0), GELU_SHORT) * quotient
    return fma(-decay, ratio, x.at_least(-0.0))


def _logistic_tail(size: Number, scaled_decay: Number) -> Number:
    """a d / (1 + d), from 2^96 d."""
    return size * scaled_decay * UNSCALE / fma(scaled_decay, UNSCALE, 1.0)


def _less_tail(x: Number, tail: Number) -> Number:
    """max(x, 0) - tail; where both are zero, the zero that the product x Φ(x) would be."""
    return x.at_least(-0.0) - tail


def softplus(x: Number) -> Number:
    """log(1 + e^x)."""
    return x.at_least(0.0) + log1p_of_unit(exp_of_negative(-abs(x)))


def log_sigmoid(x: Number) -> Number:
    """log(sigmoid(x))."""
    return x.at_most(0.0) - log1p_of_unit(exp_of_negative(-abs(x)))
