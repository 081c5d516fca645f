"""``x[key]`` as NumPy has it: what each part of the key becomes in the graph.

Slices become ``slice`` (after ``flip``, if they run backwards), numbers a slice of one that a
``reshape`` drops, ``None`` a dimension that a ``reshape`` adds. Arrays of indices and masks become
one ``take`` or ``gather``, and the dimensions that they make stand where NumPy puts them: in place
of the indexed axes if those are neighbours in the key, in front otherwise.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import InputError, TypeRuleError
from monograph.ir.build import Operand, cast_to, constant
from monograph.ir.dims import (
    Dim,
    SymbolicDim,
    dim_max,
    dim_min,
    provably_at_least,
    provably_different,
    provably_less,
)
from monograph.ir.graph import Value
from monograph.ir.operators import function
from monograph.ir.types import Array, bool_, i64
from monograph.ops import data, joining, slicing
from monograph.ops import shape as shape_ops
from monograph.ops.index.lookup import nonzero
from monograph.ops.index.reading import gather, take
from monograph.ops.rules import broadcast_shapes, format_shape


@dataclass(frozen=True)
class Span:
    """A slice of one axis, or all of it; ``step`` may be negative."""

    axis: int
    start: Dim | None = None
    stop: Dim | None = None
    step: int = 1


@dataclass(frozen=True)
class Point:
    """One position on an axis, known to lie inside it."""

    axis: int
    position: Dim


@dataclass(frozen=True)
class Places:
    """Index vectors (the last dimension of ``indices``) into neighbouring ``axes``."""

    axes: tuple[int, ...]
    indices: Value


@dataclass(frozen=True)
class Gap:
    """A place in the key that stands for no axis: ``width`` is 1 for None and 0 for ``...``."""

    width: int


Part: TypeAlias = Span | Point | Places | Gap


@function
def getitem(x: Operand, key: Any) -> Value:
    """``x[key]``: numbers, slices, ``...``, ``None``, arrays of indices and masks, as in NumPy."""
    value = shape_ops.one_value(x)
    with value.graph.as_current():
        parts = _parse(value, key)
        if any(isinstance(part, Places) for part in parts):
            parts = [_as_places(part) if isinstance(part, Point) else part for part in parts]
            return _select(_cut(value, parts), parts)
        cut = _cut(value, parts)
        return shape_ops.reshape(cut, _result_shape(cut, parts))


# From the key to its parts ------------------------------------------------------------------------


def _parse(x: Value, key: Any) -> list[Part]:
    """The parts of a key, covering every axis of ``x`` in order."""
    items = list(key) if isinstance(key, tuple) else [key]
    items = [_as_array(item) if isinstance(item, list) else item for item in items]
    ellipses = [position for position, item in enumerate(items) if item is ...]
    if len(ellipses) > 1:
        raise InputError("x[...]: an index can have only one ellipsis", found=_describe(items))
    used = sum(_axes_of(item) for item in items)
    if used > x.rank:
        raise InputError(
            "x[...]: too many indices", expected=f"at most {x.rank}, for {x!r}", found=str(used)
        )
    if not ellipses:
        items.append(...)
    parts: list[Part] = []
    axis = 0
    for item in items:
        if item is ...:
            parts += [Gap(0), *(Span(axis + n) for n in range(x.rank - used))]
            axis += x.rank - used
        else:
            parts.append(_part(x, axis, item))
            axis += _axes_of(item)
    return parts


def _as_array(item: list[Any]) -> Array:
    try:
        array = np.asarray(item)
    except (TypeError, ValueError):
        raise InputError(
            "x[...]: this list is not an array of indices", found=_describe([item])
        ) from None
    return array if array.size else array.astype(np.int64)


def _axes_of(item: Any) -> int:
    """How many axes an item of the key covers; ``...`` covers what is left."""
    if item is None or item is ...:
        return 0
    return len(item.shape) if _is_mask(item) else 1


def _is_mask(item: Any) -> bool:
    if isinstance(item, Value):
        return item.dtype is bool_
    return isinstance(item, np.ndarray) and item.dtype == np.bool_


def _part(x: Value, axis: int, item: Any) -> Part:
    if item is None:
        return Gap(1)
    if isinstance(item, slice):
        return _span(axis, item)
    if _is_mask(item):
        return _mask(x, axis, item)
    if isinstance(item, Value) and item.dtype.is_integer:
        return Places((axis,), shape_ops.unsqueeze(item, -1))
    if isinstance(item, SymbolicDim):
        return _point(x, axis, item)
    if isinstance(item, np.ndarray) and item.ndim and item.dtype.kind in "iu":
        return Places((axis,), _constant(np.expand_dims(item, -1), x))
    position = _as_integer(item)
    if position is not None:
        return _point(x, axis, position)
    raise InputError(
        f"x[...]: axis {axis} cannot be indexed by this",
        expected="an integer, a slice, ..., None, an array of integers or a mask",
        found=_describe([item]),
    )


def _constant(array: Array, x: Value) -> Value:
    return constant(array.astype(np.int64), graph=x.graph)


def _as_integer(item: Any) -> int | None:
    if isinstance(item, bool | np.bool_):
        return None
    try:
        return operator.index(item)
    except TypeError:
        return None


def _span(axis: int, item: slice) -> Span:
    step = 1 if item.step is None else _as_integer(item.step)
    if not step:
        raise InputError(
            "x[...]: a slice needs a step that is known and not 0", found=_describe([item.step])
        )
    return Span(axis, _read_bound(item.start), _read_bound(item.stop), step)


def _read_bound(item: Any) -> Dim | None:
    """An end of a slice, once it is known from which end it counts."""
    if item is None:
        return None
    if isinstance(item, SymbolicDim):
        if provably_at_least(item, 0) or provably_less(item, 0):
            return item
        raise InputError(
            "x[...]: this end of a slice may be negative or not",
            expected="a symbolic size that is always one or the other",
            found=str(item),
            hint="dim_max(size, 0) never counts from the end",
        )
    position = _as_integer(item)
    if position is None:
        raise InputError(
            "x[...]: a slice needs ends that are known",
            expected="integers, sizes or None",
            found=_describe([item]),
            hint="take(x, start + arange(count)) starts where a value says",
        )
    return position


def _point(x: Value, axis: int, position: Dim) -> Part:
    dim = x.shape[axis]
    if provably_at_least(position, dim) or provably_less(position, -dim):
        raise InputError(
            f"x[...]: index {position} is outside axis {axis}, which has size {dim}",
            expected=f"{-dim} to {dim - 1}",
            found=str(position),
        )
    if provably_at_least(position, 0) and provably_less(position, dim):
        return Point(axis, position)
    if provably_less(position, 0) and provably_at_least(position, -dim):
        return Point(axis, dim + position)
    return _as_places(Point(axis, position))  # which is checked when the graph runs


def _as_places(point: Point) -> Places:
    position = point.position
    scalar = constant(position) if isinstance(position, int) else data.dim(position)
    return Places((point.axis,), shape_ops.reshape(scalar, (1,)))


def _mask(x: Value, axis: int, mask: Value | Array) -> Places:
    """A mask is the positions where it is true."""
    rank = len(mask.shape)
    axes = tuple(range(axis, axis + rank))
    covered = tuple(x.shape[a] for a in axes)
    if not rank or any(map(provably_different, covered, mask.shape)):
        raise InputError(
            "x[...]: the mask does not fit the axes that it stands for",
            expected=f"{format_shape(covered)}, of {x!r}" if rank else "at least one dimension",
            found=format_shape(tuple(mask.shape)),
        )
    if isinstance(mask, Value):
        return Places(axes, nonzero(mask))
    return Places(axes, _constant(np.argwhere(mask), x))


def _describe(items: Sequence[Any]) -> str:
    return ", ".join(f"{type(item).__name__}: {item!r:.60}" for item in items)


# From the parts to the graph ----------------------------------------------------------------------


def _cut(x: Value, parts: Sequence[Part]) -> Value:
    """``x`` with every span and point sliced out; a point leaves a dimension of size 1."""
    starts: list[Dim] = [0] * x.rank
    limits: list[Dim | None] = [None] * x.rank
    steps = [1] * x.rank
    backwards = []
    for part in parts:
        if isinstance(part, Point):
            starts[part.axis], limits[part.axis] = part.position, part.position + 1
        elif isinstance(part, Span) and part.step > 0:
            starts[part.axis] = 0 if part.start is None else part.start
            limits[part.axis], steps[part.axis] = part.stop, part.step
        elif isinstance(part, Span):
            dim = x.shape[part.axis]
            backwards.append(part.axis)
            starts[part.axis] = 0 if part.start is None else _from_back(part.start, dim)
            limits[part.axis] = None if part.stop is None else _from_back(part.stop, dim)
            steps[part.axis] = -part.step
    flipped = slicing.flip(x, backwards) if backwards else x
    return slicing.slice(flipped, starts, limits, steps)


def _from_back(position: Dim, dim: Dim) -> Dim:
    """A position as it counts once the axis is flipped, moved to the nearest end if outside."""
    if provably_less(position, 0):
        return dim_min(-1 - position, dim)
    return dim_max(dim - 1 - position, 0)


def _result_shape(cut: Value, parts: Sequence[Part]) -> tuple[Dim, ...]:
    shape: list[Dim] = []
    for part in parts:
        if isinstance(part, Gap):
            shape += [1] * part.width
        elif isinstance(part, Span):
            shape.append(cut.shape[part.axis])
    return tuple(shape)


def _select(x: Value, parts: Sequence[Part]) -> Value:
    """Gather at all index vectors together, then put the dimensions in NumPy's order."""
    chosen = [place for place, part in enumerate(parts) if isinstance(part, Places)]
    neighbours = chosen[-1] - chosen[0] == len(chosen) - 1
    selected, labels, made = _gather_vectors(
        x, [part for part in parts if isinstance(part, Places)]
    )
    wanted: list[int | None] = [] if neighbours else [*made]
    for place, part in enumerate(parts):
        if isinstance(part, Span):
            wanted.append(part.axis)
        elif isinstance(part, Gap):
            wanted += [None] * part.width
        elif neighbours and place == chosen[0]:
            wanted += made
    order = [labels.index(label) for label in wanted if label is not None]
    ordered = selected if order == sorted(order) else shape_ops.transpose(selected, order)
    sizes = iter(ordered.shape)
    return shape_ops.reshape(ordered, [1 if label is None else next(sizes) for label in wanted])


