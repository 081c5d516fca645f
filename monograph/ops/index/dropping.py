"""Scatters that drop the positions outside of the result.

XLA and JAX define their scatters so. There is no counting from the end: -1 is outside, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import ClassVar

import numpy as np

from monograph.ir.build import Operand, apply, cast_to, promote_operands
from monograph.ir.dims import Dim, shape_product
from monograph.ir.graph import Value
from monograph.ir.lower import LoopBuilder, Scalar
from monograph.ir.op import Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, bool_, i64
from monograph.ops import data, elementwise, joining, slicing
from monograph.ops import shape as shape_ops
from monograph.ops.index.rules import MODES, check_shape, write_rows
from monograph.ops.index.writing import (
    ELEMENTS_PER_THREAD,
    Scatter,
    begin_writing,
    combine_update,
    end_writing,
)


@op("scatter_within")
class ScatterWithin(Op):
    """``scatter``, but an update whose index vector lies outside of ``x`` is dropped."""

    mode: str = "set"
    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        return Scatter(self.mode).infer(x, indices, updates)

    def evaluate(self, x: Array, indices: Array, updates: Array) -> Array:
        depth, places = indices.shape[-1], indices.shape[:-1]
        indexed, rest = x.shape[:depth], x.shape[depth:]
        check_shape(self.name, "the updates", updates.shape, places + rest)
        inside = np.ones(places, np.bool_)
        rows = np.zeros(places, np.int64)
        for axis, size in enumerate(indexed):
            along = indices[..., axis]
            inside &= (along >= 0) & (along < size)
            rows = rows * size + np.where(inside, along, 0).astype(np.int64)
        result = np.array(x).reshape(prod(indexed), *rest)
        kept = inside.reshape(-1)
        write_rows(
            self.mode, result, rows.reshape(-1)[kept], updates.reshape(prod(places), *rest)[kept]
        )
        return result.reshape(x.shape)

    def lower_loops(self, b: LoopBuilder) -> None:
        """One update after the other; one that is outside leaves a row as it stands."""
        x, indices, _ = b.operands
        depth = indices.shape[-1]
        assert isinstance(depth, int)
        indexed, columns = x.shape[:depth], shape_product(x.shape[depth:])
        places = shape_product(indices.shape[:-1])
        target = begin_writing(b, self.mode)
        rows = b.viewed(target, (shape_product(indexed), columns))
        with b.parallel((-(-columns // ELEMENTS_PER_THREAD),)) as (tile,):
            first, count = b.piece(tile, ELEMENTS_PER_THREAD, columns)
            with b.loop(places) as place:
                row, inside = b.index(0), b.literal(True, bool_)
                for axis, size in enumerate(indexed):
                    along = b.reshaped(1, (places, depth), [place, b.index(axis)])
                    position, within = _clamp_index(b, along, size)
                    inside = b.both(inside, within)
                    row = row * size + position
                with b.when(inside), b.loop(count, lanes=True) as k:
                    at = (row, first + k)
                    update = b.reshaped(2, (places, columns), [place, first + k])
                    b.store(rows, at, combine_update(b, self.mode, b.load(rows, at), update))
        end_writing(b, target)

    def decompose(self, x: Value, indices: Value, updates: Value) -> Value:
        """A scatter into one row more than there is, where all that is outside goes."""
        depth = indices.shape[-1]
        assert isinstance(depth, int)
        if depth == 0:
            return apply(Scatter(self.mode), x, indices, updates)
        wide = cast_to(indices, i64)
        sizes = [x.shape[axis] for axis in range(depth)]
        columns = [_column(wide, axis) for axis in range(depth)]
        inside = _inside(columns[0], sizes[0])
        for column, size in zip(columns[1:], sizes[1:], strict=True):
            inside = elementwise.logical_and(inside, _inside(column, size))
        outside = [_as_value(sizes[0], x), *(0 for _ in sizes[1:])]
        moved = [
            elementwise.where(inside, column, elsewhere)
            for column, elsewhere in zip(columns, outside, strict=True)
        ]
        rest = (0,) * (x.rank - 1)
        grown = slicing.pad(x, (0, *rest), (1, *rest), slicing.zero_of(x))
        written = apply(Scatter(self.mode), grown, joining.stack(moved, -1), updates)
        return slicing.pad(written, (0, *rest), (-1, *rest), slicing.zero_of(x))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)
        x = generator.normal(size=(3, 4, 2)).astype(np.float32)
        pairs = np.array([[0, 1], [2, -1], [3, 1], [1, 0], [0, 1], [2, 3], [-9, 9]])
        updates = generator.normal(size=(7, 2)).astype(np.float32)
        for mode in MODES:
            yield Sample(cls(mode), (x, pairs, updates), f"{mode}, some outside")
        yield Sample(cls("add"), (x, np.array([[1], [-1]], np.int8), x[1:]), "rows")
        yield Sample(cls(), (x[:2], np.array([1, 3, 1], np.uint8), updates[0, 0]), "one element")
        yield Sample(cls(), (x[:2], np.array([2, 3, 1], np.uint8), updates[0, 0]), "none inside")
        yield Sample(cls(), (x, np.zeros((0, 1), np.int64), x[:0]), "no update", False)
        nines, places = np.array([9, 9, 1], np.int8), np.array([[0], [2], [-1]])
        yield Sample(cls("add"), (np.array([120, 5], np.int8), places, nines), "i8 wraps around")


def _clamp_index(b: LoopBuilder, along: Scalar, size: Dim) -> tuple[Scalar, Scalar]:
    """An index as a position that may be read, and whether that is what it says."""
    wide = b.cast(along, i64)
    inside = b.within(wide, 0, size)
    return b.select(inside, wide, b.literal(0, i64)), inside


def _column(indices: Value, axis: int) -> Value:
    """The indices along one axis of the operand."""
    last = indices.rank - 1
    starts = (*(0,) * last, axis)
    limits = (*indices.shape[:-1], axis + 1)
    return shape_ops.squeeze(slicing.slice(indices, starts, limits), last)


def _inside(column: Value, size: Dim) -> Value:
    below = elementwise.less(column, _as_value(size, column))
    return elementwise.logical_and(elementwise.greater_equal(column, 0), below)


def _as_value(size: Dim, beside: Value) -> Value | int:
    if isinstance(size, int):
        return size
    with beside.graph.as_current():
        return data.dim(size)


@function
def scatter_within(x: Operand, indices: Operand, updates: Operand, mode: str = "set") -> Value:
    """``scatter``, but what lies outside of ``x`` is dropped; -1 is outside as well."""
    target, values = promote_operands(x, updates)
    return apply(ScatterWithin(mode), target, shape_ops.one_value(indices), values)
