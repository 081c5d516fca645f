"""Sampling images between their elements, and moving elements between channels and space.

Images are [batch, channels, *spatial]. A sample at a broken position is a weighted sum of the
elements around it; what lies outside is zero, the element at the border, or a mirror image.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from monograph.ir.build import Operand, apply, as_operands, cast_to, graph_of
from monograph.ir.dims import Dim, dim_max, provably_different, shape_product
from monograph.ir.graph import Value
from monograph.ir.op import Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, i64
from monograph.ops import data, elementwise, index, joining, linalg
from monograph.ops import shape as shape_ops
from monograph.ops.composite import Composite
from monograph.ops.resize import Mode, cubic_weights
from monograph.ops.rules import format_shape, normalize_axis, require, same_dim

Outside: TypeAlias = Literal["zeros", "border", "reflection"]
CUBIC_COEFFICIENT = -0.75
"""Of Keys' kernel, as torch samples grids."""


@op("grid_sample")
class GridSample(Composite):
    """Samples of an image at positions that are data: ``grid`` is [batch, *output, dimensions].

    The last axis of ``grid`` counts spatial dimensions from the last (x, y, z); -1 and 1 are the
    outer edges of the image or, with ``align_corners``, the middles of its outermost elements. Mode
    cubic weighs four neighbours along each dimension with Keys' kernel and -0.75.
    """

    mode: Mode = "linear"
    outside: Outside = "zeros"
    align_corners: bool = False

    def infer(self, x: TensorType, grid: TensorType) -> TensorType:
        for label, chosen, known in (
            ("mode", self.mode, Mode),
            ("way to fill the outside", self.outside, Outside),
        ):
            require(
                chosen in get_args(known),
                f"grid_sample: no such {label}",
                expected=", ".join(get_args(known)),
                found=chosen,
            )
        require(
            grid.dtype.is_float and (self.mode == "nearest" or x.dtype.is_float),
            "grid_sample: floats are needed",
            expected="a float grid, and a float image unless the mode is nearest",
            found=f"{x} and {grid}",
        )
        require(
            x.rank >= 3 and grid.rank == x.rank,
            "grid_sample: the ranks do not fit",
            expected="[batch, channels, *spatial] and [batch, *output, dimensions]",
            found=f"{x} and {grid}",
        )
        same_dim(self.name, "the batches", x.shape[0], grid.shape[0])
        same_dim(self.name, "the spatial and the grid's dimensions", x.rank - 2, grid.shape[-1])
        require(
            all(dim != 0 for dim in x.shape[2:]),
            "grid_sample: nothing to sample",
            expected="spatial dimensions of at least 1",
            found=x,
        )
        return x.with_shape((*x.shape[:2], *grid.shape[1:-1]))

    def decompose(self, x: Value, grid: Value) -> Value:
        batch, *output, _ = grid.shape
        rank = x.rank - 2
        flat = shape_ops.reshape(grid, (batch, shape_product(output), rank))
        positions = []
        for axis, size in enumerate(x.shape[2:]):
            coordinate = shape_ops.squeeze(flat[:, :, rank - 1 - axis : rank - axis], -1)
            positions.append(_in_elements(coordinate, size, self.align_corners))
        sampled = sample_at(x, positions, self.mode, self.outside, self.align_corners)
        return shape_ops.reshape(sampled, (*x.shape[:2], *output))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)

        def draw(*shape: int) -> Array:
            return generator.normal(size=shape).astype(np.float32)

        plane, grid = draw(2, 3, 4, 5), draw(2, 3, 2, 2) * 0.9
        for mode, outside, corners in itertools.product(
            get_args(Mode), get_args(Outside), (False, True)
        ):
            note = f"{mode} {outside} {'corners' if corners else 'edges'}"
            yield Sample(cls(mode, outside, corners), (plane, grid), note, mode != "nearest")
        box, points = draw(1, 2, 3, 4, 2), draw(1, 2, 2, 1, 3)
        for mode, outside in itertools.product(("nearest", "linear"), get_args(Outside)):
            made = cls(mode, outside)  # type: ignore[arg-type]
            yield Sample(made, (box, points), f"3-d {mode} {outside}", mode != "nearest")
        yield Sample(cls(), (plane[:, ::2, ::-1], grid[:, :, ::-1]), "strided")
        thin = cls("linear", "reflection", True)
        yield Sample(thin, (plane[:, :, :1], grid), "one row", False)
        far = np.array([np.nan, np.inf, -np.inf, 1e30, -1, 1, 0, -0.0], np.float32)
        yield Sample(cls(), (plane[:1], far.reshape(1, 2, 2, 2)), "special", False)
        yield Sample(cls(), (plane[:0], grid[:0]), "empty", False)


