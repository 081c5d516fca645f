"""Decompose group norms of images: reduce each channel first, then the channels of a group.

Around convolutions all channels of a pixel lie together. A group's channels are a few neighbours
there, often fewer than a vector holds, and a kernel that takes one group after another reads
every line of the image many times. The sums of all channels over the pixels are read in order, in
whole vectors; what is left to add up for the groups is one number for each channel.
"""

from __future__ import annotations

from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.ir.build import cast_to
from monograph.ir.graph import Node, Value
from monograph.ir.op import Trait
from monograph.ops import math as math_ops
from monograph.ops import reduce
from monograph.ops.conv import Conv, ConvTranspose
from monograph.ops.norm import GroupNorm, affine, statistics_dtype
from monograph.ops.pool import AvgPool, MaxPool
from monograph.ops.resize import Resize
from monograph.ops.shape import expand, reshape
from monograph.ops.slicing import Pad
from monograph.passes.base import RewritePass
from monograph.rewrite.rule import Rule, rewrite

SPATIAL = (AvgPool, MaxPool, Pad, Resize)
"""Ops that leave the channels of an image where they are."""
MAX_NODES_TO_CONVOLUTION = 16
"""How many nodes a convolution may be away for what it makes to be an image yet."""


@dataclass(frozen=True)
class DecomposeGroupNorm(RewritePass):
    """Write group norms of what convolutions make as sums by channel.

        %y = group_norm(%x) {groups = 2}     ─▶     %m = mean(%x) {axes = [2, 3]} : f32[1, 8]
                                                    %n = reshape(%m) : f32[1, 2, 4]
                                                    %o = mean(%n) {axes = [2], …} : f32[1, 2, 1]
                                                    …

    The inverse deviation and the scale of a channel become one factor.
    """

    name: ClassVar[str] = "decompose_group_norm"

    def rules(self) -> tuple[Rule, ...]:
        """The one rule."""
        return (group_norm_by_channel,)


@rewrite("group_norm_by_channel", root=GroupNorm, floats="rounds otherwise")
def group_norm_by_channel(node: Node) -> Value | None:
    """group_norm(conv(…)) → (conv(…) - mean) * inverse, with the statistics summed by channel."""
    op = node.op
    assert isinstance(op, GroupNorm)
    x, *parameters = node.operands
    if x.rank < 3 or not _is_made_by_convolution(x):
        return None
    dtype = statistics_dtype(*node.operands)
    exact = cast_to(x, dtype)
    centred = exact - _mean(exact, op.groups)
    inverse = math_ops.rsqrt(_mean(centred * centred, op.groups) + op.epsilon)
    scale, bias = (*parameters, None, None)[:2]
    # One factor for each channel: an image is multiplied once.
    return cast_to(affine(centred * affine(inverse, scale, None), None, bias), x.dtype)


def _mean(x: Value, groups: int) -> Value:
    """The mean of each group, at each of its channels: [batch, channels, 1, ...]."""
    batch, channels, *sizes = x.shape
    apart = (batch, groups, channels // groups)
    by_channel = reshape(reduce.mean(x, tuple(range(2, x.rank))), apart)
    by_group = reduce.mean(by_channel, 2, keepdims=True)
    return reshape(expand(by_group, apart), (batch, channels, *(1 for _ in sizes)))


def _is_made_by_convolution(x: Value) -> bool:
    """Whether a convolution made an image, or what it was computed from element by element."""
    pending, seen = [x], {x}
    while pending and len(seen) <= MAX_NODES_TO_CONVOLUTION:
        node = pending.pop().producer
        if node is None:
            continue
        if isinstance(node.op, Conv | ConvTranspose):
            return True
        if node.op.has(Trait.ELEMENTWISE) or isinstance(node.op, SPATIAL):
            images = [each for each in node.operands if each.rank == x.rank and each not in seen]
            pending.extend(images)
            seen.update(images)
    return False
