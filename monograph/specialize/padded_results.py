"""Ops with data-dependent result sizes, computed at full length and sliced afterwards.

There are at most as many nonzero elements as there are elements. So native code finds them in
memory for that many and counts them, and the caller takes the first so many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from monograph import functional as F
from monograph.ir.dims import Dim, shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.op import Op
from monograph.ir.types import Array, bool_, i64, string, symbols_of, wide
from monograph.ops import data
from monograph.ops.bounded_nonzero import find_rows, number_runs
from monograph.ops.bounded_suppression import suppress_boxes
from monograph.ops.detection import NonMaxSuppression
from monograph.ops.index.lookup import Nonzero
from monograph.ops.statistics import Unique, UniqueConsecutive

Results = tuple[Value, ...]
MOST_COLUMNS = 32
"""Slices of so many elements, at most, are sorted one column after the other."""


def pad_results(node: Node, operands: Sequence[Value]) -> Results | None:
    """The node's results in full length, then their length; None if there is no way to it."""
    rule = _RULES.get(type(node.op))
    if rule is None or any(value.dtype is string for value in operands):
        return None
    with operands[0].graph.as_current():
        results = rule(node.op, *operands)
        if results is None:
            return None
        made = zip(node.results, results[:-1], strict=True)
        found = [x if is_told(value) else data.zeros((0,) * x.rank, x.dtype) for value, x in made]
        return *found, results[-1]


def is_told(value: Value) -> bool:
    """Whether a result matters: it is used, or no used one says how many there are."""
    node = value.producer
    assert node is not None
    sizes = set(node.op.binds())
    others = [other for other in node.results if other.uses]
    return bool(value.uses) or not any(sizes <= set(symbols_of(x.type)) for x in others)


def take_length(node: Node, results: Sequence[Array], length: int) -> list[Array]:
    """The results in the length that they have, along the axes that the node names it for.

    Those that do not matter are empty.
    """
    (size,) = node.op.binds()
    return [
        np.ascontiguousarray(each[tuple(slice(length if dim == size else None) for dim in v.shape)])
        for v, each in zip(node.results, results, strict=True)
    ]


def _number(size: Dim) -> Any:
    """A size as something to compute with."""
    return size if isinstance(size, int) else data.dim(size)


def _nonzero(op: Nonzero, x: Value) -> Results:
    found = x if x.dtype is bool_ else F.not_equal(x, 0)
    if x.rank:
        return find_rows(found)
    return data.zeros((1, 0), i64), F.cast(found, i64)


def _places(found: Value) -> tuple[Value, Value]:
    """The flat positions of what is true, then zeros, and how many are true."""
    size = found.tensor.size
    rows, count = find_rows(F.reshape(found, (size,)))
    return F.where(F.less(F.iota((size,)), count), F.reshape(rows, (size,)), 0), count


def _scatter(size: Dim, places: Value, updates: Value, mode: str = "set") -> Value:
    """A vector with updates at places."""
    indices = F.reshape(places, (places.shape[0], 1))
    return F.scatter(data.zeros((size,), updates.dtype), indices, updates, mode)


def _first(x: Value, size: Dim) -> Value:
    return F.slice(x, [0], [size], axes=[0])


def _lengths(begins: Value, size: Dim) -> Value:
    """How long the runs are: each ends where the next one begins."""
    return F.slice(begins, [1], [size + 1], axes=[0]) - _first(begins, size)


