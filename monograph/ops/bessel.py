"""Bessel functions of orders 0 and 1, plain and modified, and Airy's function.

The oracle works in float64, whatever the dtype; see ``special_bessel`` for how. A name that ends in
``e`` is the function times the exponential that keeps it in range.
"""

from __future__ import annotations

from typing import Any, ClassVar

from monograph.ir.build import Operand
from monograph.ir.graph import Node, Value
from monograph.ir.lower import LoopBuilder
from monograph.ir.op import Gradients, op
from monograph.ir.operators import function
from monograph.ir.types import Array
from monograph.ops import airy_loops, bessel_reference, elementwise
from monograph.ops import math as math_ops
from monograph.ops.elementwise.base import ELEMENTWISE, Unary, in_double, unary_float


def over(a: Value, x: Value, at_zero: float) -> Value:
    """a / x, with its limit at x = 0."""
    zero = elementwise.equal(x, 0.0)
    return elementwise.where(zero, at_zero, a / elementwise.where(zero, 1.0, x))


@op("bessel_i0", traits=ELEMENTWISE)
class BesselI0(Unary):
    """The modified Bessel function of the first kind, of order 0."""

    def evaluate(self, x: Array) -> Any:
        return in_double(bessel_reference.i0, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * bessel_i1(node.operands[0]),)


@function
def bessel_i0(x: Operand) -> Value:
    """The modified Bessel function of the first kind, of order 0."""
    return unary_float(BesselI0(), x)


