"""Splits the bias off a convolution, as an addition that fuses with what follows.

A library adds a bias by a kernel of its own, which reads and writes the whole image once more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.ir.build import apply
from monograph.ir.graph import Node, Value
from monograph.ops import shape as shape_ops
from monograph.ops.conv import Conv, ConvTranspose
from monograph.ops.elementwise import add
from monograph.passes.base import RewritePass
from monograph.rewrite.rule import Rule, rewrite


@dataclass(frozen=True)
class SeparateConvBias(RewritePass):
    """Add the bias of a convolution after it.

        %y = conv(%x, %w, %b)      ─▶      %c = conv(%x, %w)
                                           %r = reshape(%b) {shape = [8, 1, 1]}
                                           %y = add(%c, %r)

    In 16 bits the sum is rounded once more in between, as the library would do it.
    """

    name: ClassVar[str] = "separate_conv_bias"

    def rules(self) -> tuple[Rule, ...]:
        """One for each direction."""
        return (separate_bias, separate_transposed_bias)


@rewrite("separate_bias", root=Conv, floats="a narrow sum is rounded before the bias is added")
def separate_bias(node: Node) -> Value | None:
    """conv(x, w, b) → conv(x, w) + b."""
    return _separate_bias(node)


@rewrite("separate_transposed_bias", root=ConvTranspose, floats="a narrow sum is rounded first")
def separate_transposed_bias(node: Node) -> Value | None:
    """conv_transpose(x, w, b) → conv_transpose(x, w) + b."""
    return _separate_bias(node)


def _separate_bias(node: Node) -> Value | None:
    op = node.op
    if len(node.operands) != 3 or type(op) not in (Conv, ConvTranspose):
        return None  # a third operand of other convolutions is a zero point
    x, weight, bias = node.operands
    assert isinstance(op, Conv | ConvTranspose)
    along = shape_ops.reshape(bias, (bias.shape[0], *(1,) * (x.rank - 2)))
    return add(apply(replace(op), x, weight), along)
