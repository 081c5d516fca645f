"""Quantized numbers: between real numbers and small integers, and products of small integers.

``quantized_decomposed`` are the ops that torch's quantization exports; which integers a dtype may
hold (``quant_min`` to ``quant_max``) is said with each. Scales are given, or chosen in each call:
for a tensor, or for each of its *tokens*, which are the rows of its last axis.
"""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.torch.node import Operand, TorchNode, to_dtype
from monograph.frontends.torch.registry import converter
from monograph.ir.dims import Shape
from monograph.ir.graph import Value
from monograph.ir.types import f32, f64, i32, i64, u8
from monograph.ops.quant import is_zero


@converter("aten._int_mm.default")
def _int_mm(node: TorchNode) -> Value:
    """The product of bytes, summed in words."""
    return F.matmul(to_dtype(node["self"], i32), to_dtype(node["mat2"], i32))


@converter("aten._weight_int8pack_mm.default")
def _weight_int8pack_mm(node: TorchNode) -> Value:
    """A linear layer whose weight is bytes, with a scale for each output."""
    x, weight = node["self"], node["mat2"]
    return F.multiply(F.linear(x, to_dtype(weight, x.dtype)), to_dtype(node["scales"], x.dtype))


@converter(
    "quantized_decomposed.dequantize_per_tensor.default",
    "quantized_decomposed.dequantize_per_tensor.tensor",
    "quantized_decomposed.dequantize_per_tensor.tensor2",
)
def _dequantize_per_tensor(node: TorchNode) -> Value:
    return _dequantize(node, node["scale"], node["zero_point"], None)


@converter("quantized_decomposed.dequantize_per_channel.default")
def _dequantize_per_channel(node: TorchNode) -> Value:
    return _dequantize(node, node["scales"], node["zero_points"], node["axis"])


def _dequantize(
    node: TorchNode, scale: Operand, zero_point: Operand | None, axis: int | None
) -> Value:
    """(input - zero_point) * scale."""
    x: Value = node["input"]
    scales = to_dtype(node.value(scale, f32), f32)
    points = None if zero_point is None else node.value(zero_point, i32)
    if axis is None:  # chosen scales are tensors of one
        scales, points = F.reshape(scales, ()), None if points is None else F.reshape(points, ())
    if points is None or is_zero(points):
        return F.dequantize(x, scales, None, node.result_dtype, axis)
    return F.dequantize(x, scales, to_dtype(points, x.dtype), node.result_dtype, axis)


@converter(
    "quantized_decomposed.quantize_per_tensor.default",
    "quantized_decomposed.quantize_per_tensor.tensor",
    "quantized_decomposed.quantize_per_tensor.tensor2",
)
def _quantize_per_tensor(node: TorchNode) -> Value:
    scale, point = node.value(node["scale"], f64), node.value(node["zero_point"], f32)
    inverse = F.divide(1.0, to_dtype(F.reshape(scale, ()), f64))
    return _quantize(node, to_dtype(inverse, f32), to_dtype(F.reshape(point, ()), f32))


@converter("quantized_decomposed.quantize_per_channel.default")
def _quantize_per_channel(node: TorchNode) -> Value:
    x: Value = node["input"]
    axis = node["axis"] % x.rank
    after = range(1, x.rank - axis)
    scale, point = (
        F.unsqueeze(to_dtype(node[name], f32), tuple(after)) for name in ("scales", "zero_points")
    )
    return _quantize(node, F.divide(1.0, scale), point)


def _quantize(node: TorchNode, inverse: Value, zero_point: Value) -> Value:
    """round(input / scale) + zero_point within its limits; torch multiplies by 1 / scale."""
    x = to_dtype(node["input"], f32)
    whole = F.add(F.round(F.multiply(x, inverse)), zero_point)
    held = F.clip(whole, float(node["quant_min"]), float(node["quant_max"]))
    return to_dtype(held, node.result_dtype)


@converter("quantized_decomposed.quantize_per_token.default")
def _quantize_per_token(node: TorchNode) -> Value:
    return _quantize_rows(node, node["input"], node["scales"], node["zero_points"])


@converter("quantized_decomposed.quantize_per_channel_group.default")
def _quantize_per_channel_group(node: TorchNode) -> Value:
    """Rows of groups; a group is no larger than a row."""
    x: Value = node["input"]
    groups = F.reshape(x, (-1, _group_size(node, x)))
    parameters = (F.reshape(node[name], (-1, 1)) for name in ("scales", "zero_points"))
    return F.reshape(_quantize_rows(node, groups, *parameters), x.shape)


