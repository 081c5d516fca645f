"""The gamma function's relatives in NumPy: lgamma, digamma, Hurwitz' zeta, incomplete gamma.

All are for float64 arrays and accurate to about 1e-13, relatively except near a zero. Arguments are
moved to where an asymptotic series with Bernoulli's numbers has converged; around 1 and 2, where
lgamma is zero, a power series keeps its relative accuracy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from monograph.ir.types import Array

EULER = 0.5772156649015329

# B₂, B₄, … B₂₄.
BERNOULLI = [
    *(1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510),
    *(43867 / 798, -174611 / 330, 854513 / 138, -236364091 / 2730),
]


def _shift_above_ten(x: Array, filler: float) -> tuple[list[Array], Array]:
    """x, x + 1… for as long as they are below 10 (``filler`` from there on), and what follows."""
    factors = []
    while np.any(x < 10.0):
        low = x < 10.0
        factors.append(np.where(low, x, filler))
        x = np.where(low, x + 1.0, x)
    return factors, x


def _stirling(x: Array) -> Array:
    """log Γ(x) - (x - ½) log x + x - ½ log 2π, for x of at least 10."""
    inverse = 1.0 / x
    terms = [b / ((2 * k + 2) * (2 * k + 1)) for k, b in enumerate(BERNOULLI[:9])]
    return np.asarray(inverse * np.polynomial.polynomial.polyval(inverse * inverse, terms))


def _positive_lgamma(x: Array) -> Array:
    """log Γ(x) for x > 0."""
    factors, far = _shift_above_ten(np.maximum(x, 2.0), 1.0)
    large = (far - 0.5) * np.log(far) - far + 0.5 * math.log(2 * math.pi) + _stirling(far)
    for factor in factors:
        large = large - np.log(factor)
    # log Γ(2 + z) = (1 - γ) z + Σ (-1)ᵏ (ζ(k) - 1) zᵏ / k converges like (z / 2)ᵏ.
    steps = np.where(x < 0.5, x + 1.0, x)
    z = np.where(steps < 1.5, steps - 1.0, np.minimum(steps, 3.0) - 2.0)
    near = np.polynomial.polynomial.polyval(z, _NEAR_TWO)
    near = near - np.where(steps < 1.5, np.log1p(z), 0.0) - np.where(x < 0.5, np.log(x), 0.0)
    return np.where(x < 2.5, near, large)


def lgamma(x: Array) -> Array:
    """log |Γ(x)|; infinite at 0, -1, -2…"""
    positive = _positive_lgamma(np.where(x > 0, x, 1.0 - np.where(np.isfinite(x), x, 0.0)))
    sine = np.abs(np.sin(np.pi * (x - np.round(x))))
    reflected = math.log(math.pi) - np.log(sine) - positive
    result = np.where(x > 0, positive, np.where(sine == 0, np.inf, reflected))
    return np.where(np.isnan(x), np.nan, np.where(np.isinf(x), np.inf, result))


def digamma(x: Array) -> Array:
    """The derivative of log Γ: infinite at the zeros, against their sign, and NaN at -1, -2…"""
    held = np.where(x > 0, x, 1.0 - np.where(np.isfinite(x), x, 0.0))
    factors, far = _shift_above_ten(held, np.inf)
    inverse = 1.0 / far
    terms = [b / (2 * k + 2) for k, b in enumerate(BERNOULLI[:9])]
    square = inverse * inverse
    result = np.log(far) - 0.5 * inverse
    result = result - square * np.polynomial.polynomial.polyval(square, terms)
    for factor in factors:
        result = result - 1.0 / factor
    fraction = x - np.round(x)
    reflected = result - np.pi / np.tan(np.pi * fraction)
    result = np.where(x > 0, result, np.where(fraction == 0, np.nan, reflected))
    result = np.where(x == 0, np.copysign(np.inf, -x), result)
    return np.where(np.isinf(x), np.where(x > 0, np.inf, np.nan), result)


def zeta(x: Array, q: Array) -> Array:
    """Σ (q + k)⁻ˣ for k = 0, 1, 2…: infinite at x = 1 and at q = 0, -1, -2…; NaN below x = 1.

    A negative q needs a whole x: the sum over negative terms is then that of their magnitudes.
    """
    x, q = np.broadcast_arrays(x, q)
    power = np.where(x > 1, x, 2.0)
    size = np.where(q > 0, 0.0, -q)
    whole = np.floor(size)
    part = np.where(size == whole, 0.5, size - whole)
    below = _positive_zeta(power, part) - _positive_zeta(power, size + 1.0)
    mirrored = np.where(np.remainder(power, 2) == 0, below, -below)
    mirrored = mirrored + _positive_zeta(power, 1.0 - part)
    result = np.where(q > 0, _positive_zeta(power, np.where(q > 0, q, 1.0)), mirrored)
    result = np.where((q <= 0) & (power != np.floor(power)), np.nan, result)
    result = np.where((q <= 0) & (q == np.floor(q)), np.inf, result)
    result = np.where(x == 1, np.inf, np.where(x < 1, np.nan, result))
    return np.where(np.isnan(x) | np.isnan(q), np.nan, result)


def _positive_zeta(x: Array, q: Array) -> Array:
    """Euler and Maclaurin's sum, for x > 1 and q > 0."""
    total: Any = np.zeros_like(q)
    for step in range(10):
        total = total + (q + step) ** -x
    far = q + 10.0
    last = far**-x
    tail = last * far / (x - 1.0) + 0.5 * last
    factor, inverse = x * last / far, 1.0 / (far * far)
    correction: Any = np.zeros_like(q)
    for k, bernoulli in enumerate(BERNOULLI):
        order = 2 * k + 2
        correction = correction + factor * (bernoulli / math.factorial(order))
        factor = factor * (x + order - 1) * (x + order) * inverse
    # For a large x the corrections run away, but nothing of the tail is left by then.
    return np.asarray(total + np.where(last > 1e-18 * total, tail + correction, 0.0))


