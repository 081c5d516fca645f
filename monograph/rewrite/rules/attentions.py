"""Scaled dot-product attention, spelled out with matmul, softmax and matmul.

The scale may be multiplied or divided, on the scores, the query or the key; a mask may be added, or
choose between scores and another number, as -inf or a very negative one.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.build import cast_to
from monograph.ir.dims import provably_equal
from monograph.ir.graph import Node, Value
from monograph.ir.types import bool_, wide
from monograph.ops.attention import Attention, make_causal_mask
from monograph.ops.data import Constant, full
from monograph.ops.elementwise import (
    Add,
    Cast,
    IsNan,
    Where,
    float_facts,
    less_equal,
    logical_and,
    logical_not,
    where,
)
from monograph.ops.linalg import Matmul
from monograph.ops.shape import Expand, Reshape, Transpose, reshape, swapaxes
from monograph.ops.softmax import Softmax
from monograph.rewrite.constants import real_splat
from monograph.rewrite.matchers import orders_positions, strip_expand, times_constant
from monograph.rewrite.rule import Rule, rewrite


@dataclass(frozen=True)
class _Scores:
    """query @ key, scaled and masked; ``key`` has its last two axes swapped.

    A mask of bools puts ``fill`` in the place of the scores that it hides. ``later`` is what stands
    for the scores of keys that come after their query; where it is finite, no other mask follows.
    """

    query: Value
    key: Value
    scale: float = 1.0
    mask: Value | None = None
    fill: float = -math.inf
    later: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether nothing is masked yet."""
        return self.mask is None and self.later is None


@rewrite(
    "attention_spelled",
    root=Matmul,
    floats="rounds otherwise; where NaN shares were made zeros, a NaN among the scores gives NaN;"
    " a key that a mask or causality hides gives nothing, whatever NaN or infinity its value holds",
)
def attention_spelled(node: Node) -> Value | None:
    """softmax(query @ keyᵀ * scale + mask) @ value → attention(query, key, value, mask)."""
    shares, value = node.operands
    given = _without_casts(shares, value)
    guarded = _strip_nan_guard(given)
    soft = _without_casts(guarded, value).producer
    if soft is None or not isinstance(soft.op, Softmax) or value.rank < 3:
        return None
    if not value.dtype.is_float:
        return None
    if soft.op.axis % soft.result.rank != soft.result.rank - 1:
        return None
    found = _scores(_without_casts(soft.operands[0], value))
    if found is None or not found.query.rank == found.key.rank == value.rank:
        return None
    query, query_scale = _strip_scale(found.query)
    swapped, swapped_scale = _strip_scale(found.key)
    key, key_scale = _strip_scale(_swap_key(swapped))
    op = Attention(
        causal=found.later is not None,
        scale=found.scale * query_scale * swapped_scale * key_scale,
        fill=found.fill,
        fully_masked=soft.op.fully_masked if guarded is given else "zeros",
    )
    masks = () if found.mask is None else (_widen_mask(found.mask),)
    result: Value = op(query, key, value, *masks)
    return result


def _strip_nan_guard(shares: Value) -> Value:
    """Shares before NaN, which a query that sees nothing has, was replaced by zeros."""
    node = shares.producer
    if node is None or not isinstance(node.op, Where) or real_splat(node.operands[1]) != 0.0:
        return shares
    condition, _, found = node.operands
    test = condition.producer
    if test is None or not isinstance(test.op, IsNan) or test.operands[0] is not found:
        return shares
    return found


def _strip_scale(x: Value) -> tuple[Value, float]:
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
        if inner is None or not inner.is_plain:
            return None
        return replace(inner, scale=inner.scale * scaled[1])
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
        return replace(inner, later=-math.inf)
    if inner.mask is None and inner.later in (None, -math.inf):
        return replace(inner, mask=mask)
    later = -math.inf if inner.later == -math.inf else None
    before = _as_added(inner if later is None else replace(inner, later=None), scores)
    if before is None:
        return None
    return replace(inner, mask=before + mask, fill=-math.inf, later=later)


