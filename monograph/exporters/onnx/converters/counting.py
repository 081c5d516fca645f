"""Counting: bins, places in a sorted list, distinct elements."""

from __future__ import annotations

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.emitter import computing
from monograph.exporters.onnx.registry import Exported, expands, exports
from monograph.ir.build import apply, cast_to
from monograph.ir.dims import Dim, dim_max, dim_min
from monograph.ir.graph import Value
from monograph.ir.types import bool_, i64
from monograph.ops import cumulative, data, index, joining, reduce, slicing, sorting
from monograph.ops import elementwise as e
from monograph.ops import shape as shape_ops
from monograph.ops import statistics as s


@expands(s.Searchsorted)
def searchsorted(op: s.Searchsorted, table: Value, values: Value) -> Value:
    """How many elements come before each value; NaN comes after everything."""
    rows = table
    if table.rank > 1:
        rows = shape_ops.unsqueeze(table, -2)
    column = shape_ops.unsqueeze(values, -1)
    after = rows > column if op.right else rows >= column
    return reduce.sum(cast_to(e.logical_not(after), i64), -1)


@exports(s.Bincount)
def bincount(node: ExportContext[s.Bincount]) -> Exported:
    """Ones (or weights) added up in as many bins as the largest element asks for."""
    x = node.cast(node.inputs[0], i64)
    if isinstance(node.op.length, int):
        length = node.size(node.op.length)
    else:
        least = node.integers([node.op.minimum - 1])
        axes = node.integers([0])
        padded = node.emit("Concat", x, least, axis=0)
        largest = node.emit("ReduceMax", padded, axes, keepdims=1)
        length = node.emit("Add", largest, node.integers([1]))
    if len(node.inputs) > 1:
        amounts = node.cast(node.inputs[1], computing(node.type(1).dtype))
    else:
        amounts = node.expand(node.number(1, i64), (), node.shape())
    zeros = node.emit("Expand", node.number(0, amounts.element), length)
    places = node.emit("Unsqueeze", x, node.integers([1]))
    total = node.emit("ScatterND", zeros, places, amounts, reduction="add")
    return node.cast(total, node.result.dtype)


@exports(s.Unique)
def unique(node: ExportContext[s.Unique]) -> Exported:
    """ONNX Runtime has no order for NaNs: floats that are not slices are sorted here."""
    op = node.op
    if op.axis is None and node.dtype.is_float and node.special_values:
        return None
    if not node.runs("Unique", node.dtype) or (op.axis is not None and 0 in node.shape()):
        return None  # ONNX Runtime crashes on slices without elements
    attributes = {"sorted": int(op.sorted)}
    if op.axis is not None:
        attributes["axis"] = op.axis % node.rank
    return node.emit_many("Unique", *node.inputs, dtypes=[None, i64, i64, i64], **attributes)


@expands(s.Unique)
def unique_by_sorting(op: s.Unique, x: Value) -> tuple[Value, ...]:
    """Runs of equal elements in order of size; the first of a run is where it first occurs."""
    if op.axis is not None:
        return _empty_slices(op, x, op.axis)
    flat = shape_ops.reshape(x, (x.tensor.size,))
    order = sorting.argsort(flat, 0)
    starts = _starts(index.take(flat, order), op.equal_nan)
    begins, runs, counts = _runs(starts, op.count)
    first = index.take(order, begins)
    inverse = index.put_along_axis(data.zeros_like(runs), order, runs, 0)
    if not op.sorted:
        rank = sorting.argsort(first, 0)
        place = index.put_along_axis(data.zeros_like(rank), rank, data.iota(rank.shape), 0)
        first, counts = index.take(first, rank), index.take(counts, rank)
        inverse = index.take(place, inverse)
    return index.take(flat, first), first, inverse, counts


def _empty_slices(op: s.Unique, x: Value, axis: int) -> tuple[Value, ...]:
    """Slices without elements are all equal: the first stands for them."""
    if 0 not in x.shape:
        raise NotImplementedError
    size = x.shape[axis]
    first = data.zeros((op.count,), i64)
    counts = shape_ops.expand(data.dim(size), (op.count,))
    return index.take(x, first, axis), first, data.zeros((size,), i64), counts


@expands(s.UniqueConsecutive)
def unique_consecutive(op: s.UniqueConsecutive, x: Value) -> tuple[Value, ...]:
    """Slices that differ from the one before them begin a run."""
    flat = shape_ops.reshape(x, (x.tensor.size,)) if op.axis is None else x
    axis = 0 if op.axis is None else op.axis % x.rank
    begins, runs, counts = _runs(_starts(shape_ops.moveaxis(flat, axis, 0), False), op.count)
    return index.take(flat, begins, axis), runs, counts


def _starts(slices: Value, equal_nan: bool) -> Value:
    """Where a slice of axis 0 differs from the one before it; the first does."""
    count = slices.shape[0]
    before = slicing.slice(slices, [0], [dim_max(count - 1, 0)])
    after = slicing.slice(slices, [1], [count])
    differs = e.not_equal(shape_ops.reshape(after, before.shape), before)
    if equal_nan and slices.dtype.is_float:
        both = e.logical_and(e.is_nan(before), e.is_nan(after))
        differs = e.logical_and(differs, e.logical_not(both))
    changes = reduce.any(differs, tuple(range(1, slices.rank)))
    first = data.full((dim_min(count, 1),), True, bool_)
    return shape_ops.reshape(joining.concat([first, changes]), (count,))


def _runs(starts: Value, count: Dim) -> tuple[Value, Value, Value]:
    """The place where each run begins, the run that each element is in, and the runs' lengths."""
    begins = shape_ops.reshape(apply(index.Nonzero(count), starts), (count,))
    runs = cumulative.cumsum(cast_to(starts, i64), 0) - 1
    zeros = data.zeros((count,), i64)
    ones = data.ones_like(runs)
    return begins, runs, index.put_along_axis(zeros, runs, ones, 0, "add")
