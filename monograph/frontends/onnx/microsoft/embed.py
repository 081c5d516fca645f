"""Embedding ops of ``com.microsoft``: quantized tables, and 4-bit weights stored as codes."""

from __future__ import annotations

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.microsoft.fused import SKIP_EPSILON
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import f32, i32, i64

DOMAIN = "com.microsoft"


@converter("QEmbedLayerNormalization", domain=DOMAIN)
def quantized_embed_layer_normalization(node: OnnxNode) -> tuple[Value, Value]:
    """Quantized embeddings of words, positions and segments, added and normalised."""
    words, segments = node.input(0), node.optional(1)
    places = F.iota((words.shape[1],), 0, i64)
    total = F.add(_embed(node, 2, words), _embed(node, 3, places))
    if segments is not None:
        total = F.add(total, _embed(node, 4, segments))
    scale, bias = (_dequantize(node, index, node.input(index)) for index in (5, 6))
    y = F.layer_norm(total, scale, bias, -1, node.number("epsilon", SKIP_EPSILON))
    mask = node.optional(7)
    if mask is None:
        return y, F.zeros((words.shape[0],), i32)
    return y, cast_to(F.sum(cast_to(F.equal(mask, 1), i32), 1), i32)


def _embed(node: OnnxNode, index: int, rows: Value) -> Value:
    """The rows of quantized table ``index``."""
    return _dequantize(node, index, F.take(node.input(index), cast_to(rows, i64), 0))


def _dequantize(node: OnnxNode, index: int, stored: Value) -> Value:
    """Numbers by the scale and zero point of table ``index``, which stand 6 and 11 after it."""
    scale, zero = (F.reshape(node.input(index + offset), ()) for offset in (6, 11))
    return F.dequantize(stored, scale, zero)


FP4 = (
    0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25,
    -0.0, -5.208333333e-03, -0.66666667, -1.0, -0.33333333, -0.5, -0.16666667, -0.25,
)  # fmt: skip
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
"""What the codes of bitsandbytes mean: floats of four bits, and quantiles of the normal."""


@converter("MatMulBnb4", domain=DOMAIN)
def matmul_bnb4(node: OnnxNode) -> Value:
    """A product with weights in codes of four bits, a block of which shares its largest number."""
    a, inputs, outputs = node.input(0), node.integer("K"), node.integer("N")
    block, count = node.integer("block_size"), inputs * outputs
    table = current_graph().add_constant(
        np.array(NF4 if node.integer("quant_type") else FP4, np.float32), f32
    )
    packed = F.reshape(node.input(1), (-1,))
    pairs = F.stack([F.shift_right(packed, F.full_like(packed, 4)), packed], 1)
    codes = F.bitwise_and(pairs, F.full_like(pairs, 15))
    numbers = F.slice(F.reshape(F.take(table, codes, 0), (-1,)), (0,), (count,), axes=(0,))
    blocks = F.floor_divide(F.iota((count,), 0, i64), block)
    scales = F.take(cast_to(node.input(2), f32), blocks, 0)
    weight = cast_to(F.reshape(F.multiply(numbers, scales), (outputs, inputs)), a.dtype)
    return F.linear(a, weight) if node.integer("transB", 1) else F.matmul(a, weight)
