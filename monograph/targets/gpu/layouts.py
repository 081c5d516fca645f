"""Chooses the values that are not row-major: channels-last images, tokens by head.

Tensor cores read an image channels last, and cuDNN copies one that lies otherwise, before and
after. So what such a convolution writes keeps its channels together, and so does what kernels make
of it, until something reads it that must have rows: an output, a reshape, another library. What
attention gives lies token by token, as the product that follows reads it.
"""

from __future__ import annotations

from collections.abc import Iterator

from monograph.config import Config
from monograph.fusion.group import Fusion, Group, GroupKind
from monograph.fusion.prologue import is_stored
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import TensorType, bf16, f16, f32
from monograph.kernel.layout import MemoryLayout, channels_last, make_layout
from monograph.kernel.lower import is_lowerable
from monograph.ops.attention import Attention
from monograph.ops.conv import Conv, ConvTranspose
from monograph.ops.shape import Reshape
from monograph.targets.gpu.chip import Chip
from monograph.targets.gpu.choices import prefers_library
from monograph.targets.gpu.views import is_read_in_place

HEADS_INSIDE = (0, 2, 1, 3)
"""The order of axes in which the heads of a token lie together: as attention gives its results."""
LAYERS = (Conv, ConvTranspose)
"""Ops of which a library reads and writes channels last."""


def choose_layouts(graph: Graph, fusion: Fusion, chip: Chip) -> dict[Value, MemoryLayout]:
    """The layouts of values that are not row-major."""
    found: dict[Value, MemoryLayout] = {}
    for group in fusion.groups:
        for value in _candidates(group, found, chip):
            if _may_be_turned(value, graph, chip):
                found[value] = make_layout(value.shape, channels_last(4))
        first = group.nodes[0]
        if isinstance(first.op, Attention) and prefers_library(first, chip):
            result = first.results[0]
            if _may_be_turned(result, graph, chip):
                found[result] = make_layout(result.shape, HEADS_INSIDE)
    for node in graph.nodes:
        if _is_layer(node, chip) and node.results[0] in found:
            weight = node.operands[1]
            if weight.producer is not None and is_stored(weight.producer) and _is_image(weight):
                found[weight] = make_layout(weight.shape, channels_last(4))
    return found


def _candidates(group: Group, found: dict[Value, MemoryLayout], chip: Chip) -> Iterator[Value]:
    """The results of a convolution, and those of a kernel that reads such images."""
    first = group.nodes[0]
    if _is_layer(first, chip):
        yield first.results[0]
    elif group.kind is not GroupKind.OPAQUE:
        read = [value.shape[:2] for value in group.inputs() if value in found]
        for value in group.outputs():
            if isinstance(value.type, TensorType) and value.shape[:2] in read:
                yield value


def _may_be_turned(value: Value, graph: Graph, chip: Chip) -> bool:
    """Whether all who read a value take it as it lies."""
    if not _is_image(value) or value in graph.outputs:
        return False
    return all(
        _is_layer(use.node, chip)
        or (
            not isinstance(use.node.op, Reshape)
            and not use.node.regions
            and _is_computed(use.node, chip)
        )
        for use in value.uses
    )


def _is_image(value: Value) -> bool:
    if not isinstance(value.type, TensorType) or not value.type.is_static or value.rank != 4:
        return False
    wide = value.dtype is f32 and Config.from_environment().tf32
    return wide or value.dtype in (f16, bf16)


def _is_layer(node: Node, chip: Chip) -> bool:
    return isinstance(node.op, LAYERS) and prefers_library(node, chip)


def _is_computed(node: Node, chip: Chip) -> bool:
    if not is_lowerable(node) or prefers_library(node, chip):
        return False
    return not is_read_in_place(node, chip)
