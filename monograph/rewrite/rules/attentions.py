"""Scaled dot-product attention, spelled out with matmul, softmax and matmul.

The scale may be multiplied or divided, on the scores, the query or the key; a mask may be added, or
choose between scores and a very negative number.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.dims import provably_equal
from monograph.ir.graph import Node, Value
from monograph.ir.types import bool_
from monograph.ops.attention import Attention
from monograph.ops.data import Constant, Iota
from monograph.ops.elementwise import (
    Add,
    Cast,
    GreaterEqual,
    IsNan,
    LessEqual,
    Where,
    float_facts,
    logical_and,
    logical_not,
    where,
)
from monograph.ops.linalg import Matmul
from monograph.ops.shape import Expand, Reshape, Transpose, reshape, swapaxes
from monograph.ops.softmax import Softmax
from monograph.rewrite.constants import real_splat
from monograph.rewrite.rule import Rule, rewrite
from monograph.rewrite.views import through, times_constant


@dataclass(frozen=True)
class _Scores:
    """query @ key, scaled and masked; ``key`` has its last two axes swapped."""

    query: Value
    key: Value
    scale: float = 1.0
    mask: Value | None = None
    causal: bool = False


@rewrite(
    "attention_spelled",
    root=Matmul,
    floats="rounds otherwise; a query that a mask of -inf leaves no key gives zeros, where it gave"
    " NaN, and one that a very negative number leaves none gives zeros, where it gave the average;"
    " where NaN shares were made zeros, a NaN among the scores now gives NaN",
)
def attention_spelled(node: Node) -> Value | None:
    """softmax(query @ keyᵀ * scale + mask) @ value → attention(query, key, value, mask)."""
    shares, value = node.operands
    soft = _without_casts(_unguarded(_without_casts(shares, value)), value).producer
    if soft is None or not isinstance(soft.op, Softmax) or value.rank < 3:
        return None
    if soft.op.axis % soft.result.rank != soft.result.rank - 1:
        return None
    found = _scores(_without_casts(soft.operands[0], value))
    if found is None or not found.query.rank == found.key.rank == value.rank:
        return None
    query, query_scale = _unscaled(found.query)
    swapped, swapped_scale = _unscaled(found.key)
    key, key_scale = _unscaled(_swapped(swapped))
    op = Attention(found.causal, found.scale * query_scale * swapped_scale * key_scale)
    masks = () if found.mask is None else (found.mask,)
    result: Value = op(query, key, value, *masks)
    return result


def _unguarded(shares: Value) -> Value:
    """Shares before NaN, which a query that sees nothing has, was replaced by zeros."""
    node = shares.producer
    if node is None or not isinstance(node.op, Where) or real_splat(node.operands[1]) != 0.0:
        return shares
    condition, _, found = node.operands
    test = condition.producer
    if test is None or not isinstance(test.op, IsNan) or test.operands[0] is not found:
        return shares
    return found


def _unscaled(x: Value) -> tuple[Value, float]:
    """x without the number that multiplies it, and that number."""
    found = times_constant(x)
    return (x, 1.0) if found is None or found[0].shape != x.shape else found


def _without_casts(x: Value, like: Value) -> Value:
    """x before a cast that widened or narrowed it on the way: attention is computed wide anyway."""
    node = x.producer
    if node is None or not isinstance(node.op, Cast) or not node.operands[0].dtype.is_float:
        return x
    widened = node.operands[0].dtype is like.dtype and node.op.dtype.bits > like.dtype.bits
    narrowed = node.op.dtype is like.dtype and node.operands[0].dtype.bits > like.dtype.bits
    return node.operands[0] if widened or narrowed else x


def _scores(value: Value) -> _Scores | None:
    """What a value is the scores of; None if it is not the scores of an attention."""
    node = value.producer
    if node is None:
        return None
    if isinstance(node.op, Matmul):
        query, key = node.operands
        return _Scores(query, key)
    scaled = times_constant(value)
    if scaled is not None and scaled[0].shape == value.shape:
        inner = _scores(scaled[0])
        unmasked = inner is not None and inner.mask is None and not inner.causal
        return replace(inner, scale=inner.scale * scaled[1]) if inner and unmasked else None
    if isinstance(node.op, Add):
        return _with_added_mask(*node.operands) or _with_added_mask(*reversed(node.operands))
    if isinstance(node.op, Where):
        return _with_chosen_mask(*node.operands)
    return None


def _with_added_mask(scores: Value, mask: Value) -> _Scores | None:
    inner = _scores(scores)
    if inner is None:
        return None
    if _is_causal(mask, scores):
        return replace(inner, causal=True)
    if inner.mask is None:
        return replace(inner, mask=mask)
    if inner.mask.dtype is bool_:
        return replace(inner, mask=where(inner.mask, mask, -math.inf))
    return replace(inner, mask=inner.mask + mask)


def _with_chosen_mask(condition: Value, a: Value, b: Value) -> _Scores | None:
    """where(mask, scores, -inf), or where(not mask, -inf, scores)."""
    scores, other, kept = (a, b, True) if _is_lowest(b) else (b, a, False)
    inner = _scores(scores)
    if not _is_lowest(other) or inner is None:
        return None
    if kept and _is_causal(condition, scores):
        return replace(inner, causal=True)
    seen = condition if kept else logical_not(condition)
    if inner.mask is None:
        return replace(inner, mask=seen)
    if inner.mask.dtype is bool_:
        return replace(inner, mask=logical_and(inner.mask, seen))
    return replace(inner, mask=where(seen, inner.mask, -math.inf))


def _is_lowest(value: Value) -> bool:
    """Whether a constant is so negative that its exponential vanishes beside any score's."""
    number = real_splat(value)
    if number is None or not value.dtype.is_float:
        return False
    return number == -math.inf or number <= max(-1e9, 0.5 * float(float_facts(value.dtype).min))


