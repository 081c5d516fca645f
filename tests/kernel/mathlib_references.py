"""What the functions of the math library are, to more digits than their results have.

For f32 the reference is computed in f64, by NumPy and SciPy. For f64 it comes from mpmath, as a
long double where that has more digits than an f64 and as an f64 elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import scipy.special

Array = np.ndarray[Any, Any]

DIGITS = 40
LIMITS = {
    **dict.fromkeys(("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"), (-1e3, 1e3)),
    **dict.fromkeys(("bessel_i0", "bessel_i1", "bessel_i0e", "bessel_i1e"), (-1e3, 1e3)),
    **dict.fromkeys(("bessel_k0", "bessel_k1", "bessel_k0e", "bessel_k1e"), (1e-300, 700.0)),
    **dict.fromkeys(("lgamma", "digamma", "spherical_bessel_j0"), (-150.0, 1e4)),
    "erfcx": (-26.0, 90.0),
    "log_ndtr": (-1e3, 38.0),
    "ndtri": (1e-30, 1.0 - 2.0**-53),
}
"""Where the references are to be trusted, of the functions that have such limits."""


def trusted(name: str, x: Array) -> Array:
    """The numbers for which the references of a function are to be trusted."""
    if name not in LIMITS:
        return x
    low, high = LIMITS[name]
    return x[(x >= low) & (x <= high)]


CUBIC = 0.044715


def _lifted(x: Array) -> Array:
    return np.maximum(x, np.finfo(np.float64).min)


def _gelu_erf(x: Array) -> Array:
    return _lifted(x) * (0.5 * scipy.special.erfc(-np.sqrt(0.5) * x))


def _gelu_tanh(x: Array) -> Array:
    return _lifted(x) * scipy.special.expit(np.sqrt(8 / np.pi) * x * (1 + CUBIC * x * x))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


WIDE: dict[str, Callable[..., Array]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "bessel_i0": scipy.special.i0,
    "bessel_i0e": scipy.special.i0e,
    "bessel_i1": scipy.special.i1,
    "bessel_i1e": scipy.special.i1e,
    "bessel_j0": scipy.special.j0,
    "bessel_j1": scipy.special.j1,
    "bessel_k0": scipy.special.k0,
    "bessel_k0e": scipy.special.k0e,
    "bessel_k1": scipy.special.k1,
    "bessel_k1e": scipy.special.k1e,
    "bessel_y0": scipy.special.y0,
    "bessel_y1": scipy.special.y1,
    "cos": np.cos,
    "cosh": np.cosh,
    "digamma": scipy.special.psi,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "erfcx": scipy.special.erfcx,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "gelu_erf": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "lgamma": scipy.special.gammaln,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "log_ndtr": scipy.special.log_ndtr,
    "log_sigmoid": lambda x: -_softplus(-x),
    "ndtri": scipy.special.ndtri,
    "power": np.power,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": scipy.special.expit,
    "silu": lambda x: _lifted(x) * scipy.special.expit(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "softplus": _softplus,
    "spherical_bessel_j0": lambda x: np.sinc(x / np.pi),
    "tan": np.tan,
    "tanh": np.tanh,
}
"""Functions of f64 arrays, as references for f32."""


def _logistic(x: mpmath.mpf) -> mpmath.mpf:
    return 1 / (1 + mpmath.exp(-x))


def _exact_softplus(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.log1p(mpmath.exp(-abs(x))) + max(x, 0)


def _exact_erfc(x: mpmath.mpf) -> mpmath.mpf:
    # Beyond 100 it is 0 or 2 in f64, and mpmath overflows.
    return mpmath.erfc(max(min(x, 100), -100))


def _exact_gelu_tanh(x: mpmath.mpf) -> mpmath.mpf:
    return x * _logistic(mpmath.sqrt(8 / mpmath.pi) * (x + mpmath.mpf(CUBIC) * x**3))


def _exact_log_ndtr(x: mpmath.mpf) -> mpmath.mpf:
    if x > 0:
        return mpmath.log1p(-mpmath.erfc(x / mpmath.sqrt(2)) / 2)
    return mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2)


EXACT: dict[str, Callable[..., mpmath.mpf]] = {
    "acos": mpmath.acos,
    "acosh": mpmath.acosh,
    "asin": mpmath.asin,
    "asinh": mpmath.asinh,
    "atan": mpmath.atan,
    "atan2": mpmath.atan2,
    "atanh": mpmath.atanh,
    "bessel_i0": lambda x: mpmath.besseli(0, x),
    "bessel_i0e": lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)),
    "bessel_i1": lambda x: mpmath.besseli(1, x),
    "bessel_i1e": lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)),
    "bessel_j0": lambda x: mpmath.besselj(0, x),
    "bessel_j1": lambda x: mpmath.besselj(1, x),
    "bessel_k0": lambda x: mpmath.besselk(0, x),
    "bessel_k0e": lambda x: mpmath.besselk(0, x) * mpmath.exp(x),
    "bessel_k1": lambda x: mpmath.besselk(1, x),
    "bessel_k1e": lambda x: mpmath.besselk(1, x) * mpmath.exp(x),
    "bessel_y0": lambda x: mpmath.bessely(0, x),
    "bessel_y1": lambda x: mpmath.bessely(1, x),
    "cos": mpmath.cos,
    "cosh": mpmath.cosh,
    "digamma": mpmath.digamma,
    "erf": mpmath.erf,
    "erfc": _exact_erfc,
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "expm1": mpmath.expm1,
    "gelu_erf": lambda x: x * _exact_erfc(-x / mpmath.sqrt(2)) / 2,
    "gelu_tanh": _exact_gelu_tanh,
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))),
    "log": mpmath.log,
    "log10": mpmath.log10,
    "log1p": mpmath.log1p,
    "log2": lambda x: mpmath.log(x, 2),
    "log_ndtr": _exact_log_ndtr,
    "log_sigmoid": lambda x: -_exact_softplus(-x),
    "ndtri": lambda x: mpmath.sqrt(2) * mpmath.erfinv(2 * x - 1),
    "power": mpmath.power,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sigmoid": _logistic,
    "silu": lambda x: x * _logistic(x),
    "sin": mpmath.sin,
    "sinh": mpmath.sinh,
    "softplus": _exact_softplus,
    "spherical_bessel_j0": mpmath.sinc,
    "tan": mpmath.tan,
    "tanh": mpmath.tanh,
}
"""Functions of mpmath's numbers, as references for f64."""