def polygamma(order: int, x: Array) -> Array:
    """The derivative of digamma of this order."""
    if order == 0:
        return digamma(x)
    sign = 1.0 if order % 2 else -1.0
    try:
        factor = float(math.factorial(order))
    except OverflowError:
        factor = math.inf
    result = sign * factor * zeta(np.asarray(order + 1.0), x)
    return np.where(x == -np.inf, np.nan, result)


def igamma(a: Array, x: Array) -> Array:
    """The regularised lower incomplete gamma function P(a, x)."""
    return _incomplete(a, x, upper=False)


def igammac(a: Array, x: Array) -> Array:
    """The regularised upper incomplete gamma function Q(a, x) = 1 - P(a, x)."""
    return _incomplete(a, x, upper=True)


def _incomplete(a: Array, x: Array, *, upper: bool) -> Array:
    a, x = np.broadcast_arrays(a, x)
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    shape, point = np.where(inside, a, 1.0), np.where(inside, x, 1.0)
    large = shape >= 100.0
    small_shape = np.where(large, 1.0, shape)
    small_point = np.where(large, 1.0, point)
    in_series = small_point < small_shape + 1.0
    series = _lower_series(small_shape, np.where(in_series, small_point, small_shape))
    fraction = _upper_fraction(small_shape, np.where(in_series, small_shape + 2.0, small_point))
    by_parts = np.where(in_series, 1.0 - series if upper else series, 0.0)
    by_parts = np.where(in_series, by_parts, fraction if upper else 1.0 - fraction)
    if upper:
        tiny = small_point <= 1.1
        start = _upper_series(small_shape, np.where(tiny, small_point, 0.5))
        by_parts = np.where(tiny & in_series, start, by_parts)
    quadrature = _by_quadrature(np.where(large, shape, 100.0), np.where(large, point, 100.0), upper)
    result = np.where(large, quadrature, by_parts)
    nothing, everything = (1.0, 0.0) if upper else (0.0, 1.0)
    result = np.where((x == 0) & (a > 0), nothing, result)
    result = np.where((a == 0) & (x > 0), everything, result)
    result = np.where(np.isinf(x) & (a >= 0), everything, result)
    result = np.where(np.isinf(a) & (x >= 0) & np.isfinite(x), nothing, result)
    undefined = (a < 0) | (x < 0) | ((a == 0) & (x == 0)) | (np.isinf(a) & np.isinf(x))
    return np.where(undefined | np.isnan(a) | np.isnan(x), np.nan, result)