def _is_causal(mask: Value, scores: Value) -> bool:
    """Whether a mask lets query i see keys 0 to i: counted with iota, or a constant."""
    mask = through(mask)
    rows, columns = scores.shape[-2:]
    node = mask.producer
    if node is None or mask.rank < 2 or mask.shape[-2:] != (rows, columns):
        return False
    if any(dim != 1 for dim in mask.shape[:-2]):
        return False
    if isinstance(node.op, LessEqual):
        return _counts(node.operands[0], 1) and _counts(node.operands[1], 2)
    if isinstance(node.op, GreaterEqual):
        return _counts(node.operands[0], 2) and _counts(node.operands[1], 1)
    if not isinstance(node.op, Constant):
        return False
    array = node.op.data.array().reshape(mask.tensor.static_shape()[-2:])
    seen = np.tri(*array.shape, dtype=np.bool_)
    if mask.dtype is bool_:
        return bool(np.array_equal(array, seen))
    wide = array.astype(np.float64)
    return bool((wide[seen] == 0).all() and (wide[~seen] == -np.inf).all())


def _counts(value: Value, axis_from_end: int) -> bool:
    """Whether a value counts 0, 1, 2… along an axis, in a type that does not run over."""
    op = through(value).op
    if not isinstance(op, Iota) or op.dtype.bits < 32:
        return False
    return len(op.shape) - op.axis % len(op.shape) == axis_from_end


def _swapped(key: Value) -> Value:
    """The key with its last two axes swapped back, through the transpose that swapped them."""
    node = key.producer
    if node is not None and isinstance(node.op, Reshape):
        return _swapped_in_batches(key, node.operands[0])
    if node is None or not isinstance(node.op, Transpose):
        return swapaxes(key, -1, -2)
    *leading, last, other = node.op.permutation
    permutation = (*leading, other, last)
    if permutation == tuple(range(key.rank)):
        return node.operands[0]
    result: Value = Transpose(permutation)(node.operands[0])
    return result


def _swapped_in_batches(key: Value, matrices: Value) -> Value:
    """The same, where the axes before the last two were joined for the transpose."""
    node = matrices.producer
    if node is None or not isinstance(node.op, Transpose) or matrices.rank < 2:
        return swapaxes(key, -1, -2)
    *leading, last, other = node.op.permutation
    swaps = [*leading, other, last] == list(range(matrices.rank))
    if not swaps or key.shape[-2:] != matrices.shape[-2:]:
        return swapaxes(key, -1, -2)
    return reshape(node.operands[0], (*key.shape[:-2], key.shape[-1], key.shape[-2]))


@rewrite("attention_repeated_heads", root=Attention, floats="exact")
def attention_repeated_heads(node: Node) -> Value | None:
    """attention(query, repeat(key), repeat(value)) → attention(query, key, value), grouped."""
    query, key, value, *masks = node.operands
    before = _before_repeat(key), _before_repeat(value)
    if before[0] is None or before[1] is None:
        return None
    if not provably_equal(before[0].shape[-3], before[1].shape[-3]):
        return None
    result: Value = node.op(query, *before, *masks)
    return result


def _before_repeat(heads: Value) -> Value | None:
    """Heads [*b, K, n, d] before they became [*b, K, r, n, d], and then [*b, K r, n, d]."""
    node = heads.producer
    if node is None or not isinstance(node.op, Reshape):
        return None
    stretched = node.operands[0].producer
    if stretched is None or not isinstance(stretched.op, Expand):
        return None
    wide, narrow = stretched.result, stretched.operands[0]
    if wide.rank != heads.rank + 1 or narrow.rank != wide.rank:
        return None
    repeated = wide.rank - 3
    if wide.shape[:-4] != heads.shape[:-3] or wide.shape[-2:] != heads.shape[-2:]:
        return None
    same = all(
        narrow.shape[axis] == wide.shape[axis] for axis in range(wide.rank) if axis != repeated
    )
    if not same or narrow.shape[repeated] != 1:
        return None
    return reshape(narrow, (*narrow.shape[:repeated], *narrow.shape[repeated + 1 :]))


RULES: tuple[Rule, ...] = (attention_spelled, attention_repeated_heads)
