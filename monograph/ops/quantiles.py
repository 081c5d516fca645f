"""Order statistics: median, k-th value, quantiles, and the most frequent element.

All are read off a sort, so every index is determined: of equal elements the first one counts (the
last, for ``mode``). Results come with the position where each was found, as in torch.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from monograph.ir.build import Operand, cast_to
from monograph.ir.dims import Dim, provably_less
from monograph.ir.graph import Value
from monograph.ir.operators import function
from monograph.ir.types import i64
from monograph.ops import cumulative, data, elementwise, index, joining, reduce, slicing, sorting
from monograph.ops import shape as shape_ops
from monograph.ops.rules import normalize_axis, require

Interpolation: TypeAlias = Literal["linear", "lower", "higher", "midpoint", "nearest"]


def _axis_of(name: str, x: Value, axis: int) -> tuple[Value, int]:
    """A value with at least one axis, and the axis meant."""
    value = shape_ops.reshape(x, (1,)) if x.rank == 0 else x
    normal = normalize_axis(name, axis, value.rank)
    require(
        value.shape[normal] != 0,
        f"{name}: no elements along axis {axis}",
        expected="a dimension of at least 1",
        found=x.type,
    )
    return value, normal


def _take_at_place(
    x: Value, order: Value, place: Value, axis: int, keepdims: bool
) -> tuple[Value, Value]:
    """The elements and indices at ``place`` of a sorted order; ``place`` has size 1 on the axis."""
    indices = index.take_along_axis(order, place, axis)
    values = index.take_along_axis(x, indices, axis)
    if keepdims:
        return values, indices
    return shape_ops.squeeze(values, axis), shape_ops.squeeze(indices, axis)


def _scalars(value: Value, indices: Value, like: Value) -> tuple[Value, Value]:
    """Results without the axis that a scalar operand was given."""
    if like.rank:
        return value, indices
    return shape_ops.reshape(value, ()), shape_ops.reshape(indices, ())


def _numbers(x: Value, axis: int) -> Value:
    """How many elements along the axis are not NaN, with size 1 on it."""
    if not x.dtype.is_float:
        return _constant(x, axis, x.shape[axis])
    present = elementwise.logical_not(elementwise.is_nan(x))
    return reduce.sum(cast_to(present, i64), axis, keepdims=True)


def _constant(x: Value, axis: int, size: Dim) -> Value:
    shape = tuple(1 if position == axis else dim for position, dim in enumerate(x.shape))
    with x.graph.as_current():
        return shape_ops.expand(data.dim(size), shape)


@function
def median(
    x: Operand, axis: int = -1, keepdims: bool = False, ignore_nan: bool = False
) -> tuple[Value, Value]:
    """(values, indices) of the median along ``axis``; of two middle elements, the lower.

    A NaN is the median of what contains one, unless ``ignore_nan``.
    """
    given = reduce.one_value(x)
    value, normal = _axis_of("median", given, axis)
    count, size = _numbers(value, normal), _constant(value, normal, value.shape[normal])
    middle = elementwise.maximum((count - 1) // 2, 0)
    if not ignore_nan:
        middle = elementwise.where(elementwise.equal(count, size), middle, count)
    order = sorting.argsort(value, normal)
    return _scalars(*_take_at_place(value, order, middle, normal, keepdims), given)


@function
def kth_value(x: Operand, k: Dim, axis: int = -1, keepdims: bool = False) -> tuple[Value, Value]:
    """(values, indices) of the ``k``-th smallest elements along ``axis``, counted from 1."""
    given = reduce.one_value(x)
    value, normal = _axis_of("kth_value", given, axis)
    require(
        not provably_less(k, 1) and not provably_less(value.shape[normal], k),
        "kth_value: there are not that many elements",
        expected=f"1 to {value.shape[normal]}",
        found=k,
    )
    order = sorting.argsort(value, normal)
    place = _constant(value, normal, k - 1)
    return _scalars(*_take_at_place(value, order, place, normal, keepdims), given)


@function
def mode(x: Operand, axis: int = -1, keepdims: bool = False) -> tuple[Value, Value]:
    """(values, indices) of the most frequent elements along ``axis``; the least if several are."""
    given = reduce.one_value(x)
    value, normal = _axis_of("mode", given, axis)
    order = sorting.argsort(value, normal)
    ranked = index.take_along_axis(value, order, normal)
    with value.graph.as_current():
        position = data.iota(value.shape, normal)
    here = slicing.slice(ranked, [1], [None], axes=[normal])
    before = slicing.slice(ranked, [0], [-1], axes=[normal])
    first = slicing.slice(position, [0], [1], axes=[normal])
    later = slicing.slice(position, [1], [None], axes=[normal])
    changes = elementwise.where(elementwise.not_equal(here, before), later, 0)
    starts = cumulative.cummax(joining.concat([first, changes], normal), normal)
    # The run so far is longest, for the first time, at the end of the first of the longest runs.
    place = reduce.argmax(position - starts, normal, keepdims=True)
    return _scalars(*_take_at_place(value, order, place, normal, keepdims), given)


@function
def quantile(
    x: Operand,
    q: Operand,
    axis: int | None = None,
    keepdims: bool = False,
    interpolation: Interpolation = "linear",
    ignore_nan: bool = False,
) -> Value:
    """The elements below which a part ``q`` of those along ``axis`` (all if None) lies.

    ``q`` is a number from 0 to 1, or a vector of them, whose axis is then the first of the result.
    Between two elements, ``interpolation`` says what to take. A NaN makes the result NaN unless
    ``ignore_nan``.
    """
    require(
        interpolation in ("linear", "lower", "higher", "midpoint", "nearest"),
        "quantile: no such interpolation",
        expected="linear, lower, higher, midpoint or nearest",
        found=interpolation,
    )
    given = reduce.as_float(x)
    parts = cast_to(reduce.one_value(q), given.dtype)
    require(
        parts.rank <= 1,
        "quantile: the parts are neither a number nor a vector",
        expected="rank 0 or 1",
        found=parts.type,
    )
    value = shape_ops.flatten(given) if axis is None else given
    value, normal = _axis_of("quantile", value, 0 if axis is None else axis)
    moved = shape_ops.moveaxis(value, normal, -1)
    ranked, last = sorting.sort(moved, -1), moved.rank - 1
    size, count = _constant(moved, last, moved.shape[-1]), _numbers(moved, last)
    dtype = moved.dtype
    rank = shape_ops.reshape(parts, (-1,)) * cast_to(
        elementwise.maximum((count if ignore_nan else size) - 1, 0), dtype
    )
    if not ignore_nan:  # the last in order is then the NaN
        rank = elementwise.where(elementwise.equal(count, size), rank, cast_to(size - 1, dtype))
    found = shape_ops.moveaxis(_between(ranked, rank, interpolation), -1, 0)
    if keepdims and given.rank:
        found = _restore_axes(found, given, axis, normal)
    return found if parts.rank else shape_ops.squeeze(found, 0)


def _restore_axes(found: Value, x: Value, axis: int | None, normal: int) -> Value:
    """The result with the axes that it lost, of size 1."""
    if axis is None:
        return shape_ops.reshape(found, (found.shape[0], *([1] * x.rank)))
    return shape_ops.unsqueeze(found, normal + 1)


def _between(ranked: Value, rank: Value, interpolation: Interpolation) -> Value:
    """What stands at broken positions of sorted rows."""
    if interpolation == "nearest":
        return index.take_along_axis(ranked, cast_to(elementwise.round(rank), i64), -1)
    floor = elementwise.floor(rank)
    below = index.take_along_axis(ranked, cast_to(floor, i64), -1)
    if interpolation == "lower":
        return below
    above = index.take_along_axis(ranked, cast_to(elementwise.ceil(rank), i64), -1)
    if interpolation == "higher":
        return above
    weight = elementwise.stop_gradient(rank - floor)
    if interpolation == "midpoint":
        weight = data.full_like(weight, 0.5)
    gap = above - below
    near = elementwise.where(weight < 0.5, below + weight * gap, above - gap * (1.0 - weight))
    return elementwise.where(elementwise.equal(below, above), below, near)
