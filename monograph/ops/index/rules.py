"""What the ops on indices share: their type rules, and indices checked against actual sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monograph.errors import EvaluationError, TypeRuleError
from monograph.ir.dims import Shape, provably_less
from monograph.ir.graph import Value
from monograph.ir.types import Array, TensorType, string
from monograph.ops import reduce
from monograph.ops import shape as shape_ops
from monograph.ops.rules import (
    format_shape,
    normalize_axis,
    require,
    require_integer,
    same_dim,
    same_dtype,
)

MODES = ("set", "add", "multiply", "max", "min")


def vector_length(name: str, x: TensorType, indices: TensorType, batch_dims: int) -> int:
    """How many axes of ``x`` an index vector names."""
    depth = indices.shape[-1]
    if isinstance(depth, int) and batch_dims + depth <= x.rank:
        return depth
    raise TypeRuleError(
        f"{name}: the index vectors do not fit the operand",
        expected=f"a last dimension of 0 to {x.rank - batch_dims}, for {x}",
        found=str(indices),
    )


def check_alongside(name: str, axis: int, x: TensorType, indices: TensorType) -> None:
    """Indices along one axis must have the rank of ``x`` and fit inside its other dimensions."""
    require_integer(name, indices)
    require(
        x.rank == indices.rank,
        f"{name}: the operand and the indices differ in rank",
        expected=f"indices of rank {x.rank}, as {x}",
        found=indices,
    )
    normal = normalize_axis(name, axis, x.rank)
    for other, (dim, size) in enumerate(zip(x.shape, indices.shape, strict=True)):
        require(
            other == normal or not provably_less(dim, size),
            f"{name}: the indices are larger than the operand in dimension {other}",
            expected=f"at most {dim}, as {x}",
            found=indices,
        )


def check_mode(name: str, mode: str, x: TensorType, updates: TensorType) -> None:
    """A mode must exist and make sense for the elements."""
    same_dtype(name, x, updates)
    require(
        mode in MODES,
        f"{name}: there is no such mode",
        expected=f"one of {', '.join(MODES)}",
        found=repr(mode),
    )
    if mode in ("max", "min"):
        reduce.require_ordered(name, x)
    require(
        mode == "set" or x.dtype is not string,
        f"{name}: strings can only be set",
        expected="a number or bool dtype",
        found=x,
    )


def check_updates(name: str, updates: TensorType, shape: Shape) -> None:
    """Updates must have exactly the shape of the places for them."""
    require(
        updates.rank == len(shape),
        f"{name}: the updates do not fit",
        expected=format_shape(shape),
        found=updates,
    )
    for axis, (found, expected) in enumerate(zip(updates.shape, shape, strict=True)):
        same_dim(name, f"the updates' dimension {axis} and the place for it", expected, found)


def broadcast_beside(x: Value, indices: Value, axis: int) -> tuple[Value, Value]:
    """Both operands with dimensions of size 1, but for ``axis``, stretched to meet."""
    if x.rank != indices.rank:
        return x, indices  # which the type rule refuses
    pairs = list(zip(x.shape, indices.shape, strict=True))
    of_x = [b if a == 1 and n != axis else a for n, (a, b) in enumerate(pairs)]
    of_indices = [a if b == 1 and n != axis else b for n, (a, b) in enumerate(pairs)]
    return shape_ops.expand(x, of_x), shape_ops.expand(indices, of_indices)


def check_shape(name: str, what: str, found: Sequence[int], expected: Sequence[int]) -> None:
    """Dimensions that the type rule could not compare, now that they are known."""
    if tuple(found) != tuple(expected):
        raise EvaluationError(
            f"{name}: {what} have the wrong shape", expected=str(expected), found=str(found)
        )


def check_index(name: str, indices: Array, size: int, axis: int) -> Array:
    """Indices as non-negative ``int64``, once each is known to lie inside the axis."""
    if indices.dtype == np.uint64:  # beyond what int64 can hold is beyond any axis
        indices = np.minimum(indices, np.uint64(np.iinfo(np.int64).max))
    index = indices.astype(np.int64)
    outside = (index < -size) | (index >= size)
    if outside.any():
        position = tuple(int(i) for i in np.argwhere(outside)[0])
        raise EvaluationError(
            f"{name}: index {index[position]} is outside axis {axis}, which has size {size}",
            expected=f"{-size} to {size - 1}" if size else "no index: the axis is empty",
            found=f"{index[position]} at position {position} of the indices",
        )
    return np.where(index < 0, index + size, index)


def flat_index(
    name: str,
    columns: Sequence[Array] | Array,
    places: tuple[int, ...],
    sizes: Sequence[int],
    first_axis: int,
) -> Array:
    """One index into the flattened axes of ``sizes`` for a column of indices along each."""
    flat = np.zeros(places, np.int64)
    for position, size in enumerate(sizes):
        column = check_index(name, columns[position], size, first_axis + position)
        flat = flat * size + column
    return flat


def flat_index_along(name: str, x: Array, indices: Array, axis: int) -> Array:
    """Indices into the flattened ``x`` for those along one axis."""
    normal = axis % x.ndim
    for other, (size, needed) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if other != normal and needed > size:
            raise EvaluationError(
                f"{name}: the indices are larger than the operand in dimension {other}",
                expected=f"at most {size}",
                found=str(needed),
            )
    along = check_index(name, indices, x.shape[normal], normal)
    flat = np.zeros(indices.shape, np.int64)
    for position, size in enumerate(x.shape):
        ramp = np.arange(indices.shape[position])
        own = ramp.reshape([-1 if n == position else 1 for n in range(x.ndim)])
        flat = flat * size + (along if position == normal else own)
    return flat


def write_rows(mode: str, target: Array, rows: Array, updates: Array) -> None:
    """Join updates into the rows of ``target``, in order."""
    combine = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "min": np.minimum}
    if mode == "set":
        target[rows] = updates
    else:
        combine[mode].at(target, rows, updates)
