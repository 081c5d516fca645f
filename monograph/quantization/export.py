"""Quantized graphs as ONNX models: QuantizeLinear and DequantizeLinear around float layers.

ONNX Runtime changes some forms into others that compute something else; what is written here is
what it leaves alone:

- A float bias between dequantized operands becomes 32-bit integers in the scale of the sums, even
  where 32 bits do not hold it. Such a bias is written behind its layer, and as a difference: a
  product and a sum would be joined again.
- A relu before a quantization to 8-bit floats is dropped, as if they had no sign. It is written as
  a maximum.
- A stack of matrices with a scale for each column becomes the factor of an integer product that
  knows one scale a matrix, and refuses it. Its scales are applied behind the product.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from monograph import functional as F
from monograph.exporters.onnx import NEWEST_OPSET, to_onnx
from monograph.ir.graph import Graph, Node
from monograph.ops.conv import Conv
from monograph.ops.linalg import Linear, Matmul
from monograph.ops.quant import Dequantize, Quantize
from monograph.ops.rectifier import Relu, Relu6

if TYPE_CHECKING:
    from onnx import ModelProto

PLAIN_OPSET = 20
"""The last opset of QuantizeLinear without an output dtype: what ONNX Runtime makes of a later one
while it fuses products of signed bytes contradicts itself, and is refused by its own checks."""


def export_quantized(graph: Graph, path: str | Path | None = None) -> ModelProto:
    """The ONNX model of a quantized graph, in forms and an opset that ONNX Runtime runs right.

    Pools and sums of 8-bit floats are beyond that: of them ONNX Runtime makes ops of integers, and
    refuses its own result, unless its session's ``session.disable_quant_qdq`` is "1".
    """
    graph = graph.clone()
    for node in list(graph.nodes):
        if isinstance(node.op, Conv | Linear) and _has_float_bias(node):
            _add_bias_apart(graph, node)
        elif isinstance(node.op, Matmul) and _has_stacked_weight(node):
            _scale_columns_apart(graph, node)
        elif isinstance(node.op, Relu | Relu6) and _feeds_floats(node):
            _write_as_maximum(graph, node)
    opset = PLAIN_OPSET if all(map(_is_plain, _list_dtypes(graph))) else NEWEST_OPSET
    return to_onnx(graph, path, opset=opset, special_values=False)


def _has_float_bias(node: Node) -> bool:
    """Whether a layer of dequantized operands has a bias that is not dequantized."""
    dequantized = [isinstance(operand.op, Dequantize) for operand in node.operands]
    return dequantized == [True, True, False]


def _add_bias_apart(graph: Graph, node: Node) -> None:
    x, weight, bias = node.operands
    with graph.inserting_before(node, node.location):
        plain = graph.create(node.op, (x, weight), location=node.location).result
        if isinstance(node.op, Conv):
            bias = F.reshape(bias, (-1, *(1 for _ in range(plain.rank - 2))))
        made = F.subtract(plain, F.negate(bias))
    graph.replace(node, [made])


def _has_stacked_weight(node: Node) -> bool:
    """Whether the second factor is several matrices of integers with a scale for each column."""
    weight = node.operands[1]
    if not isinstance(weight.op, Dequantize) or weight.rank < 3:
        return False
    return weight.op.axis == weight.rank - 1 and weight.op.block is None


def _scale_columns_apart(graph: Graph, node: Node) -> None:
    x, weight = node.operands
    assert weight.producer is not None
    stored, scale, *rest = weight.producer.operands
    point = rest[0] if rest else None
    with graph.inserting_before(node, node.location):
        whole = F.dequantize(stored, np.asarray(1, np.float32), point)
        plain = graph.create(node.op, (x, whole), location=node.location).result
        made = F.multiply(plain, scale)
    graph.replace(node, [made])


def _feeds_floats(node: Node) -> bool:
    """Whether the result is quantized to floats of eight bits."""
    return any(
        isinstance(user.op, Quantize) and user.result.dtype.is_float for user in node.result.users
    )


def _write_as_maximum(graph: Graph, node: Node) -> None:
    with graph.inserting_before(node, node.location):
        made = F.maximum(node.operands[0], 0.0)
        if isinstance(node.op, Relu6):
            made = F.minimum(made, 6.0)
    graph.replace(node, [made])


def _list_dtypes(graph: Graph) -> set[str]:
    conversions = [node for node in graph.walk() if isinstance(node.op, Quantize | Dequantize)]
    return {
        node.operands[0].dtype.name if isinstance(node.op, Dequantize) else node.result.dtype.name
        for node in conversions
        if not (isinstance(node.op, Dequantize) and node.op.block is not None)
    } | {"block" for node in conversions if node.op.attributes().get("block") is not None}


def _is_plain(name: str) -> bool:
    return name in ("i8", "u8", "i32")
