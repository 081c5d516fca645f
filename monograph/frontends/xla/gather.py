"""XLA's general gather: slices of an operand, each at a start that is data.

The operand's axes are sorted into those that a start moves along and those that are taken whole;
the first go to the front, starts become index vectors, and our ``gather`` does the rest. A slice
that is shorter than its axis but longer than 1 has an index vector for each of its elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.frontends.xla.arithmetic import like
from monograph.ir.build import cast_to, constant
from monograph.ir.dims import Dim, Shape
from monograph.ir.graph import Value
from monograph.ir.types import DType, Kind, bool_, i64


class Bounds(Enum):
    """What a start outside the operand means: the nearest one inside, or nothing at all."""

    CLIP = "clip"
    FILL_OR_DROP = "fill"


@dataclass(frozen=True)
class GatherDims:
    """Which axis is which; the names are XLA's."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


def gather(
    operand: Value,
    starts: Value,
    dims: GatherDims,
    slice_sizes: Shape,
    bounds: Bounds = Bounds.CLIP,
    fill: bool | int | float | complex | None = None,
) -> Value:
    """The slices of ``operand`` that start at the index vectors in the last axis of ``starts``."""
    batch = starts.shape[:-1]
    columns = index_columns(starts, len(dims.start_index_map))
    limits = [operand.shape[axis] - slice_sizes[axis] for axis in dims.start_index_map]
    clipped = [clip(column, limit) for column, limit in zip(columns, limits, strict=True)]
    along = dict(zip(dims.start_index_map, clipped, strict=True))
    for axis, place in zip(
        dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True
    ):
        along[axis] = F.iota(batch, place)
    moved = [axis for axis in along if slice_sizes[axis] != operand.shape[axis]]
    moved += [axis for axis in dims.operand_batching_dims if axis not in moved]
    moved.sort()
    result = _read(operand, along, moved, batch, dims, slice_sizes)
    if bounds is Bounds.CLIP:
        return result
    inside = within(columns, limits, batch)
    for axis in dims.offset_dims:
        inside = F.unsqueeze(inside, axis)
    other = constant(default_fill(operand.dtype) if fill is None else fill, operand.dtype)
    return F.where(inside, result, other)


def _read(
    operand: Value,
    along: dict[int, Value],
    moved: Sequence[int],
    batch: Shape,
    dims: GatherDims,
    slice_sizes: Shape,
) -> Value:
    """What stands at clipped starts, the axes in the order of XLA's result."""
    whole = [axis for axis in range(operand.rank) if axis not in moved]
    cut = [
        slice_sizes[axis] if axis in whole else operand.shape[axis] for axis in range(operand.rank)
    ]
    source = operand if tuple(cut) == operand.shape else F.slice(operand, (0,) * operand.rank, cut)
    windows = [axis for axis in moved if slice_sizes[axis] != 1]
    if moved:
        source = F.transpose(source, (*moved, *whole))
        vectors = index_vectors(along, moved, windows, batch, slice_sizes)
        found = F.gather(source, vectors)
    else:
        found = F.expand(source, (*batch, *source.shape)) if batch else source
    # The axes of `found`: batch, windows, then whole ones; those of the result: XLA's order.
    gone = {*dims.collapsed_slice_dims, *dims.operand_batching_dims}
    order = [*windows, *whole]
    own = [len(batch) + place for place in range(len(order))]
    kept = [(axis, place) for axis, place in zip(order, own, strict=True) if axis not in gone]
    single = [axis for axis in moved if axis not in windows and axis not in gone]
    dropped = [place for axis, place in zip(order, own, strict=True) if axis in gone]
    names: list[int] = [*(-1 - k for k in range(len(batch))), *(axis for axis, _ in kept)]
    if dropped:
        found = F.squeeze(found, dropped)
    if single:
        found = F.unsqueeze(found, list(range(found.rank, found.rank + len(single))))
        names += single
    offsets = sorted(axis for axis in names if axis >= 0)
    rest = iter(-1 - k for k in range(len(batch)))
    windows_left = iter(offsets)
    rank = len(names)
    target = [next(windows_left) if n in dims.offset_dims else next(rest) for n in range(rank)]
    permutation = [names.index(name) for name in target]
    return found if permutation == list(range(rank)) else F.transpose(found, permutation)


def index_columns(starts: Value, count: int) -> list[Value]:
    """The starts along each axis that they name: the parts of the last axis, as i64.

    What a u64 holds beyond an i64 becomes negative, which is outside as well.
    """
    wide = cast_to(starts, i64)
    if wide.rank == 1 and count == 0:
        return []
    last = wide.rank - 1
    if count == 1:
        return [F.squeeze(wide, last)]
    found = []
    for place in range(count):
        low, high = (*(0,) * last, place), (*wide.shape[:-1], place + 1)
        found.append(F.squeeze(F.slice(wide, low, high), last))
    return found


def clip(column: Value, limit: Dim) -> Value:
    """Starts moved to the nearest one from 0 to ``limit``."""
    if limit == 0:
        return F.zeros_like(column)
    high = constant(limit, i64) if isinstance(limit, int) else F.dim(limit)
    return F.minimum(F.maximum(column, like(0, column)), high)


def within(columns: Sequence[Value], limits: Sequence[Dim], batch: Shape) -> Value:
    """Whether every start of a vector is from 0 to its limit."""
    inside: Value | None = None
    for column, limit in zip(columns, limits, strict=True):
        high = limit if isinstance(limit, int) else F.dim(limit)
        one = F.logical_and(F.greater_equal(column, 0), F.less_equal(column, high))
        inside = one if inside is None else F.logical_and(inside, one)
    if inside is None:
        inside = F.expand(constant(True, bool_), batch)
    return inside


def index_vectors(
    along: dict[int, Value],
    moved: Sequence[int],
    windows: Sequence[int],
    batch: Shape,
    sizes: Shape,
) -> Value:
    """Index vectors for every element of the windows: i64[*batch, *windows, axes]."""
    extents = (*batch, *(sizes[axis] for axis in windows))
    columns = []
    for axis in moved:
        column = F.reshape(along[axis], (*batch, *(1,) * len(windows)))
        if axis in windows:
            place = len(batch) + list(windows).index(axis)
            ramp: list[Dim] = [1] * len(extents)
            ramp[place] = sizes[axis]
            column = F.add(column, F.iota(tuple(ramp), place))
        columns.append(F.expand(column, extents))
    return F.stack(columns, -1)


def default_fill(dtype: DType) -> bool | int | float:
    """What JAX fills with: NaN, the smallest signed integer, the largest unsigned one, true."""
    if dtype.is_float or dtype.is_complex:
        return float(np.nan)
    if dtype.kind is Kind.SIGNED:
        return -int(2 ** (dtype.bits - 1))
    return True if dtype is bool_ else int(2**dtype.bits - 1)
