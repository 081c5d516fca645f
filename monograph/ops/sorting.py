"""Order: sort, argsort and the k largest.

Equal elements keep their order (the lower index comes first), ascending and descending alike, so
every result is determined. A NaN counts as larger than every number: last when ascending, first
when descending. ``argsort`` is the primitive, and ``top_k_indices`` where few of many are wanted;
the others are what these select.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.build import Operand, apply, apply_many
from monograph.ir.dims import Dim, provably_less
from monograph.ir.graph import Value
from monograph.ir.lower import LoopBuilder
from monograph.ir.op import Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, i64
from monograph.ops import index, reduce, slicing
from monograph.ops.rules import normalize_axis, require
from monograph.ops.selection_loops import lower_top_k_indices, may_select
from monograph.ops.sorting_loops import lower_argsort


@op("argsort")
class Argsort(Op):
    """The indices that sort along ``axis``; equal elements in order of index if ``stable``."""

    axis: int
    descending: bool = False
    stable: bool = True

    def infer(self, x: TensorType) -> TensorType:
        reduce.require_ordered(self.name, x)
        normalize_axis(self.name, self.axis, x.rank)
        return x.with_shape(x.shape).with_dtype(i64)

    def evaluate(self, x: Array) -> Array:
        return _order(x, self.axis, self.descending)

    def lower_loops(self, b: LoopBuilder) -> None:
        lower_argsort(b, self.axis, self.descending)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for x, axis, descending, note, _ in _operands():
            yield Sample(cls(axis, descending), (x,), note)


@function
def argsort(x: Operand, axis: int = -1, descending: bool = False, stable: bool = True) -> Value:
    """The indices that sort ``x`` along ``axis``, as ``i64``."""
    value = reduce.one_value(x)
    return apply(Argsort(normalize_axis("argsort", axis, value.rank), descending, stable), value)


@op("sort")
class Sort(Op):
    """The elements in order along ``axis``."""

    axis: int
    descending: bool = False
    stable: bool = True

    def infer(self, x: TensorType) -> TensorType:
        reduce.require_ordered(self.name, x)
        normalize_axis(self.name, self.axis, x.rank)
        return x.with_shape(x.shape)

    def evaluate(self, x: Array) -> Array:
        return np.take_along_axis(x, _order(x, self.axis, self.descending), self.axis)

    def decompose(self, x: Value) -> Value:
        order = apply(Argsort(self.axis, self.descending, self.stable), x)
        return index.take_along_axis(x, order, self.axis)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for x, axis, descending, note, gradient in _operands():
            yield Sample(cls(axis, descending), (x,), note, gradient)


@function
def sort(x: Operand, axis: int = -1, descending: bool = False, stable: bool = True) -> Value:
    """The elements of ``x`` in order along ``axis``."""
    value = reduce.one_value(x)
    return apply(Sort(normalize_axis("sort", axis, value.rank), descending, stable), value)


@op("top_k_indices")
class TopKIndices(Op):
    """The indices of the ``k`` largest (or smallest) elements along ``axis``, in order of size.

    Of equal elements the lower index comes first.
    """

    k: int
    axis: int
    largest: bool = True

    def infer(self, x: TensorType) -> TensorType:
        _, indices = TopK(self.k, self.axis, self.largest).infer(x)
        return indices

    def evaluate(self, x: Array) -> Array:
        return TopK(self.k, self.axis, self.largest).evaluate(x)[1]

    def lower_loops(self, b: LoopBuilder) -> None:
        lower_top_k_indices(b, self.k, self.axis, self.largest)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for x, axis, descending, note, _ in _operands():
            if x.ndim and x.shape[axis]:
                yield Sample(cls(2, axis, descending), (x,), note)


@op("top_k")
class TopK(Op):
    """The ``k`` largest (or smallest) elements along ``axis``, and their ``i64`` indices.

    In order of size if ``sorted``, otherwise in order of index; of equal elements the lower index
    is preferred.
    """

    k: Dim
    axis: int = -1
    largest: bool = True
    sorted: bool = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        reduce.require_ordered(self.name, x)
        axis = normalize_axis(self.name, self.axis, x.rank)
        require(
            not provably_less(self.k, 0) and not provably_less(x.shape[axis], self.k),
            f"top_k: there are not that many elements along axis {self.axis}",
            expected=f"k from 0 to {x.shape[axis]}",
            found=f"k = {self.k} of {x}",
        )
        shape = (*x.shape[:axis], self.k, *x.shape[axis + 1 :])
        return x.with_shape(shape), x.with_shape(shape).with_dtype(i64)

    def evaluate(self, x: Array) -> tuple[Array, Array]:
        size, k = x.shape[self.axis], self.k
        if not isinstance(k, int) or not 0 <= k <= size:
            raise EvaluationError(
                f"top_k: there are not that many elements along axis {self.axis}",
                expected=f"k from 0 to {size}",
                found=str(k),
            )
        chosen = np.take(_order(x, self.axis, self.largest), np.arange(k), self.axis)
        if not self.sorted:
            chosen = np.sort(chosen, self.axis)
        return np.take_along_axis(x, chosen, self.axis), chosen

    def decompose(self, x: Value) -> tuple[Value, Value]:
        if isinstance(self.k, int) and may_select(x.shape[self.axis], self.k):
            chosen = apply(TopKIndices(self.k, self.axis, self.largest), x)
        else:
            order = apply(Argsort(self.axis, self.largest), x)
            chosen = slicing.slice(order, [0], [self.k], axes=[self.axis])
        if not self.sorted:
            chosen = apply(Sort(self.axis), chosen)
        return index.take_along_axis(x, chosen, self.axis), chosen

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for x, axis, descending, note, gradient in _operands():
            if x.ndim and x.shape[axis]:
                yield Sample(cls(2, axis, descending), (x,), note, gradient)
        x = np.random.default_rng(2).normal(size=(3, 5)).astype(np.float32)
        yield Sample(cls(3, 1, True, False), (x,), "in order of index")
        yield Sample(cls(5, 1), (x,), "all of them")
        yield Sample(cls(0, 1), (x,), "none of them", False)
        yield Sample(cls(0, 0), (np.zeros((0, 2), np.float32),), "none of none", False)


@function
def top_k(
    x: Operand,
    k: Dim,
    axis: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> tuple[Value, Value]:
    """The ``k`` largest (or smallest) elements along ``axis``, and their indices."""
    value = reduce.one_value(x)
    normal = normalize_axis("top_k", axis, value.rank)
    values, indices = apply_many(TopK(k, normal, largest, sorted), value)
    return values, indices


def _order(x: Array, axis: int, descending: bool) -> Array:
    """A stable argsort; descending is the ascending one of the reversed array, read backwards."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    order: Array = x.shape[axis] - 1 - np.flip(backwards, axis)
    return order


def _operands() -> Iterator[tuple[Array, int, bool, str, bool]]:
    """Operands that each op is tried with: (array, axis, descending, note, differentiable)."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2, 3, 4)).astype(np.float32)
    special = np.array([[1, np.nan, -np.inf, 0, np.nan, np.inf, -0.0]], np.float32)
    yield x, 1, False, "", True
    yield x, -1, True, "descending", True
    yield x.T[::2, ::-1], 0, True, "strided", True
    yield generator.normal(size=(7,)), 0, False, "f64", True
    yield np.zeros((3, 0), np.float32), 1, False, "empty", False
    yield np.zeros((0, 3), np.float32), 1, True, "empty result", False
    yield np.array([3, 1, 3, 1, 2], np.float32), 0, False, "ties", False
    yield np.array([3, 1, 3, 1, 2], np.float32), 0, True, "ties descending", False
    yield special, 1, False, "special", False
    yield special, 1, True, "special descending", False
    yield np.array([3, -128, 127, 127, -128], np.int8), 0, True, "i8", False
    yield np.array([True, False, True]), 0, False, "bool", False
