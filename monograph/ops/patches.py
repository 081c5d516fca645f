"""Images taken apart into patches and put together again, and convolution of deformed patches.

Images are [batch, channels, *spatial]; patches lie along the last axis, row-major, as columns of
channels times kernel elements. torch calls it unfold and fold, others im2col and col2im.
"""

from __future__ import annotations

from collections.abc import Sequence

from monograph.ir.build import Operand, cast_to, promote_operands
from monograph.ir.dims import Dim, Shape, shape_product
from monograph.ir.graph import Value
from monograph.ir.operators import function
from monograph.ops import data, index, linalg, slicing
from monograph.ops import shape as shape_ops
from monograph.ops.rules import format_shape, require, same_dim
from monograph.ops.vision import sample_at
from monograph.ops.windows import Padding, PerAxis, Windows, as_padding, per_axis


def _windows(
    name: str,
    sizes: Shape,
    kernel: Shape,
    stride: PerAxis,
    padding: Padding,
    dilation: PerAxis,
) -> Windows:
    rank = len(sizes)
    require(
        len(kernel) == rank > 0,
        f"{name}: the kernel does not fit",
        expected=f"{rank} sizes, one a spatial dimension",
        found=format_shape(kernel),
    )
    steps = per_axis(name, "stride", stride, rank)
    apart = per_axis(name, "dilation", dilation, rank)
    pairs = as_padding(name, padding, sizes, kernel, steps, apart)
    windows = Windows(kernel, steps, pairs, apart)
    windows.check(name)
    return windows


def _positions(windows: Windows, counts: Shape, axis: int) -> Value:
    """[kernel, count]: the padded element that each place of each window falls on."""
    kernel = windows.kernel[axis]
    along = data.iota((kernel, 1)) * windows.dilation[axis]
    return along + data.iota((1, counts[axis]), 1) * windows.stride[axis]


@function
def unfold(
    x: Operand,
    kernel: Sequence[int],
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
) -> Value:
    """[batch, channels × kernel, windows]: the elements under each window, as columns."""
    value = shape_ops.one_value(x)
    rank = len(kernel)
    require(
        value.rank == rank + 2,
        "unfold: an image is needed",
        expected=f"[batch, channels, *spatial] with {rank} spatial dimensions",
        found=value.type,
    )
    sizes = value.shape[2:]
    windows = _windows("unfold", sizes, tuple(kernel), stride, padding, dilation)
    counts = windows.counts("unfold", sizes)
    low = [0, 0, *(pair[0] for pair in windows.padding)]
    high = [0, 0, *(pair[1] for pair in windows.padding)]
    patches = slicing.pad(value, low, high)
    with value.graph.as_current():
        for axis in range(rank):  # each spatial axis becomes [kernel, count], from the front
            patches = _apart(patches, windows, counts, axis)
    kernels = [2 + 2 * axis for axis in range(rank)]
    moved = shape_ops.transpose(patches, [0, 1, *kernels, *(axis + 1 for axis in kernels)])
    rows = value.shape[1] * shape_product(kernel)
    return shape_ops.reshape(moved, (value.shape[0], rows, shape_product(counts)))


def _apart(x: Value, windows: Windows, counts: Shape, axis: int) -> Value:
    """A spatial axis of an image whose axes before it are apart, as [kernel, count]."""
    place = 2 + 2 * axis
    if not _are_tiles(windows, axis):
        return index.take(x, _positions(windows, counts, axis), axis=place)
    count, kernel = counts[axis], windows.kernel[axis]
    whole = slicing.slice(x, [0], [count * kernel], axes=[place])
    tiles = shape_ops.reshape(whole, (*x.shape[:place], count, kernel, *x.shape[place + 1 :]))
    return shape_ops.moveaxis(tiles, place + 1, place)


def _are_tiles(windows: Windows, axis: int) -> bool:
    """Whether windows lie side by side, without a gap."""
    kernel = windows.kernel[axis]
    return windows.stride[axis] == kernel and (windows.dilation[axis] == 1 or kernel == 1)


@function
def fold(
    x: Operand,
    sizes: Sequence[Dim],
    kernel: Sequence[int],
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
) -> Value:
    """The columns of ``unfold`` added up where they came from, in an image of spatial ``sizes``."""
    value = shape_ops.one_value(x)
    require(
        value.rank == 3,
        "fold: columns are needed",
        expected="[batch, channels × kernel, windows]",
        found=value.type,
    )
    windows = _windows("fold", tuple(sizes), tuple(kernel), stride, padding, dilation)
    counts = windows.counts("fold", tuple(sizes))
    batch, rows, columns = value.shape
    elements = shape_product(kernel)
    require(
        not (isinstance(rows, int) and isinstance(elements, int) and elements and rows % elements),
        "fold: the rows are not channels times kernel elements",
        expected=f"a multiple of {elements}",
        found=value.type,
    )
    same_dim("fold", "the numbers of windows", shape_product(counts), columns)
    channels = rows // elements
    pairs = zip(sizes, windows.padding, strict=True)
    padded = [size + low + high for size, (low, high) in pairs]
    apart = shape_ops.reshape(value, (batch, channels, *kernel, *counts))
    if all(_are_tiles(windows, axis) for axis in range(windows.rank)):
        image = _lay_out_tiles(apart, counts, padded)
    else:
        image = _add_windows(apart, windows, counts, padded)
    starts = [low for low, _ in windows.padding]
    limits = [low + size for low, size in zip(starts, sizes, strict=True)]
    return slicing.slice(image, starts, limits, axes=range(2, image.rank))


