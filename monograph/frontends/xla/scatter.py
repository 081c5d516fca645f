"""XLA's general scatter: windows of updates joined into an operand at starts that are data.

The transpose of ``gather``, axis for axis: operand axes that windows do not fill go to the front,
and a window that is shorter than such an axis but longer than 1 has an index vector for each of its
elements. A window that would stick out is dropped whole, or moved inside if the mode clips.
"""

from __future__ import annotations

from collections.abc import Sequence

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.frontends.xla.gather import (
    Bounds,
    clip,
    index_columns,
    index_vectors,
    within,
)
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import i64


@dataclass(frozen=True)
class ScatterDims:
    """Which axis is which; the names are XLA's."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


def scatter(
    operand: Value,
    starts: Value,
    updates: Value,
    dims: ScatterDims,
    mode: str,
    bounds: Bounds = Bounds.FILL_OR_DROP,
) -> Value:
    """``operand`` with the windows of ``updates`` joined in where ``starts`` say.

    ``mode`` is that of our ``scatter``: set, add, multiply, max or min.
    """
    if operand.dtype.is_complex and mode in ("set", "add"):
        parts = ((F.real(operand), F.real(updates)), (F.imag(operand), F.imag(updates)))
        return F.complex(*(scatter(x, starts, y, dims, mode, bounds) for x, y in parts))
    batch = starts.shape[:-1]
    sizes = _window_sizes(operand, updates, dims)
    mapped = dims.scatter_dims_to_operand_dims
    columns = index_columns(starts, len(mapped))
    limits = [operand.shape[axis] - sizes[axis] for axis in mapped]
    if bounds is Bounds.CLIP:
        columns = [clip(column, limit) for column, limit in zip(columns, limits, strict=True)]
    along = dict(zip(mapped, columns, strict=True))
    for axis, place in zip(
        dims.operand_batching_dims, dims.scatter_indices_batching_dims, strict=True
    ):
        along[axis] = F.iota(batch, place)
    moved = [axis for axis in range(operand.rank) if sizes[axis] != operand.shape[axis]]
    whole = [axis for axis in range(operand.rank) if axis not in moved]
    windows = [axis for axis in moved if sizes[axis] != 1]
    rows = _updates_in_order(updates, dims, operand.rank, [*windows, *whole])
    if moved:
        along |= {axis: F.zeros(batch, i64) for axis in moved if axis not in along}
        target = F.transpose(operand, (*moved, *whole))
        vectors = index_vectors(along, moved, windows, batch, tuple(sizes))
    else:
        target = F.unsqueeze(operand, 0)
        vectors = F.zeros((*batch, 1), i64)
    if bounds is Bounds.CLIP or not columns:
        written = F.scatter(target, vectors, rows, mode)
    else:
        inside = within(columns, limits, batch)
        shape = (*batch, *(1,) * len(windows), 1)
        written = F.scatter_within(
            target, F.where(F.reshape(inside, shape), vectors, -1), rows, mode
        )
    if not moved:
        return F.squeeze(written, 0)
    order = [*moved, *whole]
    return F.transpose(written, [order.index(axis) for axis in range(operand.rank)])


def _window_sizes(operand: Value, updates: Value, dims: ScatterDims) -> list[Dim]:
    """The size of a window along each axis of the operand; 1 where updates have none."""
    gone = {*dims.inserted_window_dims, *dims.operand_batching_dims}
    left = iter(updates.shape[axis] for axis in sorted(dims.update_window_dims))
    return [1 if axis in gone else next(left) for axis in range(operand.rank)]


def _updates_in_order(updates: Value, dims: ScatterDims, rank: int, wanted: Sequence[int]) -> Value:
    """Updates as our scatter takes them: batch axes, then those that stand for ``wanted`` ones.

    Axes of size 1 that the operand's index vectors name are left out.
    """
    gone = {*dims.inserted_window_dims, *dims.operand_batching_dims}
    kept = [axis for axis in range(rank) if axis not in gone]
    place = dict(zip(kept, sorted(dims.update_window_dims), strict=True))
    batch = [axis for axis in range(updates.rank) if axis not in dims.update_window_dims]
    named = [axis for axis in kept if axis not in wanted]
    order = [*batch, *(place[axis] for axis in (*named, *wanted) if axis in place)]
    rows = F.transpose(updates, order)
    shape = list(rows.shape[: len(batch)])
    shape += [updates.shape[place[axis]] if axis in place else 1 for axis in wanted]
    return rows if rows.shape == tuple(shape) else F.reshape(rows, shape)