@function
def grid_sample(
    x: Operand,
    grid: Operand,
    mode: Mode = "linear",
    outside: Outside = "zeros",
    align_corners: bool = False,
) -> Value:
    """Samples of the image ``x`` at the positions that ``grid`` holds, from -1 to 1."""
    image, places = as_operands(graph_of([x, grid]), [x, grid])
    return apply(GridSample(mode, outside, align_corners), image, places)


def sample_at(
    x: Value,
    positions: Sequence[Value],
    mode: Mode,
    outside: Outside = "zeros",
    align_corners: bool = False,
) -> Value:
    """[batch, channels, points]: an image sampled at [batch, points], counted in elements.

    ``positions`` has one entry for each spatial dimension.
    """
    batch, channels, *spatial = x.shape
    taps = [
        _taps(position, size, mode, outside, align_corners)
        for position, size in zip(positions, spatial, strict=True)
    ]
    last = shape_ops.moveaxis(x, 1, -1)
    table = shape_ops.reshape(last, (batch, shape_product(spatial), channels))
    total: Value | None = None
    for corner in itertools.product(*taps):
        part = shape_ops.unsqueeze(_corner_weight([weight for _, weight in corner]), -1)
        place, inside = _corner_place([place for place, _ in corner], spatial)
        rows = index.gather(table, shape_ops.unsqueeze(place, -1), batch_dims=1)
        found = elementwise.where(shape_ops.unsqueeze(inside, -1), rows, 0)
        if mode != "nearest":
            found = found * cast_to(part, x.dtype)
        total = found if total is None else total + found
    assert total is not None  # an image has at least one corner
    return shape_ops.moveaxis(total, -1, 1)


def _number(dim: Dim, like: Value) -> Value | float:
    if isinstance(dim, int):
        return float(dim)
    with like.graph.as_current():
        return cast_to(data.dim(dim), like.dtype)


def _in_elements(coordinate: Value, size: Dim, align_corners: bool) -> Value:
    """A coordinate from -1 to 1 as a position among ``size`` elements."""
    if align_corners:
        return (coordinate + 1.0) * 0.5 * _number(size - 1, coordinate)
    return ((coordinate + 1.0) * _number(size, coordinate) - 1.0) * 0.5


def _taps(
    position: Value, size: Dim, mode: Mode, outside: Outside, align_corners: bool
) -> list[tuple[Value, Value]]:
    """The elements along one dimension that a sample is made of, and their weights."""

    def moved(place: Value) -> Value:
        return _move_inside(place, size, outside, align_corners)

    if mode == "nearest":
        return [(elementwise.round(moved(position)), data.ones_like(position))]
    if mode == "linear":
        position = moved(position)
    base = elementwise.floor(position)
    beyond = position - base
    if mode == "linear":
        return [(base, 1.0 - beyond), (base + 1.0, beyond)]
    places = [moved(base + float(offset)) for offset in (-1, 0, 1, 2)]
    return list(zip(places, cubic_weights(beyond, CUBIC_COEFFICIENT), strict=True))


