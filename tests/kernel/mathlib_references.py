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
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "gelu_erf": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "log_sigmoid": lambda x: -_softplus(-x),
    "power": np.power,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": scipy.special.expit,
    "silu": lambda x: _lifted(x) * scipy.special.expit(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "softplus": _softplus,
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


EXACT: dict[str, Callable[..., mpmath.mpf]] = {
    "acos": mpmath.acos,
    "acosh": mpmath.acosh,
    "asin": mpmath.asin,
    "asinh": mpmath.asinh,
    "atan": mpmath.atan,
    "atan2": mpmath.atan2,
    "atanh": mpmath.atanh,
    "cos": mpmath.cos,
    "cosh": mpmath.cosh,
    "erf": mpmath.erf,
    "erfc": _exact_erfc,
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "expm1": mpmath.expm1,
    "gelu_erf": lambda x: x * _exact_erfc(-x / mpmath.sqrt(2)) / 2,
    "gelu_tanh": _exact_gelu_tanh,
    "log": mpmath.log,
    "log10": mpmath.log10,
    "log1p": mpmath.log1p,
    "log2": lambda x: mpmath.log(x, 2),
    "log_sigmoid": lambda x: -_exact_softplus(-x),
    "power": mpmath.power,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sigmoid": _logistic,
    "silu": lambda x: x * _logistic(x),
    "sin": mpmath.sin,
    "sinh": mpmath.sinh,
    "softplus": _exact_softplus,
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


def distance(got: Array, reference: Array) -> Array:
    """How far ``got`` is from a more precise reference, in units in its last place.

    A NaN or an infinity must be met exactly; a reference that rounds to an infinity may be met by
    that or by the largest number.
    """
    facts = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = reference.astype(got.dtype)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        size = np.maximum(np.abs(reference), float(facts.tiny))
        exponent = np.frexp(np.where(np.isfinite(size), size, 1))[1]
        unit = np.ldexp(np.ones_like(reference), exponent - 1 - facts.nmant)
        apart = np.abs(got.astype(reference.dtype) - reference) / unit
        clipped = np.clip(got, facts.min, facts.max)
        near_top = np.isinf(got) & np.isfinite(reference)
        from_top = np.abs(clipped.astype(reference.dtype) - reference) / unit
    apart = np.where(near_top, from_top + 0.5, apart)
    return np.where(same & ~np.isfinite(reference), 0.0, np.where(same & np.isinf(got), 0.0, apart))
