"""``DecoderMaskedMultiHeadAttention`` of ``com.microsoft``: one query, and a cache of its own."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.onnx.converters.attention import (
    Heads,
    attend,
    join_heads,
    masks_joined,
    split_heads,
)
from monograph.frontends.onnx.microsoft.attention import multi_head_attention
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import Results, converter
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import i64


@converter("DecoderMaskedMultiHeadAttention", domain="com.microsoft")
def decoder_masked_multi_head_attention(node: OnnxNode) -> Results:
    """Attention of one query to keys that are given whole, extended, or written into a buffer.

    With ``past_present_share_buffer`` the cache is as long as any text may be, and operand 7 says
    how much of it is filled.
    """
    if node.wants(3) or node.optional(9) is not None:
        raise node.error("scores as a result and beams are not supported")
    query, key, value = node.input(0), node.optional(1), node.optional(2)
    if key is None or value is None:
        query, key, value = F.split(query, 3, 2)
    shared = node.integer("past_present_share_buffer", 0) == 1 and node.optional(5) is not None
    operands = [query, key, value, node.optional(10), node.optional(3), node.optional(4)]
    if not shared:
        return multi_head_attention(node.with_inputs(*operands, node.optional(5), node.optional(6)))
    if node.optional(10) is not None:
        parts = zip((query, key, value), F.split(node.input(10), 3, 0), strict=True)
        query, key, value = (F.add(part, bias) for part, bias in parts)
    return _in_buffer(node, query, key, value)


def _in_buffer(node: OnnxNode, query: Value, key: Value, value: Value) -> tuple[Value, ...]:
    """Attention to the filled part of a buffer, the new key and value included."""
    count = node.integer("num_heads")
    filled = F.reshape(cast_to(node.input(7), i64), ())
    longest = node.input(5).shape[2]
    places = F.iota((longest,), 0, i64)
    here = F.reshape(F.equal(places, filled), (1, 1, longest, 1))
    keys, values = (
        F.where(here, split_heads(new, count), past)
        for new, past in ((key, node.input(5)), (value, node.input(6)))
    )
    seen = F.reshape(F.less_equal(places, filled), (1, 1, 1, longest))
    mask = node.optional(3)
    if mask is not None:
        given = F.pad(F.not_equal(mask, 0), (0, 0), (0, longest - mask.shape[1]), False)
        seen = F.logical_and(seen, F.unsqueeze(given, (1, 2)))
    bias = node.optional(4)
    if bias is not None:
        bias = F.pad(bias, (0, 0, 0, 0), (0, 0, 0, longest - bias.shape[3]))
    scale = node.number("scale", 0.0) or None
    heads = Heads(split_heads(query, count), keys, values)
    return join_heads(attend(heads, masks_joined(bias, seen), scale=scale)), keys, values
