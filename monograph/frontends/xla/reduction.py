"""Reductions by one of the usual functions, and by any other, one element after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from monograph import functional as F
from monograph.frontends.xla import arithmetic
from monograph.ir.dims import shape_product
from monograph.ir.graph import Value
from monograph.ir.types import DType, bool_

Combine = Callable[[Sequence[Value], Sequence[Value]], Sequence[Value]]
"""From two tuples of elements to one."""

COMBINERS: dict[str, Callable[[Value, Value], Value]] = {
    "add": F.add,
    "multiply": F.multiply,
    "max": arithmetic.maximum,
    "min": arithmetic.minimum,
    "and": F.bitwise_and,
    "or": F.bitwise_or,
    "xor": F.bitwise_xor,
}
"""The functions that reductions know by name, of two values."""


def identity(kind: str, dtype: DType) -> bool | int | float:
    """What leaves the other operand of ``kind`` as it is."""
    if kind in ("add", "or", "xor"):
        return False if dtype is bool_ else 0
    if kind == "multiply":
        return True if dtype is bool_ else 1
    if dtype is bool_:
        return kind != "max"
    if kind == "and":
        return -1 if dtype.numpy.kind == "i" else int(np.iinfo(dtype.numpy).max)
    if dtype.is_float or dtype.is_complex:
        return -np.inf if kind == "max" else np.inf
    limits = np.iinfo(dtype.numpy)
    return int(limits.min if kind == "max" else limits.max)


def reduce(kind: str, x: Value, axes: Sequence[int]) -> Value:
    """All elements along ``axes`` combined; of none, the identity."""
    where = tuple(axes)
    if not where:
        return x
    if kind == "add" and x.dtype is not bool_:
        return F.sum(x, where)
    if kind == "multiply" and x.dtype is not bool_:
        return F.prod(x, where)
    if x.dtype is bool_ and kind != "xor":
        return F.any(x, where) if kind in ("max", "or", "add") else F.all(x, where)
    if any(x.shape[axis] == 0 for axis in where):
        left = [dim for axis, dim in enumerate(x.shape) if axis not in where]
        return F.full(left, identity(kind, x.dtype), x.dtype)
    if kind in ("max", "min") and not x.dtype.is_complex:
        return F.max(x, where) if kind == "max" else F.min(x, where)
    if x.dtype is bool_:
        return F.not_equal(F.remainder(F.sum(F.cast(x, "i32"), where), 2), 0)
    return reduce_by_halves(COMBINERS[kind], x, where)


def reduce_by_halves(
    combine: Callable[[Value, Value], Value], x: Value, axes: Sequence[int]
) -> Value:
    """The two halves of the axes combined, again and again: for what no reduction of ours does."""
    rows = flatten_axes(x, axes)
    size = rows.shape[0]
    assert isinstance(size, int), "a reduction by halves needs a size that is known"
    while size > 1:
        half = size // 2
        low, high = _rows(rows, 0, half), _rows(rows, half, 2 * half)
        joined = combine(low, high)
        rows = F.concat([joined, _rows(rows, 2 * half, size)], 0) if size % 2 else joined
        size = half + size % 2
    return F.squeeze(rows, 0)


def _rows(x: Value, first: int, limit: int) -> Value:
    return F.slice(x, (first, *(0,) * (x.rank - 1)), (limit, *x.shape[1:]))


def running(combine: Callable[[Value, Value], Value], x: Value, axis: int, reverse: bool) -> Value:
    """Running results of any associative function, in steps of 1, 2, 4… along the axis."""
    size = x.shape[axis]
    assert isinstance(size, int), "running results by doubling need a size that is known"
    result, step = x, 1
    while step < size:
        low, high = [0] * x.rank, list(x.shape)
        if reverse:
            low[axis] = step
        else:
            high[axis] = size - step
        behind = F.slice(result, low, high)
        first, last = ([0] * x.rank, list(x.shape)), ([0] * x.rank, list(x.shape))
        if reverse:
            first[1][axis], last[0][axis] = size - step, size - step
            joined = combine(F.slice(result, *first), behind)
            result = F.concat([joined, F.slice(result, *last)], axis)
        else:
            first[1][axis], last[0][axis] = step, step
            joined = combine(behind, F.slice(result, *last))
            result = F.concat([F.slice(result, *first), joined], axis)
        step *= 2
    return result


def flatten_axes(x: Value, axes: Sequence[int]) -> Value:
    """``axes`` joined into a first one, the others behind it."""
    others = [axis for axis in range(x.rank) if axis not in axes]
    moved = F.transpose(x, (*axes, *others))
    size = shape_product(tuple(x.shape[axis] for axis in axes))
    return F.reshape(moved, (size, *(x.shape[axis] for axis in others)))


def reduce_with(
    combine: Combine, operands: Sequence[Value], initial: Sequence[Value], axes: Sequence[int]
) -> tuple[Value, ...]:
    """Any function of two tuples, folded over ``axes`` in row-major order, from ``initial``."""
    rows = [flatten_axes(x, axes) for x in operands]
    starts = [F.expand(start, row.shape[1:]) for start, row in zip(initial, rows, strict=True)]

    def step(carry: list[Value], element: list[Value]) -> tuple[list[Value], tuple[()]]:
        return list(combine(carry, element)), ()

    return tuple(F.scan(step, starts, rows)[0])


def running_result(kind: str, x: Value, axis: int, reverse: bool) -> Value:
    """The results so far along an axis, by one of the functions of ``COMBINERS``."""
    if kind == "add" and x.dtype is not bool_:
        return F.cumsum(x, axis, reverse=reverse)
    if kind == "multiply" and x.dtype is not bool_:
        return F.cumprod(x, axis, reverse=reverse)
    if kind not in ("max", "min") or x.dtype.is_complex:
        return running(COMBINERS[kind], x, axis, reverse)
    if kind == "max":
        return F.cummax(x, axis, reverse)
    flipped = F.negate if x.dtype.is_float else F.bitwise_not
    return flipped(F.cummax(flipped(x), axis, reverse))
