"""Bessel functions of orders 0 and 1, and Airy's function, in NumPy, for float64 arrays.

Near the origin each is a mean over a circle, Jₙ(x) = mean of cos(nθ - x sin θ), which a few dozen
equally spaced nodes give to rounding; the logarithmic kinds are such means too, with weights that
sum Neumann's series. Far out Hankel's asymptotic series has converged. No tables are needed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from monograph.ir.types import Array
from monograph.ops.gamma_reference import EULER

MIN_ASYMPTOTIC_ARGUMENT = 25.0
QUADRATURE_NODES = 64
_ANGLES = (np.arange(QUADRATURE_NODES) + 0.5) * (np.pi / QUADRATURE_NODES)
_ORDERS = np.arange(1, QUADRATURE_NODES // 2)
# Σ cos(2kθ) / k and Σ (-1)ᵏ cos(2kθ) / k at each node.
_EVEN = (np.cos(2 * np.outer(_ANGLES, _ORDERS)) / _ORDERS).sum(1)
_ALTERNATING = (np.cos(2 * np.outer(_ANGLES, _ORDERS)) * (-1.0) ** _ORDERS / _ORDERS).sum(1)


def _hankel(order: float, terms: int = 24) -> list[float]:
    """aₖ = (4ν² - 1)(4ν² - 9) … / (k! 8ᵏ), the coefficients of the asymptotic series."""
    found = [1.0]
    for k in range(1, terms):
        found.append(found[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    return found


def _modulus_and_phase(order: float, x: Array) -> tuple[Array, Array]:
    """Hankel's P and Q: J = √(2/πx) (P cos χ - Q sin χ), Y = √(2/πx) (P sin χ + Q cos χ)."""
    coefficients = _hankel(order)
    inverse = -1.0 / (x * x)
    even = np.polynomial.polynomial.polyval(inverse, coefficients[0::2])
    odd = np.polynomial.polynomial.polyval(inverse, coefficients[1::2])
    return np.asarray(even), np.asarray(odd / x)


def _mean(values: Array, weights: Array) -> Array:
    return np.asarray(values @ weights) / QUADRATURE_NODES


def _circle(x: Array) -> tuple[Array, Array]:
    """x sin θ at the nodes, as a last axis, and sin θ."""
    sines = np.sin(_ANGLES)
    return x[..., None] * sines, sines


def _far_wave(order: int, x: Array, second: bool) -> Array:
    """J (or Y, the second kind) of order 0 or 1 where the asymptotic series has converged."""
    far = np.where(np.isfinite(x) & (x >= MIN_ASYMPTOTIC_ARGUMENT), x, MIN_ASYMPTOTIC_ARGUMENT)
    p, q = _modulus_and_phase(order, far)
    # χ = x - (2ν + 1) π/4: its sine and cosine from those of x itself, which NumPy reduces well.
    sine, cosine = np.sin(far), np.cos(far)
    first, other = (cosine + sine, sine - cosine) if order == 0 else (sine - cosine, -cosine - sine)
    wave = p * other + q * first if second else p * first - q * other
    return np.where(np.isinf(x), 0.0, wave / np.sqrt(np.pi * far))


def j0(x: Array) -> Array:
    """Bessel's function of the first kind, of order 0."""
    size = np.abs(x)
    turned, sines = _circle(np.where(size < MIN_ASYMPTOTIC_ARGUMENT, size, 0.0))
    near = _mean(np.cos(turned), np.ones_like(sines))
    return np.where(
        np.isnan(x),
        np.nan,
        np.where(size < MIN_ASYMPTOTIC_ARGUMENT, near, _far_wave(0, size, False)),
    )


def j1(x: Array) -> Array:
    """Bessel's function of the first kind, of order 1; odd."""
    size = np.abs(x)
    turned, sines = _circle(np.where(size < MIN_ASYMPTOTIC_ARGUMENT, size, 0.0))
    near = _mean(np.sin(turned), sines)
    result = np.where(size < MIN_ASYMPTOTIC_ARGUMENT, near, _far_wave(1, size, False))
    return np.where(np.isnan(x), np.nan, np.where(x < 0, -result, result))