def _quantize_rows(node: TorchNode, x: Value, scales: Value, points: Value) -> Value:
    """round(x / scale + zero_point): unlike elsewhere, what is rounded is the sum."""
    wide = f64 if scales.dtype is f64 else f32
    scaled = F.multiply(to_dtype(x, wide), F.divide(1.0, to_dtype(scales, wide)))
    whole = F.round(F.add(scaled, to_dtype(points, wide)))
    return to_dtype(
        F.clip(whole, float(node["quant_min"]), float(node["quant_max"])), node.result_dtype
    )


@converter("quantized_decomposed.dequantize_per_token.default")
def _dequantize_per_token(node: TorchNode) -> Value:
    scales, points = node["scales"], node["zero_points"]
    wide = f64 if scales.dtype is f64 else f32
    centred = F.subtract(to_dtype(node["input"], wide), to_dtype(points, wide))
    return to_dtype(F.multiply(centred, to_dtype(scales, wide)), node.result_dtype)


@converter("quantized_decomposed.dequantize_per_channel_group.default")
def _dequantize_per_channel_group(node: TorchNode) -> Value:
    x: Value = node["input"]
    size, rows = _group_size(node, x), x.shape[0]
    scales = F.reshape(to_dtype(node["scales"], f32), (rows, -1))
    points = node["zero_points"]
    stored = None if points is None else to_dtype(F.reshape(points, (rows, -1)), x.dtype)
    return F.dequantize(x, scales, stored, node.result_dtype, axis=1, block=size)


def _group_size(node: TorchNode, x: Value) -> int:
    size, inputs = node["group_size"], x.shape[-1]
    return min(size, inputs) if isinstance(inputs, int) else int(size)


@converter("quantized_decomposed.choose_qparams.tensor")
def _choose_parameters(node: TorchNode) -> tuple[Value, Value]:
    """The scale and the zero point of all of a tensor's range, each a tensor of one."""
    low, high = _range(node["input"], None)
    least, most = node["quant_min"], node["quant_max"]
    scale = F.maximum(F.divide(F.subtract(high, low), float(most - least)), node["eps"])
    point = F.clip(F.subtract(float(least), F.round(F.divide(low, scale))), least, most)
    return _as_parameters(scale, point, (1,))


@converter("quantized_decomposed.choose_qparams_symmetric.tensor")
def _choose_symmetric_parameters(node: TorchNode) -> tuple[Value, Value]:
    """The same around zero, which is the middle of what unsigned bytes hold."""
    low, high = _range(node["input"], None)
    span = float(node["quant_max"] - node["quant_min"]) / 2
    scale = F.maximum(F.divide(F.maximum(F.negate(low), high), span), node["eps"])
    middle = 128.0 if node["dtype"] is u8 else 0.0
    return _as_parameters(scale, F.full_like(scale, middle), (1,))


@converter("quantized_decomposed.choose_qparams_per_token.default")
def _choose_parameters_per_token(node: TorchNode) -> tuple[Value, Value]:
    """The scale of each row around zero."""
    x = to_dtype(node["input"], f32)
    largest = F.max(F.abs(x), (-1,), True)
    scale = F.divide(F.maximum(largest, 1e-5), 127.0)
    return scale, F.zeros_like(scale)


@converter("quantized_decomposed.choose_qparams_per_token_asymmetric.default")
def _choose_asymmetric_parameters_per_token(node: TorchNode) -> tuple[Value, Value]:
    """The scale and the zero point of each row, whose end loses less by rounding."""
    low, high = _range(node["input"], (-1,))
    scale = F.maximum(F.divide(F.subtract(high, low), 255.0), 2.0**-23)
    below, above = F.divide(low, scale), F.divide(high, scale)
    at_low = F.greater(F.add(F.add(-128.0, below), F.add(127.0, above)), 0.0)
    point = F.where(at_low, F.subtract(-128.0, below), F.subtract(127.0, above))
    return _as_parameters(scale, F.round(F.clip(point, -128.0, 127.0)), scale.shape)


def _range(x: Value, axes: tuple[int, ...] | None) -> tuple[Value, Value]:
    """The least and the largest number, and 0 between them."""
    x, keeps = to_dtype(x, f32), axes is not None
    return F.minimum(F.min(x, axes, keeps), 0.0), F.maximum(F.max(x, axes, keeps), 0.0)


def _as_parameters(scale: Value, point: Value, shape: Shape) -> tuple[Value, Value]:
    """A scale and a zero point in the dtypes and the shape that torch has them in."""
    return F.reshape(to_dtype(scale, f64), shape), F.reshape(to_dtype(point, i64), shape)


@converter("quantized_decomposed.convert_element_type.no_fuse")
def _convert_element_type(node: TorchNode) -> Value:
    return to_dtype(node["input"], node.result_dtype)
