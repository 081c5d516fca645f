"""Dynamic slices, dynamic update slices, and padding with a computed value."""

from __future__ import annotations

from collections.abc import Sequence

from monograph import functional as F
from monograph.frontends.xla.gather import Bounds, GatherDims, gather
from monograph.frontends.xla.scatter import ScatterDims, scatter
from monograph.ir.build import cast_to
from monograph.ir.dims import Dim, Shape
from monograph.ir.graph import Value
from monograph.ir.types import bool_, i64
from monograph.rewrite.constants import as_number, splat


def dynamic_slice(x: Value, starts: Sequence[Value], sizes: Shape) -> Value:
    """A part of ``x``, moved inside where it would stick out."""
    moved = tuple(axis for axis in range(x.rank) if sizes[axis] != x.shape[axis])
    if not moved:
        return x
    vector = _vector(starts, moved)
    return gather(x, vector, GatherDims(tuple(range(x.rank)), (), moved), tuple(sizes))


def dynamic_update_slice(x: Value, update: Value, starts: Sequence[Value]) -> Value:
    """``x`` with a part of it replaced, moved inside where it would stick out."""
    moved = tuple(axis for axis in range(x.rank) if update.shape[axis] != x.shape[axis])
    if not moved:
        return update
    dims = ScatterDims(tuple(range(x.rank)), (), moved)
    return scatter(x, _vector(starts, moved), update, dims, "set", Bounds.CLIP)


def _vector(starts: Sequence[Value], axes: Sequence[int]) -> Value:
    """The starts along these axes as one index vector."""
    return F.stack([cast_to(starts[axis], i64) for axis in axes], 0)


def pad(
    x: Value, value: Value, low: Sequence[Dim], high: Sequence[Dim], interior: Sequence[int]
) -> Value:
    """``value``, a scalar, before, after and between the elements of each axis."""
    known = read_number(value)
    if known is not None:
        return F.pad(x, low, high, known, interior=interior)
    own = F.pad(F.full(x.shape, True, bool_), low, high, False, interior=interior)
    zeros = F.pad(x, low, high, False if x.dtype is bool_ else 0, interior=interior)
    return F.where(own, zeros, value)


def read_number(value: Value) -> bool | int | float | None:
    """The real number that fills a constant; None if several do, or a complex one."""
    element = splat(value)
    if element is None:
        return None
    number = as_number(element)
    if value.dtype is bool_:
        return bool(number)
    if isinstance(number, complex):
        return number.real if number.imag == 0 else None
    return number