def _unique(op: Unique, x: Value) -> Results | None:
    """Sort, begin a run wherever an element differs from the one before it, and count the runs."""
    slices = _slices(x, op.axis)
    if slices is None:
        return None
    order = F.iota((slices.shape[0],))
    for column in reversed(F.unstack(slices, 1)):
        order = F.take(order, F.argsort(F.take(column, order, 0), 0), 0)
    starts = _starts(F.take(slices, order, 0), op.equal_nan)
    run, begins, length = number_runs(starts)
    size = slices.shape[0]
    inverse = _scatter(size, order, run)
    is_run, counts = F.less(F.iota((size,)), length), _lengths(begins, size)
    first = F.take(order, F.where(is_run, _first(begins, size), 0), 0)
    if not op.sorted:
        by_place = F.argsort(F.where(is_run, first, _number(size)), 0)
        first, counts = F.take(first, by_place, 0), F.take(counts, by_place, 0)
        inverse = F.take(_scatter(size, by_place, F.iota((size,))), inverse, 0)
    if op.axis is None:
        return F.take(F.reshape(x, (size,)), first, 0), first, inverse, counts, length
    return F.take(x, first, op.axis), first, inverse, counts, length


def _unique_consecutive(op: UniqueConsecutive, x: Value) -> Results | None:
    slices = _slices(x, op.axis)
    if slices is None:
        return None
    run, begins, length = number_runs(_starts(slices, equal_nan=False))
    size = slices.shape[0]
    first = F.where(F.less(F.iota((size,)), length), _first(begins, size), 0)
    counts = _lengths(begins, size)
    source, axis = (F.reshape(x, (size,)), 0) if op.axis is None else (x, op.axis)
    return F.take(source, first, axis), run, counts, length


def _slices(x: Value, axis: int | None) -> Value | None:
    """What is to be compared, one row each; None if the rows are long or may not be there."""
    if x.dtype.is_complex or 0 in x.shape:
        return None
    if axis is None:
        return F.reshape(x, (x.tensor.size, 1))
    rows = F.moveaxis(x, axis, 0)
    length = shape_product(rows.shape[1:])
    if not isinstance(length, int) or length > MOST_COLUMNS:
        return None
    return F.reshape(rows, (rows.shape[0], length))


def _starts(rows: Value, equal_nan: bool) -> Value:
    """Whether each row differs from the one before it; the first one does."""
    size = rows.shape[0]
    now, before = rows, F.pad(rows, [1, 0], [-1, 0])
    differs = F.not_equal(now, before)
    if equal_nan and rows.dtype.is_float:
        differs = F.logical_and(differs, ~F.logical_and(F.is_nan(now), F.is_nan(before)))
    return F.logical_or(F.any(differs, 1), F.equal(F.iota((size,)), 0))


def _non_max_suppression(
    op: NonMaxSuppression, boxes: Value, scores: Value, most: Value, overlap: Value, least: Value
) -> Results:
    """Choose from the boxes in the order of their scores, and write the choices in rows."""
    batches, classes, count = scores.shape
    given = F.cast(scores, wide(scores.dtype))
    order = F.argsort(-given, -1)
    low, high = _corners(op, F.cast(boxes, wide(boxes.dtype)))
    kept, counts = suppress_boxes(
        order,
        F.take_along_axis(given, order, -1),
        low,
        high,
        F.cast(most, i64),
        F.cast(overlap, low.dtype),
        F.cast(least, given.dtype),
    )
    ranks = F.iota((batches, classes, count), 2)
    is_kept = F.less(ranks, F.reshape(counts, (batches, classes, 1)))
    flat, length = _places(is_kept)
    box = F.take(F.reshape(kept, (kept.tensor.size,)), flat, 0)
    of_row = flat // _number(count)
    rows = [of_row // _number(classes), of_row % _number(classes), box]
    return F.stack(rows, 1), length


def _corners(op: NonMaxSuppression, boxes: Value) -> tuple[Value, Value]:
    """The low and the high corners of boxes, ``[batch, count, 2]`` each."""
    first = F.slice(boxes, [0], [2], axes=[2])
    second = F.slice(boxes, [2], [4], axes=[2])
    if op.centered:
        first, second = first - second / 2.0, first + second / 2.0
    return F.minimum(first, second), F.maximum(first, second)


_RULES: Mapping[type[Op], Callable[..., Results | None]] = {
    Nonzero: _nonzero,
    Unique: _unique,
    UniqueConsecutive: _unique_consecutive,
    NonMaxSuppression: _non_max_suppression,
}
