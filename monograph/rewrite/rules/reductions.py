"""Reductions over nothing, over dimensions of size 1, and of one another."""

from __future__ import annotations

from dataclasses import replace

from monograph.ir.build import apply
from monograph.ir.graph import Node, Value
from monograph.ops.reduce import Max, Mean, Min, Prod, Reduction, Sum
from monograph.ops.reduce.extremum import Extremum
from monograph.ops.shape import reshape
from monograph.rewrite.rule import Rule, rewrite
from monograph.rewrite.signed_zero import never_negative_zero

EXTREMES = (Max, Min)
SIMPLE = (Max, Mean, Min, Prod, Sum)


@rewrite(
    "reduce_one_element",
    root=SIMPLE,
    floats="exact: the product and extremes of one element are that element; sums start from 0.0,"
    " which is added unless no element can be -0.0",
)
def reduce_one_element(node: Node) -> Value | None:
    """sum(x) over no axes, or over axes of size 1 → reshape(x), or reshape(x) + 0.0."""
    assert isinstance(node.op, Reduction)
    (x,) = node.operands
    if x.dtype is not node.result.dtype or any(x.shape[axis] != 1 for axis in node.op.axes):
        return None
    shaped = reshape(x, node.result.shape)
    if isinstance(node.op, Sum | Mean) and not never_negative_zero(x):
        return shaped + 0.0
    return shaped


@rewrite(
    "extreme_of_extreme",
    root=EXTREMES,
    floats="exact, but that of equal zeros it may be the other one that is found first",
)
def extreme_of_extreme(node: Node) -> Value | None:
    """max(max(x)) → max(x) over the axes of both."""
    return merge_reductions(node)


def merge_reductions(node: Node) -> Value | None:
    """A reduction of the same reduction as one over all their axes, if they keep axes alike."""
    inner = node.operands[0].producer
    if inner is None or type(inner.op) is not type(node.op):
        return None
    assert isinstance(node.op, Reduction) and isinstance(inner.op, Reduction)
    if node.op.keepdims != inner.op.keepdims:
        return None
    (x,) = inner.operands
    first = {axis % x.rank for axis in inner.op.axes}
    second = {axis % node.operands[0].rank for axis in node.op.axes}
    if not node.op.keepdims:
        left = [axis for axis in range(x.rank) if axis not in first]
        second = {left[axis] for axis in second}
    axes = tuple(sorted(first | second))
    merged = replace(node.op, axes=axes)
    if isinstance(merged, Extremum) and isinstance(inner.op, Extremum):
        merged = replace(merged, may_be_empty=merged.may_be_empty or inner.op.may_be_empty)
    return apply(merged, x)


RULES: tuple[Rule, ...] = (reduce_one_element, extreme_of_extreme)
