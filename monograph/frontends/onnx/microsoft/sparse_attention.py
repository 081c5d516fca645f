"""``SparseAttention`` of ``com.microsoft``: attention to the blocks of keys that a layout names."""

from __future__ import annotations

import math

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.microsoft.attention import (
    group_query_attention,
    keys_before,
)
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import Results, converter
from monograph.ir.build import cast_to
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import Array, TensorType, i64


@converter("SparseAttention", domain="com.microsoft")
def sparse_attention(node: OnnxNode) -> Results:
    """``GroupQueryAttention`` under a mask of blocks; heads take the layouts in turn.

    The layouts are constants in compressed rows: operand 5 says where each row of blocks begins in
    operand 6, the columns.
    """
    lengths = F.subtract(node.input(8), 1)
    operands = [*(node.optional(index) for index in range(5)), lengths]
    operands += [node.optional(index) for index in (7, 9, 10)]
    usual = node.with_inputs(*operands)
    bias = _block_bias(node, usual)
    return group_query_attention(usual.with_inputs(*operands, None, bias))


def _block_bias(node: OnnxNode, usual: OnnxNode) -> Value:
    """0 where a query may see a key and -inf elsewhere, [batch, heads, queries, keys]."""
    query, cache = node.input(0), node.input(3)
    queries, keys = query.shape[1], cache.shape[2]
    total = usual.dims(6)
    if total is None or not isinstance(keys, int):
        raise NotStatic(
            f"{node.name}: the number of keys is not known before it runs",
            types=_result_types(node, query, cache, node.input(4)),
        )
    size, heads = node.integer("sparse_block_size"), node.integer("num_heads")
    layouts = _layouts(node.need_constant(5), node.need_constant(6))
    allowed = np.repeat(layouts, size, 2)[:, :, :keys]
    by_head = allowed[np.arange(heads) % len(layouts)]  # [heads, blocks, keys]
    places = F.add(F.reshape(keys_before(usual, queries, total[0]), (-1, 1)), _steps(queries))
    rows = F.floor_divide(places, size)  # [batch, queries]
    seen = F.moveaxis(F.take(by_head, rows, 1), 0, 1)  # [batch, heads, queries, keys]
    return cast_to(F.where(seen, 0.0, -math.inf), query.dtype)


def _steps(count: Dim) -> Value:
    return F.iota((1, count), 1, i64)


def _layouts(starts: Array, columns: Array) -> Array:
    """Compressed rows as bools, [layouts, blocks, blocks]."""
    count, blocks = starts.shape[0], starts.shape[1] - 1
    masks = np.zeros((count, blocks, blocks), bool)
    for layout in range(count):
        for row in range(blocks):
            masks[layout, row, columns[layout, starts[layout, row] : starts[layout, row + 1]]] = (
                True
            )
    return masks


def _result_types(node: OnnxNode, query: Value, key: Value, value: Value) -> list[TensorType]:
    hidden = node.integer("num_heads") * value.shape[3]
    output = TensorType(query.dtype, (*query.shape[:2], hidden))
    return [output, key.tensor, value.tensor][: len(node.proto.output)]