@op("bessel_i0e", traits=ELEMENTWISE)
class BesselI0e(Unary):
    """exp(-|x|) times the modified Bessel function of the first kind, of order 0."""

    def evaluate(self, x: Array) -> Any:
        return in_double(bessel_reference.i0e, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x = node.operands[0]
        return (grad * (bessel_i1e(x) - elementwise.sign(x) * node.result),)


@function
def bessel_i0e(x: Operand) -> Value:
    """exp(-|x|) times the modified Bessel function of the first kind, of order 0."""
    return unary_float(BesselI0e(), x)


@op("bessel_i1", traits=ELEMENTWISE)
class BesselI1(Unary):
    """The modified Bessel function of the first kind, of order 1."""

    domain: ClassVar[tuple[float, float]] = (0.2, 3.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(bessel_reference.i1, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x = node.operands[0]
        return (grad * (bessel_i0(x) - over(node.result, x, 0.5)),)


@function
def bessel_i1(x: Operand) -> Value:
    """The modified Bessel function of the first kind, of order 1."""
    return unary_float(BesselI1(), x)


@op("bessel_i1e", traits=ELEMENTWISE)
class BesselI1e(Unary):
    """exp(-|x|) times the modified Bessel function of the first kind, of order 1."""

    domain: ClassVar[tuple[float, float]] = (0.2, 3.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(bessel_reference.i1e, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x = node.operands[0]
        slope = bessel_i0e(x) - node.result * elementwise.sign(x) - over(node.result, x, 0.5)
        return (grad * slope,)


@function
def bessel_i1e(x: Operand) -> Value:
    """exp(-|x|) times the modified Bessel function of the first kind, of order 1."""
    return unary_float(BesselI1e(), x)


@op("bessel_j0", traits=ELEMENTWISE)
class BesselJ0(Unary):
    """Bessel's function of the first kind, of order 0."""

    domain: ClassVar[tuple[float, float]] = (-9.0, 9.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(bessel_reference.j0, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (elementwise.negate(grad * bessel_j1(node.operands[0])),)


@function
def bessel_j0(x: Operand) -> Value:
    """Bessel's function of the first kind, of order 0."""
    return unary_float(BesselJ0(), x)


@op("bessel_j1", traits=ELEMENTWISE)
class BesselJ1(Unary):
    """Bessel's function of the first kind, of order 1."""

    domain: ClassVar[tuple[float, float]] = (0.2, 9.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(bessel_reference.j1, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x = node.operands[0]
        return (grad * (bessel_j0(x) - over(node.result, x, 0.5)),)


@function
def bessel_j1(x: Operand) -> Value:
    """Bessel's function of the first kind, of order 1."""
    return unary_float(BesselJ1(), x)


@op("bessel_y0", traits=ELEMENTWISE)
class BesselY0(Unary):
    """Bessel's function of the second kind, of order 0: -inf at 0, NaN below."""

    domain: ClassVar[tuple[float, float]] = (0.3, 9.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(bessel_reference.y0, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (elementwise.negate(grad * bessel_y1(node.operands[0])),)


@function
def bessel_y0(x: Operand) -> Value:
    """Bessel's function of the second kind, of order 0."""
    return unary_float(BesselY0(), x)


@op("bessel_y1", traits=ELEMENTWISE)
class BesselY1(Unary):
    """Bessel's function of the second kind, of order 1: -inf at 0, NaN below."""

    domain: ClassVar[tuple[float, float]] = (0.3, 9.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(bessel_reference.y1, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x = node.operands[0]
        return (grad * (bessel_y0(x) - node.result / x),)


@function
def bessel_y1(x: Operand) -> Value:
    """Bessel's function of the second kind, of order 1."""
    return unary_float(BesselY1(), x)


@op("bessel_k0", traits=ELEMENTWISE)
class BesselK0(Unary):
    """The modified Bessel function of the second kind, of order 0: inf at 0, NaN below."""

    domain: ClassVar[tuple[float, float]] = (0.3, 4.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(bessel_reference.k0, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (elementwise.negate(grad * bessel_k1(node.operands[0])),)


@function
def bessel_k0(x: Operand) -> Value:
    """The modified Bessel function of the second kind, of order 0."""
    return unary_float(BesselK0(), x)


@op("bessel_k0e", traits=ELEMENTWISE)
class BesselK0e(Unary):
    """exp(x) times the modified Bessel function of the second kind, of order 0."""

    domain: ClassVar[tuple[float, float]] = (0.3, 4.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(bessel_reference.k0e, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * (node.result - bessel_k1e(node.operands[0])),)


@function
def bessel_k0e(x: Operand) -> Value:
    """exp(x) times the modified Bessel function of the second kind, of order 0."""
    return unary_float(BesselK0e(), x)


@op("bessel_k1", traits=ELEMENTWISE)
class BesselK1(Unary):
    """The modified Bessel function of the second kind, of order 1: inf at 0, NaN below."""

    domain: ClassVar[tuple[float, float]] = (0.3, 4.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(bessel_reference.k1, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x = node.operands[0]
        return (elementwise.negate(grad * (bessel_k0(x) + node.result / x)),)


@function
def bessel_k1(x: Operand) -> Value:
    """The modified Bessel function of the second kind, of order 1."""
    return unary_float(BesselK1(), x)


@op("bessel_k1e", traits=ELEMENTWISE)
class BesselK1e(Unary):
    """exp(x) times the modified Bessel function of the second kind, of order 1."""

    domain: ClassVar[tuple[float, float]] = (0.3, 4.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(bessel_reference.k1e, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x = node.operands[0]
        return (grad * (node.result - bessel_k0e(x) - node.result / x),)


@function
def bessel_k1e(x: Operand) -> Value:
    """exp(x) times the modified Bessel function of the second kind, of order 1."""
    return unary_float(BesselK1e(), x)


@op("spherical_bessel_j0", traits=ELEMENTWISE)
class SphericalBesselJ0(Unary):
    """sin(x) / x, the spherical Bessel function of order 0; 1 at 0."""

    domain: ClassVar[tuple[float, float]] = (0.3, 9.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(bessel_reference.spherical_j0, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x = node.operands[0]
        return (grad * over(math_ops.cos(x) - node.result, x, 0.0),)


@function
def spherical_bessel_j0(x: Operand) -> Value:
    """sin(x) / x, the spherical Bessel function of order 0."""
    return unary_float(SphericalBesselJ0(), x)


@op("airy_ai", traits=ELEMENTWISE)
class AiryAi(Unary):
    """Airy's function Ai: decays to the right, oscillates to the left."""

    domain: ClassVar[tuple[float, float]] = (-9.0, 4.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(bessel_reference.airy, x)

    def lower_loops(self, b: LoopBuilder) -> None:
        airy_loops.lower_airy(b)


@function
def airy_ai(x: Operand) -> Value:
    """Airy's function Ai."""
    return unary_float(AiryAi(), x)
