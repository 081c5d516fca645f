"""Fold constant masks into attention: none at all, or a causal one, is less work.

Exporters write the mask of a decoder as comparisons of positions, and that of an encoder as a
comparison that is always true. What such a mask holds is known when the program is compiled, so it
is computed once, here, and looked at:

    attention(q, k, v, 0 <= positions)                ──▶   attention(q, k, v)
    attention(q, k, v, positions <= positionsᵀ)       ──▶   attention(q, k, v) {causal = true}
    attention(q, k, v, positions <= positionsᵀ & m)   ──▶   attention(q, k, v, m) {causal = true}
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import bool_
from monograph.ops.attention import Attention
from monograph.ops.elementwise import (
    BitwiseAnd,
    GreaterEqual,
    LessEqual,
    LogicalAnd,
    float_facts,
    logical_and,
)
from monograph.ops.shape import Expand
from monograph.passes.base import Pass, PassResult
from monograph.rewrite.constant_evaluator import ConstantEvaluator
from monograph.rewrite.constants import real_splat
from monograph.rewrite.matchers import find_counting_axis, orders_positions


@dataclass(frozen=True)
class FoldAttentionMasks(Pass):
    """Leave out what is known of the masks of attentions.

        %m = less_equal(%key, %query) : bool[8, 8]         %y = attention(%q, %k, %v)
        %y = attention(%q, %k, %v, %m) : f32[…]       ─▶       {causal = true} : f32[…]

    A mask of floats is left out where it is zero, and causal where it is so negative beyond the
    diagonal that nothing of a score is left. But a query that sees nothing, by numbers that are
    finite, averages what comes later, too: so there must be something that it sees.
    """

    name: ClassVar[str] = "fold_attention_masks"

    def run(self, graph: Graph) -> PassResult:
        """Fold, in regions too."""
        counters = {"left_out": 0, "causal": 0}
        known = ConstantEvaluator()
        for node in list(graph.walk()):
            if isinstance(node.op, Attention) and len(node.operands) > 3:
                _fold(node, node.op, known, counters)
        return PassResult(any(counters.values()), counters)


def _fold(node: Node, op: Attention, known: ConstantEvaluator, counters: dict[str, int]) -> None:
    """Replace one attention by one with less of a mask, if there is less to say."""
    *operands, mask = node.operands
    query, key = operands[:2]
    square = (query.shape[-2], key.shape[-2])
    parts = _conjuncts(mask)
    said = [_classify_part(part, square, known) or (False, True) for part in parts]
    left = [part for part, (_, has_more) in zip(parts, said, strict=True) if has_more]
    causal = op.causal or any(is_causal for is_causal, _ in said)
    if causal and not op.causal and not _hides_later_keys(op, query, mask, left):
        causal = False
        left = [part for part, says in zip(parts, said, strict=True) if any(says)]
    if len(left) == len(parts) and causal == op.causal:
        return
    counters["causal"] += causal and not op.causal
    counters["left_out"] += not left
    with node.graph.inserting_before(node, node.location):
        masks: tuple[Value, ...] = (mask,) if len(left) == len(parts) else _join_parts(left)
        made = replace(op, causal=causal, fill=op.fill if masks else -math.inf)
        result = node.graph.create(made, (*operands, *masks)).result
    node.graph.replace(node, [result])


def _hides_later_keys(op: Attention, query: Value, mask: Value, left: list[Value]) -> bool:
    """Whether keys beyond the diagonal, which a mask hides, may be left out for every query.

    Those that a mask of bools hides count where a query sees no others, unless ``fill`` is -inf.
    """
    if mask.dtype is not bool_ or op.fill == -math.inf:
        return True
    return not left and op.fill <= _lowest(query)


def _conjuncts(mask: Value) -> list[Value]:
    """The bools that must all be true for the mask to be."""
    node = mask.producer
    if mask.dtype is bool_ and node is not None:
        if isinstance(node.op, LogicalAnd | BitwiseAnd):
            return [part for operand in node.operands for part in _conjuncts(operand)]
        if isinstance(node.op, Expand):
            return _conjuncts(node.operands[0])
    return [mask]


def _join_parts(parts: list[Value]) -> tuple[Value, ...]:
    if not parts:
        return ()
    whole = parts[0]
    for part in parts[1:]:
        whole = logical_and(whole, part)
    return (whole,)


def _classify_part(
    part: Value, square: tuple[Dim, Dim], known: ConstantEvaluator
) -> tuple[bool, bool] | None:
    """(whether it makes the attention causal, whether it says more than that); None if unknown."""
    if _is_true_everywhere(part):
        return False, False
    if part.rank >= 2 and part.shape[-2:] == square and orders_positions(part):
        return True, False
    contents = known.contents(part)
    if contents is None:
        return None
    hidden = ~contents if contents.dtype == np.bool_ else contents <= _lowest(part)
    plain = contents if contents.dtype == np.bool_ else contents == 0
    if plain.all():
        return False, False
    if part.rank < 2 or part.shape[-2:] != square:
        return False, True
    rows, columns = contents.shape[-2:]
    seen = np.tri(rows, columns, dtype=np.bool_)
    if columns < 2 or not hidden[..., ~seen].all():
        return False, True
    finite = contents.dtype != np.bool_ and bool(np.isfinite(contents[..., ~seen]).any())
    if finite and not (seen & ~hidden).any(-1).all():
        return False, True  # a query that sees nothing averages what comes later, too
    return True, not bool(plain[..., seen].all())


def _lowest(like: Value) -> float:
    """A number so negative that nothing is left of a score that it is added to."""
    return max(-1e9, 0.5 * float(float_facts(like.dtype).min))


def _is_true_everywhere(part: Value) -> bool:
    """Whether a comparison of positions with a number holds for all of them."""
    node = part.producer
    if node is None or not isinstance(node.op, LessEqual | GreaterEqual):
        return False
    smaller, larger = node.operands if isinstance(node.op, LessEqual) else node.operands[::-1]
    number = real_splat(smaller)
    return number is not None and number <= 0 and find_counting_axis(larger) is not None
