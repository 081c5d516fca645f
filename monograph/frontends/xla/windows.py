"""Windowed reductions over every axis, and select-and-scatter.

A window's reduction by an associative function is one axis after the other: k - 1 combinations of
strided slices for a window of k, which fuse into one kernel. Long windows are gathered and reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.errors import UnsupportedError
from monograph.frontends.xla.reduction import (
    COMBINERS,
    Combine,
    flatten_axes,
    identity,
    reduce,
    running_result,
)
from monograph.ir.build import constant
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import bool_, i64

MAX_TAPS = 16
"""The longest window whose elements are combined as slices, one by one."""


@dataclass(frozen=True)
class Window:
    """Sizes, strides, padding and dilations for every axis of an operand; the names are XLA's."""

    dimensions: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[Dim, Dim], ...]
    base_dilation: tuple[int, ...]
    window_dilation: tuple[int, ...]

    def count(self, axis: int, size: Dim) -> Dim:
        """How many windows there are along an axis whose padded size is known."""
        reach = (self.dimensions[axis] - 1) * self.window_dilation[axis] + 1
        if isinstance(size, int) and size < reach:
            return 0
        return (size - reach) // self.strides[axis] + 1

    def padded(self, x: Value, filling: Value | bool | int | float) -> Value:
        """The operand with its padding and the gaps of its dilation filled."""
        from monograph.frontends.xla.slicing import pad

        low = [before for before, _ in self.padding]
        high = [after for _, after in self.padding]
        value = filling if isinstance(filling, Value) else constant(filling, x.dtype)
        return pad(x, value, low, high, [step - 1 for step in self.base_dilation])


def reduce_window(kind: str, x: Value, window: Window, initial: Value | None = None) -> Value:
    """Every window combined by one of the functions of ``reduction.COMBINERS``."""
    result = window.padded(x, identity(kind, x.dtype))
    for axis, size in enumerate(window.dimensions):
        if size > 1 or window.strides[axis] > 1:
            result = _reduce_axis(kind, result, window, axis)
    if initial is not None:
        result = COMBINERS[kind](result, F.expand(initial, result.shape))
    return result


def reduce_running_window(
    kind: str, x: Value, sizes: Sequence[Dim], padding: Sequence[tuple[Dim, Dim]], initial: Value
) -> Value:
    """Windows that reach to the first element of one axis, or to its last: running results.

    This is what JAX makes of ``cumsum`` along an axis whose size is free.
    """
    (axis, *others) = [place for place, size in enumerate(sizes) if size != 1] or [0]
    size = x.shape[axis]
    reaches = {(size - 1, 0): False, (0, size - 1): True}
    beside = [pair for place, pair in enumerate(padding) if place != axis]
    if others or sizes[axis] != size or padding[axis] not in reaches or set(beside) - {(0, 0)}:
        raise UnsupportedError(
            f"windows of the free sizes {', '.join(map(str, sizes))} have no meaning here",
            hint="export the program for known sizes",
        )
    result = running_result(kind, x, axis, reaches[padding[axis]])
    return COMBINERS[kind](result, F.expand(initial, result.shape))


