"""Transposed convolutions of stride one as convolutions with flipped weights.

So is the gradient of every convolution of stride one by its image: as a convolution it can be
computed by whatever method is best for those.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.ir.build import apply
from monograph.ir.graph import Node, Value
from monograph.ops import shape as shape_ops
from monograph.ops.conv import Conv, ConvTranspose
from monograph.ops.slicing import flip
from monograph.ops.windows import Pairs
from monograph.passes.base import RewritePass
from monograph.rewrite.rule import Rule, rewrite


@dataclass(frozen=True)
class ConvTransposeToConv(RewritePass):
    """Write a transposed convolution of stride one as a convolution.

        %y = conv_transpose(%x, %w)      ─▶      %t = transpose(%w) {permutation = [1, 0, 2, 3]}
                                                 %f = flip(%t) {axes = [2, 3]}
                                                 %y = conv(%x, %f)

    Along an axis where ``x`` has one element it has one window, and any stride is as good: one that
    no two taps share tells that nothing is added up.
    """

    name: ClassVar[str] = "conv_transpose_to_conv"

    def rules(self) -> tuple[Rule, ...]:
        """Both rules."""
        return (single_windows, flip_weights)


@rewrite("single_windows", root=ConvTranspose, floats="exact")
def single_windows(node: Node) -> Value | None:
    """A stride that nobody takes becomes the length of the window."""
    op = node.op
    assert isinstance(op, ConvTranspose)
    x, weight = node.operands[:2]
    stride = tuple(
        step if size != 1 or not isinstance(taps, int) else max(step, apart * (taps - 1) + 1)
        for step, size, taps, apart in zip(
            op.stride, x.shape[2:], weight.shape[2:], op.dilation, strict=True
        )
    )
    return None if stride == op.stride else apply(replace(op, stride=stride), *node.operands)


@rewrite(
    "flip_weights",
    root=ConvTranspose,
    floats="exact for finite weights; NaN and infinite ones meet the zeros of the padding, too",
    changes_specials=True,
)
def flip_weights(node: Node) -> Value | None:
    """conv_transpose(x, w) → conv(x, flip(transpose(w))), for stride one."""
    op = node.op
    assert isinstance(op, ConvTranspose)
    padding = _flip_padding(node, op)
    if padding is None:
        return None
    x, weight, *bias = node.operands
    channels, per_group, *kernel = weight.shape
    groups, rank = op.groups, weight.rank
    apart = shape_ops.reshape(weight, (groups, channels // groups, per_group, *kernel))
    exchanged = shape_ops.transpose(apart, (0, 2, 1, *range(3, rank + 1)))
    whole = shape_ops.reshape(exchanged, (groups * per_group, channels // groups, *kernel))
    flipped = flip(whole, tuple(range(2, rank)))
    return apply(Conv(op.stride, padding, op.dilation, groups), x, flipped, *bias)


def _flip_padding(node: Node, op: ConvTranspose) -> Pairs | None:
    """The zeros that the windows of the convolution reach; None if it is none."""
    kernel = node.operands[1].shape[2:]
    pairs: list[tuple[int, int]] = []
    for taps, step, apart, (low, high), extra in zip(
        kernel, op.stride, op.dilation, op.padding, op.output_padding, strict=True
    ):
        if step != 1 or not isinstance(taps, int):
            return None
        last = apart * (taps - 1)
        pairs.append((last - low, last - high + extra))
    return tuple(pairs) if all(min(pair) >= 0 for pair in pairs) else None
