"""Reductions, running sums, windows and sorts: operations with a region that combines scalars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from monograph import functional as F
from monograph.exporters.stablehlo.emitter import TABLE, Emitter, Term, highest, lowest
from monograph.exporters.stablehlo.sizes import is_known
from monograph.exporters.stablehlo.types import integers
from monograph.ir.dims import Dim
from monograph.ir.graph import Node, Value
from monograph.ir.types import TensorType, bool_, i64, wide
from monograph.ops.cumulative import Cummax, Cumprod, Cumsum, Cumulative
from monograph.ops.pool import AvgPool, MaxPool
from monograph.ops.reduce.arithmetic import Prod, Sum
from monograph.ops.reduce.base import Reduction
from monograph.ops.reduce.extremum import ArgExtremum, Argmax, Argmin, Max, Min
from monograph.ops.reduce.truth import All
from monograph.ops.reduce.truth import Any as AnyTrue
from monograph.ops.sorting import Argsort, TopKIndices
from monograph.ops.statistics import Bincount, Searchsorted
from monograph.ops.windows import Windows

WORDS = {
    "all": "and", "any": "or", "max": "maximum", "min": "minimum", "prod": "multiply", "sum": "add",
}  # fmt: skip


def _start(kind: str, type_: TensorType) -> Any:
    """What a reduction of nothing gives."""
    return {
        "all": True,
        "any": False,
        "max": lowest(type_.dtype) if kind == "max" else None,
        "min": highest(type_.dtype) if kind == "min" else None,
        "prod": 1,
        "sum": 0,
    }[kind]


@TABLE.writes(Sum, Prod, Max, Min, All, AnyTrue)
def _reduce(emitter: Emitter, node: Node, op: Reduction) -> Term:
    (x,) = emitter.operands(node)
    axes = [axis % x.type.rank for axis in op.axes]
    word = WORDS[op.name]
    if x.type.dtype is bool_ and op.name in ("max", "min"):
        word = "or" if op.name == "max" else "and"
    exact = wide(x.type.dtype) if op.name in ("sum", "prod") else x.type.dtype
    made = emitter.reduce(word, emitter.convert(x, exact), _start(op.name, x.type), axes)
    return emitter.reshape(emitter.convert(made, x.type.dtype), node.result.shape)


@TABLE.writes(Argmax, Argmin)
def _arg_extremum(emitter: Emitter, node: Node, op: ArgExtremum) -> Term:
    """The first NaN, or else the first of the best."""
    (x,) = emitter.operands(node)
    axis = op.axis % x.type.rank
    places = emitter.iota(x.type.shape, axis)
    start = lowest(x.type.dtype) if op.name == "argmax" else highest(x.type.dtype)
    value, place = x.type.with_shape(()), TensorType(i64, ())

    def better(pair: list[Term]) -> list[Term]:
        a, i, b, j = pair
        wins = emitter.compare("GT" if op.name == "argmax" else "LT", a, b)
        ties = emitter.compare("EQ", a, b)
        if x.type.dtype.is_float:
            nan_a, nan_b = (emitter.compare("NE", each, each) for each in (a, b))
            not_b = emitter.op("not", [nan_b], nan_b.type)
            wins = emitter.binary("or", wins, emitter.binary("and", nan_a, not_b))
            ties = emitter.binary("or", ties, emitter.binary("and", nan_a, nan_b))
        earlier = emitter.binary("and", ties, emitter.compare("LT", i, j))
        first = emitter.binary("or", wins, earlier)
        return [emitter.select(first, a, b), emitter.select(first, i, j)]

    left = tuple(dim for position, dim in enumerate(x.type.shape) if position != axis)
    region = emitter.block([value, place, value, place], better)
    last = emitter.number(np.iinfo(np.int64).max, i64)
    made = emitter.op_many(
        "reduce",
        [x, places, emitter.number(start, x.type.dtype), last],
        [x.type.with_shape(left), TensorType(i64, left)],
        f"dimensions = {integers([axis])}",
        region,
    )
    return emitter.reshape(made[1], node.result.shape)


def _windows(
    emitter: Emitter,
    word: str,
    x: Term,
    start: Any,
    sizes: Sequence[int],
    steps: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[tuple[int, int]],
    shape: tuple[Any, ...],
) -> Term:
    pairs = ", ".join(f"[{low}, {high}]" for low, high in padding)
    ones = integers([1] * x.type.rank)
    attributes = (
        f"window_dimensions = {integers(sizes)}, window_strides = {integers(steps)}, "
        f"base_dilations = {ones}, window_dilations = {integers(dilation)}, "
        f"padding = dense<[{pairs}]> : tensor<{x.type.rank}x2xi64>"
    )
    region = emitter.combine(word, x.type.with_shape(()))
    fill = emitter.number(start, x.type.dtype)
    return emitter.op("reduce_window", [x, fill], x.type.with_shape(shape), attributes, region)


@TABLE.writes(Cumsum, Cumprod, Cummax)
def _running(emitter: Emitter, node: Node, op: Cumulative) -> Term:
    """A window that reaches back to the first element; XLA makes a scan of it."""
    (x,) = emitter.operands(node)
    assert isinstance(op, Cumsum | Cumprod | Cummax)
    axis, shape = op.axis % x.type.rank, x.type.shape
    if 0 in shape:
        return x
    word = {"cumsum": "add", "cumprod": "multiply", "cummax": "maximum"}[op.name]
    start: Any = {"cumsum": 0, "cumprod": 1, "cummax": None}[op.name]
    start = lowest(x.type.dtype) if start is None else start
    exclusive = not isinstance(op, Cummax) and op.exclusive
    exact = emitter.convert(x, wide(x.type.dtype))
    size = shape[axis]
    if not isinstance(size, int):
        made = _free_running(emitter, word, exact, start, axis, op.reverse)
        if exclusive:
            made = _shift(emitter, made, start, axis, op.reverse)
        return emitter.convert(made, x.type.dtype)
    reach = size - 1 + exclusive
    pair = (-1 if exclusive else 0, reach) if op.reverse else (reach, -1 if exclusive else 0)
    ones = [1] * len(shape)
    sizes = [size if position == axis else 1 for position in range(len(shape))]
    padding = [pair if position == axis else (0, 0) for position in range(len(shape))]
    made = _windows(emitter, word, exact, start, sizes, ones, ones, padding, x.type.shape)
    return emitter.convert(made, x.type.dtype)


def _free_running(
    emitter: Emitter, word: str, x: Term, start: Any, axis: int, reverse: bool
) -> Term:
    """The same along an axis whose size is free: XLA's window with operands for its sizes."""
    rank, size = x.type.rank, x.type.shape[axis]
    ones = emitter.sizes.vector([1] * rank)
    sizes = emitter.sizes.vector([size if place == axis else 1 for place in range(rank)])
    amounts: list[Dim] = [0] * (2 * rank)
    amounts[2 * axis + reverse] = size - 1
    padding = emitter.reshape(emitter.sizes.vector(amounts), (rank, 2))
    scalar = x.type.with_shape(())
    combine = emitter.function(
        [scalar, scalar], lambda pair: [emitter.op(word, pair, scalar)], f"running_{word}"
    )
    attributes = (
        'call_target_name = "stablehlo.dynamic_reduce_window", '
        f"called_computations = [@{combine}], api_version = 2 : i32"
    )
    fill = emitter.number(start, x.type.dtype)
    operands = [x, fill, sizes, ones, ones, ones, padding]
    return emitter.op("custom_call", operands, x.type, attributes)


