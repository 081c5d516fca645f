"""Pools: maxima, means and p-norms of windows, of everything, and of regions of interest."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.onnx.converters.windows import (
    Geometry,
    explicit_padding,
    per_axis,
    place_windows,
)
from monograph.frontends.onnx.converters.windows import read_geometry as windows_of
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply, apply_many, cast_to
from monograph.ir.dims import Dim, is_static, shape_product
from monograph.ir.graph import Value
from monograph.ir.types import i64, wide
from monograph.ops import conv as conv_ops
from monograph.ops import pool as ops
from monograph.ops.windows import Windows


@converter("MaxPool")
def max_pool(node: OnnxNode) -> Value | tuple[Value, Value]:
    """The maximum of each window, and where in the whole tensor it stands."""
    x, ceil = node.input(0), bool(node.integer("ceil_mode", 0))
    if not node.wants(1):
        return max_pooled(node, x)
    windows = windows_of(node, x)
    attributes = (windows.kernel, windows.stride, windows.padding, windows.dilation)
    y, places = apply_many(ops.MaxPoolWithIndices(*attributes, ceil), x)
    if node.integer("storage_order", 0):
        places = _column_major(places, x.shape[2:])
    return y, F.add(places, _channel_starts(x))


def max_pooled(node: OnnxNode, x: Value) -> Value:
    """The maxima of the windows of ``x`` that a node describes."""
    windows, x = place_windows(node, x, fill=ops.lowest(x.dtype.numpy))
    ceil = bool(node.integer("ceil_mode", 0))
    made = ops.MaxPool(windows.kernel, windows.stride, windows.padding, windows.dilation, ceil)
    return apply(made, x)


def _column_major(places: Value, sizes: tuple[Dim, ...]) -> Value:
    """Flat positions counted with the first spatial dimension fastest."""
    coordinates = []
    for size in reversed(sizes):
        coordinates.append(F.remainder(places, _number(size)))
        places = F.floor_divide(places, _number(size))
    total = coordinates[0]  # of the last dimension, the slowest
    for size, coordinate in zip(reversed(sizes[:-1]), coordinates[1:], strict=True):
        total = F.add(F.multiply(total, _number(size)), coordinate)
    return total


def _number(dim: Dim) -> int | Value:
    return dim if isinstance(dim, int) else F.dim(dim)


def _channel_starts(x: Value) -> Value:
    """The flat position of the first element of each channel of each example."""
    batch, channels, *sizes = x.shape
    order = F.reshape(F.iota((batch * channels,), 0, i64), (batch, channels, *(1,) * len(sizes)))
    return F.multiply(order, _number(shape_product(sizes)))


@converter("AveragePool")
def average_pool(node: OnnxNode) -> Value:
    """The mean of each window; padding counts with ``count_include_pad``."""
    return average_pooled(node, node.input(0))


def average_pooled(node: OnnxNode, x: Value) -> Value:
    """The means of the windows of ``x`` that a node describes."""
    windows, padded = place_windows(node, x)
    include = bool(node.integer("count_include_pad", 0))
    ceil = bool(node.integer("ceil_mode", 0))
    if padded is x or include:
        return _means(node, padded, windows, include, ceil)
    inside = place_windows(node, F.ones((1, 1, *x.shape[2:]), x.dtype))[1]
    over_all, share = (_means(node, each, windows, True, ceil) for each in (padded, inside))
    return F.divide(over_all, share)


def _means(node: OnnxNode, x: Value, windows: Geometry, include: bool, ceil: bool) -> Value:
    """The mean of each window; its padding counts if ``include``."""
    if all(apart == 1 for apart in windows.dilation):
        made = ops.AvgPool(windows.kernel, windows.stride, windows.padding, include, ceil)
        return apply(made, x)
    if include:  # padding counts as elements do, what overhangs it does not
        lows, highs = zip(*windows.padding, strict=True)
        x = F.pad(x, (0, 0, *lows), (0, 0, *highs))
        none = ((0, 0),) * len(windows.kernel)
        windows = Geometry(windows.kernel, windows.stride, none, windows.dilation)
    ones = F.ones((1, 1, *x.shape[2:]), x.dtype)
    totals = window_sums(node, x, windows, ceil)
    return F.divide(totals, window_sums(node, ones, windows, ceil))


def window_sums(node: OnnxNode, x: Value, windows: Geometry, ceil: bool) -> Value:
    """The sum of each window, as a convolution of each channel with ones."""
    sizes = x.shape[2:]
    padding = windows.padding
    if ceil:
        padding = _overhanging(node, sizes, windows)
    batch = shape_product(x.shape[:2])
    exact = cast_to(x, wide(x.dtype))
    ones = F.ones((1, 1, *windows.kernel), exact.dtype)
    made = conv_ops.Conv(windows.stride, padding, windows.dilation)
    sums = apply(made, F.reshape(exact, (batch, 1, *sizes)), ones)
    return cast_to(F.reshape(sums, (*x.shape[:2], *sums.shape[2:])), x.dtype)


def _overhanging(
    node: OnnxNode, sizes: tuple[Dim, ...], windows: Geometry
) -> tuple[tuple[int, int], ...]:
    """Padding that reaches as far as the last windows of ``ceil_mode``."""
    placed = Windows(windows.kernel, windows.stride, windows.padding, windows.dilation, True)
    if not is_static(sizes):
        raise NotStatic(f"{node.name}: where the last window ends is not known before it runs")
    pairs = []
    for axis, size in enumerate(sizes):
        low, high = windows.padding[axis]
        count = placed.count(axis, size)
        end = (int(count) - 1) * windows.stride[axis] + windows.spans[axis]  # type: ignore[arg-type]
        pairs.append((low, max(high, end - low - size)))
    return tuple(pairs)


@converter("LpPool")
def lp_pool(node: OnnxNode) -> Value:
    """The p-norm of each window."""
    windows, x = place_windows(node, node.input(0))
    order = float(node.attribute("p", 2))
    powers = F.power(F.abs(x), order)
    sums = window_sums(node, powers, windows, bool(node.integer("ceil_mode", 0)))
    return F.power(sums, 1.0 / order)


@converter("GlobalAveragePool")
def global_average_pool(node: OnnxNode) -> Value:
    """The mean of each channel."""
    return F.global_avg_pool(node.input(0))


@converter("GlobalMaxPool")
def global_max_pool(node: OnnxNode) -> Value:
    """The maximum of each channel."""
    return F.global_max_pool(node.input(0))


@converter("GlobalLpPool")
def global_lp_pool(node: OnnxNode) -> Value:
    """The p-norm of each channel."""
    x, order = node.input(0), float(node.attribute("p", 2))
    sums = F.sum(F.power(F.abs(x), order), range(2, x.rank), keepdims=True)
    return F.power(sums, 1.0 / order)


@converter("MaxUnpool")
def max_unpool(node: OnnxNode) -> Value:
    """Maxima back at the places that MaxPool found them at, zeros elsewhere.

    The places are flat over the tensor that was pooled; an output shape that is given only makes
    room around it.
    """
    x, places = node.input(0), node.input(1)
    rank = x.rank - 2
    kernel, stride = node.ints("kernel_shape"), per_axis(node, "strides", rank)
    padding = explicit_padding(node, rank)
    pooled = tuple(
        (size - 1) * step - sum(pair) + taps
        for size, step, pair, taps in zip(x.shape[2:], stride, padding, kernel, strict=True)
    )
    natural = (*x.shape[:2], *pooled)
    wanted = natural if node.optional(2) is None else node.need_dims(2)
    flat = F.zeros((shape_product(natural),), x.dtype)
    count = shape_product(x.shape)
    values, where = F.reshape(x, (count,)), F.reshape(places, (count,))
    filled = F.reshape(F.put_along_axis(flat, where, values, 0), natural)
    if tuple(wanted) == natural:
        return filled
    highs = [want - size for want, size in zip(wanted, natural, strict=True)]
    return F.pad(filled, (0,) * x.rank, highs)


@converter("MaxRoiPool")
def max_roi_pool(node: OnnxNode) -> Value:
    """The maximum of each cell of a grid over each region [image, x1, y1, x2, y2]."""
    x, regions = node.input(0), cast_to(node.input(1), wide(node.input(1).dtype))
    height, width = node.ints("pooled_shape")
    scale = node.number("spatial_scale", 1.0)
    image = cast_to(F.reshape(F.slice(regions, (0,), (1,), axes=(1,)), (-1,)), i64)
    scaled = F.multiply(F.slice(regions, (1,), (5,), axes=(1,)), scale)
    corners = F.trunc(F.add(scaled, F.copysign(0.5, scaled)))  # halves round away from zero
    left, top, right, bottom = (F.reshape(each, (-1, 1)) for each in F.split(corners, 4, 1))
    rows = _cells(top, bottom, height, x.shape[2])
    columns = _cells(left, right, width, x.shape[3])
    chosen = F.take(x, image, 0)  # [regions, channels, height, width]
    lowest = -float("inf")
    inside = F.unsqueeze(columns, (1, 2))  # [regions, 1, 1, cells, width]
    best = F.max(F.where(inside, F.unsqueeze(chosen, 3), lowest), -1)
    inside = F.unsqueeze(rows, (1, 3))  # [regions, 1, cells, 1, height]
    best = F.max(F.where(inside, F.unsqueeze(F.swapaxes(best, 2, 3), 2), lowest), -1)
    empty = F.logical_not(
        F.logical_and(F.any(F.unsqueeze(rows, 2), -1), F.any(F.unsqueeze(columns, 1), -1))
    )
    return F.where(F.unsqueeze(empty, 1), 0.0, best)


def _cells(first: Value, last: Value, count: int, size: Dim) -> Value:
    """Which elements of an axis each of ``count`` cells of each region covers: bools."""
    length = F.maximum(F.add(F.subtract(last, first), 1.0), 1.0)
    step = F.divide(length, float(count))
    index = F.reshape(F.iota((count,), 0, first.dtype), (1, count))
    starts = F.add(F.floor(F.multiply(index, step)), first)
    ends = F.add(F.ceil(F.multiply(F.add(index, 1.0), step)), first)
    places = F.reshape(F.iota((size,), 0, first.dtype), (1, 1, size))
    after = F.greater_equal(places, F.unsqueeze(starts, 2))
    return F.logical_and(after, F.less(places, F.unsqueeze(ends, 2)))
