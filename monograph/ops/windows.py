"""Sliding windows over the trailing dimensions of a tensor: what convolution and pooling share.

A window of ``kernel`` elements, ``dilation`` apart, is placed every ``stride`` elements along each
spatial dimension, which ``padding`` lengthens by (low, high) elements. All of it is given as one
tuple an attribute, with one entry for each spatial dimension. Sizes may be symbolic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import EvaluationError, TypeRuleError
from monograph.ir.dims import Dim, Shape, dim_min, is_static, provably_less
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.types import Array, bool_
from monograph.ops.rules import format_shape, require

PerAxis: TypeAlias = int | Sequence[int]
Pairs: TypeAlias = tuple[tuple[int, int], ...]
Padding: TypeAlias = int | str | Sequence[int] | Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Windows:
    """Where the windows of one op lie."""

    kernel: Shape
    stride: tuple[int, ...]
    padding: Pairs
    dilation: tuple[int, ...]
    ceil_mode: bool = False

    @property
    def rank(self) -> int:
        """How many spatial dimensions there are."""
        return len(self.kernel)

    def check(self, name: str) -> None:
        """Refuse attributes of the wrong length or out of range."""
        for size in self.kernel:
            require(
                not provably_less(size, 0),
                f"{name}: a kernel size is negative",
                expected="sizes of at least 0",
                found=self.kernel,
            )
        require_per_axis(name, "stride", self.stride, self.rank, least=1)
        require_per_axis(name, "dilation", self.dilation, self.rank, least=1)
        require_pairs(name, self.padding, self.rank)

    def span(self, axis: int) -> Dim:
        """The elements from the first to the last of a window, both included."""
        return self.dilation[axis] * (self.kernel[axis] - 1) + 1

    def slack(self, axis: int, size: Dim) -> Dim:
        """How far a window can move along an axis of this size, padding included."""
        low, high = self.padding[axis]
        return size + low + high - self.span(axis)

    def count(self, axis: int, size: Dim) -> Dim:
        """How many windows fit along an axis of this size.

        With ``ceil_mode`` the last one may overhang the padding, but it must start inside the
        elements or the low padding, as PyTorch has it.
        """
        stride = self.stride[axis]
        slack = self.slack(axis, size)
        if not self.ceil_mode:
            return slack // stride + 1
        low, _ = self.padding[axis]
        return dim_min((slack + stride - 1) // stride + 1, (size + low - 1) // stride + 1)

    def counts(self, name: str, sizes: Shape) -> Shape:
        """The number of windows along each spatial dimension; a negative one is refused."""
        found = tuple(self.count(axis, size) for axis, size in enumerate(sizes))
        for count, size, axis in zip(found, sizes, range(self.rank), strict=True):
            require(
                not provably_less(count, 0),
                f"{name}: the window is larger than the padded operand",
                expected=f"at least {self.span(axis)} elements along spatial dimension {axis}",
                found=f"{size} and padding {self.padding[axis]}",
            )
        return found

    def view(self, x: Array, fill: Any) -> Array:
        """A read-only view [..., *counts, *kernel] of ``x``, padded with ``fill``."""
        kernel, counts = self.static(x.shape[x.ndim - self.rank :])
        leading = x.ndim - self.rank
        widths = [(0, 0)] * leading
        for axis, count in enumerate(counts):
            low, high = self.padding[axis]
            last = (count - 1) * self.stride[axis] + self.dilation[axis] * (kernel[axis] - 1) + 1
            widths.append((low, max(high, last - low - x.shape[leading + axis])))
        padded = np.pad(x, widths, constant_values=fill)
        steps = padded.strides[leading:]
        return np.lib.stride_tricks.as_strided(
            padded,
            (*x.shape[:leading], *counts, *kernel),
            (
                *padded.strides[:leading],
                *(step * stride for step, stride in zip(steps, self.stride, strict=True)),
                *(step * apart for step, apart in zip(steps, self.dilation, strict=True)),
            ),
            writeable=False,
        )

    def positions(self, axis: int, size: int) -> Array:
        """The element [count, kernel] that each place of each window falls on; may be outside."""
        (kernel,), (count,) = self._along(axis).static((size,))
        starts = np.arange(count) * self.stride[axis] - self.padding[axis][0]
        offsets = np.arange(kernel) * self.dilation[axis]
        return np.asarray(starts[:, None] + offsets)

    def static(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Kernel and counts as ints, for evaluation."""
        counts = tuple(self.count(axis, size) for axis, size in enumerate(sizes))
        if not is_static(self.kernel) or not is_static(counts):
            raise TypeRuleError("a symbol has no value here", found=str(self.kernel))
        if min(counts, default=0) < 0:
            raise EvaluationError(
                "the window is larger than the padded operand",
                expected=format_shape(tuple(self.span(axis) for axis in range(self.rank))),
                found=f"{format_shape(tuple(sizes))} and padding {self.padding}",
            )
        return self.kernel, counts

    def lower(
        self,
        b: Lowering,
        windows: Position,
        taps: Position,
        sizes: Shape,
        border: Sequence[int] = (),
    ) -> tuple[Scalar, list[Scalar]]:
        """Whether taps of windows fall on elements, and on which; held inside where they do not.

        ``border`` is how far along each axis one may read past the ends, and find what is wanted.
        """
        inside, places = b.literal(True, bool_), []
        for axis, (window, tap, size) in enumerate(zip(windows, taps, sizes, strict=True)):
            low, high = self.padding[axis]
            place = window * self.stride[axis] + tap * self.dilation[axis] - low
            covered = axis < len(border) and max(low, high) <= border[axis]
            if (low or high or self.ceil_mode) and not (covered and not self.ceil_mode):
                inside = b.both(inside, b.within(place, 0, size))
                place = b.clamp(place, 0, size)
            places.append(place)
        if any(size == 0 for size in sizes):
            inside = b.literal(False, bool_)
        return inside, places

    def lower_back(
        self,
        b: Lowering,
        places: Position,
        taps: Position,
        counts: Shape,
        covered: Sequence[bool] = (),
    ) -> tuple[Scalar, list[Scalar]]:
        """Whether windows have these taps on these places, and which; held in range if not.

        ``covered`` are the axes along which one may read past either end, and find what is wanted.
        """
        exists, windows = b.literal(True, bool_), []
        for axis, (place, tap, count) in enumerate(zip(places, taps, counts, strict=True)):
            start = place + self.padding[axis][0] - tap * self.dilation[axis]
            window = start // self.stride[axis]
            exists = b.both(exists, b.within(start % self.stride[axis], 0, 1))
            if axis >= len(covered) or not covered[axis]:
                exists = b.both(exists, b.within(window, 0, count))
                window = b.clamp(window, 0, count)
            windows.append(window)
        if any(count == 0 for count in counts):
            exists = b.literal(False, bool_)
        return exists, windows

    def _along(self, axis: int) -> Windows:
        """The windows of one spatial dimension alone."""
        only = slice(axis, axis + 1)
        return Windows(
            self.kernel[only],
            self.stride[only],
            self.padding[only],
            self.dilation[only],
            self.ceil_mode,
        )


