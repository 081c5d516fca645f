"""Pool windows that reach far beyond their operand, cut to it."""

from __future__ import annotations

from dataclasses import replace

from monograph.ir.build import apply, apply_many
from monograph.ir.graph import Node, Value
from monograph.ops.pool import AvgPool, MaxPool, MaxPoolWithIndices, clip_kernel, lowest
from monograph.ops.slicing import Pad
from monograph.rewrite.rule import Rule, rewrite

POOLS = (AvgPool, MaxPool, MaxPoolWithIndices)


@rewrite("clip_window", root=POOLS, floats="exact: what overhangs the padding never counts")
def clip_window(node: Node) -> tuple[Value, ...] | None:
    """avg_pool(x) with a window larger than x and its padding → one that just covers them."""
    assert isinstance(node.op, POOLS)
    (x,) = node.operands
    kernel = clip_kernel(node.op.windows(), x.shape)
    if kernel == node.op.kernel:
        return None
    return apply_many(replace(node.op, kernel=kernel), x)


@rewrite("pool_padding", root=MaxPool, floats="exact: such padding never wins")
def pool_padding(node: Node) -> Value | None:
    """max_pool(pad(x) with the lowest number) → max_pool(x) with the padding of both.

    With ``ceil_mode`` the last window may begin in padding of the first kind, not of the other.
    """
    assert isinstance(node.op, MaxPool)
    inner = node.operands[0].producer
    if node.op.ceil_mode or inner is None or not isinstance(inner.op, Pad):
        return None
    amounts = list(zip(inner.op.low, inner.op.high, strict=True))
    known = [(low, high) for low, high in amounts if isinstance(low, int) and isinstance(high, int)]
    if len(known) < len(amounts) or any(inner.op.interior) or min(map(min, known)) < 0:
        return None
    (x,) = inner.operands
    rank = len(node.op.kernel)
    if any(map(any, known[:-rank])) or inner.op.value != lowest(x.dtype.numpy):
        return None
    padding = tuple(
        (low + before, high + after)
        for (low, high), (before, after) in zip(node.op.padding, known[-rank:], strict=True)
    )
    return apply(replace(node.op, padding=padding), x)


RULES: tuple[Rule, ...] = (clip_window, pool_padding)
