"""Convolutions of images that were padded first, as a causal one is spelled."""

from __future__ import annotations

from dataclasses import replace

from monograph.ir.build import apply
from monograph.ir.graph import Node, Value
from monograph.ops.conv.convolution import Conv
from monograph.ops.slicing import Pad
from monograph.rewrite.rule import Rule, rewrite


@rewrite("conv_padding", root=Conv, floats="exact: the same zeros, which are not written anywhere")
def conv_padding(node: Node) -> Value | None:
    """conv(pad(x), weight) → conv(x, weight) with the padding of both, on either side."""
    assert isinstance(node.op, Conv)
    image, *others = node.operands
    inner = image.producer
    if inner is None or not isinstance(inner.op, Pad) or inner.op.value != 0:
        return None
    amounts = list(zip(inner.op.low, inner.op.high, strict=True))
    known = [(low, high) for low, high in amounts if isinstance(low, int) and isinstance(high, int)]
    if len(known) < len(amounts) or any(inner.op.interior) or min(map(min, known)) < 0:
        return None
    outside, spatial = known[:2], known[2:]
    if any(map(any, outside)):
        return None
    padding = tuple(
        (low + before, high + after)
        for (low, high), (before, after) in zip(node.op.padding, spatial, strict=True)
    )
    return apply(replace(node.op, padding=padding), inner.operands[0], *others)


RULES: tuple[Rule, ...] = (conv_padding,)
