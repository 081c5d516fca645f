"""Elementary functions of complex numbers, from those of real ones.

The inverse functions are Kahan's ("Branch cuts for complex elementary functions", 1987): they do
not cancel, and signs of zeros choose the side of a branch cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from monograph import functional as F
from monograph.frontends.xla.arithmetic import like
from monograph.ir.graph import Value

Parts = tuple[Value, Value]


def parts(z: Value) -> Parts:
    """The real and the imaginary part."""
    return F.real(z), F.imag(z)


def cosh(z: Value) -> Value:
    """cosh(x) cos(y) + i sinh(x) sin(y)."""
    x, y = parts(z)
    return F.complex(F.multiply(F.cosh(x), F.cos(y)), F.multiply(F.sinh(x), F.sin(y)))


def sinh(z: Value) -> Value:
    """sinh(x) cos(y) + i cosh(x) sin(y)."""
    x, y = parts(z)
    return F.complex(F.multiply(F.sinh(x), F.cos(y)), F.multiply(F.cosh(x), F.sin(y)))


def tan(z: Value) -> Value:
    """-i tanh(i z)."""
    return _multiply_by_minus_i(F.tanh(_multiply_by_i(z)))


def expm1(z: Value) -> Value:
    """exp(z) - 1: expm1(x) cos(y) - 2 sin²(y/2) + i exp(x) sin(y)."""
    x, y = parts(z)
    half = F.sin(F.multiply(y, 0.5))
    real = F.subtract(F.multiply(F.expm1(x), F.cos(y)), F.multiply(F.multiply(half, half), 2.0))
    return F.complex(real, F.multiply(F.exp(x), F.sin(y)))


def log1p(z: Value) -> Value:
    """log(1 + z): the real part is half of log1p(2 x + x² + y²)."""
    x, y = parts(z)
    size = F.add(F.multiply(x, F.add(x, 2.0)), F.multiply(y, y))
    return F.complex(F.multiply(F.log1p(size), 0.5), F.atan2(y, F.add(x, 1.0)))


def rsqrt(z: Value) -> Value:
    """1 / sqrt(z)."""
    return F.divide(_ones(z), F.sqrt(z))


def logistic(z: Value) -> Value:
    """1 / (1 + exp(-z))."""
    return F.divide(_ones(z), F.add(F.exp(F.negate(z)), _ones(z)))


def asin(z: Value) -> Value:
    """The angle whose sine is z."""
    x, _ = parts(z)
    below, above = F.sqrt(F.subtract(_ones(z), z)), F.sqrt(F.add(_ones(z), z))
    real = F.atan2(x, F.real(F.multiply(below, above)))
    return F.complex(real, F.asinh(F.imag(F.multiply(F.conj(below), above))))


def acos(z: Value) -> Value:
    """The angle whose cosine is z."""
    below, above = F.sqrt(F.subtract(_ones(z), z)), F.sqrt(F.add(_ones(z), z))
    real = F.multiply(F.atan2(F.real(below), F.real(above)), 2.0)
    return F.complex(real, F.asinh(F.imag(F.multiply(F.conj(above), below))))


def acosh(z: Value) -> Value:
    """The number whose hyperbolic cosine is z."""
    below, above = F.sqrt(F.subtract(z, _ones(z))), F.sqrt(F.add(z, _ones(z)))
    real = F.asinh(F.real(F.multiply(F.conj(below), above)))
    return F.complex(real, F.multiply(F.atan2(F.imag(below), F.real(above)), 2.0))


def asinh(z: Value) -> Value:
    """-i asin(i z)."""
    return _multiply_by_minus_i(asin(_multiply_by_i(z)))


def atanh(z: Value) -> Value:
    """The number whose hyperbolic tangent is z."""
    x, y = parts(z)
    less, more = F.subtract(like(1.0, x), x), F.add(x, 1.0)
    square = F.multiply(y, y)
    distance = F.add(F.multiply(less, less), square)
    real = F.multiply(F.log1p(F.divide(F.multiply(x, 4.0), distance)), 0.25)
    angle = F.atan2(F.multiply(y, 2.0), F.subtract(F.multiply(less, more), square))
    return F.complex(real, F.multiply(angle, 0.5))


def atan(z: Value) -> Value:
    """-i atanh(i z)."""
    return _multiply_by_minus_i(atanh(_multiply_by_i(z)))


def _multiply_by_i(z: Value) -> Value:
    """i z."""
    x, y = parts(z)
    return F.complex(F.negate(y), x)


def _multiply_by_minus_i(z: Value) -> Value:
    """-i z."""
    x, y = parts(z)
    return F.complex(y, F.negate(x))


def exp2(z: Value) -> Value:
    """Two to the power of z: exp(z log 2)."""
    return F.exp(F.multiply(z, like(math.log(2.0), z)))


def log2(z: Value) -> Value:
    """The logarithm to base 2: log(z) / log 2."""
    return F.multiply(F.log(z), like(1 / math.log(2.0), z))


def _ones(z: Value) -> Value:
    return like(1.0, z)


COMPLEX: dict[str, Callable[[Value], Value]] = {
    "acos": acos,
    "acosh": acosh,
    "asin": asin,
    "asinh": asinh,
    "atan": atan,
    "atanh": atanh,
    "cosh": cosh,
    "exp2": exp2,
    "expm1": expm1,
    "log1p": log1p,
    "log2": log2,
    "logistic": logistic,
    "rsqrt": rsqrt,
    "sinh": sinh,
    "tan": tan,
}
"""Functions that ours have for real numbers alone, by JAX's names."""
