"""lgamma and digamma, in f64 also for f32.

Far from 0 both are Stirling's series; small arguments are moved there, by eight or ten steps, in
one quotient. Around 1 and 2, where lgamma is 0, a polynomial keeps its relative accuracy. Negative
arguments are reflected.
"""

from __future__ import annotations

import math

from monograph.ir.types import f64
from monograph.kernel.mathlib.logarithm import log
from monograph.kernel.mathlib.number import Number, compute_in_f64, constant, horner, where
from monograph.kernel.mathlib.trigonometric import sine_and_cosine

# log Γ(2 + z) / z for |z| ≤ 1/2; relative error: 2^-55.2
NEAR_TWO = (
    float.fromhex("0x1.b0ee6072093cep-2"),
    float.fromhex("0x1.4a34cc4a60fa6p-2"),
    float.fromhex("-0x1.13e001a55760ap-4"),
    float.fromhex("0x1.51322ac7d848ap-6"),
    float.fromhex("-0x1.e404fc218dbaep-8"),
    float.fromhex("0x1.7add6eadb5317p-9"),
    float.fromhex("-0x1.38ac5c2d48207p-10"),
    float.fromhex("0x1.0b36af8779ca0p-11"),
    float.fromhex("-0x1.d3fd4b679c1c4p-13"),
    float.fromhex("0x1.a127afee53e7dp-14"),
    float.fromhex("-0x1.78de9ab752b81p-15"),
    float.fromhex("0x1.580e0afa55850p-16"),
    float.fromhex("-0x1.3cb3be36ad88bp-17"),
    float.fromhex("0x1.258f3057730fap-18"),
    float.fromhex("-0x1.1276ebd557fb0p-19"),
    float.fromhex("0x1.012012be3900ap-20"),
    float.fromhex("-0x1.ce17528bcf460p-22"),
    float.fromhex("0x1.b40adb09a1e12p-23"),
    float.fromhex("-0x1.2009c1a550d0dp-23"),
    float.fromhex("0x1.11fa5e7c86f7bp-24"),
)
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)
STIRLING = tuple(b / ((2 * k + 2) * (2 * k + 1)) for k, b in enumerate(BERNOULLI))
STIRLING_SLOPE = tuple(b / (2 * k + 2) for k, b in enumerate(BERNOULLI))
SERIES_CONVERGES = 10.0


def _reflect(x: Number) -> Number:
    """x itself if it is positive, 1 - x if it is not; both have the same sine of πx."""
    return where(x > 0.0, x, 1.0 - x)


def _sine_and_cosine_of_turns(x: Number) -> tuple[Number, Number]:
    """|sin πx| and |cos πx|."""
    fraction = abs(x - x.rounded())
    beyond = fraction > 0.25
    sine, cosine = sine_and_cosine(where(beyond, 0.5 - fraction, fraction) * math.pi, None, f64)
    return where(beyond, cosine, sine), where(beyond, sine, cosine)


def _lgamma_of_small(x: Number) -> Number:
    """log Γ(x) for 0 < x < 2.5, by the polynomial around 2 and log Γ(x) = log Γ(x + 1) - log x."""
    tiny, low = x < 0.5, x < 1.5
    moved = where(tiny, x, where(low, x - 1.0, x - 2.0))
    divided = where(tiny, (x + 1.0) * x, where(low, x, 1.0))
    return moved * horner(moved, NEAR_TWO) - log(divided)


def _lgamma_of_large(x: Number) -> Number:
    """log Γ(x) for x of at least 2.5."""
    near = x < SERIES_CONVERGES
    far = where(near, x + 8.0, x)
    product = x
    for step in range(1, 8):
        product = product * (x + float(step))
    inverse = 1.0 / far
    series = inverse * horner(inverse * inverse, STIRLING)
    main = (far - 0.5) * log(far) - far
    moved = where(near, log(product), 0.0)
    return main + ((series + 0.5 * math.log(2 * math.pi)) - moved)


@compute_in_f64
def lgamma(x: Number) -> Number:
    """log |Γ(x)|; infinite at 0, -1, -2…"""
    positive = _reflect(x)
    value = where(positive < 2.5, _lgamma_of_small(positive), _lgamma_of_large(positive))
    sine, _ = _sine_and_cosine_of_turns(x)
    reflected = (math.log(math.pi) - log(sine)) - value
    at_pole = sine.equals(0.0) | abs(x).equals(math.inf)
    result = where(at_pole, constant(math.inf, f64), reflected)
    return where((x > 0.0) & (x < math.inf), value, result)


@compute_in_f64
def digamma(x: Number) -> Number:
    """The derivative of log Γ: infinite at the zeros, against their sign, and NaN at -1, -2…"""
    positive = _reflect(x)
    near = positive < SERIES_CONVERGES
    far = where(near, positive + 10.0, positive)
    above, below = constant(1.0, f64), positive
    for step in range(1, 10):
        factor = positive + float(step)
        above, below = above * factor + below, below * factor
    inverse = 1.0 / far
    square = inverse * inverse
    value = (log(far) - 0.5 * inverse) - square * horner(square, STIRLING_SLOPE)
    value = value - where(near, above / below, 0.0)
    sine, cosine = _sine_and_cosine_of_turns(x)
    # The cotangent of πx has the sign of x less the nearest whole number.
    cotangent = (cosine / sine).with_sign_of(x - x.rounded())
    at_pole = sine.equals(0.0)
    reflected = where(at_pole, constant(math.nan, f64), value - cotangent * math.pi)
    result = where(x > 0.0, value, reflected)
    result = where(x.equals(0.0), constant(math.inf, f64).with_sign_of(-x), result)
    return where(x.equals(-math.inf), constant(math.nan, f64), result)
