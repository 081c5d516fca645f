"""Moves a pointwise convolution before the resize that it reads: fewer pixels to multiply.

A net that looks at an image in several sizes brings them to the largest, joins their channels and
mixes those at every pixel. Interpolating mixes pixels and a 1×1 convolution mixes channels, so that
either may come first; before the image is enlarged, there are fewer pixels to multiply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, provably_at_least, shape_product
from monograph.ir.graph import Graph, Node, Value
from monograph.ops.conv import Conv
from monograph.ops.elementwise import add
from monograph.ops.joining import Concat, concat, split
from monograph.ops.resize import Resize
from monograph.ops.shape import reshape
from monograph.passes.base import Pass, PassResult


@dataclass(frozen=True)
class ResizeAfterConv(Pass):
    """Carry out a 1×1 convolution on each of the images that are enlarged and joined for it.

        %b = resize(%a) {…} : f32[1, 8, 64, 64]           %v, %w = split(%weight) {…} : …
        %c = concat(%b, %x) : f32[1, 16, 64, 64]    ─▶    %d = conv(%a, %v) : f32[1, 4, 16, 16]
        %y = conv(%c, %weight) : f32[1, 4, 64, 64]        %e = resize(%d) {…} : f32[1, 4, 64, 64]
                                                          %f = conv(%x, %w) : f32[1, 4, 64, 64]
                                                          %y = add(%f, %e) : f32[1, 4, 64, 64]

    Only where it does not add channels: there would be more to interpolate than before.
    """

    name: ClassVar[str] = "resize_after_conv"

    def run(self, graph: Graph) -> PassResult:
        """Change the order, in regions too."""
        moved = 0
        for node in list(graph.walk()):
            if isinstance(node.op, Conv) and _is_pointwise(node, node.op):
                moved += _move(node)
        return PassResult(moved > 0, {"moved": moved})


def _is_pointwise(node: Node, op: Conv) -> bool:
    """Whether a convolution looks at one pixel at a time, in all channels."""
    weight = node.operands[1]
    is_single = all(dim == 1 for dim in weight.shape[2:]) and all(step == 1 for step in op.stride)
    return is_single and op.groups == 1 and not any(map(any, op.padding))


def _move(node: Node) -> int:
    """Replace one convolution, if some of what it reads was enlarged: how many parts were."""
    x, weight, *bias = node.operands
    parts = _parts(x)
    if any(part.shape[2:] != node.result.shape[2:] for part in parts):
        return 0  # sizes that only the run finds equal: a sum would have those of another part
    sources = [_strip_resize(part, weight.shape[0]) for part in parts]
    moved = [source for source in sources if source is not None]
    if not moved:
        return 0
    with node.graph.inserting_before(node, node.location):
        sizes = [part.shape[1] for part in parts]
        weights = split(weight, sizes, 1) if len(parts) > 1 else (weight,)
        terms = [*_together(node, parts, sources, weights, bias)]
        for source, part, each in zip(sources, parts, weights, strict=True):
            if source is not None and part.producer is not None:
                small = node.graph.create(node.op, (source, each)).result
                terms.append(node.graph.create(part.producer.op, (small,)).result)
        result = reduce(add, terms)
    name = node.result.name
    node.graph.replace(node, [result])
    node.graph.rename(result, name)
    return len(moved)


def _parts(x: Value) -> Sequence[Value]:
    """The images whose channels are joined."""
    node = x.producer
    if node is None or not isinstance(node.op, Concat) or len(x.uses) > 1:
        return (x,)
    return node.operands if node.op.axis % x.rank == 1 else (x,)


def _strip_resize(part: Value, channels: Dim) -> Value | None:
    """What an image was before it was enlarged for the convolution alone, if that had less."""
    node = part.producer
    if node is None or not isinstance(node.op, Resize) or len(part.uses) > 1:
        return None
    (source,) = node.operands
    if part.dtype.bits < 32 or source.shape[:2] != part.shape[:2]:
        return None
    if not provably_at_least(part.shape[1], channels):
        return None
    before, after = shape_product(source.shape), shape_product(part.shape)
    return source if provably_at_least(after, before + 1) else None


def _together(
    node: Node,
    parts: Sequence[Value],
    sources: Sequence[Value | None],
    weights: Sequence[Value],
    bias: Sequence[Value],
) -> Iterator[Value]:
    """The convolution of the parts that stay as they are, and the bias."""
    left = [k for k, source in enumerate(sources) if source is None]
    if left:
        x, weight = (concat([values[k] for k in left], 1) for values in (parts, weights))
        yield node.graph.create(node.op, (x, weight, *bias)).result
        return
    for each in bias:
        yield reshape(each, (-1, *(1,) * (node.result.rank - 2)))
