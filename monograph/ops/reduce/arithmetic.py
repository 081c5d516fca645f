"""Sums and products. Integers wrap around; bools are counted in ``i64``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

import monograph.ops as ops  # whole, because the files that are used here import this one
from monograph.ir.build import Operand, apply
from monograph.ir.dims import Shape
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Gradients, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType
from monograph.ops import shape as shape_ops
from monograph.ops.reduce.base import (
    SPECIAL,
    Reduction,
    as_axes,
    as_number,
    lower_reduction,
    require_number,
    sample_operands,
    spread,
    sum_axes,
)
from monograph.ops.rules import normalize_axes


@op("sum", traits=Trait.REDUCTION)
class Sum(Reduction):
    """The sum along axes; 0 for none."""

    def infer(self, x: TensorType) -> TensorType:
        require_number(self.name, x)
        return super().infer(x)

    def evaluate(self, x: Array) -> Array:
        return sum_axes(x, self.axes, self.keepdims)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return lower_reduction(b, self.name, self.axes, self.keepdims, index)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (spread(grad, node.operands[0].shape, self.axes),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for axes, keepdims, x, note in sample_operands():
            yield Sample(cls(axes, keepdims), (x,), note)
        yield Sample(cls((0,)), (np.zeros((0, 3), np.float32),), "empty", False)
        yield Sample(cls((1,)), (SPECIAL,), "special", False)
        yield Sample(cls((-1,)), (np.array([[100, 100], [-7, 2]], np.int8),), "i8 wraps around")


@function
def sum(x: Operand, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
    """The sum along ``axis`` (all axes if None); of bools, how many are true."""
    value = as_number(x)
    return apply(Sum(as_axes("sum", axis, value.rank), keepdims), value)


@op("prod", traits=Trait.REDUCTION)
class Prod(Reduction):
    """The product along axes; 1 for none."""

    def infer(self, x: TensorType) -> TensorType:
        require_number(self.name, x)
        return super().infer(x)

    def evaluate(self, x: Array) -> Array:
        return np.asarray(np.prod(x, axis=self.axes, keepdims=self.keepdims, dtype=x.dtype))

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return lower_reduction(b, self.name, self.axes, self.keepdims, index)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x = node.operands[0]
        spread_grad = spread(grad, x.shape, self.axes)
        others = _product_of_others(x, normalize_axes(self.name, self.axes, x.rank))
        return (spread_grad if others is None else spread_grad * ops.elementwise.conj(others),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for axes, keepdims, x, note in sample_operands():
            yield Sample(cls(axes, keepdims), (x,), note)
        zeros = np.array([[2.0, 0.0, 3.0], [0.0, 5.0, 0.0], [1.5, -2.0, 0.5]], np.float32)
        yield Sample(cls((1,)), (zeros,), "one zero and two")
        yield Sample(cls((0, 1)), (zeros,), "zeros along both axes")
        yield Sample(cls((0,)), (np.zeros((0, 3), np.float32),), "empty", False)
        yield Sample(cls((1,)), (SPECIAL,), "special", False)
        yield Sample(cls((-1,)), (np.array([[100, 3], [-7, 2]], np.int8),), "i8 wraps around")


def _product_of_others(x: Value, axes: Sequence[int]) -> Value | None:
    """For each element, the product of all others along ``axes``: no division, so zeros may stand.

    Along one axis that is the product of what comes before and of what comes after.
    """
    others: Value | None = None
    for axis in axes:
        before = ops.cumulative.cumprod(x, axis, exclusive=True)
        after = ops.cumulative.cumprod(x, axis, exclusive=True, reverse=True)
        along = before * after
        others = along if others is None else others * along
        x = apply(Prod((axis,), True), x)
    return others


@function
def prod(x: Operand, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
    """The product along ``axis`` (all axes if None); of bools, 1 if all are true."""
    value = as_number(x)
    return apply(Prod(as_axes("prod", axis, value.rank), keepdims), value)


def sum_to(grad: Value, shape: Shape) -> Value:
    """Undo a broadcast from ``shape``: sum over the axes that it stretched or added."""
    if grad.shape == shape:
        return grad
    added = grad.rank - len(shape)
    stretched = [
        axis + added for axis, dim in enumerate(shape) if dim == 1 and grad.shape[axis + added] != 1
    ]
    axes = (*range(added), *stretched)
    reduced = apply(Sum(axes, False), grad) if axes else grad
    return reduced if reduced.shape == shape else shape_ops.reshape(reduced, shape)
