"""Elementary functions of complex numbers, from those of real ones.

The inverse functions are Kahan's ("Branch cuts for complex elementary functions", 1987): they do
not cancel, and signs of zeros choose the side of a branch cut. Far from zero, where squares
overflow, they are what they tend to. For c64 they compute in f64 and round once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from monograph import functional as F
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import c128

Parts: TypeAlias = tuple[Value, Value]
ComplexFunction: TypeAlias = Callable[[Value], Value]

MIN_FAR_SIZE = 1e9
"""From this size on 1 is lost beside a square, in f64."""
MAX_SIZE_AT_POLE = 1e-100
"""Below this the square of a number is lost beside it, and soon underflows."""


def split_parts(z: Value) -> Parts:
    """The real and the imaginary part."""
    return F.real(z), F.imag(z)


def _in_double(function: ComplexFunction) -> ComplexFunction:
    """The function in f64, rounded to the number's own precision at the end."""

    def applied(z: Value) -> Value:
        return cast_to(function(cast_to(z, c128)), z.dtype)

    return applied


def _multiply_by_sine(size: Value, sine: Value) -> Value:
    """A product that is zero where the sine is, though the size be infinite."""
    return F.where(F.equal(sine, 0.0), sine, F.multiply(size, sine))


def _multiply_by_i(z: Value) -> Value:
    x, y = split_parts(z)
    return F.complex(F.negate(y), x)


def _multiply_by_minus_i(z: Value) -> Value:
    x, y = split_parts(z)
    return F.complex(y, F.negate(x))


def cosh(z: Value) -> Value:
    """cosh(x) cos(y) + i sinh(x) sin(y)."""
    x, y = split_parts(z)
    return F.complex(F.multiply(F.cosh(x), F.cos(y)), _multiply_by_sine(F.sinh(x), F.sin(y)))


def sinh(z: Value) -> Value:
    """sinh(x) cos(y) + i cosh(x) sin(y)."""
    x, y = split_parts(z)
    return F.complex(F.multiply(F.sinh(x), F.cos(y)), _multiply_by_sine(F.cosh(x), F.sin(y)))


def tan(z: Value) -> Value:
    """-i tanh(i z)."""
    return _multiply_by_minus_i(F.tanh(_multiply_by_i(z)))


def exp2(z: Value) -> Value:
    """Two to the power of z: exp2(x) (cos(y log 2) + i sin(y log 2))."""
    x, y = split_parts(z)
    size, angle = F.exp2(x), F.multiply(y, math.log(2.0))
    near = (_multiply_by_sine(size, F.cos(angle)), _multiply_by_sine(size, F.sin(angle)))
    far = split_parts(F.exp(F.complex(x, angle)))
    has_limit = F.logical_and(F.is_inf(x), F.is_inf(y))
    return F.complex(*(F.where(has_limit, b, a) for a, b in zip(near, far, strict=True)))


def expm1(z: Value) -> Value:
    """exp(z) - 1: expm1(x) cos(y) - 2 sin²(y/2) + i exp(x) sin(y), which do not cancel near 0."""
    x, y = split_parts(z)
    short = F.multiply(F.square(F.sin(F.multiply(y, 0.5))), 2.0)
    real = F.subtract(F.multiply(F.expm1(x), F.cos(y)), short)
    return F.complex(real, _multiply_by_sine(F.exp(x), F.sin(y)))


def log1p(z: Value) -> Value:
    """log(1 + z); near 0 the real part is half of log1p(2 x + x² + y²)."""
    x, y = split_parts(z)
    near = F.log1p(x * (x + 2.0) + F.square(y)) * 0.5
    near = F.where(F.equal(near, 0.0), x, near)
    is_near = F.less(F.maximum(F.abs(x), F.abs(y)), 0.5)
    beyond = F.real(F.log(F.complex(x + 1.0, y)))
    return F.complex(F.where(is_near, near, beyond), F.atan2(y, x + 1.0))


def _log_to_base(base: float) -> ComplexFunction:
    def log(z: Value) -> Value:
        natural, scale = F.log(z), 1 / math.log(base)
        return F.complex(*(F.multiply(part, scale) for part in split_parts(natural)))

    return log


