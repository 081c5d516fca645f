"""The gamma function's relatives: its logarithm, that one's derivatives, zeta, incomplete gamma.

The oracle works in float64, whatever the dtype; see ``special_gamma`` for how.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from monograph.ir.build import Operand, apply
from monograph.ir.graph import Node, Value
from monograph.ir.lower import LoopBuilder
from monograph.ir.op import Gradients, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, Kind, TensorType
from monograph.ops import elementwise, gamma_reference, reduce, special_loops
from monograph.ops import math as math_ops
from monograph.ops.elementwise.base import (
    ELEMENTWISE,
    FLOATS,
    Binary,
    Unary,
    binary_float,
    in_double,
    unary_float,
    unary_operands,
)
from monograph.ops.rules import require


@op("lgamma", traits=ELEMENTWISE)
class Lgamma(Unary):
    """The logarithm of |Γ(x)|; infinite at 0, -1, -2…"""

    domain: ClassVar[tuple[float, float]] = (0.2, 6.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(gamma_reference.lgamma, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * digamma(node.operands[0]),)


@function
def lgamma(x: Operand) -> Value:
    """The logarithm of the magnitude of the gamma function."""
    return unary_float(Lgamma(), x)


@op("digamma", traits=ELEMENTWISE)
class Digamma(Unary):
    """The derivative of log Γ: ∓inf at ±0, NaN at -1, -2…"""

    domain: ClassVar[tuple[float, float]] = (0.2, 6.0)

    def evaluate(self, x: Array) -> Any:
        return in_double(gamma_reference.digamma, x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * polygamma(1, node.operands[0]),)


@function
def digamma(x: Operand) -> Value:
    """The derivative of the logarithm of the gamma function."""
    return unary_float(Digamma(), x)


@op("polygamma", traits=ELEMENTWISE)
class Polygamma(Unary):
    """The derivative of digamma of this ``order``."""

    order: int
    domain: ClassVar[tuple[float, float]] = (0.4, 4.0)

    def infer(self, x: TensorType) -> TensorType:
        require(
            self.order >= 0,
            "polygamma: a negative order",
            expected="0 or more",
            found=self.order,
        )
        return super().infer(x)

    def evaluate(self, x: Array) -> Any:
        return in_double(lambda wide: gamma_reference.polygamma(self.order, wide), x)

    def lower_loops(self, b: LoopBuilder) -> None:
        special_loops.lower_polygamma(b, self.order)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad * polygamma(self.order + 1, node.operands[0]),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for operand, note, gradient in unary_operands(cls.domain):
            yield Sample(cls(1), (operand,), note, gradient)
        x = np.random.default_rng(3).uniform(-3.0, 4.0, (3, 4))
        for order in (0, 2, 3, 7):
            yield Sample(cls(order), (x,), f"order {order}", False)


@function
def polygamma(order: int, x: Operand) -> Value:
    """The derivative of ``digamma`` of this order."""
    return unary_float(Polygamma(order), x)


class FloatPair(Binary):
    """A binary op on floats whose domain needs samples of its own."""

    kinds: ClassVar[frozenset[Kind]] = FLOATS


@op("zeta", traits=ELEMENTWISE)
class Zeta(FloatPair):
    """Hurwitz' zeta function Σ (b + k)⁻ᵃ, k = 0, 1, 2…; it has a gradient by b alone.

    Infinite at a = 1, NaN below; infinite at b = 0, -1, -2…
    """

    def evaluate(self, a: Array, b: Array) -> Any:
        return in_double(gamma_reference.zeta, a, b)

    def lower_loops(self, b: LoopBuilder) -> None:
        special_loops.lower_zeta(b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        slope = elementwise.negate(a) * zeta(a + 1.0, b)
        return None, reduce.sum_to(grad * slope, b.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)
        a = generator.uniform(1.1, 6.0, (3, 4)).astype(np.float32)
        b = generator.uniform(0.3, 5.0, (3, 4)).astype(np.float32)
        yield Sample(cls(), (a, b), "", False)
        yield Sample(lambda b: zeta(2.5, b), (b,), "by the second")
        yield Sample(cls(), (a[:, :1], b.T[::2, :1].T), "broadcast, strided", False)
        whole = np.array([2, 3, 4, 2.5], np.float32)
        yield Sample(cls(), (whole, np.full(4, -1.5, np.float32)), "below 0", False)
        edges = np.array([1.0, 0.5, 2.0, 2.0, np.nan, 3.0], np.float32)
        beside = np.array([2, 2, 0, -3, 1, np.nan], np.float32)
        yield Sample(cls(), (edges, beside), "edges", False)
        yield Sample(cls(), (a[:0], b[:0]), "empty", False)
        yield Sample(cls(), (a[0, 0], b[0, 0]), "scalars", False)


@function
def zeta(a: Operand, b: Operand = 1.0) -> Value:
    """Hurwitz' zeta function; Riemann's for b = 1."""
    return binary_float(Zeta(), a, b)


@op("igamma", traits=ELEMENTWISE)
class Igamma(FloatPair):
    """The regularised lower incomplete gamma function P(a, b); a gradient by b alone."""

    def evaluate(self, a: Array, b: Array) -> Any:
        return in_double(gamma_reference.igamma, a, b)

    def lower_loops(self, b: LoopBuilder) -> None:
        special_loops.lower_incomplete_gamma(b, upper=False)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        return None, reduce.sum_to(grad * _density(a, b), b.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for a, b, note in _incomplete_operands():
            yield Sample(cls(), (a, b), note, False)
        yield Sample(lambda b: igamma(2.5, b), (_incomplete_points(),), "by the second")


def _density(a: Value, b: Value) -> Value:
    """The derivative of P(a, b) by b: b^(a - 1) e⁻ᵇ / Γ(a)."""
    return math_ops.exp((a - 1.0) * math_ops.log(b) - b - lgamma(a))


def _incomplete_points() -> Array:
    return np.random.default_rng(1).uniform(0.2, 6.0, (2, 5)).astype(np.float32)


def _incomplete_operands() -> Iterator[tuple[Array, Array, str]]:
    generator = np.random.default_rng(0)
    a = generator.uniform(0.1, 9.0, (3, 4)).astype(np.float32)
    b = generator.uniform(0.1, 9.0, (3, 4)).astype(np.float32)
    yield a, b, ""
    yield a * 60, b[::2, :1].T[:, :1] * 60, "large, broadcast, strided"
    yield a * 0.01, b * 0.1, "small"
    edges = np.array([[0, 0, 2, 2, -1, 2, 2], [0, 3, 0, np.inf, 1, -1, np.nan]], np.float32)
    yield edges[0], edges[1], "edges"
    yield a[:0], b[:0], "empty"
    yield a[0, 0], b[0, 0], "scalars"
    yield a.astype(np.float64), b.astype(np.float64), "f64"


@function
def igamma(a: Operand, b: Operand) -> Value:
    """The regularised lower incomplete gamma function P(a, b)."""
    return binary_float(Igamma(), a, b)


@op("igammac", traits=ELEMENTWISE)
class Igammac(FloatPair):
    """The regularised upper incomplete gamma function Q(a, b) = 1 - P; a gradient by b alone."""

    def evaluate(self, a: Array, b: Array) -> Any:
        return in_double(gamma_reference.igammac, a, b)

    def lower_loops(self, b: LoopBuilder) -> None:
        special_loops.lower_incomplete_gamma(b, upper=True)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        return None, reduce.sum_to(elementwise.negate(grad * _density(a, b)), b.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for a, b, note in _incomplete_operands():
            yield Sample(cls(), (a, b), note, False)
        yield Sample(lambda b: igammac(2.5, b), (_incomplete_points(),), "by the second")


@function
def igammac(a: Operand, b: Operand) -> Value:
    """The regularised upper incomplete gamma function Q(a, b)."""
    return binary_float(Igammac(), a, b)


@function
def multigamma(x: Operand, dimensions: int) -> Value:
    """The logarithm of the multivariate gamma function, for positive ``dimensions``."""
    require(
        dimensions > 0,
        "multigamma: no dimensions",
        expected="at least 1",
        found=dimensions,
    )
    value = reduce.as_float(x)
    constant = dimensions * (dimensions - 1) / 4 * float(np.log(np.pi))
    total = apply(Lgamma(), value) + constant
    for step in range(1, dimensions):
        total = total + apply(Lgamma(), value - step / 2)
    return total
