"""Softmax and its logarithm, computed from distances to the largest element, so without overflow.

A row that holds +inf or NaN, and a row of nothing but -inf, has no answer: every element is NaN, as
in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.ir.build import Operand, apply, cast_to
from monograph.ir.graph import Node, Value
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, wide
from monograph.ops import math as math_ops
from monograph.ops import reduce
from monograph.ops.rules import normalize_axis, require


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
    """exp(x) over the sum of exp(x) along ``axis``."""

    axis: int

    def evaluate(self, x: Array) -> Array:
        exponentials = np.exp(x - _largest(x, self.axis))
        return np.asarray(exponentials / exponentials.sum(self.axis, keepdims=True))

    def decompose(self, x: Value) -> Value:
        if x.shape[self.axis] == 0:
            return x
        exact = cast_to(x, wide(x.dtype))
        exponentials = math_ops.exp(exact - reduce.largest_or_none(exact, (self.axis,)))
        total = reduce.sum(exponentials, self.axis, keepdims=True)
        return cast_to(exponentials / total, x.dtype)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        dtype = wide(node.result.dtype)
        y, arriving = cast_to(node.result, dtype), cast_to(grad, dtype)
        shared = reduce.sum(arriving * y, self.axis, keepdims=True)
        return (cast_to(y * (arriving - shared), grad.dtype),)


@function
def softmax(x: Operand, axis: int = -1) -> Value:
    """exp(x) / sum(exp(x)) along ``axis``: positive, and summing to 1."""
    value = reduce.as_float(x)
    return apply(Softmax(normalize_axis("softmax", axis, value.rank)), value)


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


def _largest(x: Array, axis: int) -> Array:
    return np.asarray(np.max(x, axis=axis, keepdims=True, initial=-np.inf))
