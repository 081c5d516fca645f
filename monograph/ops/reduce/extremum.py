"""Maximum, minimum, argmax and argmin.

A NaN among the elements is the result. The maximum of no elements does not exist, so an empty axis
is refused, unless the op is told that the dtype's lowest element is meant then (-inf of floats; its
highest for the minimum).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import monograph.ops as ops  # whole, because the files that are used here import this one
from monograph.dataclass import dataclass
from monograph.ir.build import Operand, apply, cast_to
from monograph.ir.dims import provably_at_least
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, DType, TensorType, bool_, dtype_of, i64, u8
from monograph.ops import shape as shape_ops
from monograph.ops.reduce.arithmetic import Sum
from monograph.ops.reduce.base import (
    SPECIAL,
    Reduction,
    as_axes,
    check_elements,
    lower_reduction,
    one_value,
    reduce_shape,
    require_elements,
    require_ordered,
    sample_operands,
    spread,
)
from monograph.ops.rules import normalize_axes


def dtype_limit(dtype: DType, lowest: bool) -> bool | int | float:
    """The lowest (or highest) element that a dtype has."""
    if dtype is bool_:
        return not lowest
    if dtype.is_integer:
        limits = ml_dtypes.iinfo(dtype.numpy)  # type: ignore[no-untyped-call]
        return int(limits.min if lowest else limits.max)
    return -np.inf if lowest else np.inf


@dataclass(frozen=True, eq=False, repr=False)
class Extremum(Reduction):
    """The largest or smallest element; elements that tie have even parts of its gradient.

    With ``may_be_empty`` that of no elements is the one that any of them would replace: an infinity
    of floats, an end of the range of integers.
    """

    may_be_empty: bool = False

    def infer(self, x: TensorType) -> TensorType:
        """The operand's dtype without the reduced axes, none of which may be empty."""
        require_ordered(self.name, x)
        if not self.may_be_empty:
            for axis in normalize_axes(self.name, self.axes, x.rank):
                require_elements(self.name, x, axis)
        return super().infer(x)

    def holds_at_all_sizes(self, x: TensorType) -> bool:
        """Whether there is always something to take the largest or smallest of."""
        return self.may_be_empty or all(provably_at_least(x.shape[axis], 1) for axis in self.axes)

    def _options(self, x: Array, lowest: bool) -> dict[str, Any]:
        """NumPy's options: the axes, and the element to begin with where that is asked for."""
        options = {"axis": self.axes, "keepdims": self.keepdims}
        if self.may_be_empty:
            return options | {"initial": dtype_limit(dtype_of(x.dtype), lowest)}
        check_elements(self.name, x, self.axes)
        return options

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        """Of truth values, the largest is whether any is true, the smallest whether all are."""
        kind = self.name
        if b.operands[0].dtype is bool_:
            kind = {"max": "any", "min": "all"}[kind]
        return lower_reduction(b, kind, self.axes, self.keepdims, index)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        """An even share of the gradient for each element that equals the result."""
        x = node.operands[0]
        extreme = spread(node.result, x.shape, self.axes)
        chosen = cast_to(ops.elementwise.equal(x, extreme), x.dtype)
        share = grad / apply(Sum(self.axes, self.keepdims), chosen)
        return (spread(share, x.shape, self.axes) * chosen,)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Distinct floats, ties, special values, integers and bools."""
        for axes, keepdims, x, note in sample_operands():
            yield Sample(cls(axes, keepdims), (x,), note)
        ties = np.array([[3, 1, 3, 1], [2, 2, 2, 2]], np.float32)
        yield Sample(cls((1,)), (ties,), "ties", False)
        yield Sample(cls((1,)), (np.zeros((0, 3), np.float32),), "empty result", False)
        yield Sample(cls((1,)), (SPECIAL,), "special", False)
        nothing = np.zeros((2, 0), np.float32)
        yield Sample(cls((1,), False, True), (nothing,), "nothing", False)
        yield Sample(cls((1,), True, True), (ties,), "perhaps empty", False)
        for dtype in (np.int8, np.uint8, np.int32, np.int64, np.bool_):
            name = np.dtype(dtype).name
            yield Sample(cls((1,), False, True), (nothing.astype(dtype),), f"nothing {name}", False)
        yield Sample(cls((1,)), (np.array([[-128, 127], [5, -1]], np.int8),), "i8")
        yield Sample(cls((0,)), (np.array([[True, False], [False, False]]),), "bool")


@op("max", traits=Trait.REDUCTION)
class Max(Extremum):
    """The largest element along axes; NaN if there is one."""

    def evaluate(self, x: Array) -> Array:
        return np.asarray(np.max(x, **self._options(x, True)))


@function
def max(x: Operand, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
    """The largest element along ``axis`` (all axes if None)."""
    value = one_value(x)
    return apply(Max(as_axes("max", axis, value.rank), keepdims), value)


@op("min", traits=Trait.REDUCTION)
class Min(Extremum):
    """The smallest element along axes; NaN if there is one."""

    def evaluate(self, x: Array) -> Array:
        return np.asarray(np.min(x, **self._options(x, False)))


@function
def min(x: Operand, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
    """The smallest element along ``axis`` (all axes if None)."""
    value = one_value(x)
    return apply(Min(as_axes("min", axis, value.rank), keepdims), value)


@dataclass(frozen=True, eq=False, repr=False)
class ArgExtremum(Op):
    """Where the largest or smallest element stands along ``axis``: the first place, as ``i64``."""

    axis: int
    keepdims: bool = False

    def infer(self, x: TensorType) -> TensorType:
        """``i64`` without the axis, which may not be empty."""
        require_ordered(self.name, x)
        shape = reduce_shape(self.name, x.shape, (self.axis,), self.keepdims)
        require_elements(self.name, x, self.axis)
        return x.with_shape(shape).with_dtype(i64)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        """Truth values are compared as numbers."""

        def number(element: Scalar) -> Scalar:
            return b.cast(element, u8) if element.dtype is bool_ else element

        return lower_reduction(b, self.name, (self.axis,), self.keepdims, index, number)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Distinct floats, ties, special values, integers and bools."""
        x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
        yield Sample(cls(1), (x,))
        yield Sample(cls(-1, True), (x,), "kept")
        yield Sample(cls(0), (x.T[::2],), "strided")
        yield Sample(cls(1), (np.array([[3, 1, 3, 1], [2, 2, 2, 2]], np.float32),), "ties")
        yield Sample(cls(1), (SPECIAL,), "special")
        yield Sample(cls(1), (np.zeros((0, 3), np.float32),), "empty result")
        yield Sample(cls(0), (np.array([3, -128, 127, 127, -128], np.int8),), "i8")
        yield Sample(cls(0), (np.array([False, True, True, False]),), "bool")


