"""Functions of one float: exponentials, logarithms, roots, sin, cos, tanh, erf, sigmoid.

The oracle works f32 out in f64 and rounds once, so that its answers do not depend on the machine's
vector library. Outside its domain a function is NaN. The functions take integers too, as f32.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from monograph.ir.build import Operand, apply
from monograph.ir.graph import Node, Value
from monograph.ir.op import Gradients, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, Kind
from monograph.ops import elementwise, erf_reference
from monograph.ops.elementwise.base import (
    CONTINUOUS,
    ELEMENTWISE,
    NUMBERS,
    Unary,
    in_double,
    unary_float,
)

LN_2 = 0.6931471805599453
LN_10 = 2.302585092994046
TWO_OVER_SQRT_PI = 1.1283791670955126


@op("exp", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="exp", onnx="Exp")
class Exp(Unary):
    """e to the x."""

    kinds: ClassVar[frozenset[Kind]] = CONTINUOUS

    def evaluate(self, x: Array) -> Any:
        return in_double(np.exp, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * elementwise.conj(node.result),)


@function
def exp(x: Operand) -> Value:
    """e to the x."""
    return unary_float(Exp(), x)


@op("exp2", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="exp2")
class Exp2(Unary):
    """2 to the x."""

    def evaluate(self, x: Array) -> Any:
        return in_double(np.exp2, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * node.result * LN_2,)


@function
def exp2(x: Operand) -> Value:
    """2 to the x."""
    return unary_float(Exp2(), x)


@op("expm1", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="expm1")
class Expm1(Unary):
    """exp(x) - 1, accurate near 0."""

    def evaluate(self, x: Array) -> Any:
        return in_double(np.expm1, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * (node.result + 1.0),)


@function
def expm1(x: Operand) -> Value:
    """exp(x) - 1, accurate near 0."""
    return unary_float(Expm1(), x)


@op("log", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="log", onnx="Log")
class Log(Unary):
    """The natural logarithm; -inf at both zeros."""

    kinds: ClassVar[frozenset[Kind]] = CONTINUOUS
    domain: ClassVar[tuple[float, float]] = (0.1, 5.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(np.log, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad / elementwise.conj(node.operands[0]),)


@function
def log(x: Operand) -> Value:
    """The natural logarithm."""
    return unary_float(Log(), x)


@op("log2", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="log2")
class Log2(Unary):
    """The logarithm to base 2."""

    domain: ClassVar[tuple[float, float]] = (0.1, 5.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(np.log2, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad / (node.operands[0] * LN_2),)


@function
def log2(x: Operand) -> Value:
    """The logarithm to base 2."""
    return unary_float(Log2(), x)


@op("log10", traits=ELEMENTWISE, torch="log10")
class Log10(Unary):
    """The logarithm to base 10."""

    domain: ClassVar[tuple[float, float]] = (0.1, 5.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(np.log10, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad / (node.operands[0] * LN_10),)

    def decompose(self, x: Value) -> Value:
        return log(x) * (1.0 / LN_10)


@function
def log10(x: Operand) -> Value:
    """The logarithm to base 10."""
    return unary_float(Log10(), x)


@op("log1p", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="log1p")
class Log1p(Unary):
    """log(1 + x), accurate near 0."""

    domain: ClassVar[tuple[float, float]] = (-0.9, 5.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(np.log1p, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad / (node.operands[0] + 1.0),)


@function
def log1p(x: Operand) -> Value:
    """log(1 + x), accurate near 0."""
    return unary_float(Log1p(), x)


@op("sqrt", traits=ELEMENTWISE, torch="sqrt", onnx="Sqrt")
class Sqrt(Unary):
    """The square root; sqrt(-0.0) is -0.0, as IEEE 754 says."""

    kinds: ClassVar[frozenset[Kind]] = CONTINUOUS
    domain: ClassVar[tuple[float, float]] = (0.1, 5.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(np.sqrt, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad / (elementwise.conj(node.result) * 2.0),)


@function
def sqrt(x: Operand) -> Value:
    """The square root."""
    return unary_float(Sqrt(), x)


@op("rsqrt", traits=ELEMENTWISE, torch="rsqrt")
class Rsqrt(Unary):
    """1 / sqrt(x), rounded once; inf at 0.0 and -inf at -0.0."""

    domain: ClassVar[tuple[float, float]] = (0.1, 5.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(lambda wide: 1.0 / np.sqrt(wide), x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        root = node.result
        return (grad * (root * root * root) * -0.5,)


@function
def rsqrt(x: Operand) -> Value:
    """1 / sqrt(x)."""
    return unary_float(Rsqrt(), x)


@op("reciprocal", traits=ELEMENTWISE, torch="reciprocal", onnx="Reciprocal")
class Reciprocal(Unary):
    """1 / x."""

    kinds: ClassVar[frozenset[Kind]] = CONTINUOUS
    domain: ClassVar[tuple[float, float]] = (0.5, 3.0)

    def evaluate(self, x: Array) -> Any:
        return np.divide(np.ones_like(x), x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (elementwise.negate(grad * square(elementwise.conj(node.result))),)

    def decompose(self, x: Value) -> Value:
        return 1.0 / x


@function
def reciprocal(x: Operand) -> Value:
    """1 / x."""
    return unary_float(Reciprocal(), x)


@op("square", traits=ELEMENTWISE)
class Square(Unary):
    """x * x; integers wrap."""

    kinds: ClassVar[frozenset[Kind]] = NUMBERS

    def evaluate(self, x: Array) -> Any:
        return np.multiply(x, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * elementwise.conj(node.operands[0]) * 2.0,)

    def decompose(self, x: Value) -> Value:
        return x * x


@function
def square(x: Operand) -> Value:
    """x * x."""
    return apply(Square(), x)


@op("sin", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="sin", onnx="Sin")
class Sin(Unary):
    """The sine of an angle in radians."""

    kinds: ClassVar[frozenset[Kind]] = CONTINUOUS

    def evaluate(self, x: Array) -> Any:
        return in_double(np.sin, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * elementwise.conj(cos(node.operands[0])),)


@function
def sin(x: Operand) -> Value:
    """The sine of an angle in radians."""
    return unary_float(Sin(), x)


@op("cos", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="cos", onnx="Cos")
class Cos(Unary):
    """The cosine of an angle in radians."""

    kinds: ClassVar[frozenset[Kind]] = CONTINUOUS

    def evaluate(self, x: Array) -> Any:
        return in_double(np.cos, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (elementwise.negate(grad * elementwise.conj(sin(node.operands[0]))),)


@function
def cos(x: Operand) -> Value:
    """The cosine of an angle in radians."""
    return unary_float(Cos(), x)


@op("tanh", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="tanh", onnx="Tanh")
class Tanh(Unary):
    """The hyperbolic tangent."""

    kinds: ClassVar[frozenset[Kind]] = CONTINUOUS

    def evaluate(self, x: Array) -> Any:
        return in_double(np.tanh, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * elementwise.conj(1.0 - square(node.result)),)


@function
def tanh(x: Operand) -> Value:
    """The hyperbolic tangent."""
    return unary_float(Tanh(), x)


@op("erf", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="erf", onnx="Erf")
class Erf(Unary):
    """The error function: 2/√π times the integral of exp(-t²) from 0 to x."""

    def evaluate(self, x: Array) -> Any:
        return in_double(erf_reference.erf, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * exp(elementwise.negate(square(node.operands[0]))) * TWO_OVER_SQRT_PI,)


@function
def erf(x: Operand) -> Value:
    """The error function."""
    return unary_float(Erf(), x)


@op("erfc", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="erfc")
class Erfc(Unary):
    """1 - erf(x), relatively accurate in the tail where erf(x) is all but 1."""

    def evaluate(self, x: Array) -> Any:
        return in_double(erf_reference.erfc, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * exp(elementwise.negate(square(node.operands[0]))) * -TWO_OVER_SQRT_PI,)


@function
def erfc(x: Operand) -> Value:
    """1 - erf(x), accurate in the tail."""
    return unary_float(Erfc(), x)


@op("sigmoid", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="sigmoid", onnx="Sigmoid")
class Sigmoid(Unary):
    """1 / (1 + exp(-x)), without overflow: 0 at -inf, 1 at inf."""

    def evaluate(self, x: Array) -> Any:
        return in_double(logistic, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * node.result * (1.0 - node.result),)

    def decompose(self, x: Value) -> Value:
        decay = exp(elementwise.negate(elementwise.abs(x)))
        return elementwise.where(x < 0.0, decay, 1.0) / (decay + 1.0)


def logistic(x: Array) -> Array:
    """The sigmoid of an array of floats."""
    decay = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, decay, 1.0) / (1.0 + decay))


@function
def sigmoid(x: Operand) -> Value:
    """1 / (1 + exp(-x))."""
    return unary_float(Sigmoid(), x)
