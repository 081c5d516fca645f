"""Softmax and its logarithm, computed from distances to the largest element, so without overflow.

A row that holds +inf or NaN, and a row of nothing but -inf, has no answer: every element is NaN, as
in PyTorch. The softmax inside attention may give zeros for a row of -inf.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias, get_args

import numpy as np

from monograph.ir.build import Operand, apply, cast_to
from monograph.ir.graph import Node, Value
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, wide
from monograph.ops import elementwise, reduce
from monograph.ops import math as math_ops
from monograph.ops.rules import normalize_axis, require

FullyMasked: TypeAlias = Literal["zeros", "nan"]
"""What a row gives whose elements are all -inf: it has no softmax."""


class AlongAxis(Op):
    """An op on the rows along one axis of a real float."""

    axis: int

    def infer(self, x: TensorType) -> TensorType:
        """The operand's own type."""
        require(
            x.dtype.is_float,
            f"{self.name}: a real float operand is needed",
            expected="a float dtype",
            found=x,
        )
        normalize_axis(self.name, self.axis, x.rank)
        return x

    def holds_at_all_sizes(self, x: TensorType) -> bool:
        return True

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Every axis, the edges of a row, and elements far apart."""
        generator = np.random.default_rng(0)

        def draw(*shape: int) -> Array:
            return generator.normal(size=shape).astype(np.float32) * 2

        def along(axis: int) -> Op:
            return cls(axis)  # type: ignore[call-arg]  # the subclasses declare the field

        yield Sample(along(1), (draw(3, 5),))
        yield Sample(along(0), (draw(4, 3, 2),), "first axis")
        yield Sample(along(-2), (draw(2, 3, 4),), "negative axis")
        yield Sample(along(0), (draw(6)[::-2],), "vector, strided")
        yield Sample(along(1), (draw(3, 1),), "rows of one")
        yield Sample(along(1), (np.zeros((3, 0), np.float32),), "empty rows", False)
        yield Sample(along(1), (np.zeros((0, 3), np.float32),), "no rows", False)
        yield Sample(along(0), (np.array([1e4, 9999, -1e4], np.float32),), "large", False)
        infinity, nan = np.inf, np.nan
        rows = [
            [1, -infinity, 2],
            [-infinity, -infinity, -infinity],
            [1, infinity, 2],
            [infinity, infinity, 0],
            [nan, 0, 1],
            [-0.0, 0.0, -0.0],
        ]
        yield Sample(along(1), (np.array(rows, np.float32),), "special", False)
        yield Sample(along(1), (draw(2, 7).astype(np.float64),), "f64")


@op("softmax", traits=Trait.REDUCTION)
class Softmax(AlongAxis):
    """exp(x) over the sum of exp(x) along ``axis``.

    A row of nothing but -inf gives NaN or, where ``fully_masked`` says so, zeros.
    """

    axis: int
    fully_masked: FullyMasked = "nan"

    def infer(self, x: TensorType) -> TensorType:
        require_fully_masked(self.name, self.fully_masked)
        return super().infer(x)

    def evaluate(self, x: Array) -> Array:
        largest = _largest(x, self.axis)
        blind = (largest == -np.inf) & (self.fully_masked == "zeros")
        exponentials = np.exp(x - np.where(blind, x.dtype.type(0), largest))
        total = exponentials.sum(self.axis, keepdims=True)
        return np.asarray(exponentials / np.where(blind, x.dtype.type(1), total))

    def decompose(self, x: Value) -> Value:
        if x.shape[self.axis] == 0:
            return x
        exact = cast_to(x, wide(x.dtype))
        largest = reduce.largest_or_none(exact, (self.axis,))
        if self.fully_masked == "nan":
            exponentials = math_ops.exp(exact - largest)
            total = reduce.sum(exponentials, self.axis, keepdims=True)
        else:
            lowest = float(elementwise.float_facts(exact.dtype).min)
            exponentials = math_ops.exp(exact - _at_least(largest, lowest))
            total = _at_least(reduce.sum(exponentials, self.axis, keepdims=True), 1.0)
        return cast_to(exponentials / total, x.dtype)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        dtype = wide(node.result.dtype)
        y, arriving = cast_to(node.result, dtype), cast_to(grad, dtype)
        shared = reduce.sum(arriving * y, self.axis, keepdims=True)
        return (cast_to(y * (arriving - shared), grad.dtype),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield from super().samples()
        infinity = np.inf
        rows = [[1, -infinity, 2], [-infinity, -infinity, -infinity], [np.nan, -infinity, 1]]
        yield Sample(cls(1, "zeros"), (np.array(rows, np.float32),), "zeros of -inf", False)
        yield Sample(cls(0, "zeros"), (np.array(rows, np.float64).T,), "zeros, first axis", False)
        finite = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
        yield Sample(cls(-1, "zeros"), (finite,), "zeros, nothing hidden")


@function
def softmax(x: Operand, axis: int = -1, fully_masked: FullyMasked = "nan") -> Value:
    """exp(x) / sum(exp(x)) along ``axis``: positive, and summing to 1; a row of nothing but -inf
    gives NaN, or zeros if ``fully_masked`` is "zeros".
    """
    value = reduce.as_float(x)
    return apply(Softmax(normalize_axis("softmax", axis, value.rank), fully_masked), value)


@op("log_softmax", traits=Trait.REDUCTION)
class LogSoftmax(AlongAxis):
    """The logarithm of softmax, exact where softmax itself would round to 0."""

    axis: int

    def evaluate(self, x: Array) -> Array:
        distance = x - _largest(x, self.axis)
        return np.asarray(distance - np.log(np.exp(distance).sum(self.axis, keepdims=True)))

    def decompose(self, x: Value) -> Value:
        if x.shape[self.axis] == 0:
            return x
        exact = cast_to(x, wide(x.dtype))
        distance = exact - reduce.largest_or_none(exact, (self.axis,))
        total = reduce.sum(math_ops.exp(distance), self.axis, keepdims=True)
        return cast_to(distance - math_ops.log(total), x.dtype)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        dtype = wide(node.result.dtype)
        y, arriving = cast_to(node.result, dtype), cast_to(grad, dtype)
        shared = reduce.sum(arriving, self.axis, keepdims=True)
        return (cast_to(arriving - math_ops.exp(y) * shared, grad.dtype),)


@function
def log_softmax(x: Operand, axis: int = -1) -> Value:
    """log(softmax(x)) along ``axis``, accurate where softmax is tiny."""
    value = reduce.as_float(x)
    return apply(LogSoftmax(normalize_axis("log_softmax", axis, value.rank)), value)


def _at_least(x: Value, bound: float) -> Value:
    """x or, where it is less, a number: one instruction that lets NaN through."""
    return elementwise.where(elementwise.less(x, bound), bound, x)


def require_fully_masked(op: str, fully_masked: str) -> None:
    """Refuse a word that says nothing of rows that are all -inf."""
    require(
        fully_masked in get_args(FullyMasked),
        f"{op}: what a row gives that sees nothing is not known",
        expected=" or ".join(map(repr, get_args(FullyMasked))),
        found=repr(fully_masked),
    )


def _largest(x: Array, axis: int) -> Array:
    return np.asarray(np.max(x, axis=axis, keepdims=True, initial=-np.inf))