def exact(name: str, *operands: Array) -> Array:
    """The function of f64 arrays by mpmath, as long doubles; NaN outside its domain."""
    function = EXACT[name]
    result = np.full(operands[0].shape, np.nan, np.longdouble)
    # An angle of 2^1023 has 308 digits before the point; e^x - 1 loses as many as x has zeros.
    with mpmath.workdps(DIGITS + (350 if name in ("sin", "cos", "tan") else 0)):
        for position, numbers in enumerate(zip(*operands, strict=True)):
            value = function(*(mpmath.mpf(float(number)) for number in numbers))
            if isinstance(value, mpmath.mpc):
                continue
            high = float(value)
            result[position] = high
            if np.isfinite(high):
                result[position] += np.longdouble(float(value - mpmath.mpf(high)))
    return result


def distance(got: Array, reference: Array, floor: float = 0.0) -> Array:
    """How far ``got`` is from a more precise reference, in units in its last place.

    A reference smaller than ``floor`` is judged by the units of that. A NaN or an infinity must be
    met exactly; a reference that rounds to an infinity may be met by that or by the largest number.
    """
    facts = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = reference.astype(got.dtype)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        size = np.maximum(np.abs(reference), max(floor, float(facts.tiny)))
        exponent = np.frexp(np.where(np.isfinite(size), size, 1))[1]
        unit = np.ldexp(np.ones_like(reference), exponent - 1 - facts.nmant)
        apart = np.abs(got.astype(reference.dtype) - reference) / unit
        clipped = np.clip(got, facts.min, facts.max)
        near_top = np.isinf(got) & np.isfinite(reference)
        from_top = np.abs(clipped.astype(reference.dtype) - reference) / unit
    apart = np.where(near_top, from_top + 0.5, apart)
    return np.where(same & ~np.isfinite(reference), 0.0, np.where(same & np.isinf(got), 0.0, apart))