def y0(x: Array) -> Array:
    """Bessel's function of the second kind, of order 0: -inf at 0, NaN below."""
    inside = (x > 0) & (x < MIN_ASYMPTOTIC_ARGUMENT)
    held = np.where(inside, x, 1.0)
    turned, _ = _circle(held)
    series = _mean(np.cos(turned), _ALTERNATING)
    near = 2 / np.pi * (np.log(held / 2) + EULER) * j0(held) - 4 / np.pi * series
    return _second_kind(x, np.where(inside, near, _far_wave(0, x, True)))


def y1(x: Array) -> Array:
    """Bessel's function of the second kind, of order 1: -inf at 0, NaN below."""
    inside = (x > 0) & (x < MIN_ASYMPTOTIC_ARGUMENT)
    held = np.where(inside, x, 1.0)
    turned, sines = _circle(held)
    series = _mean(np.sin(turned), _ALTERNATING * sines)
    near = (np.log(held / 2) + EULER) * j1(held) - j0(held) / held
    near = 2 / np.pi * near - 4 / np.pi * series
    return _second_kind(x, np.where(inside, near, _far_wave(1, x, True)))


def _second_kind(x: Array, result: Array) -> Array:
    return np.where(x == 0, -np.inf, np.where((x < 0) | np.isnan(x), np.nan, result))


def _far_growth(order: int, size: Array) -> Array:
    """exp(-x) I(x) where the asymptotic series has converged."""
    far = np.maximum(size, MIN_ASYMPTOTIC_ARGUMENT)
    signed = [(-1.0) ** k * a for k, a in enumerate(_hankel(order))]
    series = np.polynomial.polynomial.polyval(1.0 / far, signed)
    return np.asarray(series / np.sqrt(2 * np.pi * far))


def i0e(x: Array) -> Array:
    """exp(-|x|) times the modified function of the first kind, of order 0."""
    size = np.abs(x)
    turned = np.where(size < MIN_ASYMPTOTIC_ARGUMENT, size, 0.0)[..., None] * (
        np.cos(_ANGLES) - 1.0
    )
    near = _mean(np.exp(turned), np.ones(QUADRATURE_NODES))
    return np.where(
        np.isnan(x), np.nan, np.where(size < MIN_ASYMPTOTIC_ARGUMENT, near, _far_growth(0, size))
    )


def i1e(x: Array) -> Array:
    """exp(-|x|) times the modified function of the first kind, of order 1; odd."""
    size = np.abs(x)
    held = np.where(size < MIN_ASYMPTOTIC_ARGUMENT, size, 0.0)
    cosines = np.cos(_ANGLES)
    near = _mean(np.sinh(held[..., None] * cosines), cosines) * np.exp(-held)
    result = np.where(size < MIN_ASYMPTOTIC_ARGUMENT, near, _far_growth(1, size))
    return np.where(np.isnan(x), np.nan, np.where(x < 0, -result, result))


def i0(x: Array) -> Array:
    """The modified function of the first kind, of order 0."""
    return _multiply_by_exp(i0e(x), x)


def i1(x: Array) -> Array:
    """The modified function of the first kind, of order 1."""
    return _multiply_by_exp(i1e(x), x)


def _multiply_by_exp(scaled: Array, x: Array) -> Array:
    """``scaled`` times exp(|x|), in two steps: the factor alone would overflow too early."""
    half = np.exp(np.abs(x) / 2)
    return np.where(np.isinf(x), np.copysign(np.inf, scaled), scaled * half * half)


def k0e(x: Array) -> Array:
    """exp(x) times the modified function of the second kind, of order 0."""
    inside = (x > 0) & (x < 2.0)
    held = np.where(inside, x, 1.0)
    series = _mean(np.exp(held[..., None] * np.cos(_ANGLES)), _EVEN)
    near = 2 * series - (np.log(held / 2) + EULER) * i0(held)
    return _decaying(x, np.where(inside, near * np.exp(held), decay_integral(0.0, x)))


def k1e(x: Array) -> Array:
    """exp(x) times the modified function of the second kind, of order 1."""
    inside = (x > 0) & (x < 2.0)
    held = np.where(inside, x, 1.0)
    cosines = np.cos(_ANGLES)
    series = _mean(np.exp(held[..., None] * cosines), _EVEN * cosines)
    near = i0(held) / held + (np.log(held / 2) + EULER) * i1(held) - 2 * series
    return _decaying(x, np.where(inside, near * np.exp(held), decay_integral(1.0, x)))


