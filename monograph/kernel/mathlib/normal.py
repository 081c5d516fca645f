"""The normal distribution's functions: erfcx, log_ndtr and ndtri, in f64 also for f32."""

from __future__ import annotations

import math

from monograph.ir.types import f64
from monograph.kernel.mathlib.exponential import HEADROOM, exp, exp_scaled
from monograph.kernel.mathlib.logarithm import log, log1p
from monograph.kernel.mathlib.number import (
    Number,
    compute_in_f64,
    constant,
    fma,
    horner,
    two_product,
    where,
)

CENTER = 4.0
# erfcx(x) (x + 4) in (x - 4) / (x + 4) for 0 ≤ x < ∞; relative error: 2^-53.9
HALF_LINE = (
    float.fromhex("0x1.18932bf08e154p+0"),
    float.fromhex("-0x1.f3fe31ecb49bfp-1"),
    float.fromhex("0x1.8be202d26c703p-1"),
    float.fromhex("-0x1.14eacb1ad0349p-1"),
    float.fromhex("0x1.52cac23710288p-2"),
    float.fromhex("-0x1.645fd8a4bb8abp-3"),
    float.fromhex("0x1.38dbd2c8dc877p-4"),
    float.fromhex("-0x1.b00c052c845ecp-6"),
    float.fromhex("0x1.908f47270f027p-8"),
    float.fromhex("-0x1.269b515664b19p-12"),
    float.fromhex("-0x1.dd284580c9324p-12"),
    float.fromhex("0x1.72cd9d5b95605p-13"),
    float.fromhex("-0x1.e7eb6da63fb9dp-19"),
    float.fromhex("-0x1.3c6d73a8fd4a9p-16"),
    float.fromhex("0x1.3b129d96cb9d9p-18"),
    float.fromhex("0x1.7e11b5cc82b50p-20"),
    float.fromhex("-0x1.c71cdd716d5f5p-21"),
    float.fromhex("-0x1.3e210b094b121p-24"),
    float.fromhex("0x1.1040307244154p-23"),
    float.fromhex("-0x1.4abf63549194ep-31"),
    float.fromhex("-0x1.36d2a19f9d99dp-26"),
    float.fromhex("0x1.f4466e288219ap-31"),
    float.fromhex("0x1.396ea6206236fp-29"),
    float.fromhex("-0x1.4bd37b4acd41ep-33"),
    float.fromhex("-0x1.894f72bf683e4p-33"),
    float.fromhex("0x1.a2a99aabdafaep-37"),
)
# The quantiles of the normal distribution: M. J. Wichura, "Algorithm AS 241", Applied Statistics
# 37 (1988), as fractions of polynomials for the middle, the tails, and the far tails.
QUANTILE_MIDDLE = (
    (
        *(3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3),
        *(1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4),
        *(3.3430575583588128105e4, 2.5090809287301226727e3),
    ),
    (
        *(1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3),
        *(2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4),
        5.2264952788528545610e3,
    ),
)
QUANTILE_TAIL = (
    (
        *(1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0),
        *(3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1),
        *(2.27238449892691845833e-2, 7.74545014278341407640e-4),
    ),
    (
        *(1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1),
        *(1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4),
        1.05075007164441684324e-9,
    ),
)
QUANTILE_FAR_TAIL = (
    (
        *(6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0),
        *(2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3),
        *(2.71155556874348757815e-5, 2.01033439929228813265e-7),
    ),
    (
        *(1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2),
        *(7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7),
        2.04426310338993978564e-15,
    ),
)
ROOT_HALF = math.sqrt(0.5)
FAR = 38.875
"""The part of the distribution beyond it underflows."""


def _erfcx(x: Number) -> Number:
    """erfcx of an f64 that is not negative; 0 at infinity."""
    inverse = 1.0 / (x + CENTER)
    return horner(fma(inverse, -2.0 * CENTER, 1.0), HALF_LINE) * inverse


@compute_in_f64
def erfcx(x: Number) -> Number:
    """exp(x²) erfc(x), which neither overflows nor underflows to the right."""
    tail = _erfcx(abs(x))
    square, lost = two_product(x.at_least(-30.0), x.at_least(-30.0))
    growth = exp(square) * (lost + 1.0)
    return where(x < 0.0, growth * 2.0 - tail, tail)


@compute_in_f64
def log_ndtr(x: Number) -> Number:
    """The logarithm of the part of the normal distribution below x."""
    size = abs(x)
    tail = _erfcx(size * ROOT_HALF) * 0.5
    held = size.at_most(FAR)
    square, lost = two_product(held, held)
    beyond = exp_scaled(square * -0.5, lost * -0.5) * tail * 2.0**-HEADROOM
    return where(x < 0.0, log(tail) - x * x * 0.5, log1p(-beyond))


@compute_in_f64
def ndtri(x: Number) -> Number:
    """The point below which a part x of the normal distribution lies."""
    offset = x - 0.5
    middle = offset * _fraction(QUANTILE_MIDDLE, fma(offset, -offset, 0.180625))
    side = where(x < 0.5, x, 1.0 - x)
    root = (-log(side)).sqrt()
    tail = _fraction(QUANTILE_TAIL, root - 1.6)
    far_tail = _fraction(QUANTILE_FAR_TAIL, root - 5.0)
    outer = where(root < 5.0, tail, far_tail).with_sign_of(offset)
    result = where(abs(offset) < 0.425, middle, outer)
    at_end = side.equals(0.0)
    return where(at_end, constant(math.inf, f64).with_sign_of(offset), result)


def _fraction(polynomials: tuple[tuple[float, ...], tuple[float, ...]], x: Number) -> Number:
    above, below = polynomials
    return horner(x, above) / horner(x, below)