def _prefactor(a: Array, x: Array) -> Array:
    """xᵃ e⁻ˣ / Γ(a)."""
    return np.asarray(np.exp(a * np.log(x) - x - lgamma(a)))


def _lower_series(a: Array, x: Array) -> Array:
    """P(a, x) = xᵃ e⁻ˣ / Γ(a) Σ xⁿ / (a (a + 1) … (a + n)), for x up to a + 1."""
    term = 1.0 / a
    total = term
    for step in range(1, 400):
        term = term * x / (a + step)
        total = total + term
        if np.all(term <= total * 1e-17):
            break
    return np.asarray(total * _prefactor(a, x))


def _upper_series(a: Array, x: Array) -> Array:
    """Q(a, x) near x = 0 without the cancellation of 1 - P: small where a is small."""
    total: Any = np.zeros_like(x)
    power: Any = np.ones_like(x)
    for step in range(1, 40):
        power = power * (-x / step)
        total = total + power / (a + step)
    logarithm = a * np.log(x) - lgamma(a + 1.0)
    return np.asarray(-np.expm1(logarithm) - np.exp(logarithm) * a * total)


def _upper_fraction(a: Array, x: Array) -> Array:
    """Q(a, x) as a continued fraction, by Lentz' method, for x above a + 1."""
    tiny = 1e-300
    b = x + 1.0 - a
    c: Any = np.full_like(x, 1.0 / tiny)
    d = 1.0 / b
    result = d
    for step in range(1, 400):
        numerator = -step * (step - a)
        b = b + 2.0
        d = numerator * d + b
        d = 1.0 / np.where(np.abs(d) < tiny, tiny, d)
        c = b + numerator / c
        c = np.where(np.abs(c) < tiny, tiny, c)
        change = c * d
        result = result * change
        if np.all(np.abs(change - 1.0) < 1e-16):
            break
    return np.asarray(result * _prefactor(a, x))


def _by_quadrature(a: Array, x: Array, upper: bool) -> Array:
    """For a large a the integrand is a bell around a - 1, cut off ten widths away."""
    peak = a - 1.0
    width = np.sqrt(peak)
    beyond = x > peak
    end = np.where(
        beyond,
        np.maximum(peak + 12.0 * width, x + 8.0 * width),
        np.maximum(0.0, np.minimum(peak - 9.0 * width, x - 7.0 * width)),
    )
    total: Any = np.zeros_like(x)
    for node, weight in zip(*np.polynomial.legendre.leggauss(64), strict=True):
        at = x + (end - x) * (0.5 * node + 0.5)
        away = (at - peak) / peak
        safe = np.maximum(away, -1.0 + 1e-300)
        total = total + 0.5 * weight * np.exp(peak * (np.log1p(safe) - away))
    part = total * (end - x) * np.exp(-_stirling(peak)) / np.sqrt(2.0 * math.pi * peak)
    lower = np.where(beyond, 1.0 - part, -part)
    return np.asarray(np.where(beyond, part, 1.0 + part) if upper else lower)


# (1 - γ) z, then (-1)ᵏ (ζ(k) - 1) / k.
_ORDERS = np.arange(2.0, 40.0)
_NEAR_TWO = [
    0.0,
    1.0 - EULER,
    *((-1.0) ** _ORDERS * _positive_zeta(_ORDERS, np.full(38, 2.0)) / _ORDERS).tolist(),
]
