"""Memory layouts: the stride of each axis, and the offset of the first element.

A layout is a property of a value, not an op in the graph: the graph says ``f32[1, 64, 56, 56]``,
and whether its channels lie together (channels-last) is decided when it is given memory. Kernels
read and write through the strides, so a change of layout is a kernel that reads one and writes
another, and most often one that was there anyway.

A layout may have a *border*: zeros around the elements, as wide as the windows of a convolution
reach over the edge. Neighbours share it: what lies right of one row lies left of the next, so
``border[axis]`` zeros between two runs along an axis serve both.

    border 1:   0 0 0 0 0   x x x 0   x x x 0   0 0 0 0   x x x 0 ...
                 the lead    row 0     row 1   after the image
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Shape, SymbolicDim, provably_equal


@dataclass(frozen=True)
class MemoryLayout:
    """Strides and offset of the first element, in elements, and how much memory all of it takes.

    ``span`` None means: as far as the strides reach. ``border`` has a number for every axis, and
    ``order`` names the axes from the outermost to the innermost; both are empty without a border.
    """

    strides: tuple[Dim, ...]
    offset: Dim = 0
    span: Dim | None = None
    border: tuple[int, ...] = ()
    order: tuple[int, ...] = ()

    def reach(self, shape: Shape) -> Dim:
        """How many elements of memory a value of this shape takes."""
        if any(dim == 0 for dim in shape):
            return 0
        if self.span is not None:
            return self.span
        reach: Dim = self.offset + 1
        for stride, dim in zip(self.strides, shape, strict=True):
            reach = reach + stride * (dim - 1)
        return reach

    def viewed(self, shape: Shape, target: Shape) -> MemoryLayout | None:
        """The layout of the same memory in another shape; None if no strides give it."""
        if any(dim == 0 for dim in (*shape, *target)):
            return None
        strides: list[Dim] = []
        for from_, to in matching_runs(shape, target):
            axes = [axis for axis in from_ if shape[axis] != 1]
            for outer, inner in pairwise(axes):
                if not provably_equal(self.strides[outer], self.strides[inner] * shape[inner]):
                    return None
            step: Dim = self.strides[axes[-1]] if axes else 1
            run: list[Dim] = []
            for axis in reversed(to):
                run.append(step)
                step = step * target[axis]
            strides += reversed(run)
        return MemoryLayout(tuple(strides), self.offset, self.reach(shape))


def make_layout(shape: Shape, order: Sequence[int], border: Sequence[int] = ()) -> MemoryLayout:
    """A layout with these axes from the outermost to the innermost, and zeros between runs."""
    gaps = tuple(border) or (0,) * len(shape)
    strides: list[Dim] = [1] * len(shape)
    step: Dim = 1
    lead: Dim = 0
    for axis in reversed(order):
        strides[axis] = step
        lead = lead + gaps[axis] * step
        step = step * (shape[axis] + gaps[axis])
    if not any(gaps):
        return MemoryLayout(tuple(strides), 0, step)
    return MemoryLayout(tuple(strides), lead, step + lead, gaps, tuple(order))


def channels_last(rank: int) -> tuple[int, ...]:
    """The order of axes in which the channels of ``[batch, channels, *spatial]`` lie together."""
    return (0, *range(2, rank), 1)


def matching_runs(shape: Shape, target: Shape) -> list[tuple[list[int], list[int]]]:
    """Runs of axes of both shapes with equal products, as short as they can be found."""
    runs: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(shape) or j < len(target):
        from_, to = [], []
        a: Dim = 1
        b: Dim = 1
        if i < len(shape):
            a, from_, i = shape[i], [i], i + 1
        if j < len(target):
            b, to, j = target[j], [j], j + 1
        while not provably_equal(a, b):
            if i < len(shape) and (j >= len(target) or _smaller(a, b)):
                a, i = a * shape[i], i + 1
                from_.append(i - 1)
            elif j < len(target):
                b, j = b * target[j], j + 1
                to.append(j - 1)
            else:
                break
        runs.append((from_, to))
    return runs


def _smaller(a: Dim, b: Dim) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if isinstance(b, SymbolicDim) and isinstance(b // a if a != 0 else 0, int):
        return False
    return provably_equal(b % a, 0) if a != 0 else False