def rsqrt(z: Value) -> Value:
    """1 / sqrt(z)."""
    return F.reciprocal(F.sqrt(z))


def logistic(z: Value) -> Value:
    """1 / (1 + exp(-z))."""
    return F.reciprocal(F.add(F.exp(F.negate(z)), 1.0))


def _roots(z: Value) -> tuple[Parts, Parts]:
    """√(1 - z) and √(1 + z), on the sides of their cuts that the sign of a zero says."""
    x, y = split_parts(z)
    below, above = F.complex(1.0 - x, F.negate(y)), F.complex(x + 1.0, y)
    return split_parts(F.sqrt(below)), split_parts(F.sqrt(above))


def _far_from_zero(z: Value) -> tuple[Value, Value]:
    """Where z is far from zero, and log |2 z|, which the inverse functions tend to."""
    size = F.abs(z)
    return F.greater(size, MIN_FAR_SIZE), F.log(size) + math.log(2.0)


def asin(z: Value) -> Value:
    """The angle whose sine is z."""
    x, y = split_parts(z)
    (a, b), (c, d) = _roots(z)
    is_far, growth = _far_from_zero(z)
    real = F.atan2(x, F.where(is_far, F.abs(y), a * c - b * d))
    imaginary = F.where(is_far, F.copysign(growth, y), F.asinh(a * d - b * c))
    return F.complex(F.where(F.equal(x, 0.0), x, real), imaginary)


def acos(z: Value) -> Value:
    """The angle whose cosine is z."""
    x, y = split_parts(z)
    (a, b), (c, d) = _roots(z)
    is_far, growth = _far_from_zero(z)
    real = F.where(is_far, F.atan2(F.abs(y), x), F.atan2(a, c) * 2.0)
    imaginary = F.where(is_far, F.negate(F.copysign(growth, y)), F.asinh(c * b - d * a))
    return F.complex(real, imaginary)


def acosh(z: Value) -> Value:
    """The number whose hyperbolic cosine is z: i acos(z) or -i acos(z), whichever is right."""
    x, y = split_parts(acos(z))
    return F.complex(F.abs(y), F.copysign(x, F.imag(z)))


def asinh(z: Value) -> Value:
    """-i asin(i z)."""
    return _multiply_by_minus_i(asin(_multiply_by_i(z)))


def atanh(z: Value) -> Value:
    """The number whose hyperbolic tangent is z."""
    a, b = split_parts(z)
    x, y = F.abs(a), F.abs(b)
    less = 1.0 - x
    square = F.square(y)
    size = F.abs(z)
    is_far, is_infinite = F.greater(size, MIN_FAR_SIZE), F.is_inf(size)
    near = F.log1p(x * 4.0 / (F.square(less) + square)) * 0.25
    at_pole = F.logical_and(F.equal(x, 1.0), F.less(y, MAX_SIZE_AT_POLE))
    near = F.where(at_pole, (math.log(2.0) - F.log(y)) * 0.5, near)
    shrunk = [F.where(is_infinite, 0.0, part / size / size) for part in (x, y)]
    real = F.where(F.equal(x, 0.0), x, F.where(is_far, shrunk[0], near))
    rise = F.where(is_far, shrunk[1], y) * 2.0
    run = F.where(is_far, -1.0, less * (x + 1.0) - square)
    return F.complex(F.copysign(real, a), F.copysign(F.atan2(rise, run) * 0.5, b))


def atan(z: Value) -> Value:
    """-i atanh(i z)."""
    return _multiply_by_minus_i(atanh(_multiply_by_i(z)))


COMPLEX: dict[str, ComplexFunction] = {
    **{each.__name__: _in_double(each) for each in (acos, acosh, asin, asinh, atan, atanh)},
    **{each.__name__: _in_double(each) for each in (exp2, log1p)},
    **{each.__name__: each for each in (cosh, expm1, logistic, rsqrt, sinh, tan)},
    "log10": _log_to_base(10),
    "log2": _log_to_base(2),
}
"""Functions that ours have for real numbers alone, by JAX's names."""
