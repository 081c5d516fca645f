"""Choosing among elements: where, maximum, minimum, clip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from monograph.ir.build import Operand, Tracer, apply, as_operands, graph_of, promote_operands
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, DType, Kind, TensorType, bool_, dtype_of
from monograph.ops import reduce
from monograph.ops.elementwise.base import (
    ANYTHING,
    COMMUTATIVE,
    ELEMENTWISE,
    ORDERED,
    REALS,
    SPECIAL,
    Binary,
    Unary,
    binary,
    floating,
    limits,
    require_kind,
    unary_operands,
)
from monograph.ops.elementwise.comparison import equal, greater_equal, less_equal, truth
from monograph.ops.rules import broadcast_shapes, require, same_dtype


@op("where", traits=ELEMENTWISE)
class Where(Op):
    """The elements of ``a`` where the condition holds, those of ``b`` elsewhere; all broadcast."""

    def infer(self, condition: TensorType, a: TensorType, b: TensorType) -> TensorType:
        require(
            condition.dtype is bool_,
            "where: the condition is not bool",
            expected="bool",
            found=condition,
        )
        dtype = same_dtype(self.name, a, b)
        require_kind(self.name, ANYTHING, a, b)
        shape = broadcast_shapes(self.name, condition.shape, a.shape, b.shape)
        return TensorType(dtype, shape, device=condition.device)

    def evaluate(self, condition: Array, a: Array, b: Array) -> Any:
        return np.where(condition, a, b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        condition, a, b = node.operands
        return (
            None,
            reduce.sum_to(where(condition, grad, 0.0), a.shape),
            reduce.sum_to(where(condition, 0.0, grad), b.shape),
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)
        a, b = generator.normal(size=(2, 3, 4)).astype(np.float32)
        yield Sample(cls(), (a > b, a, b))
        yield Sample(cls(), (a[:, :1] > 0, a[0], b), "broadcast all three")
        yield Sample(cls(), (np.asarray(True), a, b[0, 0]), "scalar condition")
        yield Sample(cls(), (np.zeros((0, 4), np.bool_), a[:1], b[:1]), "empty", False)
        yield Sample(cls(), ((a > b).T[::2], a.T[::-2], b.T[::2]), "strided")
        yield Sample(cls(), (SPECIAL > 0, SPECIAL, -SPECIAL[:, None]), "special", False)
        yield Sample(cls(), (np.array([True, False]), np.array([1, 2]), np.array(3)), "i64", False)


@function
def where(condition: Operand, a: Operand, b: Operand) -> Value:
    """``a`` where the condition holds (is not 0), ``b`` elsewhere."""
    if any(isinstance(operand, Tracer) for operand in (condition, a, b)):
        return apply(Where(), condition, a, b)
    graph = graph_of([condition, a, b])
    with graph.as_current():
        (decided,) = as_operands(graph, [condition])
        return apply(Where(), truth(decided), *promote_operands(a, b))


@op("maximum", traits=COMMUTATIVE | Trait.SUBSCRIPT)
class Maximum(Binary):
    """The larger of two; NaN if either is. Of two zeros, +0.0 is the larger."""

    kinds: ClassVar[frozenset[Kind]] = ORDERED

    def evaluate(self, a: Array, b: Array) -> Any:
        larger = np.maximum(a, b)
        if a.dtype.kind != "f":
            return larger
        return np.where((a == 0) & (b == 0), a + b, larger)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        shared = where(equal(a, b), grad * 0.5, grad)
        return (
            reduce.sum_to(where(a < b, 0.0, shared), a.shape),
            reduce.sum_to(where(b < a, 0.0, shared), b.shape),
        )


@function
def maximum(a: Operand, b: Operand) -> Value:
    """The larger of two; the gradient of a tie is shared evenly."""
    return binary(Maximum(), a, b)


@op("minimum", traits=COMMUTATIVE | Trait.SUBSCRIPT)
class Minimum(Binary):
    """The smaller of two; NaN if either is. Of two zeros, -0.0 is the smaller."""

    kinds: ClassVar[frozenset[Kind]] = ORDERED

    def evaluate(self, a: Array, b: Array) -> Any:
        smaller = np.minimum(a, b)
        if a.dtype.kind != "f":
            return smaller
        return np.where((a == 0) & (b == 0), -(-a - b), smaller)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        shared = where(equal(a, b), grad * 0.5, grad)
        return (
            reduce.sum_to(where(a > b, 0.0, shared), a.shape),
            reduce.sum_to(where(b > a, 0.0, shared), b.shape),
        )


@function
def minimum(a: Operand, b: Operand) -> Value:
    """The smaller of two; the gradient of a tie is shared evenly."""
    return binary(Minimum(), a, b)


@op("clip", traits=ELEMENTWISE | Trait.IDEMPOTENT)
class Clip(Unary):
    """min(max(x, low), high): each bound may be None; a NaN stays one; high wins over low.

    Bounds of an integer operand must be whole (or infinite), and bounds must leave something of
    the dtype: ``clip(u8, low=300)`` is refused.
    """

    low: float | None = None
    high: float | None = None
    kinds: ClassVar[frozenset[Kind]] = REALS

    def infer(self, x: TensorType) -> TensorType:
        own = super().infer(x)
        smallest, largest = limits(x.dtype)
        for bound in (self.low, self.high):
            whole = bound is None or not x.dtype.is_integer or bound == np.floor(bound)
            require(
                whole,
                "clip: an integer operand needs whole bounds",
                expected="bounds without a fraction",
                found=f"{bound} for {x}",
            )
        outside = (self.low is not None and self.low > largest) or (
            self.high is not None and self.high < smallest
        )
        require(
            not outside,
            "clip: the bounds leave nothing of the dtype",
            expected=f"bounds that meet {smallest} to {largest}",
            found=f"{self.low} to {self.high}",
        )
        return own

    def evaluate(self, x: Array) -> Any:
        dtype = dtype_of(x.dtype)
        result = x
        if self.low is not None:
            result = Maximum().evaluate(result, _to_scalar(self.low, dtype))
        if self.high is not None:
            result = Minimum().evaluate(result, _to_scalar(self.high, dtype))
        return result

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        inside = grad
        if self.low is not None:
            inside = where(greater_equal(x, _to_scalar(self.low, x.dtype)), inside, 0.0)
        if self.high is not None:
            inside = where(less_equal(x, _to_scalar(self.high, x.dtype)), inside, 0.0)
        return (inside,)

    def decompose(self, x: Value) -> Value:
        result = x
        if self.low is not None:
            result = maximum(result, _to_scalar(self.low, x.dtype))
        if self.high is not None:
            result = minimum(result, _to_scalar(self.high, x.dtype))
        return result

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return lower_clip(b, b.read(0, index), self.low, self.high)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for operand, note, gradient in unary_operands((-3.0, 3.0)):
            yield Sample(cls(-1.25, 2.0), (operand,), note, gradient)
        x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
        yield Sample(cls(), (x,), "no bounds")
        yield Sample(cls(low=0.0), (SPECIAL,), "low alone", False)
        yield Sample(cls(high=0.0), (SPECIAL,), "high alone", False)
        yield Sample(cls(1.0, -1.0), (x,), "low above high", False)
        yield Sample(cls(-3.0, float("inf")), (np.arange(-5, 5),), "i64", False)
        yield Sample(cls(-3.0, 300.0), (np.arange(5, dtype=np.uint8),), "u8", False)


def lower_clip(b: Lowering, x: Scalar, low: float | None, high: float | None) -> Scalar:
    """``x`` held between bounds, by comparisons that a NaN fails.

    That is cheaper than the maximum and the minimum of two unknowns. Where a bound is a zero, its
    sign is known: 0.0 as ``low`` and -0.0 as ``high`` take the place of the other zero.
    """
    if low is not None:
        number = _to_scalar(low, x.dtype).item()
        beyond = "less_equal" if number == 0 and not np.signbit(number) else "less"
        bound = b.literal(number, x.dtype)
        x = b.select(b.apply(beyond, x, bound), bound, x)
    if high is not None:
        number = _to_scalar(high, x.dtype).item()
        beyond = "greater_equal" if number == 0 and np.signbit(number) else "greater"
        bound = b.literal(number, x.dtype)
        x = b.select(b.apply(beyond, x, bound), bound, x)
    return x


def _to_scalar(bound: float, dtype: DType) -> Array:
    """A bound as a scalar of the dtype; one beyond its range is moved to the end of it."""
    smallest, largest = limits(dtype)
    held = min(max(bound, smallest), largest)
    with np.errstate(over="ignore"):  # 1e30 is an infinite bound in f16
        return np.asarray(int(held) if dtype.is_integer else held).astype(dtype.numpy)


@function
def clip(x: Operand, low: Operand | None = None, high: Operand | None = None) -> Value:
    """``x`` held between bounds; those that are tensors act through maximum and minimum."""
    if isinstance(low, int | float | None) and isinstance(high, int | float | None):
        numbers = [None if bound is None else float(bound) for bound in (low, high)]
        fractional = any(bound is not None and bound != np.floor(bound) for bound in numbers)
        return apply(Clip(*numbers), floating(x) if fractional else x)
    raised = apply(Clip(), x) if low is None else maximum(x, low)
    return raised if high is None else minimum(raised, high)
