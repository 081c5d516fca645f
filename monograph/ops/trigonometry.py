"""The rest of trigonometry: tan, the inverse functions, and the hyperbolic ones beside tanh.

All but atan decompose into what ``math`` and ``elementwise`` have, by formulas that lose nothing
near zero, near ±1, or where an intermediate would overflow before the result does.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from monograph.ir.build import Operand, cast_to
from monograph.ir.graph import Node, Value
from monograph.ir.op import Gradients, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, wide
from monograph.ops import elementwise, math
from monograph.ops.elementwise.base import ELEMENTWISE, Unary, float_facts, in_double, unary_float


@op("tan", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="tan", onnx="Tan")
class Tan(Unary):
    """The tangent of an angle in radians."""

    domain: ClassVar[tuple[float, float]] = (-1.2, 1.2)

    def evaluate(self, x: Array) -> Any:
        return in_double(np.tan, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * (math.square(node.result) + 1.0),)

    def decompose(self, x: Value) -> Value:
        return math.sin(x) / math.cos(x)


@function
def tan(x: Operand) -> Value:
    """The tangent of an angle in radians."""
    return unary_float(Tan(), x)


def _leg(x: Value) -> Value:
    """math.sqrt(1 - x²), accurate near 1; NaN beyond."""
    return math.sqrt((1.0 - x) * (1.0 + x))


@op("asin", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="asin", onnx="Asin")
class Asin(Unary):
    """The angle in [-π/2, π/2] whose sine is x."""

    domain: ClassVar[tuple[float, float]] = (-0.9, 0.9)

    def evaluate(self, x: Array) -> Any:
        return in_double(np.arcsin, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad / _leg(node.operands[0]),)

    def decompose(self, x: Value) -> Value:
        return elementwise.atan2(x, _leg(x))


@function
def asin(x: Operand) -> Value:
    """The angle in [-π/2, π/2] whose sine is x."""
    return unary_float(Asin(), x)


@op("acos", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="acos", onnx="Acos")
class Acos(Unary):
    """The angle in [0, π] whose cosine is x."""

    domain: ClassVar[tuple[float, float]] = (-0.9, 0.9)

    def evaluate(self, x: Array) -> Any:
        return in_double(np.arccos, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (elementwise.negate(grad / _leg(node.operands[0])),)

    def decompose(self, x: Value) -> Value:
        return elementwise.atan2(_leg(x), x)


@function
def acos(x: Operand) -> Value:
    """The angle in [0, π] whose cosine is x."""
    return unary_float(Acos(), x)


@op("atan", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="atan", onnx="Atan")
class Atan(Unary):
    """The angle in [-π/2, π/2] whose tangent is x."""

    def evaluate(self, x: Array) -> Any:
        return in_double(np.arctan, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad / (math.square(node.operands[0]) + 1.0),)


@function
def atan(x: Operand) -> Value:
    """The angle in [-π/2, π/2] whose tangent is x."""
    return unary_float(Atan(), x)


@op("sinh", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="sinh", onnx="Sinh")
class Sinh(Unary):
    """(math.exp(x) - math.exp(-x)) / 2."""

    def evaluate(self, x: Array) -> Any:
        return in_double(np.sinh, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * cosh(node.operands[0]),)

    def decompose(self, x: Value) -> Value:
        exact = cast_to(x, wide(x.dtype))  # f16 overflows long before 20
        size = elementwise.abs(exact)
        growth = math.expm1(size)
        near = (growth + growth / (growth + 1.0)) * 0.5
        half = math.exp(size * 0.5)  # its square may be finite where exp(size) is not
        far = (half * 0.5) * half
        signed = elementwise.copysign(elementwise.where(size > 20.0, far, near), exact)
        return cast_to(signed, x.dtype)


@function
def sinh(x: Operand) -> Value:
    """The hyperbolic sine."""
    return unary_float(Sinh(), x)


@op("cosh", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="cosh", onnx="Cosh")
class Cosh(Unary):
    """(math.exp(x) + math.exp(-x)) / 2."""

    def evaluate(self, x: Array) -> Any:
        return in_double(np.cosh, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * sinh(node.operands[0]),)

    def decompose(self, x: Value) -> Value:
        half = math.exp(elementwise.abs(x) * 0.5)  # its square may be finite where exp(x) is not
        return (half * 0.5) * half + 0.5 / (half * half)


@function
def cosh(x: Operand) -> Value:
    """The hyperbolic cosine."""
    return unary_float(Cosh(), x)


def _far(x: Value) -> float:
    """A size whose square dwarfs 1 in the dtype of x, yet does not overflow."""
    return 2.0 / float(np.sqrt(float(float_facts(x.dtype).eps)))


@op("asinh", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="asinh", onnx="Asinh")
class Asinh(Unary):
    """The number whose hyperbolic sine is x."""

    def evaluate(self, x: Array) -> Any:
        return in_double(np.arcsinh, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * math.rsqrt(math.square(node.operands[0]) + 1.0),)

    def decompose(self, x: Value) -> Value:
        size = elementwise.abs(x)
        squared = size * size
        near = math.log1p(size + squared / (1.0 + math.sqrt(1.0 + squared)))
        far = math.log(size) + math.LN_2
        return elementwise.copysign(elementwise.where(size > _far(x), far, near), x)


@function
def asinh(x: Operand) -> Value:
    """The inverse of sinh."""
    return unary_float(Asinh(), x)


@op("acosh", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="acosh", onnx="Acosh")
class Acosh(Unary):
    """The number that is not negative and whose hyperbolic cosine is x; NaN below 1."""

    domain: ClassVar[tuple[float, float]] = (1.1, 5.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(np.arccosh, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        return (grad / (math.sqrt(x - 1.0) * math.sqrt(x + 1.0)),)

    def decompose(self, x: Value) -> Value:
        above = x - 1.0
        near = math.log1p(above + math.sqrt(above) * math.sqrt(above + 2.0))
        return elementwise.where(x > _far(x), math.log(x) + math.LN_2, near)


@function
def acosh(x: Operand) -> Value:
    """The inverse of cosh."""
    return unary_float(Acosh(), x)


@op("atanh", traits=ELEMENTWISE | Trait.TRANSCENDENTAL, torch="atanh", onnx="Atanh")
class Atanh(Unary):
    """The number whose hyperbolic tangent is x; infinite at ±1, NaN beyond."""

    domain: ClassVar[tuple[float, float]] = (-0.9, 0.9)

    def evaluate(self, x: Array) -> Any:
        return in_double(np.arctanh, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        return (grad / ((1.0 - x) * (1.0 + x)),)

    def decompose(self, x: Value) -> Value:
        size = elementwise.abs(x)
        return elementwise.copysign(math.log1p(size * 2.0 / (1.0 - size)) * 0.5, x)


@function
def atanh(x: Operand) -> Value:
    """The inverse of tanh."""
    return unary_float(Atanh(), x)