def _decaying(x: Array, result: Array) -> Array:
    return np.where(x == 0, np.inf, np.where((x < 0) | np.isnan(x), np.nan, result))


def k0(x: Array) -> Array:
    """The modified function of the second kind, of order 0: inf at 0, NaN below."""
    return np.where(x == np.inf, 0.0, k0e(x) * np.exp(-x))


def k1(x: Array) -> Array:
    """The modified function of the second kind, of order 1: inf at 0, NaN below."""
    return np.where(x == np.inf, 0.0, k1e(x) * np.exp(-x))


def decay_integral(order: float, x: Array) -> Array:
    """exp(x) Kᵥ(x) = ∫ exp(-x (cosh t - 1)) cosh vt dt, t > 0, by equal steps; for x above 0.1."""
    held = np.where((x > 0.1) & np.isfinite(x), x, 1.0)
    reach = 40.0 / held
    end = np.log1p(reach + np.sqrt(reach) * np.sqrt(2.0 + reach))  # arccosh(1 + reach)
    root = np.sqrt(held) * math.sqrt(2.0)
    step = end / QUADRATURE_NODES
    total: Any = np.full_like(held, 0.5)
    for node in range(1, QUADRATURE_NODES + 1):
        t = step * node
        # cosh t - 1 = 2 sinh²(t/2): no cancellation, and no underflow before the product
        total = total + np.exp(-((root * np.sinh(t / 2)) ** 2)) * np.cosh(order * t)
    return np.where(np.isinf(x), 0.0, total * step)


def spherical_j0(x: Array) -> Array:
    """sin(x) / x; 1 at 0."""
    held = np.where((x == 0) | np.isinf(x), 1.0, x)
    result = np.where(x == 0, 1.0, np.sin(held) / held)
    return np.where(np.isinf(x), 0.0, result)


AIRY_AT_ZERO = 0.355028053887817239
AIRY_SLOPE = 0.258819403792806798


def airy(x: Array) -> Array:
    """Airy's function Ai: decays to the right, oscillates to the left."""
    right = x > 1.0
    far_right = np.where(right & np.isfinite(x), x, 1.0)
    depth = 2 / 3 * far_right**1.5
    decay = np.sqrt(far_right / 3) / np.pi * decay_integral(1 / 3, depth) * np.exp(-depth)
    left = x < -7.0
    result = np.where(right, decay, _airy_series(np.where(right | left, 0.0, x)))
    result = np.where(left, _airy_wave(np.where(left & np.isfinite(x), -x, 7.0)), result)
    return np.where(np.isinf(x), 0.0, np.where(np.isnan(x), np.nan, result))


def _airy_series(x: Array) -> Array:
    """The two power series around 0."""
    cube = x**3
    even: Any = np.full_like(x, AIRY_AT_ZERO)
    odd: Any = -AIRY_SLOPE * x
    total = even + odd
    for k in range(1, 60):
        even = even * cube / ((3 * k) * (3 * k - 1))
        odd = odd * cube / ((3 * k) * (3 * k + 1))
        total = total + even + odd
    return np.asarray(total)


def wave_coefficients() -> list[float]:
    """The coefficients of the wave's asymptotic series."""
    coefficients = [1.0]
    for k in range(1, 22):
        step = (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1))
        coefficients.append(coefficients[-1] * step)
    return coefficients


def _airy_wave(size: Array) -> Array:
    """Ai(-x) for x of at least 7, by its asymptotic series in 1 / ζ, ζ = 2/3 x^1.5."""
    depth = 2 / 3 * size**1.5
    coefficients = wave_coefficients()
    inverse = -1.0 / (depth * depth)
    even = np.polynomial.polynomial.polyval(inverse, coefficients[0::2])
    odd = np.polynomial.polynomial.polyval(inverse, coefficients[1::2]) / depth
    angle = depth - np.pi / 4
    return np.asarray(
        (np.cos(angle) * even + np.sin(angle) * odd) / (math.sqrt(np.pi) * size**0.25)
    )
