"""The attention ops of ``com.microsoft``: with projections, with packed operands, with a cache.

Masks of theirs hide a key by adding a large negative number, not infinity, so that a query which
sees no key at all still has a softmax; here they become float masks that do the same.
"""

from __future__ import annotations

import math

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.converters.attention import (
    Heads,
    attend,
    join_heads,
    masks_joined,
    per_example,
    rotate,
    score_keys,
    soft_capped,
    split_heads,
    visible,
    weigh_values,
)
from monograph.frontends.onnx.converters.matmul import columns, multiply_quantized
from monograph.frontends.onnx.converters.norm import rms_normalized
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.dims import Dim, dim_max, provably_equal
from monograph.ir.graph import Value
from monograph.ir.types import DType, TensorType, f32, i64

DOMAIN = "com.microsoft"


@converter("Attention", domain=DOMAIN)
def attention(node: OnnxNode) -> tuple[Value | None, ...]:
    """Projections of the operand to query, key and value, and their attention."""
    x, weights, bias = node.input(0), node.input(1), node.optional(2)
    projected = F.matmul(x, weights)
    projected = projected if bias is None else F.add(projected, bias)
    return _self_attention(node, projected, node.optional(3), node.optional(4), node.optional(5))


@converter("QAttention", domain=DOMAIN)
def quantized_attention(node: OnnxNode) -> tuple[Value | None, ...]:
    """``Attention`` whose operand and weights are quantized."""
    product = multiply_quantized(
        node.input(0),
        (columns(node.input(3)), columns(node.optional(6))),
        node.input(1),
        (columns(node.input(4)), columns(node.optional(7))),
    )
    bias = node.input(2)
    projected = F.add(cast_to(product, bias.dtype), bias)
    return _self_attention(node, projected, node.optional(5), node.optional(8), None)


def _self_attention(
    node: OnnxNode,
    projected: Value,
    mask: Value | None,
    past: Value | None,
    bias: Value | None,
) -> tuple[Value | None, ...]:
    if node.integer("do_rotary", 0) or node.integer("past_present_share_buffer", 0):
        raise node.error("do_rotary and past_present_share_buffer are not supported")
    count = node.integer("num_heads")
    hidden = projected.shape[2] // 3
    sizes: tuple[Dim, ...] = node.ints("qkv_hidden_sizes", ()) or (hidden, hidden, hidden)
    query, key, value = (split_heads(each, count) for each in F.split(projected, sizes, 2))
    offset: Dim = 0
    if past is not None:
        offset = past.shape[3]
        past_key, past_value = F.unstack(past, 0)
        key, value = F.concat([past_key, key], 2), F.concat([past_value, value], 2)
    heads = Heads(query, key, value)
    y = _attend(node, heads, offset, mask, bias)
    return y, F.stack([key, value], 0) if node.wants(1) else None


