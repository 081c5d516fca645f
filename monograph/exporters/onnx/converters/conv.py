"""Convolutions. ONNX Runtime has them in f32; others are made of slices and one contraction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from monograph.errors import TypeRuleError
from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, expands, exports
from monograph.ir.build import apply
from monograph.ir.dims import Dim, Shape, dim_max, provably_at_least
from monograph.ir.graph import Value
from monograph.ops import conv, data, joining, linalg, slicing
from monograph.ops import shape as shape_ops
from monograph.ops.windows import Pairs, Windows


def _pads(padding: Pairs) -> list[int]:
    """The low sides, then the high sides."""
    return [low for low, _ in padding] + [high for _, high in padding]


def _attributes(op: Any, kernel: Shape) -> dict[str, Any] | None:
    """What both kinds of convolution have; None if the kernel's size is not known."""
    if not all(isinstance(size, int) and size > 0 for size in kernel):
        return None
    return {
        "kernel_shape": list(kernel),
        "strides": list(op.stride),
        "pads": _pads(op.padding),
        "dilations": list(op.dilation),
        "group": op.groups,
    }


@exports(conv.Conv)
def convolution(node: ExportContext[conv.Conv]) -> Exported:
    """conv → Conv, where there is a window at all."""
    if 0 in node.result.shape:
        return node.filled(node.result.shape, 0, node.dtype)
    attributes = _attributes(node.op, node.shape(1)[2:])
    sizes = (*node.shape()[1:], *node.result.shape[2:])
    some = all(provably_at_least(size, 1) for size in sizes)
    if attributes is None or not some or not node.runs("Conv", node.dtype):
        return None
    return node.emit("Conv", *node.inputs, **attributes)


@expands(conv.Conv)
def convolution_by_taps(op: conv.Conv, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """The elements that each tap of the kernel meets, side by side, times the weights."""
    kernel = _static_kernel(weight.shape[2:])
    windows = op.windows(kernel)
    batch, channels = x.shape[:2]
    counts = windows.counts(op.name, x.shape[2:])
    if 0 in kernel:
        return _plus_bias(data.zeros((batch, weight.shape[0], *counts), x.dtype), bias)
    taps = joining.stack(taps_of(x, windows, 0), 0)
    inside = channels // op.groups
    patches = shape_ops.reshape(taps, (taps.shape[0], batch, op.groups, inside, *counts))
    outputs = weight.shape[0] // op.groups
    rows = shape_ops.reshape(weight, (op.groups, outputs, inside, taps.shape[0]))
    contraction = linalg.DotGeneral((2, 3), (3, 0), (0,), (2,))
    made = apply(contraction, rows, patches)  # [groups, outputs, batch, *counts]
    order = (2, 0, 1, *range(3, made.rank))
    y = shape_ops.reshape(shape_ops.transpose(made, order), (batch, weight.shape[0], *counts))
    return _plus_bias(y, bias)


def _plus_bias(y: Value, bias: Value | None) -> Value:
    if bias is None:
        return y
    return y + shape_ops.reshape(bias, (1, bias.shape[0], *(1,) * (y.rank - 2)))


def taps_of(x: Value, windows: Windows, fill: Any) -> list[Value]:
    """For each place in the window, what stands there in every window: ``[*leading, *counts]``."""
    leading = x.rank - windows.rank
    counts = [windows.count(axis, size) for axis, size in enumerate(x.shape[leading:])]
    lows: list[Dim] = [0] * leading
    highs: list[Dim] = [0] * leading
    for axis, count in enumerate(counts):
        low, high = windows.padding[axis]
        end = (count - 1) * windows.stride[axis] + windows.span(axis) - low
        lows.append(low)
        highs.append(dim_max(high, end - x.shape[leading + axis]) if windows.ceil_mode else high)
    padded = slicing.pad(x, lows, highs, fill)
    return [
        _tap(padded, windows, counts, place)
        for place in product(*(range(size) for size in _static_kernel(windows.kernel)))
    ]


def _tap(padded: Value, windows: Windows, counts: Sequence[Dim], place: tuple[int, ...]) -> Value:
    leading = padded.rank - windows.rank
    starts = [offset * apart for offset, apart in zip(place, windows.dilation, strict=True)]
    limits = [
        start + (count - 1) * stride + 1
        for start, count, stride in zip(starts, counts, windows.stride, strict=True)
    ]
    axes = range(leading, padded.rank)
    part = slicing.slice(padded, starts, limits, windows.stride, axes)
    return shape_ops.reshape(part, (*padded.shape[:leading], *counts))


def _static_kernel(kernel: Shape) -> tuple[int, ...]:
    sizes = tuple(size for size in kernel if isinstance(size, int))
    if len(sizes) != len(kernel):
        raise TypeRuleError("a kernel of symbolic size cannot be written", found=str(kernel))
    return sizes


@exports(conv.ConvTranspose)
def transposed(node: ExportContext[conv.ConvTranspose]) -> Exported:
    """conv_transpose → ConvTranspose."""
    attributes = _attributes(node.op, node.shape(1)[2:])
    extras = zip(node.op.output_padding, node.op.stride, strict=True)
    within = all(extra < stride for extra, stride in extras)
    some = all(provably_at_least(size, 1) for size in (*node.shape(), *node.result.shape))
    if attributes is None or not within or not some or not node.runs("ConvTranspose", node.dtype):
        return None
    extra = list(node.op.output_padding)
    return node.emit("ConvTranspose", *node.inputs, **attributes, output_padding=extra)


@expands(conv.ConvTranspose)
def transposed_by_conv(
    op: conv.ConvTranspose, x: Value, weight: Value, bias: Value | None = None
) -> Value:
    """The convolution, by the kernel turned round, of an operand with gaps for the stride."""
    channels, outputs, *kernel = weight.shape
    spread = [apart * (size - 1) for apart, size in zip(op.dilation, kernel, strict=True)]
    sides = list(zip(spread, op.padding, op.output_padding, strict=True))
    low = [reach - before for reach, (before, _), _ in sides]
    high = [reach - after + extra for reach, (_, after), extra in sides]
    gaps = [0, 0, *(stride - 1 for stride in op.stride)]
    apart = slicing.pad(x, (0, 0, *low), (0, 0, *high), interior=gaps)
    grouped = (op.groups, channels // op.groups, outputs, *kernel)
    swapped = shape_ops.swapaxes(shape_ops.reshape(weight, grouped), 1, 2)
    turned = shape_ops.reshape(swapped, (op.groups * outputs, channels // op.groups, *kernel))
    turned = slicing.flip(turned, range(2, turned.rank))
    rank = len(kernel)
    forward = conv.Conv((1,) * rank, ((0, 0),) * rank, op.dilation, op.groups)
    return apply(forward, apart, turned, *([] if bias is None else [bias]))