def _reduce_axis(kind: str, x: Value, window: Window, axis: int) -> Value:
    size = window.dimensions[axis]
    if size > MAX_TAPS:
        return reduce(kind, _gather_windows(x, window, axis), [axis + 1])
    parts = [_tap(x, window, axis, tap) for tap in range(size)]
    while len(parts) > 1:
        pairs = [parts[k : k + 2] for k in range(0, len(parts), 2)]
        parts = [COMBINERS[kind](*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


def _tap(x: Value, window: Window, axis: int, tap: int) -> Value:
    """The elements that a place in the window meets, one for each window."""
    count = window.count(axis, x.shape[axis])
    starts, limits, steps = [0] * x.rank, list(x.shape), [1] * x.rank
    first = tap * window.window_dilation[axis]
    starts[axis], steps[axis] = first, window.strides[axis]
    limits[axis] = first + (count - 1) * window.strides[axis] + 1
    if count == 0:
        starts[axis], limits[axis] = 0, 0
    return F.slice(x, starts, limits, steps)


def _gather_windows(x: Value, window: Window, axis: int) -> Value:
    """The elements of each window in an axis of their own, behind ``axis``."""
    count, size = window.count(axis, x.shape[axis]), window.dimensions[axis]
    first = F.multiply(F.iota((count, 1)), window.strides[axis])
    places = F.add(first, F.multiply(F.iota((1, size), 1), window.window_dilation[axis]))
    return F.take(x, places, axis)


def window_elements(x: Value, window: Window) -> Value:
    """The elements of each window, all axes flattened into a last one."""
    counts = []
    for axis in range(x.rank):
        counts.append(window.count(axis, x.shape[axis]))
    apart = x
    for axis in reversed(range(x.rank)):
        apart = _gather_windows(apart, window, axis)
    # The axes are now count, element, count, element…
    order = [*range(0, 2 * x.rank, 2), *range(1, 2 * x.rank, 2)]
    joined = F.transpose(apart, order)
    size = int(np.prod(window.dimensions, dtype=np.int64))
    return F.reshape(joined, (*counts, size))


def reduce_window_with(
    combine: Combine, operands: Sequence[Value], initial: Sequence[Value], window: Window
) -> tuple[Value, ...]:
    """Every window folded by any function of two tuples, from ``initial``."""
    padded = [window.padded(x, start) for x, start in zip(operands, initial, strict=True)]
    parts = [window_elements(x, window) for x in padded]
    rows = [flatten_axes(part, [part.rank - 1]) for part in parts]
    starts = [F.expand(start, row.shape[1:]) for start, row in zip(initial, rows, strict=True)]

    def step(carry: list[Value], element: list[Value]) -> tuple[list[Value], tuple[()]]:
        return list(combine(carry, element)), ()

    return tuple(F.scan(step, starts, rows)[0])


def select_positions(x: Value, window: Window, is_max: bool) -> Value:
    """Which element of each window is selected, the first of those that tie, as a flat place."""
    filled = window.padded(x, identity("max" if is_max else "min", x.dtype))
    parts = window_elements(filled, window)
    return F.argmax(parts, parts.rank - 1) if is_max else F.argmin(parts, parts.rank - 1)


def select_and_gather(values: Value, keys: Value, window: Window, is_max: bool) -> Value:
    """Of each window of ``values`` the element where ``keys`` are largest, or smallest."""
    chosen = select_positions(keys, window, is_max)
    parts = window_elements(window.padded(values, 0), window)
    picked = F.take_along_axis(parts, F.unsqueeze(chosen, chosen.rank), parts.rank - 1)
    return F.squeeze(picked, parts.rank - 1)


def select_and_scatter(
    x: Value,
    source: Value,
    initial: Value,
    window: Window,
    is_max: bool,
    mode: str = "add",
    select: Callable[[Value, Value], Value] | None = None,
) -> Value:
    """``source`` added to the element that each window of ``x`` selects; ``initial`` elsewhere."""
    chosen = (
        select_positions(x, window, is_max)
        if select is None
        else _select_in_windows(x, window, select)
    )
    shape = window.padded(x, identity("max", x.dtype)).shape
    columns, rest = [], chosen
    for axis in reversed(range(x.rank)):
        size = window.dimensions[axis]
        tap = F.remainder(rest, size)
        rest = F.floor_divide(rest, size)
        first = F.multiply(F.iota(source.shape, axis), window.strides[axis])
        columns.append(F.add(first, F.multiply(tap, window.window_dilation[axis])))
    vectors = F.stack(columns[::-1], -1)
    target = F.expand(initial, shape)
    written = F.scatter(target, F.cast(vectors, i64), source, mode)
    low = [-before for before, _ in window.padding]
    high = [-after for _, after in window.padding]
    return F.pad(written, low, high, False if x.dtype is bool_ else 0)


def _select_in_windows(x: Value, window: Window, select: Callable[[Value, Value], Value]) -> Value:
    """Which element of each window ``select`` keeps, going through them in order."""
    filled = window.padded(x, identity("max", x.dtype))
    parts = window_elements(filled, window)
    rows = flatten_axes(parts, [parts.rank - 1])
    first = F.squeeze(F.slice(rows, (0,) * rows.rank, (1, *rows.shape[1:])), 0)
    places = F.iota((rows.shape[0],))

    def step(carry: list[Value], each: list[Value]) -> tuple[list[Value], tuple[()]]:
        kept, place = carry
        stays = select(kept, each[0])
        here = F.expand(each[1], place.shape)
        return [F.where(stays, kept, each[0]), F.where(stays, place, here)], ()

    start = F.zeros(first.shape, i64)
    last: list[Value] = F.scan(step, [first, start], [rows, places])[0]
    return last[1]