def _shift(emitter: Emitter, x: Term, start: Any, axis: int, reverse: bool) -> Term:
    """Each element one place on, the first of them ``start``: results without the element's own."""
    rank, size = x.type.rank, x.type.shape[axis]
    low, high, starts, limits = [0] * rank, [0] * rank, [0] * rank, list(x.type.shape)
    if reverse:
        starts[axis], high[axis] = 1, 1
    else:
        limits[axis], low[axis] = size - 1, 1
    kept = emitter.slice(x, starts, limits, [1] * rank)
    attributes = (
        f"edge_padding_low = {integers(low)}, edge_padding_high = {integers(high)}, "
        f"interior_padding = {integers([0] * rank)}"
    )
    return emitter.op("pad", [kept, emitter.number(start, x.type.dtype)], x.type, attributes)


def _refuse_free_pool(node: Node) -> str | None:
    """Where spatial sizes are free, so is how far the last window hangs over."""
    op = node.op
    assert isinstance(op, MaxPool | AvgPool)
    if is_known(node.operands[0].shape[-len(op.kernel) :]):
        return None
    if op.ceil_mode:
        return "its windows hang over the end of a size that is free"
    padded = any(low or high for low, high in op.padding)
    if isinstance(op, AvgPool) and padded and not op.count_include_pad:
        return "how many elements count depends on a size that is free"
    return None