@op("argmax", traits=Trait.REDUCTION)
class Argmax(ArgExtremum):
    """The first place of the largest element; of the first NaN if there is one."""

    def evaluate(self, x: Array) -> Array:
        check_elements(self.name, x, (self.axis,))
        return np.asarray(np.argmax(x, axis=self.axis, keepdims=self.keepdims))


@function
def argmax(x: Operand, axis: int | None = None, keepdims: bool = False) -> Value:
    """Where the largest element is along ``axis``; in the flattened operand if None."""
    return _arg_extremum(Argmax, one_value(x), axis, keepdims)


@op("argmin", traits=Trait.REDUCTION)
class Argmin(ArgExtremum):
    """The first place of the smallest element; of the first NaN if there is one."""

    def evaluate(self, x: Array) -> Array:
        check_elements(self.name, x, (self.axis,))
        return np.asarray(np.argmin(x, axis=self.axis, keepdims=self.keepdims))


@function
def argmin(x: Operand, axis: int | None = None, keepdims: bool = False) -> Value:
    """Where the smallest element is along ``axis``; in the flattened operand if None."""
    return _arg_extremum(Argmin, one_value(x), axis, keepdims)


def _arg_extremum(
    kind: type[Argmax] | type[Argmin], x: Value, axis: int | None, keepdims: bool
) -> Value:
    if axis is not None:
        return apply(kind(as_axes(kind.name, axis, x.rank)[0], keepdims), x)
    position = apply(kind(0, False), shape_ops.reshape(x, (x.tensor.size,)))
    return shape_ops.reshape(position, (1,) * x.rank) if keepdims else position
