"""The normal distribution's functions, and small functions with a limit to keep at an edge.

``xlogy``, ``xlog1py``, ``entropy_term``, ``sinc`` and ``logit`` are compositions; their limits are
chosen so that gradients are finite too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from monograph.ir.build import Operand, promote_operands
from monograph.ir.graph import Node, Value
from monograph.ir.op import Gradients, op
from monograph.ir.operators import function
from monograph.ir.types import Array
from monograph.ops import elementwise, erf_reference, reduce
from monograph.ops import math as math_ops
from monograph.ops.bessel import over
from monograph.ops.elementwise.base import ELEMENTWISE, Unary, floating, in_double, unary_float

ROOT_HALF = math.sqrt(0.5)
ROOT_TWO_PI = math.sqrt(2 * math.pi)


@op("erfcx", traits=ELEMENTWISE)
class Erfcx(Unary):
    """exp(x²) erfc(x), which neither overflows nor underflows to the right."""

    def evaluate(self, x: Array) -> Any:
        return in_double(erf_reference.erfcx, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        slope = node.operands[0] * node.result * 2.0 - math_ops.TWO_OVER_SQRT_PI
        return (grad * slope,)


@function
def erfcx(x: Operand) -> Value:
    """exp(x²) erfc(x)."""
    return unary_float(Erfcx(), x)


@op("ndtr", traits=ELEMENTWISE)
class Ndtr(Unary):
    """The part of the normal distribution below x."""

    def evaluate(self, x: Array) -> Any:
        return in_double(erf_reference.normal, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * math_ops.exp(math_ops.square(node.operands[0]) * -0.5) / ROOT_TWO_PI,)

    def decompose(self, x: Value) -> Value:
        return math_ops.erfc(x * -ROOT_HALF) * 0.5


@function
def ndtr(x: Operand) -> Value:
    """The cumulative distribution function of the normal distribution."""
    return unary_float(Ndtr(), x)


def _log_ndtr(x: Array) -> Array:
    """The logarithm of the part below x, by the scaled tail to the left."""
    low = np.where(x < -1, x, -1.0)
    left = np.log(erf_reference.erfcx(-low * ROOT_HALF) / 2) - low * low / 2
    right = np.log1p(-erf_reference.erfc(np.where(x < -1, 0.0, x) * ROOT_HALF) / 2)
    return np.where(x < -1, np.where(np.isinf(x), -np.inf, left), right)


@op("log_ndtr", traits=ELEMENTWISE)
class LogNdtr(Unary):
    """The logarithm of ``ndtr``, finite far to the left."""

    def evaluate(self, x: Array) -> Any:
        return in_double(_log_ndtr, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        scaled = erfcx(node.operands[0] * -ROOT_HALF)
        return (grad * (math.sqrt(2 / math.pi)) / scaled,)


@function
def log_ndtr(x: Operand) -> Value:
    """The logarithm of ``ndtr``."""
    return unary_float(LogNdtr(), x)


def _ndtri(p: Array) -> Array:
    """The point below which a part p lies: Newton's method on the logarithm of the smaller side."""
    side = np.minimum(p, 1.0 - p)
    inside = (side > 0) & (side <= 0.5)
    target = np.log(np.where(inside, side, 0.5))
    # log ndtr(x) is about -x²/2 - log(|x| √2π) to the left; the guess need not be good.
    x = -np.sqrt(np.maximum(-2 * target - np.log(np.maximum(-4 * np.pi * target, 1.0)), 0.0))
    for _ in range(30):
        error = _log_ndtr(x) - target
        slope = math.sqrt(2 / math.pi) / erf_reference.erfcx(-x * ROOT_HALF)
        step = error / slope
        x = np.minimum(x - step, 0.0)
        if np.all(np.abs(step) <= 1e-15 * (1.0 + np.abs(x))):
            break
    result = np.where(p <= 0.5, x, -x)
    result = np.where(p == 0, -np.inf, np.where(p == 1, np.inf, result))
    return np.where((p < 0) | (p > 1) | np.isnan(p), np.nan, result)


@op("ndtri", traits=ELEMENTWISE)
class Ndtri(Unary):
    """The inverse of ``ndtr``: infinite at 0 and 1, NaN beyond."""

    domain: ClassVar[tuple[float, float]] = (0.05, 0.95)

    def evaluate(self, x: Array) -> Any:
        return in_double(_ndtri, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * math_ops.exp(math_ops.square(node.result) * 0.5) * ROOT_TWO_PI,)


@function
def ndtri(x: Operand) -> Value:
    """The inverse of ``ndtr``: the quantiles of the normal distribution."""
    return unary_float(Ndtri(), x)


def _float_pair(a: Operand, b: Operand) -> tuple[Value, Value]:
    """Two operands as floats of one dtype."""
    left, right = (reduce.one_value(floating(value)) for value in promote_operands(a, b))
    return left, right


@function
def xlogy(x: Operand, y: Operand) -> Value:
    """x log y; 0 where x is 0, unless y is NaN."""
    left, right = _float_pair(x, y)
    return _product_of_log(left, right, 1.0, math_ops.log)


@function
def xlog1py(x: Operand, y: Operand) -> Value:
    """x log(1 + y); 0 where x is 0, unless y is NaN."""
    left, right = _float_pair(x, y)
    return _product_of_log(left, right, 0.0, math_ops.log1p)


def _product_of_log(
    x: Value, y: Value, harmless: float, logarithm: Callable[[Value], Value]
) -> Value:
    """x times a logarithm of y; that of a ``harmless`` number where x is 0 and it has no limit."""
    kept = elementwise.logical_or(elementwise.is_finite(logarithm(y)), elementwise.is_nan(y))
    kept = elementwise.logical_or(kept, elementwise.not_equal(x, 0.0))
    return x * logarithm(elementwise.where(kept, y, harmless))


@function
def entropy_term(x: Operand) -> Value:
    """-x log x; 0 at 0 and -inf below."""
    value = reduce.one_value(floating(x))
    positive = elementwise.logical_not(value <= 0.0)
    held = elementwise.where(positive, value, 1.0)
    below = elementwise.where(elementwise.equal(value, 0.0), 0.0, -math.inf)
    return elementwise.where(positive, elementwise.negate(held * math_ops.log(held)), below)


@function
def sinc(x: Operand) -> Value:
    """sin(πx) / πx; 1 at 0."""
    turned = reduce.one_value(floating(x)) * math.pi
    return over(math_ops.sin(turned), turned, 1.0)


@function
def logit(x: Operand, epsilon: float | None = None) -> Value:
    """log(x / (1 - x)), of x held between ``epsilon`` and 1 - ``epsilon`` if that is given."""
    value = reduce.one_value(floating(x))
    if epsilon is not None:
        value = elementwise.clip(value, epsilon, 1.0 - epsilon)
    return math_ops.log(value / (1.0 - value))