def _lay_out_tiles(apart: Value, counts: Shape, padded: Sequence[Dim]) -> Value:
    """Tiles, [batch, channels, *kernel, *counts], side by side in an image of this size."""
    rank = len(counts)
    kernel = apart.shape[2 : 2 + rank]
    pairs = [place for axis in range(2, 2 + rank) for place in (axis + rank, axis)]
    tiled = [count * size for count, size in zip(counts, kernel, strict=True)]
    whole = shape_ops.reshape(
        shape_ops.transpose(apart, (0, 1, *pairs)), (*apart.shape[:2], *tiled)
    )
    rest = [size - taken for size, taken in zip(padded, tiled, strict=True)]
    return slicing.pad(whole, [0] * whole.rank, [0, 0, *rest])


def _add_windows(apart: Value, windows: Windows, counts: Shape, padded: Sequence[Dim]) -> Value:
    """Windows, [batch, channels, *kernel, *counts], added up in an image of this size."""
    batch, channels = apart.shape[:2]
    elements, columns = shape_product(windows.kernel), shape_product(counts)
    with apart.graph.as_current():
        places = _flat_positions(windows, counts, padded)
        empty = data.zeros((shape_product(padded), batch, channels), apart.dtype)
    flat = shape_ops.reshape(apart, (batch, channels, elements, columns))
    updates = shape_ops.transpose(flat, (2, 3, 0, 1))
    total = index.scatter(empty, shape_ops.unsqueeze(places, -1), updates, "add")
    return shape_ops.reshape(shape_ops.transpose(total, (1, 2, 0)), (batch, channels, *padded))


def _flat_positions(windows: Windows, counts: Shape, padded: Sequence[Dim]) -> Value:
    """[kernel elements, windows]: the row-major position that each falls on in the padded image."""
    rank = windows.rank
    flat: Value | None = None
    for axis, size in enumerate(padded):
        shape: list[Dim] = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = windows.kernel[axis], counts[axis]
        places = shape_ops.reshape(_positions(windows, counts, axis), shape)
        flat = places if flat is None else flat * data.dim(size) + places
    assert flat is not None  # there is at least one spatial dimension
    return shape_ops.reshape(flat, (shape_product(windows.kernel), shape_product(counts)))


@function
def deform_conv(
    x: Operand,
    weight: Operand,
    offset: Operand,
    bias: Operand | None = None,
    mask: Operand | None = None,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    offset_groups: int = 1,
) -> Value:
    """Convolution whose window elements are each moved by an ``offset`` and scaled by a ``mask``.

    ``offset`` is [batch, offset_groups × kernel × dimensions, *output], ``mask`` the same without
    the dimensions. Between elements x is interpolated, and outside it is zero.
    """
    operands = [x, weight, offset, *(part for part in (bias, mask) if part is not None)]
    image, kernel, moves, *rest = promote_operands(*operands)
    require(
        image.dtype.is_float and image.rank >= 3 and kernel.rank == moves.rank == image.rank,
        "deform_conv: the operands do not fit",
        expected="floats: an image, a weight and offsets of the same rank, at least 3",
        found=f"{image.type}, {kernel.type} and {moves.type}",
    )
    batch, channels, *spatial = image.shape
    outputs, _, *shape = kernel.shape
    windows = _windows("deform_conv", tuple(spatial), tuple(shape), stride, padding, dilation)
    counts = windows.counts("deform_conv", tuple(spatial))
    elements, points = shape_product(shape), shape_product(counts)
    require(
        groups > 0 and offset_groups > 0,
        "deform_conv: no groups",
        expected="at least 1 of each kind",
        found=f"{groups} and {offset_groups}",
    )
    rank, parts = len(spatial), batch * offset_groups
    apart = shape_ops.reshape(moves, (parts, elements, rank, points))
    with image.graph.as_current():
        positions = [
            _shift_windows(windows, counts, apart, axis, image, (parts, elements * points))
            for axis in range(rank)
        ]
    members = shape_ops.reshape(image, (parts, channels // offset_groups, *spatial))
    sampled = sample_at(members, positions, "linear")
    if mask is not None:
        scale = shape_ops.reshape(rest[-1], (parts, 1, elements * points))
        sampled = sampled * scale
    columns = shape_ops.reshape(sampled, (batch, groups, channels // groups * elements, points))
    rows = shape_ops.reshape(kernel, (groups, outputs // groups, channels // groups * elements))
    made = shape_ops.reshape(linalg.matmul(rows, columns), (batch, outputs, *counts))
    if bias is None:
        return made
    return made + shape_ops.reshape(rest[0], (outputs, *([1] * rank)))


def _shift_windows(
    windows: Windows, counts: Shape, moves: Value, axis: int, x: Value, shape: Shape
) -> Value:
    """Where each element of each window looks along one dimension, once moved."""
    rank = windows.rank
    beside: list[Dim] = [1] * (2 * rank)
    beside[axis], beside[rank + axis] = windows.kernel[axis], counts[axis]
    regular = shape_ops.reshape(_positions(windows, counts, axis), beside)
    whole = shape_ops.expand(regular, (*windows.kernel, *counts))
    flat = cast_to(shape_ops.reshape(whole, (1, *moves.shape[1::2])), x.dtype)
    along = shape_ops.squeeze(slicing.slice(moves, [axis], [axis + 1], axes=[2]), 2)
    return shape_ops.reshape(flat - float(windows.padding[axis][0]) + along, shape)