def _pool_padding(windows: Windows, x: Term) -> tuple[list[tuple[int, int]], list[Dim]]:
    """The padding of spatial dimensions, overhang included, and how many windows there are."""
    pairs: list[tuple[int, int]] = []
    counts: list[Dim] = []
    for axis, size in enumerate(x.type.shape[x.type.rank - windows.rank :]):
        count, span = windows.count(axis, size), windows.span(axis)
        low, high = windows.padding[axis]
        if not isinstance(size, int):
            pairs.append((low, high))
            counts.append(count)
            continue
        assert isinstance(count, int) and isinstance(span, int)
        last = (count - 1) * windows.stride[axis] + span
        pairs.append((low, max(high, last - low - size)))
        counts.append(count)
    return pairs, counts


def _pool(emitter: Emitter, word: str, x: Term, start: Any, windows: Windows) -> Term:
    leading = x.type.rank - windows.rank
    pairs, counts = _pool_padding(windows, x)
    ones = [1] * leading
    made = _windows(
        emitter,
        word,
        x,
        start,
        [*ones, *(size for size in windows.kernel if isinstance(size, int))],
        [*ones, *windows.stride],
        [*ones, *windows.dilation],
        [*[(0, 0)] * leading, *pairs],
        (*x.type.shape[:leading], *_fitting(windows, x, pairs)),
    )
    shape = (*x.type.shape[:leading], *counts)
    if made.type.shape == shape:
        return made
    return emitter.slice(made, [0] * len(shape), shape, [1] * len(shape))