def _move_inside(place: Value, size: Dim, outside: Outside, align_corners: bool) -> Value:
    """A position as the one whose element stands for it."""
    if outside == "zeros":
        return place
    if outside == "reflection":
        place = _reflect(place, size, align_corners)
    return elementwise.minimum(elementwise.maximum(place, 0.0), _number(size - 1, place))


def _reflect(place: Value, size: Dim, align_corners: bool) -> Value:
    """A position reflected at both ends: at the outermost middles, or half an element beyond."""
    low = 0.0 if align_corners else -0.5
    span = _number(dim_max(size - 1, 1) if align_corners else size, place)
    distance = elementwise.abs(place - low)
    turns = elementwise.floor(distance / span)
    extra = elementwise.fmod(distance, span)
    even = elementwise.equal(elementwise.remainder(turns, 2.0), 0.0)
    return elementwise.where(even, extra, span - extra) + low


def _corner_weight(weights: Sequence[Value]) -> Value:
    product = weights[0]
    for weight in weights[1:]:
        product = product * weight
    return product


def _corner_place(places: Sequence[Value], spatial: Sequence[Dim]) -> tuple[Value, Value]:
    """The row-major index of an element, held inside the image, and whether it was inside."""
    flat: Value | None = None
    inside: Value | None = None
    for place, size in zip(places, spatial, strict=True):
        last = _number(size - 1, place)
        here = elementwise.logical_and(place >= 0.0, place <= last)
        held = cast_to(elementwise.minimum(elementwise.maximum(place, 0.0), last), i64)
        inside = here if inside is None else elementwise.logical_and(inside, here)
        with place.graph.as_current():
            flat = held if flat is None else flat * data.dim(size) + held
    assert flat is not None
    assert inside is not None
    return flat, inside


@function
def affine_grid(theta: Operand, sizes: Sequence[Dim], align_corners: bool = False) -> Value:
    """The grid for ``grid_sample`` that an affine map makes of an image of spatial ``sizes``.

    ``theta`` is [batch, d, d + 1] and maps (x, y, 1) or (x, y, z, 1), each from -1 to 1.
    """
    value = shape_ops.one_value(theta)
    rank = len(sizes)
    require(
        value.rank == 3
        and value.dtype.is_float
        and not provably_different(value.shape[1], rank)
        and not provably_different(value.shape[2], rank + 1),
        "affine_grid: the map does not fit",
        expected=f"floats of [batch, {rank}, {rank + 1}]",
        found=value.type,
    )
    columns = [
        _spread(_steps(value, size, align_corners), axis, sizes)
        for axis, size in reversed(list(enumerate(sizes)))
    ]
    with value.graph.as_current():
        columns.append(data.ones(sizes, value.dtype))
    base = joining.stack(columns, -1)
    flat = shape_ops.reshape(base, (shape_product(sizes), rank + 1))
    made = linalg.matmul(flat, shape_ops.swapaxes(value, 1, 2))
    return shape_ops.reshape(made, (value.shape[0], *sizes, rank))


def _steps(like: Value, size: Dim, align_corners: bool) -> Value:
    """Evenly spaced coordinates from -1 to 1, at the ends or half a step inside them."""
    with like.graph.as_current():
        counted = data.iota((size,), 0, like.dtype)
    if align_corners:
        if size == 1:
            return data.zeros_like(counted)
        return counted * 2.0 / _number(dim_max(size - 1, 1), like) - 1.0
    return (counted * 2.0 + 1.0) / _number(size, like) - 1.0


def _spread(steps: Value, axis: int, sizes: Sequence[Dim]) -> Value:
    beside = tuple(size if position == axis else 1 for position, size in enumerate(sizes))
    return shape_ops.expand(shape_ops.reshape(steps, beside), tuple(sizes))


def _parts(name: str, what: str, dim: Dim, divisor: int) -> Dim:
    """A dimension that must split into so many equal parts: the size of one."""
    require(
        divisor > 0 and not (isinstance(dim, int) and dim % divisor),
        f"{name}: {what} do not split evenly",
        expected=f"a multiple of {divisor}",
        found=dim,
    )
    return dim // divisor


