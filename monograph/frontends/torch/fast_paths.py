"""The fused fast-path ops of ``torch.nn``'s transformers in inference, decomposed.

``TransformerEncoderLayer`` and ``MultiheadAttention`` take a fast path where no gradients are
wanted: one call of ATen's for a whole layer, which torch itself cannot take apart. Left to torch, a
layer would be compiled to nothing but that call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

_SEQUENCE, _PADDING = 0, 1
"""What a mask is over: queries and keys, or samples and keys; else over all, and of every head."""


def _layer(
    src: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    """``aten._transformer_encoder_layer_fwd``: attention, then two products, each with a norm."""

    def attended(x: Any) -> Any:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return _attention(x, x, x, embed_dim, num_heads, *weights, mask, False, True, mask_type)[0]

    def fed_forward(x: Any) -> Any:
        hidden = linear(x, ffn_weight_1, ffn_bias_1)
        return linear(gelu(hidden) if use_gelu else hidden.relu(), ffn_weight_2, ffn_bias_2)

    def first(x: Any) -> Any:
        return layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: Any) -> Any:
        return layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        src = src + attended(first(src))
        return src + fed_forward(second(src))
    src = first(src + attended(src))
    return second(src + fed_forward(src))


def _attention(
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_head: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Any, Any]:
    """``aten._native_multi_head_attention``; of the weights there are none if none are needed."""
    parts: Any
    if query is key and key is value:
        parts = linear(query, qkv_weight, qkv_bias).chunk(3, -1)
    else:
        pairs = zip(qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
        parts = [linear(x, *each) for x, each in zip((query, key, value), pairs, strict=True)]
    q, k, v = (x.unflatten(-1, (num_head, embed_dim // num_head)).transpose(1, 2) for x in parts)
    if mask is None and not need_weights:
        heads = scaled_dot_product_attention(q, k, v)
        return linear(heads.transpose(1, 2).flatten(2), proj_weight, proj_bias), query.new_empty(0)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if mask is not None:  # a query that sees nothing gets NaN here, and 0 from SDPA
        scores = scores.masked_fill(_over_scores(mask.bool(), mask_type), -torch.inf)
    weights = scores.softmax(-1)
    joined = (weights @ v).transpose(1, 2).flatten(2)
    shown = weights.mean(1) if average_attn_weights else weights
    result = linear(joined, proj_weight, proj_bias)
    return result, shown if need_weights else query.new_empty(0)


def _over_scores(mask: Any, mask_type: int | None) -> Any:
    """A mask that broadcasts to samples, heads, queries and keys."""
    if mask_type == _PADDING:
        return mask[:, None, None, :]
    return mask[None, None] if mask_type == _SEQUENCE else mask


FAST_PATHS: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten._transformer_encoder_layer_fwd.default: _layer,
    torch.ops.aten._native_multi_head_attention.default: _attention,
}
"""Functions that compute what these ops do."""
