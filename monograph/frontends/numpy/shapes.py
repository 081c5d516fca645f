"""NumPy's functions that move elements: shapes, joins, repeats, borders, indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.numpy.functions import as_dtype, value_of
from monograph.frontends.numpy.registry import implements
from monograph.ir.graph import Value
from monograph.ir.types import dtype_of


@implements(np.shape)
def shape(a: Value) -> tuple[Any, ...]:
    """The sizes, which may be symbols."""
    return a.shape


@implements(np.ndim)
def ndim(a: Value) -> int:
    """How many axes there are."""
    return a.rank


@implements(np.size)
def size(a: Value, axis: int | None = None) -> Any:
    """How many elements there are."""
    return math.prod(a.shape) if axis is None else a.shape[axis]


@implements(np.reshape)
def reshape(a: Any, shape: Any, order: str = "C") -> Value:
    """The same elements in another shape, of which one size may be -1.

    In order F, the first index changes fastest; a value has no order of its own to keep.
    """
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if order != "F":
        return F.reshape(value_of(a), sizes)
    return F.transpose(F.reshape(F.transpose(value_of(a)), sizes[::-1]))


@implements(np.ravel)
def ravel(a: Any, order: str = "C") -> Value:
    """All elements in a row."""
    return reshape(a, -1, order)


@implements(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Sequence[int] | None = None) -> Value:
    """The axes in another order."""
    return F.transpose(value_of(a), axes)


@implements(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> Value:
    """Two axes exchanged."""
    return F.swapaxes(value_of(a), axis1, axis2)


@implements(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Value:
    """Axes moved to other places."""
    return F.moveaxis(value_of(a), source, destination)


@implements(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Value:
    """Without axes of size 1."""
    return F.squeeze(value_of(a), axis)


@implements(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Value:
    """With new axes of size 1."""
    return F.unsqueeze(value_of(a), axis)


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any) -> Value:
    """Repeated along axes of size 1 and new ones."""
    return F.broadcast_to(value_of(array), (shape,) if isinstance(shape, int) else tuple(shape))


@implements(np.atleast_1d)
def atleast_1d(x: Any) -> Value:
    """With one axis or more."""
    value = value_of(x)
    return value if value.rank else F.reshape(value, (1,))


@implements(np.atleast_2d)
def atleast_2d(x: Any) -> Value:
    """With two axes or more."""
    value = atleast_1d(x)
    return value if value.rank > 1 else F.unsqueeze(value, 0)


@implements(np.atleast_3d)
def atleast_3d(x: Any) -> Value:
    """With three axes or more."""
    value = atleast_2d(x)
    return value if value.rank > 2 else F.unsqueeze(value, 2)


@implements(np.concatenate, np.concat)
def concatenate(arrays: Any, axis: int | None = 0) -> Value:
    """Joined along an axis; all elements in a row, if there is none."""
    if axis is None:
        return F.concat([ravel(each) for each in arrays])
    return F.concat([value_of(each) for each in arrays], axis)


@implements(np.stack)
def stack(arrays: Any, axis: int = 0) -> Value:
    """Joined along a new axis."""
    return F.stack([value_of(each) for each in arrays], axis)


@implements(np.vstack)
def vstack(tup: Any) -> Value:
    """Joined as rows."""
    return F.concat([atleast_2d(each) for each in tup], 0)


@implements(np.hstack)
def hstack(tup: Any) -> Value:
    """Joined as columns, or in a row."""
    parts = [atleast_1d(each) for each in tup]
    return F.concat(parts, 0 if parts[0].rank == 1 else 1)


@implements(np.dstack)
def dstack(tup: Any) -> Value:
    """Joined along the third axis."""
    return F.concat([atleast_3d(each) for each in tup], 2)


@implements(np.column_stack)
def column_stack(tup: Any) -> Value:
    """Joined as columns."""
    parts = [value_of(each) for each in tup]
    return F.concat([F.reshape(x, (-1, 1)) if x.rank < 2 else x for x in parts], 1)


@implements(np.append)
def append(arr: Any, values: Any, axis: int | None = None) -> Value:
    """Joined at the end."""
    return concatenate([value_of(arr), value_of(values)], axis)


@implements(np.split, np.array_split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Value]:
    """Parts along an axis: so many, or those between places."""
    x = value_of(ary)
    size = x.shape[axis]
    if not isinstance(size, int):
        raise UnsupportedError("numpy.split cannot be traced along a symbolic size")
    places = np.array_split(np.arange(size), indices_or_sections)
    return list(F.split(x, [len(each) for each in places], axis))


@implements(np.tile)
def tile(A: Any, reps: Any) -> Value:
    """Repeated as a whole along axes."""
    return F.tile(value_of(A), reps)


@implements(np.repeat)
def repeat(a: Any, repeats: int, axis: int | None = None) -> Value:
    """Each element repeated."""
    x = ravel(a) if axis is None else value_of(a)
    along = 0 if axis is None else axis % x.rank
    wide = F.unsqueeze(x, along + 1)
    sizes = (*x.shape[: along + 1], repeats, *x.shape[along + 1 :])
    return F.reshape(
        F.expand(wide, sizes), (*x.shape[:along], x.shape[along] * repeats, *x.shape[along + 1 :])
    )


@implements(np.flip)
def flip(m: Any, axis: Any = None) -> Value:
    """In reverse order along axes."""
    return F.flip(value_of(m), axis)


@implements(np.flipud)
def flipud(m: Any) -> Value:
    """Rows in reverse order."""
    return F.flip(value_of(m), 0)


@implements(np.fliplr)
def fliplr(m: Any) -> Value:
    """Columns in reverse order."""
    return F.flip(value_of(m), 1)


@implements(np.rot90)
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Value:
    """Turned by quarters of a circle in the plane of two axes."""
    x, (first, second) = value_of(m), axes
    turns = k % 4
    if turns == 2:
        return F.flip(x, (first, second))
    if turns == 1:
        return F.swapaxes(F.flip(x, second), first, second)
    return x if turns == 0 else F.flip(F.swapaxes(x, first, second), second)


@implements(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x: Any) -> Value:
    """The last two axes exchanged."""
    return F.swapaxes(value_of(x), -1, -2)


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Value:
    """Moved along axes, and in again at the other end."""
    return F.roll(value_of(a), shift, axis)


MODES = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Value:
    """With a border."""
    x = value_of(array)
    widths = np.broadcast_to(np.asarray(pad_width), (x.rank, 2)).tolist()
    low, high = [each[0] for each in widths], [each[1] for each in widths]
    if mode != "constant":
        if mode not in MODES:
            raise UnsupportedError(f"numpy.pad cannot be traced with mode {mode!r}")
        return F.pad(x, low, high, mode=mode)  # type: ignore[arg-type]  # one of MODES
    if np.ndim(constant_values):
        raise UnsupportedError("numpy.pad cannot be traced with several constant_values")
    return F.pad(x, low, high, constant_values)


@implements(np.take)
def take(a: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Value:
    """The elements at places along an axis; those beyond are clipped, or wrapped, by mode."""
    x = ravel(a) if axis is None else value_of(a)
    along = 0 if axis is None else axis
    places = value_of(indices)
    if mode == "clip":
        places = F.clip(places, 0, F.subtract(F.dim(x.shape[along]), 1))
    elif mode == "wrap":
        places = F.remainder(places, F.dim(x.shape[along]))
    return F.take(x, places, along)


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: int = -1) -> Value:
    """An element for each place along an axis."""
    return F.take_along_axis(value_of(arr), value_of(indices), axis)


@implements(np.tril)
def tril(m: Any, k: int = 0) -> Value:
    """The lower triangle."""
    return F.tril(value_of(m), k)


@implements(np.triu)
def triu(m: Any, k: int = 0) -> Value:
    """The upper triangle."""
    return F.triu(value_of(m), k)


@implements(np.zeros_like)
def zeros_like(a: Any, dtype: Any = None) -> Value:
    """Zeros of the same shape."""
    return as_dtype(F.zeros_like(value_of(a)), dtype)


@implements(np.empty_like)
def empty_like(prototype: Any, dtype: Any = None) -> Value:
    """Anything of the same shape: zeros."""
    return zeros_like(prototype, dtype)


@implements(np.ones_like)
def ones_like(a: Any, dtype: Any = None) -> Value:
    """Ones of the same shape."""
    return as_dtype(F.ones_like(value_of(a)), dtype)


@implements(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None) -> Value:
    """One number in the same shape."""
    x = value_of(a)
    chosen = x.dtype if dtype is None else dtype_of(np.dtype(dtype))
    return F.full_like(x, fill_value, chosen)


@implements(np.copy)
def copy(a: Any) -> Value:
    """The value itself: values never change."""
    return value_of(a)
