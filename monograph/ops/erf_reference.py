"""erf and erfc in NumPy, to a few units in the last place of float64.

Near zero erf is its Taylor series. Elsewhere erfc(x) = exp(-x²) h(t) / (1 + 2x), where h is smooth
and close to 1 on the whole half line once that is mapped to t = (x - 4) / (x + 4) in [-1, 1): one
Chebyshev series serves 0 ≤ x < ∞ and keeps its relative accuracy far out in the tail.
"""

from __future__ import annotations

from math import factorial, pi, sqrt

import numpy as np

from monograph.ir.types import Array

SQRT_HALF = 0.7071067811865476

# 2/√π (-1)ⁿ / (n! (2n+1)): erf(x) = x Σ cₙ x²ⁿ. Twenty terms are exact to rounding for |x| ≤ 1.
_TAYLOR = [2 / sqrt(pi) * (-1) ** n / (factorial(n) * (2 * n + 1)) for n in range(20)]

# Chebyshev coefficients of h, from its values at 100 nodes in 60 digits; the next is 8e-18.
_TAIL = [
    1.1774832005374487,
    -0.007260796620301901,
    -0.081265123236185,
    0.06009212804122225,
    -0.02875393558027666,
    0.01059566336347286,
    -0.003136927294554264,
    0.0007456494372536184,
    -0.0001369696503010054,
    1.7183861600300937e-05,
    -7.158364623450346e-07,
    -2.4261399442449534e-07,
    5.5765709395703566e-08,
    -2.1057869513809494e-09,
    -1.1717889351884957e-09,
    1.9098355172456688e-10,
    1.408871764208813e-11,
    -6.901108320480815e-12,
    9.167958364111294e-14,
    2.1454508286554553e-13,
    -1.4716575027010623e-14,
    -6.668675118770408e-15,
    7.504598509880083e-16,
    2.22009300666632e-16,
    -3.1704898956330886e-17,
]


def erf(x: Array) -> Array:
    """The error function of float64 numbers; odd, NaN for NaN."""
    magnitude = np.abs(x)
    outer = np.copysign(1.0 - _tail(magnitude), x)
    return np.where(magnitude <= 1.0, _series(np.where(magnitude <= 1.0, x, 0.0)), outer)


def erfc(x: Array) -> Array:
    """1 - erf(x) without cancellation: relatively accurate until it underflows, near x = 27."""
    magnitude = np.abs(x)
    tail = _tail(magnitude)
    outer = np.where(x < 0, 2.0 - tail, tail)
    return np.where(magnitude <= 0.5, 1.0 - _series(np.where(magnitude <= 0.5, x, 0.0)), outer)


def normal(x: Array) -> Array:
    """erfc(-x/√2) / 2, the part of the normal distribution below x.

    To the left the exponent is -x²/2 itself: that of x/√2 would be magnified by its rounding.
    """
    magnitude = np.minimum(np.abs(x), 40.0)
    coarse, fine = _gaussian(magnitude, 0.5)
    left = 0.5 * (coarse * _erfcx(magnitude * SQRT_HALF, fine))
    return np.where(x < -1.0, left, 0.5 * erfc(-SQRT_HALF * x))


def erfcx(x: Array) -> Array:
    """exp(x²) erfc(x), which neither overflows nor underflows to the right."""
    magnitude = np.abs(x)
    near = np.where(np.isinf(magnitude), 0.0, magnitude)
    scaled = np.where(np.isinf(magnitude), 0.0, _erfcx(near))
    return np.where(x < 0, 2.0 * np.exp(x * x) - scaled, scaled)


def _series(x: Array) -> Array:
    return np.asarray(x * np.polynomial.polynomial.polyval(x * x, _TAYLOR))


def _tail(x: Array) -> Array:
    """erfc of numbers that are not negative."""
    # Beyond 30 the result is 0; an infinity would make the products below NaN.
    near = np.minimum(x, 30.0)
    coarse, fine = _gaussian(near, 1.0)
    return np.asarray(coarse * _erfcx(near, fine))


def _erfcx(x: Array, factor: Array | float = 1.0) -> Array:
    """exp(x²) erfc(x) of finite numbers that are not negative, times a factor."""
    smooth = np.polynomial.chebyshev.chebval((x - 4.0) / (x + 4.0), _TAIL)
    return np.asarray(factor * smooth / (1.0 + 2.0 * x))


def _gaussian(x: Array, factor: float) -> tuple[Array, Array]:
    """Two numbers whose product is exp(-factor x²), where ``factor`` is a power of two.

    exp(-x²) = exp(-head²) exp(-(x - head)(x + head)): head² is exact, the rest is small, so the
    rounding of x² is not magnified.
    """
    head = np.floor(x * 16.0) / 16.0
    return np.exp(-factor * head * head), np.exp(-factor * (x - head) * (x + head))
