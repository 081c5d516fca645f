"""Batch norm folding: let the weights of a convolution or linear layer do the normalising.

At inference a batch norm multiplies each channel by a number and adds another. The layer before it
is linear in its weights, so both numbers can be worked into those once, at compile time:

    weight' = weight * s      bias' = (bias - mean) * s + beta      s = scale / sqrt(variance + ε)
"""

from __future__ import annotations

from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.ir.build import cast_to
from monograph.ir.graph import Node, Value
from monograph.ops import math as math_ops
from monograph.ops import shape as shape_ops
from monograph.ops.batch_norm import BatchNorm
from monograph.ops.conv import Conv, ConvTranspose
from monograph.ops.data import Constant, Weight
from monograph.ops.linalg import Linear
from monograph.passes.base import RewritePass
from monograph.rewrite.rule import Rule, rewrite

_ROUNDING = (
    "rounds differently: the weights are scaled before the sum instead of its result after; "
    "NaN and infinities in the weights or the input still reach the result"
)


@dataclass(frozen=True)
class FoldConvBatchNorm(RewritePass):
    """Fold a batch norm into the convolution or linear layer that feeds it.

        %c = conv(%x, %w) {…} : f32[1, 8, 5, 5]          %c = conv(%x, %w2, %b2) {…} : …
        %y = batch_norm(%c, %g, %b, %m, %v) : …     ─▶    return %c
        return %y

    The weights and the statistics must be constants, and nothing else may read the layer's result.
    The new weights are left as arithmetic on constants, for ``fold_constants`` to carry out.
    """

    name: ClassVar[str] = "fold_conv_bn"

    def rules(self) -> tuple[Rule, ...]:
        """The one rule."""
        return (fold_batch_norm,)


@rewrite("fold_batch_norm", root=BatchNorm, floats=_ROUNDING)
def fold_batch_norm(node: Node) -> Value | None:
    """batch_norm(layer(x, weight, bias)) → layer(x, weight', bias')."""
    layer = node.operands[0].producer
    if layer is None or not _can_absorb(layer, node):
        return None
    op = node.op
    assert isinstance(op, BatchNorm)
    scale, beta, mean, variance = (cast_to(v, layer.result.dtype) for v in node.operands[1:])
    factor = scale * math_ops.rsqrt(variance + op.epsilon)
    x, weight, *bias = layer.operands
    shift = (bias[0] - mean if bias else -mean) * factor + beta
    return layer.graph.create(
        layer.op, (x, _scale_channels(layer, weight, factor), shift), location=layer.location
    ).result


def _can_absorb(layer: Node, norm: Node) -> bool:
    if not isinstance(layer.op, Linear | Conv | ConvTranspose):
        return False
    if layer.result.users != (norm,):
        return False
    if isinstance(layer.op, Linear) and layer.result.rank != 2:
        return False  # channels lie along axis 1, which must be the last
    if isinstance(layer.op, ConvTranspose) and layer.op.groups != 1:
        return False
    parameters = (*layer.operands[1:], *norm.operands[1:])
    return all(isinstance(value.op, Constant | Weight) for value in parameters)


def _scale_channels(layer: Node, weight: Value, factor: Value) -> Value:
    """The weight with each output channel multiplied by its factor."""
    axis = 1 if isinstance(layer.op, ConvTranspose) else 0
    column = [1] * weight.rank
    column[axis] = -1
    return weight * shape_ops.reshape(factor, column)