def _gather_vectors(x: Value, places: Sequence[Places]) -> tuple[Value, list[int], list[int]]:
    """What index vectors select, the label of each of its dimensions, and those that are new.

    A label is the axis that a dimension had in ``x``, or negative if the indices made it.
    """
    axes = [axis for part in places for axis in part.axes]
    vectors = _join_vectors([part.indices for part in places])
    made = [-1 - number for number in range(vectors.rank - 1)]
    if len(axes) == 1:
        indices = shape_ops.reshape(vectors, vectors.shape[:-1])
        before, after = range(axes[0]), range(axes[0] + 1, x.rank)
        return take(x, indices, axes[0]), [*before, *made, *after], made
    rest = [axis for axis in range(x.rank) if axis not in axes]
    leading = axes == list(range(len(axes)))
    front = x if leading else shape_ops.transpose(x, [*axes, *rest])
    return gather(front, vectors), [*made, *rest], made


def _join_vectors(vectors: Sequence[Value]) -> Value:
    """Index vectors into several groups of axes as vectors into all of them."""
    if len(vectors) == 1:
        return vectors[0]
    try:
        common = broadcast_shapes("getitem", *(vector.shape[:-1] for vector in vectors))
    except TypeRuleError as error:
        raise InputError(
            "x[...]: the arrays of indices do not broadcast together", found=error.found
        ) from None
    stretched = [
        shape_ops.expand(cast_to(vector, i64), (*common, vector.shape[-1])) for vector in vectors
    ]
    return joining.concat(stretched, -1)
