"""Attention: ONNX's own ops, on top of the ``attention`` of our graph wherever that says it all.

Past keys and values, lengths and windows become operands and masks of that one op. What it has no
word for (a soft cap, scores as a result, subgraphs between the steps) is written out.
"""

from __future__ import annotations

import math

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.dims import Dim, provably_equal
from monograph.ir.graph import Value
from monograph.ir.types import DType, bool_, f32, i64, wide
from monograph.ops import attention as ops_attention


@dataclass(frozen=True)
class Heads:
    """Query, key and value as [batch, heads, sequence, depth]."""

    query: Value
    key: Value
    value: Value

    @property
    def lengths(self) -> tuple[Dim, Dim]:
        """How many queries and keys there are."""
        return self.query.shape[2], self.key.shape[2]


@converter("Attention")
def attention(node: OnnxNode) -> tuple[Value | None, ...]:
    """Attention with a cache that it extends, masks, a soft cap, and scores to look at."""
    heads, flat = _read_heads(node)
    past_key, past_value, lengths = node.optional(4), node.optional(5), node.optional(6)
    offset: Dim | Value = 0
    if past_key is not None and past_value is not None:
        offset = past_key.shape[2]
        key, value = F.concat([past_key, heads.key], 2), F.concat([past_value, heads.value], 2)
        heads = Heads(heads.query, key, value)
    elif lengths is not None:
        queries = F.dim(heads.lengths[0])
        offset = F.subtract(per_example(lengths), queries)
    mask, causal = _mask(node, heads, offset, lengths)
    scale = node.number("scale") if node.has("scale") else None
    softcap = node.number("softcap", 0.0)
    precision = node.dtype("softmax_precision", heads.query.dtype)
    exact = precision.bits <= wide(heads.query.dtype).bits
    if softcap == 0.0 and exact and not node.wants(3):
        y, shown = attend(heads, mask, causal=causal, scale=scale), None
    else:
        if causal:
            mask = masks_joined(mask, visible(heads.lengths, 0, None, 0))
        y, shown = _write_out_attention(node, heads, mask, scale, precision)
    return join_heads(y) if flat else y, heads.key, heads.value, shown


def _read_heads(node: OnnxNode) -> tuple[Heads, bool]:
    """The operands in four dimensions, and whether they came in three."""
    query, key, value = (node.input(index) for index in range(3))
    if query.rank == 4:
        return Heads(query, key, value), False
    if query.rank != 3:
        raise node.error("three or four dimensions are needed", found=str(query.type))
    count, shared = node.integer("q_num_heads"), node.integer("kv_num_heads")
    return Heads(
        split_heads(query, count), split_heads(key, shared), split_heads(value, shared)
    ), True


