"""NumPy's functions of sampled signals: convolution, gradients, trapezoids, interpolation."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from monograph import functional as F
from monograph.errors import InputError, UnsupportedError
from monograph.frontends.numpy.functions import as_inexact, difference, value_of
from monograph.frontends.numpy.registry import implements
from monograph.ir.build import cast_to, promote_operands
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import dtype_of, f64

Mode = Literal["full", "same", "valid"]


def _is_longer(x: Value, y: Value) -> bool:
    """Whether one row is known to be longer than another; a free size counts as a long one."""
    return isinstance(y.shape[0], int) and (
        not isinstance(x.shape[0], int) or x.shape[0] > y.shape[0]
    )


def _slide(a: Value, v: Value, mode: str) -> Value:
    """Sums of products of a row with a shorter one, at each place of it."""
    if not a.dtype.is_float:
        raise UnsupportedError(f"rows of {a.dtype} cannot be convolved while traced")
    count = v.shape[0]
    if not isinstance(count, int):
        raise UnsupportedError("one of two rows that are convolved has a known length while traced")
    borders = {"full": (count - 1, count - 1), "same": (count // 2, count - 1 - count // 2)}
    if mode not in ("valid", *borders):
        raise InputError("an unknown mode", expected="full, same or valid", found=repr(mode))
    border = borders.get(mode, (0, 0))
    row, taps = F.reshape(a, (1, 1, a.shape[0])), F.reshape(v, (1, 1, count))
    return F.flatten(F.conv(row, taps, padding=[border]))


@implements(np.correlate)
def correlate(a: Any, v: Any, mode: Mode = "valid") -> Value:
    """Sums of products of one row with another, at each place of it."""
    x, y = promote_operands(value_of(a), value_of(v))
    if _is_longer(y, x):
        return F.flip(_slide(y, x, mode), 0)
    return _slide(x, y, mode)


@implements(np.convolve)
def convolve(a: Any, v: Any, mode: Mode = "full") -> Value:
    """The same with one of them in reverse order."""
    x, y = promote_operands(value_of(a), value_of(v))
    if _is_longer(y, x):
        x, y = y, x
    return _slide(x, F.flip(y, 0), mode)


@implements(np.interp)
def interpolate(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Value:
    """What lies on the lines between points, in f64 as in NumPy; xp is in ascending order."""
    at, places, heights = (cast_to(value_of(each), f64) for each in (x, xp, fp))
    last = F.subtract(F.dim(places.shape[0]), 1)
    after = F.clip(F.searchsorted(places, at, True), 1, last)
    before = F.subtract(after, 1)
    low, high = F.take(heights, before, 0), F.take(heights, after, 0)
    start, end = F.take(places, before, 0), F.take(places, after, 0)
    slope = F.divide(F.subtract(high, low), F.subtract(end, start))
    found = F.add(low, F.multiply(F.subtract(at, start), slope))
    rightmost, final = F.take(places, last, 0), F.take(heights, last, 0)
    found = F.where(F.greater_equal(at, rightmost), final, found)
    found = F.where(F.less(at, places[0]), heights[0] if left is None else left, found)
    return found if right is None else F.where(F.greater(at, rightmost), right, found)


@implements(np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Value:
    """The area under the lines between points."""
    heights = F.moveaxis(as_inexact(y), axis, -1)
    widths: Any = dx
    if x is not None:
        places = as_inexact(x)
        widths = difference(places if places.rank == 1 else F.moveaxis(places, axis, -1))
    count: Dim = heights.shape[-1]
    pairs = F.add(heights[..., 1:], heights[..., : count - 1])
    return F.sum(F.divide(F.multiply(pairs, widths), 2.0), -1)


@implements(np.gradient)
def gradient(f: Any, *spacing: Any, axis: Any = None) -> Any:
    """Slopes along axes: of both neighbours, and of the one that there is at each end."""
    x = as_inexact(f)
    axes = range(x.rank) if axis is None else (axis,) if isinstance(axis, int) else axis
    steps = list(spacing) * len(axes) if len(spacing) == 1 else list(spacing) or [1.0] * len(axes)
    if len(steps) != len(axes) or any(np.ndim(each) for each in steps):
        raise UnsupportedError("numpy.gradient can be traced with one number for each axis")
    found = tuple(_slope(x, each, step) for each, step in zip(axes, steps, strict=True))
    return found[0] if len(found) == 1 else found


def _slope(x: Value, axis: int, step: Any) -> Value:
    row = F.moveaxis(x, axis, 0)
    count = row.shape[0]
    inner = F.divide(F.subtract(row[2:], row[: count - 2]), 2.0 * step)
    first = F.divide(F.subtract(row[1:2], row[:1]), step)
    last = F.divide(F.subtract(row[count - 1 :], row[count - 2 : count - 1]), step)
    return F.moveaxis(F.concat([first, inner, last], 0), 0, axis)


@implements(np.vander)
def vandermonde(x: Any, N: int | None = None, increasing: bool = False) -> Value:
    """Powers of each element, one in each column."""
    row = value_of(x)
    row = cast_to(row, dtype_of(np.result_type(row.dtype.numpy, np.int64)))
    count = row.shape[0] if N is None else N
    if not isinstance(count, int):
        raise UnsupportedError("numpy.vander needs N along a symbolic size while traced")
    powers = [F.ones_like(row)]
    while len(powers) < count:
        powers.append(F.multiply(powers[-1], row))
    return F.stack(powers[:count] if increasing else powers[:count][::-1], 1)
