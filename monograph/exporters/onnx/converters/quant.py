"""Quantization, in f32; other floats are decomposed."""

from __future__ import annotations

from typing import Any

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.protos import CODES
from monograph.exporters.onnx.registry import Exported, exports
from monograph.ir.types import DType, dtype_of, f32
from monograph.ops.conv import Conv
from monograph.ops.linalg import Linear, Matmul
from monograph.ops.quant import Dequantize, Quantize

SINCE = {
    "i8": 10, "u8": 10, "f8e4m3fn": 19, "f8e5m2": 19, "f8e4m3fnuz": 19, "f8e5m2fnuz": 19,
    "i16": 21, "u16": 21, "i4": 21, "u4": 21, "i2": 25, "u2": 25,
}  # fmt: skip
"""The opset in which a dtype that numbers are stored in appeared."""


def _supports_storage(node: ExportContext[Any], stored: DType) -> bool:
    """Whether ONNX Runtime stores numbers like this."""
    since = SINCE.get(stored.name)
    whole = node.op.block is None or _divides(node)
    return since is not None and since <= node.opset and whole


def _divides(node: ExportContext[Any]) -> bool:
    """Whether blocks are full, which ONNX Runtime wants, and of opset 21, which has them."""
    size = node.shape()[node.op.axis]
    return node.opset >= 21 and isinstance(size, int) and size % node.op.block == 0


def _granularity(node: ExportContext[Any]) -> dict[str, int]:
    if node.op.axis is None:
        return {}
    attributes = {"axis": node.op.axis % node.rank}
    if node.op.block is not None:
        attributes["block_size"] = node.op.block
    return attributes


def _is_second_factor(node: ExportContext[Any]) -> bool:
    """Whether a product reads the result as its weight."""
    products = (Conv, Linear, Matmul)
    uses = node.node.result.uses
    return any(use.position == 1 and isinstance(use.node.op, products) for use in uses)


@exports(Quantize)
def quantize(node: ExportContext[Quantize]) -> Exported:
    """A NaN becomes 0; ONNX Runtime makes it the lowest number.

    Before opset 21 the zero point says the dtype. Of floats ONNX Runtime then takes it for the
    lowest number, and a relu before for one that changes nothing: such floats are decomposed.
    """
    target = node.op.dtype
    inputs = node.inputs
    if target.is_float and node.opset < 21:
        return None
    if not all(term.dtype is f32 for term in inputs[:2]) or not _supports_storage(node, target):
        return None
    attributes: dict[str, Any] = _granularity(node)
    if len(inputs) == 2 and node.opset >= 21:
        attributes["output_dtype"] = CODES[target]
    elif len(inputs) == 2:
        inputs = (*inputs, node.filled(node.shape(1), 0, target))
    stored = node.write("QuantizeLinear", inputs, [target], attributes)[0]
    if target.is_float or not node.special_values:
        return stored
    return node.where(node.is_nan(inputs[0]), node.number(0, target), stored)


@exports(Dequantize)
def dequantize(node: ExportContext[Dequantize]) -> Exported:
    """dequantize → DequantizeLinear.

    Of two DequantizeLinear around a product ONNX Runtime makes a product of integers without
    asking what is stored. The second operand of a product of 8-bit floats is thus a cast and a
    multiplication.
    """
    if node.dtype.is_float and _is_second_factor(node):
        return None
    known = _supports_storage(node, node.dtype) or node.dtype is dtype_of("i32")
    if node.op.dtype is not f32 or node.inputs[1].dtype is not f32 or not known:
        return None
    if node.dtype.bits >= 32 and len(node.inputs) > 2:
        return None  # computed in f64 here, in f32 there
    return node.write("DequantizeLinear", node.inputs, [f32], _granularity(node))[0]