def _with_chosen_mask(condition: Value, a: Value, b: Value) -> _Scores | None:
    """where(mask, scores, number), or where(not mask, number, scores)."""
    kept = real_splat(b) is not None
    scores, other = (a, b) if kept else (b, a)
    inner, number = _scores(scores), real_splat(other)
    if inner is None or number is None or not number < math.inf:
        return None
    if kept and _is_causal(condition, scores):
        if number == -math.inf or (inner.mask is None and _is_lowest(number, scores)):
            return replace(inner, later=number)
        return _match_fill(inner, scores, make_causal_mask(scores.shape), number)
    return _match_fill(inner, scores, condition if kept else logical_not(condition), number)


def _match_fill(inner: _Scores, scores: Value, seen: Value, number: float) -> _Scores | None:
    """Scores with a number in the place of those that are not seen."""
    mask, later = inner.mask, inner.later
    kept = -math.inf if later == number == -math.inf else None
    if mask is None and later == kept:
        return replace(inner, mask=seen, fill=number)
    if mask is None and later == number:
        both = logical_and(make_causal_mask(scores.shape), seen)
        return replace(inner, mask=both, fill=number, later=None)
    if mask is not None and mask.dtype is bool_ and inner.fill == number and later == kept:
        return replace(inner, mask=logical_and(mask, seen))
    if not _is_lowest(number, scores):
        return None
    before = _as_added(replace(inner, later=None) if later == kept else inner, scores)
    if before is None:
        return None
    return replace(inner, mask=where(seen, before, number), fill=-math.inf, later=kept)


def _as_added(scores: _Scores, like: Value) -> Value | None:
    """One mask, added to scores, in the place of all that there are; None if there is none such.

    A number that stands for scores is added to them instead, if it is so negative that they are
    lost in it.
    """
    mask, later = scores.mask, scores.later
    if mask is None:
        mask = full((), 0.0, like.dtype)
    elif mask.dtype is bool_:
        if not _is_lowest(scores.fill, like):
            return None
        mask = where(mask, full((), 0.0, like.dtype), scores.fill)
    return mask if later is None else where(make_causal_mask(like.shape), mask, later)


def _widen_mask(mask: Value) -> Value:
    """A mask for scores that are computed wide: numbers in which narrow scores were lost grow.

    -65504 is all that is left of it and a small score in f16, and in f32 it is not.
    """
    if mask.dtype is bool_ or wide(mask.dtype) is mask.dtype:
        return mask
    lowest = 0.5 * float(float_facts(mask.dtype).min)
    if lowest < -1e9:
        return mask
    exact = cast_to(mask, wide(mask.dtype))
    return where(less_equal(mask, lowest), exact * 1e30, exact)


def _is_lowest(number: float, scores: Value) -> bool:
    """Whether a number is so negative that its exponential vanishes beside any score's."""
    return number <= max(-1e9, 0.5 * float(float_facts(scores.dtype).min))


def _is_causal(mask: Value, scores: Value) -> bool:
    """Whether a mask lets query i see keys 0 to i: counted with iota, or a constant."""
    mask = strip_expand(mask)
    rows, columns = scores.shape[-2:]
    node = mask.producer
    if node is None or mask.rank < 2 or mask.shape[-2:] != (rows, columns):
        return False
    if any(dim != 1 for dim in mask.shape[:-2]):
        return False
    if not isinstance(node.op, Constant):
        return orders_positions(mask)
    array = node.op.data.array().reshape(mask.tensor.static_shape()[-2:])
    seen = np.tri(*array.shape, dtype=np.bool_)
    if mask.dtype is bool_:
        return bool(np.array_equal(array, seen))
    wide = array.astype(np.float64)
    return bool((wide[seen] == 0).all() and (wide[~seen] == -np.inf).all())


def _swap_key(key: Value) -> Value:
    """The key with its last two axes swapped back, through the transpose that swapped them."""
    node = key.producer
    if node is not None and isinstance(node.op, Reshape):
        return _swap_key_in_batches(key, node.operands[0])
    if node is None or not isinstance(node.op, Transpose):
        return swapaxes(key, -1, -2)
    *leading, last, other = node.op.permutation
    permutation = (*leading, other, last)
    if permutation == tuple(range(key.rank)):
        return node.operands[0]
    result: Value = Transpose(permutation)(node.operands[0])
    return result


def _swap_key_in_batches(key: Value, matrices: Value) -> Value:
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
