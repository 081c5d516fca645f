"""Windows of pools that reach far beyond what they are laid on."""

from __future__ import annotations

from dataclasses import replace

from monograph.ir.build import apply_many
from monograph.ir.graph import Node, Value
from monograph.ops.pool import AvgPool, MaxPool, MaxPoolWithIndices, clipped_kernel
from monograph.rewrite.rule import Rule, rewrite

POOLS = (AvgPool, MaxPool, MaxPoolWithIndices)


@rewrite("clip_window", root=POOLS, floats="exact: what overhangs the padding never counts")
def clip_window(node: Node) -> tuple[Value, ...] | None:
    """avg_pool(x) with a window larger than x and its padding → one that just covers them."""
    assert isinstance(node.op, POOLS)
    (x,) = node.operands
    kernel = clipped_kernel(node.op.windows(), x.shape)
    if kernel == node.op.kernel:
        return None
    return apply_many(replace(node.op, kernel=kernel), x)


RULES: tuple[Rule, ...] = (clip_window,)
