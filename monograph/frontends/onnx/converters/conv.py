"""Convolutions: plain, transposed, deformed, of integers, quantized, and causal with a state."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.onnx.converters.matmul import subtract_zero_point
from monograph.frontends.onnx.converters.windows import (
    explicit_padding,
    halves,
    per_axis,
    place_windows,
    read_geometry,
)
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply, cast_to
from monograph.ir.dims import Dim, is_static
from monograph.ir.graph import Value
from monograph.ir.types import f32, i32
from monograph.ops import conv as ops
from monograph.ops.windows import Pairs


@converter("Conv")
def conv(node: OnnxNode) -> Value:
    """Weights that slide over the spatial dimensions."""
    bias = node.optional(2)
    return convolve(node, node.input(0), node.input(1), bias)


def convolve(node: OnnxNode, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """The convolution that a node's attributes describe, of these operands."""
    windows, x = place_windows(node, x, weight.shape[2:])
    made = ops.Conv(windows.stride, windows.padding, windows.dilation, node.integer("group", 1))
    return apply(made, x, weight, *(() if bias is None else (bias,)))


@converter("ConvInteger")
def conv_integer(node: OnnxNode) -> Value:
    """The convolution of small integers, each less its zero point, in i32."""
    x, weight = node.input(0), node.input(1)
    return convolve(
        node,
        subtract_zero_point(x, _scalar(node.optional(2)), i32),
        subtract_zero_point(weight, _per_output(node.optional(3), weight.rank), i32),
    )


@converter("QLinearConv")
def qlinear_conv(node: OnnxNode) -> Value:
    """The convolution of quantized operands, quantized again; the bias has x's and w's scales."""
    return convolve_quantized(node, node.input(0))


def convolve_quantized(node: OnnxNode, x: Value) -> Value:
    """The quantized convolution of ``x`` that a node describes."""
    x_scale, x_point, weight, w_scale, w_point, y_scale, y_point = (
        node.input(index) for index in range(1, 8)
    )
    total = convolve(
        node,
        subtract_zero_point(x, _scalar(x_point), i32),
        subtract_zero_point(weight, _per_output(w_point, weight.rank), i32),
        node.optional(8),
    )
    scale = F.multiply(_to_scalar(x_scale), _along_channels(w_scale, total.rank))
    scale = F.divide(scale, _to_scalar(y_scale))  # of constants, once: as ONNX Runtime does
    steps = F.multiply(cast_to(total, f32), scale)
    return F.quantize(steps, 1.0, _to_scalar(y_point), y_point.dtype)


def _scalar(parameter: Value | None) -> Value | None:
    return None if parameter is None else _to_scalar(parameter)


def _to_scalar(parameter: Value) -> Value:
    return parameter if parameter.rank == 0 else F.reshape(parameter, ())


def _per_output(parameter: Value | None, rank: int) -> Value | None:
    """A parameter of each output channel, along axis 0 of the weights."""
    if parameter is None or parameter.rank == 0:
        return parameter
    return F.unsqueeze(parameter, range(1, rank))


def _along_channels(parameter: Value, rank: int) -> Value:
    """A parameter of each channel, along axis 1 of the result."""
    return parameter if parameter.rank == 0 else F.unsqueeze(parameter, range(1, rank - 1))


@converter("ConvTranspose")
def conv_transpose(node: OnnxNode) -> Value:
    """The transpose of a convolution, padded so as to reach a size where one is asked for."""
    x, weight, bias = node.input(0), node.input(1), node.optional(2)
    rank = x.rank - 2
    stride, dilation = per_axis(node, "strides", rank), per_axis(node, "dilations", rank)
    extra = node.ints("output_padding", ()) or (0,) * rank
    padding, beyond = _convert_transposed_padding(node, x, weight, stride, dilation, extra)
    output_padding = tuple(map(sum, zip(extra, beyond, strict=True)))
    # Elements past what a stride leaves ambiguous are seen by no weight: zeros, then the bias.
    limits = [max(pair) - 1 for pair in zip(stride, dilation, strict=True)]
    inside = tuple(min(pair) for pair in zip(output_padding, limits, strict=True))
    rest = [whole - part for whole, part in zip(output_padding, inside, strict=True)]
    made = ops.ConvTranspose(stride, padding, inside, dilation, node.integer("group", 1))
    if not any(rest):
        return apply(made, x, weight, *(() if bias is None else (bias,)))
    y = F.pad(apply(made, x, weight), (0,) * x.rank, (0, 0, *rest))
    return y if bias is None else F.add(y, _along_channels(bias, y.rank))


def _convert_transposed_padding(
    node: OnnxNode,
    x: Value,
    weight: Value,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    extra: tuple[int, ...],
) -> tuple[Pairs, tuple[int, ...]]:
    """What to cut from the ends of the result, and what to add to reach a size larger than it."""
    mode = node.string("auto_pad", "NOTSET") or "NOTSET"
    wanted: tuple[Dim, ...] | None = node.ints("output_shape") if node.has("output_shape") else None
    rank = x.rank - 2
    if wanted is None and mode in ("NOTSET", "VALID"):
        padding = explicit_padding(node, rank) if mode == "NOTSET" else ((0, 0),) * rank
        return padding, (0,) * rank
    sizes = x.shape[2:]
    if wanted is None:
        wanted = tuple(size * step for size, step in zip(sizes, stride, strict=True))
    elif len(wanted) == x.rank:  # some exporters give the whole shape
        wanted = wanted[2:]
    kernel = weight.shape[2:]
    totals = [
        step * (size - 1) + more + apart * (taps - 1) + 1 - want
        for step, size, more, apart, taps, want in zip(
            stride, sizes, extra, dilation, kernel, wanted, strict=True
        )
    ]
    if not is_static(tuple(totals)):
        raise NotStatic(f"{node.name}: the padding depends on a size that only the run knows")
    upper = mode == "SAME_UPPER"
    padding = tuple(halves(max(int(total), 0), upper=upper) for total in totals)
    return padding, tuple(max(-int(total), 0) for total in totals)


@converter("DeformConv")
def deform_conv(node: OnnxNode) -> Value:
    """A convolution whose weights see elements that are moved by offsets and scaled by a mask."""
    x, weight, offset = (node.input(index) for index in range(3))
    windows = read_geometry(node, x, weight.shape[2:])
    return F.deform_conv(
        x,
        weight,
        offset,
        node.optional(3),
        node.optional(4),
        windows.stride,
        windows.padding,
        windows.dilation,
        node.integer("group", 1),
        node.integer("offset_group", 1),
    )


@converter("CausalConvWithState")
def causal_conv_with_state(node: OnnxNode) -> tuple[Value, Value]:
    """A convolution of each channel with what came before it, and what the next call needs."""
    x, weight, bias, past = node.input(0), node.input(1), node.optional(2), node.optional(3)
    if x.rank != 3 or weight.rank != 3:
        raise node.error("[batch, channels, length] is needed", found=f"{x.type}, {weight.type}")
    channels, before = weight.shape[0], weight.shape[2] - 1
    if not isinstance(channels, int) or not isinstance(before, int):
        raise NotStatic(f"{node.name}: the number of channels is not known")
    if past is None:
        padded = F.pad(x, (0, 0, before), (0, 0, 0))
    else:
        padded = F.concat([past, x], 2)
    y = F.conv(padded, weight, bias, groups=channels)
    activation = node.string("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise node.error("unknown activation", expected="none, silu or swish", found=activation)
    length = padded.shape[2]
    present = F.slice(padded, (length - before,), (length,), axes=(2,))
    return (y if activation == "none" else F.silu(y)), present
