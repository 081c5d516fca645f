"""Which axes a kernel walks along, and the positions that it visits.

Most kernels have an axis for each dimension of their space. Two kinds are better off otherwise. In
a grouped convolution the channel is visited as group and channel of the group, so that the group,
which says what is read, is a loop of its own and no quotient of another. In a transposed
convolution of stride s an element takes part in every s-th tap only, and in which ones depends on
its residue: elements are visited *phase* by phase, each of which is an ordinary convolution.

    stride 2, kernel 4:   out[2q]   = x[q] * w[1] + x[q - 1] * w[3]
                          out[2q+1] = x[q + 1] * w[0] + x[q] * w[2]

Residues whose elements read the same places are one phase, with an axis that chooses the weights.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Shape
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis


@dataclass(frozen=True)
class Walk:
    """The axes of a kernel, and the position that they give along each dimension of its space."""

    axes: tuple[Axis, ...]
    at: tuple[Dim, ...]


def whole_walk(space: Shape) -> Walk:
    """Every position, by an axis for each dimension."""
    axes = tuple(e.axis(f"_i{k}", dim) for k, dim in enumerate(space))
    return Walk(axes, tuple(axis.symbol for axis in axes))


def divide(walk: Walk, dimension: int, parts: int) -> Walk:
    """The walk with a dimension visited in equal parts, one after the other."""
    axis = _own_axis(walk, dimension)
    name = axis.symbol.name
    part, inside = e.axis(f"{name}_part", parts), e.axis(name, axis.extent // parts)
    return _with_axes(walk, dimension, (part, inside), part.symbol * inside.extent + inside.symbol)


def split_phases(walk: Walk, dimension: int, stride: int, first: int, count: int) -> Walk:
    """The walk over ``count`` residues by ``stride`` along a dimension, from ``first`` on.

    With several residues the dimension has to be a multiple of the stride.
    """
    axis = _own_axis(walk, dimension)
    name = axis.symbol.name
    step = e.axis(name, (axis.extent + stride - 1 - first) // stride)
    if count == 1:
        return _with_axes(walk, dimension, (step,), step.symbol * stride + first)
    residue = e.axis(f"{name}_phase", count)
    place = step.symbol * stride + residue.symbol + first
    return _with_axes(walk, dimension, (step, residue), place)


def phases(stride: int, kernel: int, low: int, dilation: int, size: Dim) -> list[tuple[int, int]]:
    """The runs (first, count) of residues along a dimension that read the same places.

    ``low`` is the padding that was removed before the first element. A run has the same number of
    taps throughout, and its first taps fall on the same element.
    """
    if dilation != 1 or size % stride != 0:
        return [(residue, 1) for residue in range(stride)]

    def reads(residue: int) -> tuple[int, int]:
        first = (residue + low) % stride
        return (residue + low) // stride, (kernel - first + stride - 1) // stride

    runs = [list(run) for _, run in groupby(range(stride), key=reads)]
    return [(run[0], len(run)) for run in runs]


def _own_axis(walk: Walk, dimension: int) -> Axis:
    """The axis that visits a dimension by itself."""
    return next(axis for axis in walk.axes if axis.symbol == walk.at[dimension])


def _with_axes(walk: Walk, dimension: int, axes: tuple[Axis, ...], place: Dim) -> Walk:
    """The walk with other axes along a dimension."""
    old = _own_axis(walk, dimension)
    found = [new for axis in walk.axes for new in (axes if axis is old else (axis,))]
    at = tuple(place if k == dimension else each for k, each in enumerate(walk.at))
    return replace(walk, axes=tuple(found), at=at)