@function
def pixel_shuffle(x: Operand, factor: int, depth_first: bool = False) -> Value:
    """[..., C r², H, W] as [..., C, H r, W r]: channels become blocks of pixels.

    The channel is the outermost index of the C r² or, with ``depth_first``, the innermost (ONNX
    calls that DCR).
    """
    value = shape_ops.one_value(x)
    require(
        value.rank >= 3,
        "pixel_shuffle: an image is needed",
        expected="[..., channels, height, width]",
        found=value.type,
    )
    *batch, depth, height, width = value.shape
    channels = _parts("pixel_shuffle", "the channels", depth, factor * factor)
    first = len(batch)
    split = (factor, factor, channels) if depth_first else (channels, factor, factor)
    apart = shape_ops.reshape(value, (*batch, *split, height, width))
    channel, down, across = (2, 0, 1) if depth_first else (0, 1, 2)
    inner = [first + axis for axis in (channel, 3, down, 4, across)]
    moved = shape_ops.transpose(apart, [*range(first), *inner])
    return shape_ops.reshape(moved, (*batch, channels, height * factor, width * factor))


@function
def pixel_unshuffle(x: Operand, factor: int, depth_first: bool = False) -> Value:
    """[..., C, H r, W r] as [..., C r², H, W]: the inverse of ``pixel_shuffle``."""
    value = shape_ops.one_value(x)
    require(
        value.rank >= 3,
        "pixel_unshuffle: an image is needed",
        expected="[..., channels, height, width]",
        found=value.type,
    )
    *batch, channels, height, width = value.shape
    rows = _parts("pixel_unshuffle", "the rows", height, factor)
    columns = _parts("pixel_unshuffle", "the columns", width, factor)
    first = len(batch)
    apart = shape_ops.reshape(value, (*batch, channels, rows, factor, columns, factor))
    order = (2, 4, 0, 1, 3) if depth_first else (0, 2, 4, 1, 3)
    moved = shape_ops.transpose(apart, [*range(first), *(first + axis for axis in order)])
    return shape_ops.reshape(moved, (*batch, channels * factor * factor, rows, columns))


@function
def channel_shuffle(x: Operand, groups: int, axis: int = 1) -> Value:
    """The channels of ``groups`` groups taken in turn: one of each, then the next of each."""
    value = shape_ops.one_value(x)
    normal = normalize_axis("channel_shuffle", axis, value.rank)
    size = _parts("channel_shuffle", "the channels", value.shape[normal], groups)
    before, after = value.shape[:normal], value.shape[normal + 1 :]
    apart = shape_ops.reshape(value, (*before, groups, size, *after))
    return shape_ops.reshape(shape_ops.swapaxes(apart, normal, normal + 1), value.shape)


@function
def max_unpool(x: Operand, indices: Operand, sizes: Sequence[Dim]) -> Value:
    """Elements put back where ``max_pool_with_indices`` found them, zeros elsewhere.

    ``indices`` are row-major positions within spatial dimensions of ``sizes``, one an element.
    """
    value, places = as_operands(graph_of([x, indices]), [x, indices])
    rank = len(sizes)
    require(
        0 < rank <= value.rank and value.rank == places.rank,
        "max_unpool: the operands do not fit",
        expected=f"elements and indices with {rank} spatial dimensions",
        found=f"{value.type}, {places.type} and {format_shape(tuple(sizes))}",
    )
    leading = value.shape[: value.rank - rank]
    count = shape_product(value.shape[value.rank - rank :])
    with value.graph.as_current():
        empty = data.zeros((*leading, shape_product(sizes)), value.dtype)
    flat_places, flat = (shape_ops.reshape(part, (*leading, count)) for part in (places, value))
    filled = index.put_along_axis(empty, flat_places, flat, empty.rank - 1)
    return shape_ops.reshape(filled, (*leading, *sizes))
