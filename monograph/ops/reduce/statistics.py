"""Means, variances and logsumexp: composites, accumulated in f32 or wider and rounded once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

import monograph.ops as ops  # whole, because the files that are used here import this one
from monograph.ir.build import Operand, apply, cast_to
from monograph.ir.dims import Dim, Shape, dim_max, provably_at_least, shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.op import Gradients, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, wide
from monograph.ops import shape as shape_ops
from monograph.ops.reduce.arithmetic import Sum
from monograph.ops.reduce.base import (
    SPECIAL,
    Reduction,
    as_axes,
    as_float,
    reduce_shape,
    sample_operands,
    spread,
    sum_axes,
)
from monograph.ops.reduce.extremum import Max
from monograph.ops.rules import require, require_float


@op("mean", traits=Trait.REDUCTION)
class Mean(Reduction):
    """The sum along axes over the number of elements; NaN for none."""

    def infer(self, x: TensorType) -> TensorType:
        require_float(self.name, x)
        return super().infer(x)

    def evaluate(self, x: Array) -> Array:
        total = sum_axes(x, self.axes, self.keepdims)
        return np.asarray(total / x.dtype.type(_count(x.shape, self.axes)))

    def decompose(self, x: Value) -> Value:
        if _count(x.shape, self.axes) == 1:  # nothing to round
            return apply(Sum(self.axes, self.keepdims), x)
        total = apply(Sum(self.axes, self.keepdims), cast_to(x, wide(x.dtype)))
        return cast_to(_over(total, _count(x.shape, self.axes)), x.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for axes, keepdims, x, note in sample_operands():
            yield Sample(cls(axes, keepdims), (x,), note)
        yield Sample(cls((0,)), (np.zeros((0, 3), np.float32),), "empty", False)
        yield Sample(cls((1,)), (SPECIAL,), "special", False)
        yield Sample(cls((0,)), (np.full(300, 500, np.float16),), "f16 sum overflows")


@function
def mean(x: Operand, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
    """The mean along ``axis`` (all axes if None); of integers in ``f32``."""
    value = as_float(x)
    return apply(Mean(as_axes("mean", axis, value.rank), keepdims), value)


@op("variance", traits=Trait.REDUCTION)
class Variance(Reduction):
    """The mean square distance from the mean, in two passes.

    The sum of squares is divided by the number of elements less ``correction`` (1 estimates the
    variance of what the elements were drawn from); by 0, giving NaN or inf, where that is negative.
    """

    correction: int = 0

    def infer(self, x: TensorType) -> TensorType:
        _require_real(self.name, x)
        return super().infer(x)

    def evaluate(self, x: Array) -> Array:
        count = _count(x.shape, self.axes)
        average = sum_axes(x, self.axes, keepdims=True) / x.dtype.type(count)
        squares = sum_axes(np.square(x - average), self.axes, self.keepdims)
        return np.asarray(squares / x.dtype.type(dim_max(count - self.correction, 0)))

    def decompose(self, x: Value) -> Value:
        exact = cast_to(x, wide(x.dtype))
        distance = exact - apply(Mean(self.axes, True), exact)
        squares = apply(Sum(self.axes, self.keepdims), distance * distance)
        divisor = dim_max(_count(x.shape, self.axes) - self.correction, 0)
        return cast_to(_over(squares, divisor), x.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for axes, keepdims, x, note in sample_operands():
            yield Sample(cls(axes, keepdims), (x,), note)
        x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
        yield Sample(cls((1,), False, 1), (x,), "corrected")
        yield Sample(cls((0, 1), True, 1), (x + 1000,), "far from zero", False)
        yield Sample(cls((0,), False, 1), (x[:1],), "corrected to nothing", False)
        yield Sample(cls((0,)), (np.zeros((0, 3), np.float32),), "empty", False)
        yield Sample(cls((1,)), (SPECIAL,), "special", False)
        yield Sample(cls((0,)), (np.array([300, -300, 0], np.float16),), "f16 overflows", False)


@function
def variance(
    x: Operand,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    correction: int = 0,
) -> Value:
    """The variance along ``axis`` (all axes if None); ``correction=1`` for a sample's."""
    value = as_float(x)
    return apply(Variance(as_axes("variance", axis, value.rank), keepdims, correction), value)


