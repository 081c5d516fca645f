"""Quantized graphs as ONNX models: QuantizeLinear and DequantizeLinear around float layers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from monograph.exporters.onnx import NEWEST_OPSET, to_onnx
from monograph.ir.graph import Graph
from monograph.ops.quant import Dequantize, Quantize

if TYPE_CHECKING:
    from onnx import ModelProto

PLAIN_OPSET = 20
"""The last opset of QuantizeLinear without an output dtype: what ONNX Runtime makes of a later one
while it fuses products of signed bytes contradicts itself, and is refused by its own checks."""


def quantized_to_onnx(graph: Graph, path: str | Path | None = None) -> ModelProto:
    """The ONNX model of a quantized graph, in an opset that ONNX Runtime runs it in."""
    opset = PLAIN_OPSET if all(map(_is_plain, _stored_dtypes(graph))) else NEWEST_OPSET
    return to_onnx(graph, path, opset=opset, special_values=False)


def _stored_dtypes(graph: Graph) -> set[str]:
    conversions = [node for node in graph.walk() if isinstance(node.op, Quantize | Dequantize)]
    return {
        node.operands[0].dtype.name if isinstance(node.op, Dequantize) else node.result.dtype.name
        for node in conversions
        if not (isinstance(node.op, Dequantize) and node.op.block is not None)
    } | {"block" for node in conversions if node.op.attributes().get("block") is not None}


def _is_plain(name: str) -> bool:
    return name in ("i8", "u8", "i32")