@converter("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(node: OnnxNode) -> tuple[Value | None, ...]:
    """Attention of operands that are projected already, perhaps packed into one or two tensors."""
    heads = _multi_heads(node)
    past_key, past_value = node.optional(6), node.optional(7)
    if node.optional(8) is not None or node.optional(9) is not None:
        raise node.error("a shared buffer and beams are not supported")
    offset: Dim = 0
    if past_key is not None and past_value is not None:
        offset = past_key.shape[2]
        key, value = F.concat([past_key, heads.key], 2), F.concat([past_value, heads.value], 2)
        heads = Heads(heads.query, key, value)
    y = _attend(node, heads, offset, node.optional(4), node.optional(5))
    return y, heads.key, heads.value


def _multi_heads(node: OnnxNode) -> Heads:
    query, key, value, bias = (
        node.input(0), node.optional(1), node.optional(2), node.optional(3)
    )  # fmt: skip
    count = node.integer("num_heads")
    if query.rank == 5:  # [batch, sequence, heads, 3, depth]
        parts = [F.swapaxes(each, 1, 2) for each in F.unstack(query, 3)]
    elif key is not None and key.rank == 5:  # [batch, sequence, heads, 2, depth]
        packed = [F.swapaxes(each, 1, 2) for each in F.unstack(key, 3)]
        parts = [split_heads(query, count), *packed]
    elif key is not None and value is not None:
        parts = [
            each if each.rank == 4 else split_heads(each, count) for each in (query, key, value)
        ]
    else:
        raise node.error("the key and the value are missing")
    if bias is None:
        return Heads(*parts)
    sizes = [part.shape[1] * part.shape[3] for part in parts]
    biases = F.split(bias, sizes, 0)
    return Heads(
        *(
            F.add(part, F.reshape(each, (part.shape[1], 1, part.shape[3])))
            for part, each in zip(parts, biases, strict=True)
        )
    )


def _attend(
    node: OnnxNode, heads: Heads, offset: Dim, mask: Value | None, bias: Value | None
) -> Value:
    """Attention under a padding mask and a bias, as [batch, sequence, hidden]."""
    dtype = heads.query.dtype
    total = None if mask is None else _padding_mask(node, heads, mask, offset, dtype)
    if bias is not None:
        total = bias if total is None else F.add(total, bias)
    causal = bool(node.integer("unidirectional", 0))
    if causal and not provably_equal(offset, 0):
        total = masks_joined(total, visible(heads.lengths, offset, None, 0))
        causal = False
    scale = _scale(node)
    return join_heads(attend(heads, total, causal=causal, scale=scale))


def _scale(node: OnnxNode) -> float | None:
    """The scale that a node gives; 0 means the usual one."""
    return node.number("scale", 0.0) or None


def _padding_mask(node: OnnxNode, heads: Heads, mask: Value, offset: Dim, dtype: DType) -> Value:
    """A mask in any of the forms that these ops take, as numbers to add to the scores."""
    queries, keys = heads.lengths
    batch = heads.query.shape[0]
    if mask.rank == 1:
        kept = _by_length(node, mask, batch, keys)
    elif mask.rank == 2:
        kept = F.unsqueeze(F.not_equal(mask, 0), (1, 2))
    elif mask.rank == 3:
        kept = F.unsqueeze(F.not_equal(mask, 0), 1)
    else:  # of the longest sequence there may be
        part = F.slice(mask, (offset, 0), (offset + queries, keys), axes=(2, 3))
        kept = F.not_equal(part, 0)
    hidden = node.number("mask_filter_value", -10000.0)
    return cast_to(F.where(kept, 0.0, hidden), dtype)


def _by_length(node: OnnxNode, mask: Value, batch: Dim, keys: Dim) -> Value:
    """Lengths of sequences padded on the right, or ends and starts of those padded on the left."""
    places = F.reshape(F.iota((keys,), 0, i64), (1, 1, 1, keys))
    if provably_equal(mask.shape[0], batch):
        return F.less(places, per_example(mask))
    if not provably_equal(mask.shape[0], batch * 2):
        raise node.error("this form of mask is not supported", found=str(mask.type))
    ends, starts = (per_example(each) for each in F.split(mask, (batch, batch), 0))
    return F.logical_and(F.less(places, ends), F.greater_equal(places, starts))


@converter("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(node: OnnxNode) -> Value:
    """Heads rotated by position; one position is that of the first of consecutive elements."""
    x, positions, cosines, sines = (node.input(index) for index in range(4))
    if node.integer("is_packed_batching", 0) or node.number("scale", 1.0) != 1.0:
        raise node.error("packed batches and a scale are not supported")
    width = node.integer("rotary_embedding_dim", 0)
    heads = x if x.rank == 4 else split_heads(x, _rotary_heads(node, x, cosines, width))
    if positions.rank == 1:
        length = F.iota((1, heads.shape[2]), 1, i64)
        positions = F.add(length, F.reshape(positions, (1, 1)))
    turned = _rotate_heads(node, heads, positions, cosines, sines, "interleaved", width)
    return turned if x.rank == 4 else join_heads(turned)


@converter("MRotaryEmbedding", domain=DOMAIN)
def multimodal_rotary_embedding(node: OnnxNode) -> Value:
    """Heads rotated by three positions each (time, height, width), which share the angles."""
    x, positions, cosines, sines = (node.input(index) for index in range(4))
    if node.integer("is_packed_batching", 0) or node.number("scale", 1.0) not in (0.0, 1.0):
        raise node.error("packed batches and a scale are not supported")
    width = node.integer("rotary_embedding_dim", 0)
    heads = x if x.rank == 4 else split_heads(x, _rotary_heads(node, x, cosines, width))
    chosen = _streams(node, node.ints("mrope_section"))
    angles = [_by_stream(each, positions, chosen) for each in (cosines, sines)]
    interleaved = bool(node.integer("interleaved", 0))
    turned = rotate(heads, *angles, interleaved=interleaved, width=2 * len(chosen))
    return turned if x.rank == 4 else join_heads(turned)


def _streams(node: OnnxNode, sections: tuple[int, ...]) -> list[int]:
    """Which of the three positions each pair of elements is rotated by."""
    if not node.integer("mrope_layout", 0):
        return [stream for stream, count in enumerate(sections) for _ in range(count)]
    chosen = [0] * sum(sections)
    for stream in (1, 2):
        for place in range(stream, 3 * sections[stream], 3):
            chosen[place] = stream
    return chosen


def _by_stream(table: Value, positions: Value, chosen: list[int]) -> Value:
    """The angles of each pair [batch, 1, sequence, pairs], by the position that it goes by."""
    pairs = len(chosen)
    rows = F.take(table, positions, 0)  # [3, batch, sequence, pairs]
    stream = np.array(chosen, np.int64).reshape(1, 1, 1, pairs)
    index = F.expand(stream, (1, *rows.shape[1:]))
    return F.unsqueeze(F.squeeze(F.take_along_axis(rows, index, 0), (0,)), 1)


def _rotary_heads(node: OnnxNode, x: Value, cosines: Value, width: int) -> int:
    """How many heads there are: said by the node, or by the width of the angles."""
    count = node.integer("num_heads", 0)
    if count:
        return count
    hidden, half = x.shape[2], cosines.shape[1]
    if width or not isinstance(hidden, int) or not isinstance(half, int):
        raise node.error("num_heads is missing")
    return hidden // (2 * half)


def _rotate_heads(
    node: OnnxNode,
    heads: Value,
    positions: Value,
    cosines: Value,
    sines: Value,
    interleaved: str,
    width: int = 0,
) -> Value:
    """Heads rotated by the angles of [batch, sequence] positions."""
    half = cosines.shape[1]
    known = width or (2 * half if isinstance(half, int) else None)
    angles = (F.unsqueeze(F.take(each, positions, 0), 1) for each in (cosines, sines))
    return rotate(
        heads, *angles, interleaved=bool(node.integer(interleaved, 0)), width=known or None
    )


@converter("GroupQueryAttention", domain=DOMAIN)
def group_query_attention(node: OnnxNode) -> tuple[Value | None, ...]:
    """Causal attention of grouped heads that writes the new keys into a cache.

    ``seqlens_k`` (operand 5) is one less than how many keys each example has with the new ones;
    operand 6 is the largest of them. The cache may be longer than that, and is then written in its
    middle. Where all queries are new (a prompt), no key lies before them.
    """
    _refuse_quantized_cache(node)
    heads = _read_grouped_heads(node)
    queries = heads.query.shape[2]
    longest = most_keys(node, heads)
    before = keys_before(node, queries, longest)
    if node.integer("do_rotary", 0):
        heads = _rotate_queries_and_keys(node, heads, before)
    past_key, past_value = node.optional(3), node.optional(4)
    key, value = (
        _write_cache(past, fresh, before, longest)
        for past, fresh in ((past_key, heads.key), (past_value, heads.value))
    )
    filled = Heads(heads.query, key, value)
    return join_heads(_attend_in_groups(node, filled, before)), key, value


def _refuse_quantized_cache(node: OnnxNode) -> None:
    kinds = {node.string(f"{which}_quant_type", "NONE") for which in "kv"}
    if kinds != {"NONE"} or node.integer("sliding_window_cache", 0):
        raise node.error("a quantized or sliding cache is not supported")


def _read_grouped_heads(node: OnnxNode) -> Heads:
    """Query, key and value by heads, from three operands or one; normalised if there are norms."""
    count, shared = node.integer("num_heads"), node.integer("kv_num_heads")
    query, key, value = node.input(0), node.optional(1), node.optional(2)
    if key is None or value is None:
        depth = query.shape[2] // (count + 2 * shared)
        sizes = (count * depth, shared * depth, shared * depth)
        query, key, value = F.split(query, sizes, 2)
    heads = [split_heads(query, count), split_heads(key, shared), split_heads(value, shared)]
    epsilon = node.number("qk_norm_epsilon", 1e-6)
    for position, norm in enumerate((node.optional(14), node.optional(15))):
        if norm is not None:
            heads[position] = rms_normalized(heads[position], norm, 3, epsilon)
    return Heads(*heads)


def most_keys(node: OnnxNode, heads: Heads) -> Dim:
    """The largest number of keys of any example: a size that the graph must know."""
    known = node.dims(6)
    if known is not None:
        return known[0]
    past = node.optional(3)
    depth, shared = heads.key.shape[3], heads.key.shape[1]
    batch, queries = heads.query.shape[0], heads.query.shape[2]
    length = node.fresh("present")
    hidden = heads.query.shape[1] * heads.value.shape[3]
    dtype = heads.query.dtype if past is None else past.dtype
    cache = TensorType(dtype, (batch, shared, length, depth))
    output = TensorType(heads.query.dtype, (batch, queries, hidden))
    raise NotStatic(
        f"{node.name}: the total sequence length is not known before it runs",
        types=[output, cache, cache][: len(node.proto.output)],
    )


def keys_before(node: OnnxNode, queries: Dim, longest: Dim) -> Value:
    """How many keys each example has before the new ones, [batch, 1, 1, 1]."""
    totals = F.add(per_example(node.input(5)), 1)
    if provably_equal(longest, queries):
        return F.zeros_like(totals)
    before = F.subtract(totals, F.dim(queries))
    prompt = F.equal(F.dim(longest), F.dim(queries))
    return F.where(prompt, 0, before)


def _rotate_queries_and_keys(node: OnnxNode, heads: Heads, before: Value) -> Heads:
    cosines, sines, positions = node.input(7), node.input(8), node.optional(9)
    if positions is None:
        steps = F.iota((1, heads.query.shape[2]), 1, i64)
        positions = F.add(F.reshape(before, (-1, 1)), steps)
    query, key = (
        _rotate_heads(node, each, positions, cosines, sines, "rotary_interleaved")
        for each in (heads.query, heads.key)
    )
    return Heads(query, key, heads.value)


def _write_cache(past: Value | None, fresh: Value, before: Value, longest: Dim) -> Value:
    """The cache with the new elements in place: [batch, heads, length, depth]."""
    batch, _, queries, _ = fresh.shape
    empty = past is None or past.shape[2] == 0
    if empty and provably_equal(longest, queries):
        return fresh
    if past is None:
        return F.pad(fresh, (0, 0, 0, 0), (0, 0, longest - queries, 0))
    held = past.shape[2]
    if batch == 1 and provably_equal(held + queries, longest):
        return F.concat([past, fresh], 2)
    length = dim_max(held, longest)
    cache = past
    if not provably_equal(length, held):
        cache = F.pad(past, (0, 0, 0, 0), (0, 0, length - held, 0))
    steps = F.reshape(F.iota((queries,), 0, i64), (1, 1, queries, 1))
    places = F.expand(F.add(before, steps), fresh.shape)
    return F.put_along_axis(cache, places, cast_to(fresh, cache.dtype), 2)


def _attend_in_groups(node: OnnxNode, heads: Heads, before: Value) -> Value:
    """Attention of each query to the keys up to its own place, in a window if there is one."""
    window = node.integer("local_window_size", -1)
    causal = bool(node.integer("causal", 1))
    left = window - 1 if window > 0 else None  # the window counts the query's own place
    seen = visible(heads.lengths, before, left, 0) if causal else None
    if not causal:
        keys = F.reshape(F.iota((heads.lengths[1],), 0, i64), (1, 1, 1, heads.lengths[1]))
        seen = F.less(keys, F.add(per_example(node.input(5)), 1))
    bias = node.optional(10)
    mask = seen if bias is None else masks_joined(_long_bias(bias, heads.lengths[1]), seen)
    cap, sink = node.number("softcap", 0.0), node.optional(11)
    smooth = node.integer("smooth_softmax", 0) == 1
    if cap == 0.0 and sink is None and not smooth:
        return attend(heads, mask, scale=_scale(node))
    scores = soft_capped(score_keys(heads, _scale(node)), cap)
    if bias is not None:
        scores = F.add(scores, cast_to(_long_bias(bias, heads.lengths[1]), scores.dtype))
    assert seen is not None
    scores = F.where(seen, scores, -math.inf)
    if sink is None and not smooth:
        shares = F.softmax(scores, -1, "zeros")
    else:
        shares = _sinking_softmax(scores, sink)
    return cast_to(weigh_values(shares, heads.value), heads.query.dtype)


def _long_bias(bias: Value, keys: Dim) -> Value:
    """A bias as long as the cache; what lies beyond the sequence is never seen."""
    length = bias.shape[3]
    if provably_equal(length, keys):
        return bias
    return F.pad(bias, (0, 0, 0, 0), (0, 0, 0, keys - length))


def _sinking_softmax(scores: Value, sink: Value | None) -> Value:
    """Softmax with one more score in each row, the head's own or 0, whose share is dropped."""
    rows = (*scores.shape[:3], 1)
    extra = F.zeros((1, 1, 1, 1), f32) if sink is None else F.reshape(sink, (1, -1, 1, 1))
    column = F.expand(cast_to(extra, scores.dtype), rows)
    shares = F.softmax(F.concat([scores, column], 3), -1)
    return F.slice(shares, (0,), (scores.shape[3],), axes=(3,))