def require_per_axis(name: str, what: str, value: Sequence[int], rank: int, least: int) -> None:
    """An attribute must hold one integer of at least ``least`` for each spatial dimension."""
    require(
        len(value) == rank and all(item >= least for item in value),
        f"{name}: {what} does not fit",
        expected=f"{rank} integers of at least {least}, one a spatial dimension",
        found=value,
    )


def require_pairs(name: str, padding: Pairs, rank: int) -> None:
    """Padding must hold a pair of counts for each spatial dimension."""
    require(
        len(padding) == rank,
        f"{name}: padding does not fit",
        expected=f"{rank} pairs (low, high), one a spatial dimension",
        found=padding,
    )
    for pair in padding:
        require_per_axis(name, "a padding pair (low, high)", pair, 2, least=0)


def per_axis(name: str, what: str, value: PerAxis, rank: int) -> tuple[int, ...]:
    """What a caller gave for every spatial dimension at once, or one by one."""
    if isinstance(value, int):
        return (value,) * rank
    given = tuple(value)
    require(
        len(given) == rank,
        f"{name}: {what} does not fit",
        expected=f"an integer, or {rank} of them",
        found=given,
    )
    return given


def as_padding(
    name: str,
    padding: Padding,
    sizes: Shape,
    kernel: Shape,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Pairs:
    """The (low, high) pairs that a caller means.

    An int or one int for each dimension pads both ends; ``"valid"`` pads nothing; ``"same"`` makes
    ``ceil(size / stride)`` windows, the odd element at the high end.
    """
    if padding == "valid":
        padding = 0
    if padding == "same":
        dims = zip(sizes, kernel, stride, dilation, strict=True)
        return tuple(_same(name, *dim) for dim in dims)
    require(
        not isinstance(padding, str),
        f"{name}: padding does not fit",
        expected="'same', 'valid', an integer, integers or pairs",
        found=padding,
    )
    assert not isinstance(padding, str)
    if isinstance(padding, int):
        return ((padding, padding),) * len(sizes)
    return tuple((item, item) if isinstance(item, int) else _pair(name, item) for item in padding)


def _pair(name: str, item: Sequence[int]) -> tuple[int, int]:
    require(
        len(item) == 2, f"{name}: padding does not fit", expected="pairs (low, high)", found=item
    )
    return item[0], item[1]


def _same(name: str, size: Dim, kernel: Dim, stride: int, dilation: int) -> tuple[int, int]:
    span = dilation * (kernel - 1) + 1
    if stride == 1:
        total: Dim = span - 1
    else:
        total = (-(-size // stride) - 1) * stride + span - size
    if not isinstance(total, int):
        raise TypeRuleError(
            f"{name}: 'same' padding depends on a symbolic size",
            expected="static sizes, or stride 1",
            found=f"size {size}, kernel {kernel}, stride {stride}",
            hint="give the padding as (low, high) pairs",
        )
    total = max(total, 0)
    return total // 2, total - total // 2