def split_heads(x: Value, heads: int) -> Value:
    """[batch, sequence, heads * depth] as [batch, heads, sequence, depth]."""
    batch, length, hidden = x.shape
    return F.transpose(F.reshape(x, (batch, length, heads, hidden // heads)), (0, 2, 1, 3))


def join_heads(x: Value) -> Value:
    """[batch, heads, sequence, depth] as [batch, sequence, heads * depth]."""
    batch, heads, length, depth = x.shape
    return F.reshape(F.transpose(x, (0, 2, 1, 3)), (batch, length, heads * depth))


def attend(
    heads: Heads, mask: Value | None, *, causal: bool = False, scale: float | None = None
) -> Value:
    """Our ``attention``, in the dtype of the query."""
    made = F.attention(heads.query, heads.key, heads.value, mask, causal, scale)
    return cast_to(made, heads.query.dtype)


# Masks.


def _mask(
    node: OnnxNode, heads: Heads, offset: Dim | Value, lengths: Value | None
) -> tuple[Value | None, bool]:
    """Everything that hides keys as one mask; and whether the triangle is left to the op itself."""
    causal = bool(node.integer("is_causal", 0))
    left, right = node.integer("left_window_size", -1), node.integer("right_window_size", -1)
    from_start = isinstance(offset, int) and offset == 0
    seen = None
    if (causal and not from_start) or left >= 0 or right >= 0:
        bound = right if right >= 0 else None
        if causal and not from_start:
            bound = 0
        seen = visible(heads.lengths, offset, left if left >= 0 else None, bound)
    if lengths is not None:
        keys = F.reshape(F.iota((heads.lengths[1],), 0, i64), (1, 1, 1, heads.lengths[1]))
        inside = F.less(keys, per_example(lengths))
        seen = inside if seen is None else F.logical_and(seen, inside)
    mask = None if node.optional(3) is None else _pad_mask(node, node.input(3), heads.lengths[1])
    return masks_joined(mask, seen), causal and from_start


def per_example(lengths: Value) -> Value:
    """One integer an example, so that it broadcasts over heads, queries and keys."""
    return F.reshape(cast_to(lengths, i64), (-1, 1, 1, 1))


def visible(
    lengths: tuple[Dim, Dim], offset: Dim | Value, left: int | None, right: int | None
) -> Value:
    """Which keys a query sees: from ``left`` before its place to ``right`` after it.

    The place of query i is i + offset; None is no bound.
    """
    distance = F.subtract(F.iota(lengths, 1, i64), F.iota(lengths, 0, i64))
    distance = F.subtract(distance, offset if isinstance(offset, Value | int) else F.dim(offset))
    bounds = []
    if left is not None:
        bounds.append(F.greater_equal(distance, -left))
    if right is not None:
        bounds.append(F.less_equal(distance, right))
    return bounds[0] if len(bounds) == 1 else F.logical_and(*bounds)


def masks_joined(mask: Value | None, seen: Value | None) -> Value | None:
    """A mask that is given, bools or floats, and bools that hold beside it."""
    if mask is None or seen is None:
        return seen if mask is None else mask
    if mask.dtype is bool_:
        return F.logical_and(mask, seen)
    return F.where(seen, mask, -math.inf)


def _pad_mask(node: OnnxNode, mask: Value, keys: Dim) -> Value:
    """Since opset 24 a mask may be too short for the keys: those that it misses are hidden."""
    length = mask.shape[-1]
    if node.opset < 24 or provably_equal(length, keys):
        return mask
    fill = False if mask.dtype is bool_ else -math.inf
    before = (0,) * mask.rank
    return F.pad(mask, before, (*before[1:], keys - length), fill)


# Written out.


def _write_out_attention(
    node: OnnxNode, heads: Heads, mask: Value | None, scale: float | None, precision: DType
) -> tuple[Value, Value]:
    """Attention step by step: the result, and the scores of the step that is asked for."""
    dtype = heads.query.dtype
    raw = score_keys(heads, scale)
    capped = soft_capped(raw, node.number("softcap", 0.0))
    biased = capped if mask is None else _add_bias(capped, mask)
    shares = F.softmax(cast_to(biased, wide(precision)), -1, "zeros")
    stages = (raw, capped, biased, shares)
    mode = node.integer("qk_matmul_output_mode", 0)
    if not 0 <= mode < len(stages):
        raise node.error("an unknown qk_matmul_output_mode", expected="0 to 3", found=str(mode))
    y = weigh_values(cast_to(shares, raw.dtype), heads.value)
    return cast_to(y, dtype), cast_to(stages[mode], dtype)


def score_keys(heads: Heads, scale: float | None) -> Value:
    """query @ keyᵀ * scale, [batch, heads, queries, keys], in f32 at least."""
    query, key = (cast_to(each, wide(each.dtype)) for each in (heads.query, heads.key))
    return ops_attention.score_keys(query, key, scale)


def weigh_values(shares: Value, value: Value) -> Value:
    """shares @ value, each head of the value serving its group of heads."""
    return ops_attention.multiply_grouped(shares, cast_to(value, shares.dtype))


def soft_capped(scores: Value, cap: float) -> Value:
    """Scores held softly between -cap and cap; 0 holds nothing."""
    return scores if cap == 0.0 else F.multiply(F.tanh(F.divide(scores, cap)), cap)


def _add_bias(scores: Value, mask: Value) -> Value:
    if mask.dtype is bool_:
        return F.where(mask, scores, -math.inf)
    return F.add(scores, cast_to(mask, scores.dtype))


# Relatives of attention.


@converter("FlexAttention", domain="ai.onnx.preview")
def flex_attention(node: OnnxNode) -> Value:
    """Attention with graphs of the model's own that change the scores and the shares."""
    heads = Heads(*(node.input(index) for index in range(3)))
    scale = node.number("scale") if node.has("scale") else None
    if not node.has("score_mod") and not node.has("prob_mod"):
        return attend(heads, None, scale=scale)
    precision = node.dtype("softmax_precision", wide(heads.query.dtype))
    scores = _apply_modifier(node, "score_mod", cast_to(score_keys(heads, scale), precision))
    shares = _apply_modifier(node, "prob_mod", F.softmax(scores, -1))
    return cast_to(weigh_values(shares, heads.value), heads.value.dtype)


def _apply_modifier(node: OnnxNode, name: str, x: Value) -> Value:
    """What a body that is an attribute makes of a value; the value itself if there is none."""
    if not node.has(name):
        return x
    body = node.graph(name)
    if len(body.input) != 1 or len(body.output) != 1:
        raise node.error(f"{name} must take one tensor and give one")
    scope = node.scope.inner()
    scope.values[body.input[0].name] = x
    (made,) = node.importer.run_body(body, scope, f"{name} of {node.name}")
    return made


@converter("LinearAttention")
def linear_attention(node: OnnxNode) -> tuple[Value, Value]:
    """Attention as a recurrence: a state of [depth, value depth] for each head, read by queries.

    Each step fades the state (``decay``), may take back what it holds for the key (``beta``), adds
    key ⊗ value, and reads it with the query.
    """
    count, shared = node.integer("q_num_heads"), node.integer("kv_num_heads")
    rule = node.string("update_rule", "gated_delta")
    if rule not in ("linear", "gated", "delta", "gated_delta"):
        raise node.error("an unknown update_rule", found=repr(rule))
    query, key, value = (
        _over_time(node.input(index), heads) for index, heads in enumerate((count, shared, shared))
    )
    steps: dict[str, Value] = {"query": query, "key": key, "value": value}
    if rule in ("gated", "gated_delta"):
        steps["decay"] = F.exp(_over_time(node.input(4), shared))
    if rule in ("delta", "gated_delta"):
        beta = node.input(5)
        steps["beta"] = _over_time(beta, shared if beta.shape[2] != 1 else 1)
    depth, out_depth = key.shape[3], value.shape[3]
    scale = node.number("scale", 0.0)
    if scale == 0.0:
        if not isinstance(depth, int):
            raise NotStatic(f"{node.name}: the depth is not known before it runs")
        scale = 1.0 / math.sqrt(depth)
    past, dtype = node.optional(3), node.input(0).dtype
    shape = (key.shape[1], shared, depth, out_depth)
    state = F.zeros(shape, query.dtype) if past is None else cast_to(past, query.dtype)

    def body(state: Value, now: dict[str, Value]) -> tuple[Value, Value]:
        column = F.unsqueeze(now["key"], 3)  # [batch, heads, depth, 1]
        if "decay" in now:
            state = F.multiply(state, F.unsqueeze(now["decay"], 3))
        fresh = now["value"]
        if "beta" in now:
            held = F.sum(F.multiply(state, column), 2)
            fresh = F.multiply(now["beta"], F.subtract(fresh, held))
        state = F.add(state, F.multiply(column, F.unsqueeze(fresh, 2)))
        grouped = F.reshape(now["query"], (shape[0], shared, count // shared, depth))
        read = F.matmul(grouped, state)  # [batch, heads, group, value depth]
        return state, F.multiply(F.reshape(read, (shape[0], count * out_depth)), scale)

    state, outputs = F.scan(body, state, steps)
    y = cast_to(F.swapaxes(outputs, 0, 1), dtype)
    return y, cast_to(state, dtype if past is None else past.dtype)


def _over_time(x: Value, heads: int) -> Value:
    """[batch, time, heads * depth] as [time, batch, heads, depth], in f32."""
    batch, time, hidden = x.shape
    split = F.reshape(x, (batch, time, heads, hidden // heads))
    return cast_to(F.swapaxes(split, 0, 1), f32)


# Rotary embeddings and gated units.


@converter("RotaryEmbedding")
def rotary_embedding(node: OnnxNode) -> Value:
    """Pairs of elements of each head rotated by an angle that grows with the position."""
    x, cosines, sines, positions = (
        node.input(0), node.input(1), node.input(2), node.optional(3)
    )  # fmt: skip
    heads = x if x.rank == 4 else split_heads(x, node.integer("num_heads"))
    if positions is not None:
        cosines, sines = (F.take(each, positions, 0) for each in (cosines, sines))
    y = rotate(
        heads,
        F.unsqueeze(cosines, 1),
        F.unsqueeze(sines, 1),
        interleaved=bool(node.integer("interleaved", 0)),
        width=node.integer("rotary_embedding_dim", 0) or None,
    )
    return y if x.rank == 4 else join_heads(y)


def rotate(
    x: Value, cosines: Value, sines: Value, *, interleaved: bool, width: int | None = None
) -> Value:
    """The first ``width`` elements of [batch, heads, sequence, depth] rotated in pairs.

    Pairs are neighbours if ``interleaved``, else an element of each half.
    """
    depth: Dim = x.shape[3] if width is None else width
    turning, rest = x, None
    if not provably_equal(depth, x.shape[3]):
        turning, rest = F.split(x, (depth, x.shape[3] - depth), 3)
    if interleaved:
        pairs = F.reshape(turning, (*x.shape[:3], depth // 2, 2))
        first, second = F.unstack(pairs, 4)
    else:
        first, second = F.split(turning, (depth // 2, depth // 2), 3)
    real = F.subtract(F.multiply(first, cosines), F.multiply(second, sines))
    imaginary = F.add(F.multiply(first, sines), F.multiply(second, cosines))
    if interleaved:
        made = F.reshape(F.stack([real, imaginary], 4), (*x.shape[:3], depth))
    else:
        made = F.concat([real, imaginary], 3)
    return made if rest is None else F.concat([made, rest], 3)


@converter("Swish")
def swish(node: OnnxNode) -> Value:
    """x * sigmoid(alpha * x)."""
    return apply_swish(node.input(0), node.number("alpha", 1.0))


@converter("SwiGLU")
def swiglu(node: OnnxNode) -> Value:
    """One operand through a swish, times the other."""
    return F.multiply(apply_swish(node.input(0), node.number("alpha", 1.0)), node.input(1))


def apply_swish(x: Value, alpha: float) -> Value:
    """x * sigmoid(alpha * x)."""
    if alpha == 1.0:
        return F.silu(x)
    return F.multiply(x, F.sigmoid(F.multiply(x, alpha)))