def _fitting(windows: Windows, x: Term, pairs: Sequence[tuple[int, int]]) -> list[Dim]:
    """How many windows StableHLO counts; more than ours where the padding is wide."""
    spatial = x.type.shape[x.type.rank - windows.rank :]
    found: list[Dim] = []
    for axis, (size, (low, high)) in enumerate(zip(spatial, pairs, strict=True)):
        span = windows.span(axis)
        found.append((size + low + high - span) // windows.stride[axis] + 1)
    return found


@TABLE.writes(MaxPool, unless=_refuse_free_pool)
def _max_pool(emitter: Emitter, node: Node, op: MaxPool) -> Term:
    (x,) = emitter.operands(node)
    return _pool(emitter, "maximum", x, lowest(x.type.dtype), op.windows())


@TABLE.writes(AvgPool, unless=_refuse_free_pool)
def _avg_pool(emitter: Emitter, node: Node, op: AvgPool) -> Term:
    """The sum of each window over how many of its elements count."""
    (x,) = emitter.operands(node)
    windows = op.windows()
    exact = emitter.convert(x, wide(x.type.dtype))
    total = _pool(emitter, "add", exact, 0, windows)
    spatial = total.type.shape[x.type.rank - windows.rank :]
    if is_known(spatial):
        counted = _count_elements(op, x).astype(exact.type.dtype.numpy)
        counts = emitter.literal(counted, TensorType(exact.type.dtype, spatial))
    else:
        counts = emitter.number(math.prod(op.kernel), exact.type.dtype)
    mean = emitter.binary("divide", total, emitter.broadcast(counts, total.type.shape))
    return emitter.convert(mean, x.type.dtype)


def _count_elements(op: AvgPool, x: Term) -> Any:
    """How many elements count in each window, at least 1."""
    windows = op.windows()
    counts = np.ones((), np.float64)
    for axis, size in enumerate(x.type.static_shape()[x.type.rank - windows.rank :]):
        low, high = op.padding[axis] if op.count_include_pad else (0, 0)
        places = windows.positions(axis, size)
        along = ((places >= -low) & (places < size + high)).sum(1)
        counts = counts[..., None] * np.maximum(along, 1)
    return counts


def _sort_positions(emitter: Emitter, x: Term, axis: int, descending: bool) -> Term:
    """The indices that sort: -0.0 equals 0.0, NaN is the largest, ties keep their order."""
    key, value = x, x.type.with_shape(())
    if x.type.dtype.is_float:
        zero = emitter.filled(0, x.type)
        key = emitter.select(emitter.compare("EQ", x, zero), zero, x)
        nan = emitter.filled(np.nan, x.type)
        key = emitter.select(emitter.compare("NE", key, key), nan, key)
    places = emitter.iota(x.type.shape, axis)
    place = TensorType(i64, ())

    direction = "GT" if descending else "LT"

    def before(pair: list[Term]) -> list[Term]:
        a, b = pair[:2]
        order = (
            "TOTALORDER"
            if x.type.dtype.is_float
            else "SIGNED"
            if x.type.dtype.kind.name == "SIGNED"
            else "UNSIGNED"
        )
        attributes = (
            f"comparison_direction = #stablehlo<comparison_direction {direction}>, "
            f"compare_type = #stablehlo<comparison_type {order}>"
        )
        return [emitter.op("compare", [a, b], TensorType(bool_, ()), attributes)]

    region = emitter.block([value, value, place, place], before)
    attributes = f"dimension = {axis} : i64, is_stable = true"
    return emitter.op_many("sort", [key, places], [x.type, places.type], attributes, region)[1]


@TABLE.writes(Argsort)
def _argsort(emitter: Emitter, node: Node, op: Argsort) -> Term:
    (x,) = emitter.operands(node)
    return _sort_positions(emitter, x, op.axis % x.type.rank, op.descending)


@TABLE.writes(TopKIndices)
def _top_k_indices(emitter: Emitter, node: Node, op: TopKIndices) -> Term:
    (x,) = emitter.operands(node)
    axis = op.axis % x.type.rank
    places = _sort_positions(emitter, x, axis, op.largest)
    sizes = list(x.type.shape)
    sizes[axis] = op.k
    return emitter.slice(places, [0] * len(sizes), sizes, [1] * len(sizes))


@TABLE.expands(Searchsorted)
def _searchsorted(op: Searchsorted, ordered: Value, values: Value) -> Value:
    """How many elements stand before each value."""
    row = F.unsqueeze(ordered, -2 if ordered.rank > 1 else 0)
    sought = F.unsqueeze(values, -1)
    before = F.less_equal(row, sought) if op.right else F.less(row, sought)
    if values.dtype.is_float:
        of_nan = F.ones_like(before) if op.right else F.logical_not(F.is_nan(row))
        before = F.where(F.is_nan(sought), F.expand(of_nan, before.shape), before)
    return F.sum(F.cast(before, i64), -1)


@TABLE.expands(Bincount)
def _bincount(op: Bincount, x: Value, weights: Value | None = None) -> Value:
    dtype = i64 if weights is None else weights.dtype
    updates = F.full(x.shape, 1, i64) if weights is None else weights
    return F.scatter(
        F.full((op.length,), 0, dtype), F.unsqueeze(F.cast(x, i64), -1), updates, "add"
    )