@function
def std(
    x: Operand,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    correction: int = 0,
) -> Value:
    """The standard deviation along ``axis``: the square root of the variance."""
    value = as_float(x)
    squared = variance(cast_to(value, wide(value.dtype)), axis, keepdims, correction)
    return cast_to(ops.math.sqrt(squared), value.dtype)


@op("logsumexp", traits=Trait.REDUCTION)
class Logsumexp(Reduction):
    """log(sum(exp(x))) along axes without overflow; -inf for no elements, or if all are -inf."""

    def infer(self, x: TensorType) -> TensorType:
        _require_real(self.name, x)
        return super().infer(x)

    def evaluate(self, x: Array) -> Array:
        largest = np.max(x, axis=self.axes, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(largest), largest, x.dtype.type(0))
        total = sum_axes(np.exp(x - shift), self.axes, keepdims=True)
        result: Array = np.log(total) + shift
        return result if self.keepdims else np.squeeze(result, self.axes)

    def decompose(self, x: Value) -> Value:
        exact = cast_to(x, wide(x.dtype))
        largest = largest_or_none(exact, self.axes)
        finite = ops.elementwise.is_finite(largest)
        shift = ops.elementwise.where(finite, largest, 0.0)
        total = apply(Sum(self.axes, True), ops.math.exp(exact - shift))
        shape = reduce_shape(self.name, x.shape, self.axes, self.keepdims)
        return cast_to(shape_ops.reshape(ops.math.log(total) + shift, shape), x.dtype)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x = node.operands[0]
        exact = cast_to(x, wide(x.dtype))
        total = node.result if exact is x else apply(self, exact)
        nothing = ops.elementwise.equal(total, -np.inf)  # then every weight is exp(-inf), not NaN
        base = ops.elementwise.where(nothing, 0.0, total)
        weights = ops.math.exp(exact - spread(base, x.shape, self.axes))
        spread_grad = spread(cast_to(grad, exact.dtype), x.shape, self.axes)
        return (cast_to(spread_grad * weights, x.dtype),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for axes, keepdims, x, note in sample_operands():
            yield Sample(cls(axes, keepdims), (x,), note)
        yield Sample(cls((0,)), (np.zeros((0, 3), np.float32),), "empty", False)
        yield Sample(cls((1,)), (SPECIAL,), "special", False)
        yield Sample(cls((0, 1)), (np.array([[1e4, 1e4], [-1e4, 9999]], np.float32),), "large")
        yield Sample(cls((0,)), (np.array([60000, 60000], np.float16),), "f16 sum overflows")


@function
def logsumexp(x: Operand, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
    """log(sum(exp(x))) along ``axis`` (all axes if None), without overflow."""
    value = as_float(x)
    return apply(Logsumexp(as_axes("logsumexp", axis, value.rank), keepdims), value)


def largest_or_none(x: Value, axes: Sequence[int]) -> Value:
    """The largest element along axes, which stay; -inf where they turn out to be empty."""
    never = all(provably_at_least(x.shape[axis], 1) for axis in axes)
    return apply(Max(tuple(axes), True, not never), x)


def _count(shape: Shape, axes: Sequence[int]) -> Dim:
    return shape_product(shape[axis] for axis in axes)


def _over(total: Value, count: Dim) -> Value:
    """``total / count``, where the count may be symbolic."""
    if isinstance(count, int):
        return total / float(count)
    with total.graph.as_current():
        return total / cast_to(ops.data.dim(count), total.dtype)


def _require_real(name: str, x: TensorType) -> None:
    require(
        x.dtype.is_float,
        f"{name}: a real float operand is needed",
        expected="a float dtype",
        found=x,
    )
