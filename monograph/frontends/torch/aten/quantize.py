"""Quantized numbers: between real numbers and small integers, and products of small integers.

``quantized_decomposed`` are the ops that torch's quantization exports; which integers a dtype may
hold (``quant_min`` to ``quant_max``) is said with each.
"""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.torch.node import Operand, TorchNode, to_dtype
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value
from monograph.ir.types import f32, i32
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
    if points is None or is_zero(points):
        return F.dequantize(x, scales, None, node.result_dtype, axis)
    return F.dequantize(x, scales, to_dtype(points, x.dtype), node.result_dtype, axis)


@converter(
    "quantized_decomposed.quantize_per_tensor.default",
    "quantized_decomposed.quantize_per_tensor.tensor",
    "quantized_decomposed.quantize_per_tensor.tensor2",
)
def _quantize_per_tensor(node: TorchNode) -> Value:
    scale, point = node.value(node["scale"], f32), node.value(node["zero_point"], f32)
    return _quantize(node, to_dtype(scale, f32), to_dtype(point, f32))


@converter("quantized_decomposed.quantize_per_channel.default")
def _quantize_per_channel(node: TorchNode) -> Value:
    x: Value = node["input"]
    axis = node["axis"] % x.rank
    after = range(1, x.rank - axis)
    scale, point = (
        F.unsqueeze(to_dtype(node[name], f32), tuple(after)) for name in ("scales", "zero_points")
    )
    return _quantize(node, scale, point)


def _quantize(node: TorchNode, scale: Value, zero_point: Value) -> Value:
    """round(input / scale) + zero_point within its limits; torch multiplies by 1 / scale."""
    x = to_dtype(node["input"], f32)
    whole = F.add(F.round(F.multiply(x, F.divide(1.0, scale))), zero_point)
    held = F.clip(whole, float(node["quant_min"]), float(node["quant_max"]))
    return to_dtype(held, node.result_dtype)
