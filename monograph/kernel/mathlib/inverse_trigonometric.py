"""asin, acos, atan and atan2.

An angle is a multiple of π/4 and a rest: atan(a) = π/4 + atan((a - 1) / (a + 1)) for middling a,
π/2 - atan(1 / a) for large a, so that one division and one short polynomial serve all.
"""

from __future__ import annotations

import math

from monograph.ir.types import DType, f32, f64
from monograph.kernel.mathlib.number import Condition, Number, constant, fma, horner, where

# (atan(t) - t) / t³ in t² for |t| ≤ √2 - 1; error relative to atan: 2^-30.5 and 2^-58.8
ARC_TANGENT: dict[DType, tuple[float, ...]] = {
    f32: (
        float.fromhex("-0x1.55554ap-2"),
        float.fromhex("0x1.9991e6p-3"),
        float.fromhex("-0x1.23ba0cp-3"),
        float.fromhex("0x1.b22b38p-4"),
        float.fromhex("-0x1.f30a14p-5"),
    ),
    f64: (
        float.fromhex("-0x1.555555555553dp-2"),
        float.fromhex("0x1.99999999958dap-3"),
        float.fromhex("-0x1.24924922b0b2fp-3"),
        float.fromhex("0x1.c71c70e7763e5p-4"),
        float.fromhex("-0x1.745cf90602291p-4"),
        float.fromhex("0x1.3b111c072eabfp-4"),
        float.fromhex("-0x1.10ebd95a7e4bbp-4"),
        float.fromhex("0x1.df1127bb87f6ap-5"),
        float.fromhex("-0x1.9cdb003587df0p-5"),
        float.fromhex("0x1.37ea41deeddf1p-5"),
        float.fromhex("-0x1.259695b951855p-6"),
    ),
}
# (asin(s) - s) / s³ in s² for |s| ≤ 1/2; error relative to asin: 2^-27.6 and 2^-55.7
ARC_SINE: dict[DType, tuple[float, ...]] = {
    f32: (
        float.fromhex("0x1.5555cap-3"),
        float.fromhex("0x1.330164p-4"),
        float.fromhex("0x1.748b32p-5"),
        float.fromhex("0x1.8ba79ep-6"),
        float.fromhex("0x1.59daa8p-5"),
    ),
    f64: (
        float.fromhex("0x1.5555555555384p-3"),
        float.fromhex("0x1.333333336fdabp-4"),
        float.fromhex("0x1.6db6db419d985p-5"),
        float.fromhex("0x1.f1c72c7f36d7cp-6"),
        float.fromhex("0x1.6e89edc26fd09p-6"),
        float.fromhex("0x1.1c6c42338266ep-6"),
        float.fromhex("0x1.c6f66830eb975p-7"),
        float.fromhex("0x1.8ef29a6bdfff5p-7"),
        float.fromhex("0x1.aa38bee949e35p-8"),
        float.fromhex("0x1.410776abcd354p-6"),
        float.fromhex("-0x1.0b7d617ba206dp-6"),
        float.fromhex("0x1.05fde5e0b5eb9p-5"),
    ),
}
# π in two parts; the halves and quarters have the same digits.
PI: dict[DType, tuple[float, float]] = {
    f32: (float.fromhex("0x1.921fb6p+1"), float.fromhex("-0x1.777a5cp-24")),
    f64: (float.fromhex("0x1.921fb54442d18p+1"), float.fromhex("0x1.1a62633145c07p-53")),
}
LOW_TANGENT = math.sqrt(2.0) - 1.0
"""The tangent of π/8; the one of 3π/8 is one over it."""


def _base(x: Number, part: Number) -> tuple[Number, Number]:
    """``part`` times π, in two parts."""
    high, low = PI[x.dtype]
    return part * high, part * low


def _sum(base: tuple[Number, Number], t: Number) -> Number:
    """The base and atan(t), |t| ≤ √2 - 1."""
    square = t * t
    tail = fma(square * horner(square, ARC_TANGENT[t.dtype]), t, base[1])
    return base[0] + (t + tail)


def atan(x: Number) -> Number:
    """The angle in [-π/2, π/2] whose tangent is x."""
    a = abs(x)
    middle, large = a > LOW_TANGENT, a > 1.0 / LOW_TANGENT
    above = where(large, constant(-1.0, x.dtype), where(middle, a - 1.0, a))
    below = where(large, a, where(middle, a + 1.0, 1.0))
    part = where(large, constant(0.5, x.dtype), where(middle, constant(0.25, x.dtype), 0.0))
    return _sum(_base(x, part), above / below).with_sign_of(x)


def atan2(y: Number, x: Number) -> Number:
    """The angle of the point (x, y), in [-π, π]; an f32 is computed in f64."""
    if x.dtype is f32:
        return _atan2(y.cast(f64), x.cast(f64)).cast(f32)
    return _atan2(y, x)


def _atan2(y: Number, x: Number) -> Number:
    a, b = _moderate(abs(y), abs(x))
    middle, large = a > b * LOW_TANGENT, a * LOW_TANGENT > b
    above = where(large, -b, where(middle, a - b, a))
    below = where(large, a, where(middle, a + b, b))
    part = where(large, constant(0.5, x.dtype), where(middle, constant(0.25, x.dtype), 0.0))
    left = x.bits() < 0
    quotient = above / where(below.equals(0.0), 1.0, below)
    part = where(left, 1.0 - part, part)
    return _sum(_base(x, part), where(left, -quotient, quotient)).with_sign_of(y)


def _moderate(a: Number, b: Number) -> tuple[Number, Number]:
    """Two sizes in the same ratio that neither over- nor underflow when added or compared.

    Two infinities become two ones.
    """
    both_infinite = a.equals(math.inf) & b.equals(math.inf)
    a, b = where(both_infinite, 1.0, a), where(both_infinite, 1.0, b)
    largest = where(a > b, a, b)
    big, small = largest > 2.0**1000, largest < 2.0**-900
    factor = where(
        big, constant(2.0**-100, a.dtype), where(small, constant(2.0**100, a.dtype), 1.0)
    )
    return a * factor, b * factor


def _halve_argument(x: Number) -> tuple[Condition, Number, Number]:
    """Whether |x| < 1/2; s = |x| there and √((1 - |x|) / 2) elsewhere; and asin(s) - s."""
    a = abs(x)
    near = a < 0.5
    square = where(near, a * a, fma(a, -0.5, 0.5))
    root = where(near, a, square.sqrt())
    return near, root, square * root * horner(square, ARC_SINE[x.dtype])


def asin(x: Number) -> Number:
    """The angle in [-π/2, π/2] whose sine is x."""
    near, root, tail = _halve_argument(x)
    high, low = PI[x.dtype]
    far = (0.5 * high - root * 2.0) - (tail * 2.0 - 0.5 * low)
    return where(near, root + tail, far).with_sign_of(x)


def acos(x: Number) -> Number:
    """The angle in [0, π] whose cosine is x."""
    near, root, tail = _halve_argument(x)
    high, low = PI[x.dtype]
    angle = root + tail
    middle = 0.5 * high - (angle.with_sign_of(x) - 0.5 * low)
    far = where(x < 0.0, high - (angle * 2.0 - low), angle * 2.0)
    return where(near, middle, far)
