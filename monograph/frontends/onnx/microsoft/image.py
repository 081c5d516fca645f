"""Ops of ``com.microsoft`` over images and words: crops, pools, transposed convolutions."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.onnx.converters.pool import max_pooled
from monograph.frontends.onnx.converters.windows import per_axis
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import TensorType, i64

DOMAIN = "com.microsoft"


@converter("NhwcMaxPool", domain=DOMAIN)
def nhwc_max_pool(node: OnnxNode) -> Value:
    """The maximum of each window over [batch, ..., channels]."""
    x = F.moveaxis(node.input(0), node.input(0).rank - 1, 1)
    return F.moveaxis(max_pooled(node, x), 1, x.rank - 1)


@converter("ConvTransposeWithDynamicPads", domain=DOMAIN)
def conv_transpose_with_dynamic_pads(node: OnnxNode) -> Value:
    """A transposed convolution whose padding is an operand."""
    x, weight, bias = node.input(0), node.input(1), node.optional(3)
    rank = x.rank - 2
    pads = (0,) * (2 * rank)
    if node.optional(2) is not None:
        known = node.constant(2)
        if known is None:
            sizes = tuple(node.fresh() for _ in range(rank))
            channels = weight.shape[1] * node.integer("group", 1)
            types = [TensorType(x.dtype, (x.shape[0], channels, *sizes))]
            raise NotStatic(f"{node.name}: its padding is not known before it runs", types=types)
        pads = tuple(int(each) for each in known.reshape(-1))
    return F.conv_transpose(
        x,
        weight,
        bias,
        per_axis(node, "strides", rank),
        tuple(zip(pads[:rank], pads[rank:], strict=True)),
        node.ints("output_padding", ()) or (0,) * rank,
        per_axis(node, "dilations", rank),
        node.integer("group", 1),
    )


@converter("CropAndResize", domain=DOMAIN)
def crop_and_resize(node: OnnxNode) -> Value:
    """Regions of images, each interpolated to one size, corners on corners."""
    x, boxes, images = (node.input(index) for index in range(3))
    sizes = node.dims(3)
    if sizes is None:
        shape = (boxes.shape[0], x.shape[1], node.fresh("height"), node.fresh("width"))
        types = [TensorType(x.dtype, shape)]
        raise NotStatic(f"{node.name}: the size of crops is not known before it runs", types=types)
    mode = node.string("mode", "bilinear")
    if mode not in ("bilinear", "nearest"):
        raise node.error("an unknown mode", expected="bilinear or nearest", found=mode)
    y = F.take(x, cast_to(images, i64), 0)
    top, left, bottom, right = F.split(boxes, 4, 1)
    inside = []
    for axis, (first, last) in ((2, (top, bottom)), (3, (left, right))):
        places = _places(first, last, sizes[axis - 2], x.shape[axis])
        y = _sample(y, places, axis, mode == "nearest")
        within = F.logical_and(
            F.greater_equal(places, 0.0), F.less_equal(places, _last(x, axis, places))
        )
        inside.append(F.unsqueeze(within, (1, 5 - axis)))
    outside = node.number("extrapolation_value", 0.0)
    return F.where(F.logical_and(*inside), y, outside)


def _places(first: Value, last: Value, count: Dim, size: Dim) -> Value:
    """Where along an axis of an image each element of a crop lies, [boxes, count]."""
    length = cast_to(F.dim(size - 1), first.dtype)
    if count == 1:
        return F.multiply(F.multiply(F.add(first, last), 0.5), length)
    steps = cast_to(F.iota((1, count), 1, i64), first.dtype)
    step = F.divide(
        F.multiply(F.subtract(last, first), length), cast_to(F.dim(count - 1), first.dtype)
    )
    return F.add(F.multiply(first, length), F.multiply(steps, step))


def _last(x: Value, axis: int, like: Value) -> Value:
    return cast_to(F.dim(x.shape[axis] - 1), like.dtype)


def _sample(x: Value, places: Value, axis: int, nearest: bool) -> Value:
    """Elements of ``x`` [boxes, channels, height, width] at real places along an axis."""
    if nearest:
        return _take_clamped(x, F.floor(F.add(places, 0.5)), axis)
    below = F.floor(places)
    share = F.unsqueeze(F.subtract(places, below), (1, 5 - axis))
    low, high = _take_clamped(x, below, axis), _take_clamped(x, F.ceil(places), axis)
    return F.add(low, F.multiply(F.subtract(high, low), share))


def _take_clamped(x: Value, places: Value, axis: int) -> Value:
    """Elements at whole places along an axis, those outside held at its ends."""
    held = F.minimum(F.maximum(places, 0.0), _last(x, axis, places))
    shape = list(x.shape)
    shape[axis] = places.shape[1]
    return F.take_along_axis(
        x, F.expand(F.unsqueeze(cast_to(held, i64), (1, 5 - axis)), shape), axis
    )


@converter("WordConvEmbedding", domain=DOMAIN)
def word_conv_embedding(node: OnnxNode) -> Value:
    """A vector for each word: the maximum over its windows of a convolution of its characters."""
    words, weight, bias, table = (node.input(index) for index in range(4))
    filters, _, window, depth = weight.shape
    characters = F.take(table, cast_to(words, i64), 0)  # [..., length, depth]
    framed = F.frames(F.moveaxis(characters, -1, -2), window, 1)  # [..., depth, windows, window]
    columns = F.moveaxis(framed, -3, -1)  # [..., windows, window, depth]
    flat = F.reshape(columns, (*columns.shape[:-2], window * depth))
    made = F.tanh(F.linear(flat, F.reshape(weight, (filters, window * depth)), bias))
    lengths = F.sum(cast_to(F.not_equal(words, 0), i64), -1, keepdims=True)
    held = F.maximum(lengths, F.dim(window))
    places = F.iota((made.shape[-2],), 0, i64)
    inside = F.less_equal(places, F.subtract(held, F.dim(window)))
    best = F.max(F.where(F.unsqueeze(inside, -1), made, float("-inf")), -2)
    return F.where(F.greater(lengths, 0), best, 0.0)
