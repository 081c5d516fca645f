"""The order in which a convolution's result is visited: by groups, and by output phases.

A grouped convolution is a batch of small ones, and a transposed convolution several ordinary ones,
once their kernels have the axes for it (``kernel.walk`` says which). What was fused around them
is visited the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from monograph.fusion.axis_map import AxisMap
from monograph.fusion.group import Group, GroupKind
from monograph.ir.graph import Node
from monograph.kernel.walk import Walk, divide, phases, split_phases, whole_walk
from monograph.ops.conv import Conv, ConvTranspose, ConvWeightGradient

CONVOLUTIONS = (Conv, ConvTranspose, ConvWeightGradient)
MOST_PHASES = 64
"""Kernels that one transposed convolution may become."""


def convolution_walks(group: Group) -> Sequence[Walk]:
    """The walks over a group's index space that visit all of it together, a kernel each."""
    walk = whole_walk(group.space)
    nodes = [node for node in group.nodes if isinstance(node.op, CONVOLUTIONS)]
    place = group.places.get(nodes[0].results[0]) if len(nodes) == 1 else None
    if place is None or group.kind is not GroupKind.CONTRACTION:
        return (walk,)
    (node,) = nodes
    walk = _by_groups(walk, node, place)
    if isinstance(node.op, ConvTranspose):
        return _by_phases(walk, node, node.op, place)
    return (walk,)


def _by_groups(walk: Walk, node: Node, place: AxisMap) -> Walk:
    """The walk with the groups of a convolution as an axis; depthwise ones are channels already."""
    assert isinstance(node.op, CONVOLUTIONS)
    groups = node.op.groups
    is_gradient = isinstance(node.op, ConvWeightGradient)
    dimension = place[0 if is_gradient else 1]
    outputs = node.operands[1] if is_gradient else node.results[0]
    per_group = (node.operands[0].shape[1] // groups, outputs.shape[1] // groups)
    if groups == 1 or dimension is None or 1 in per_group:
        return walk
    return divide(walk, dimension, groups)


def _by_phases(walk: Walk, node: Node, op: ConvTranspose, place: AxisMap) -> Sequence[Walk]:
    """A walk for each combination of the phases along each axis."""
    found: list[list[tuple[int, int]]] = []
    for axis, stride in enumerate(op.stride):
        taps, size = node.operands[1].shape[2 + axis], node.results[0].shape[2 + axis]
        if stride == 1 or place[2 + axis] is None:
            found.append([(0, 1)])
            continue
        if not isinstance(taps, int):
            return (walk,)
        found.append(phases(stride, taps, op.padding[axis][0], op.dilation[axis], size))
    if prod(map(len, found)) > MOST_PHASES:
        return (walk,)
    walks = []
    for runs in product(*found):
        each = walk
        for axis, (first, count) in enumerate(runs):
            dimension = place[2 + axis]
            if dimension is not None and op.stride[axis] > 1:
                each = split_phases(each, dimension, op.stride[axis], first, count)
        walks.append(each)
    return walks
