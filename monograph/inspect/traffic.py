"""Memory traffic of kernels: the bytes that they read and write, which fusion saves.

A kernel reads each of its inputs once and writes each of its outputs once; what caches make of it
is not counted. A gather or a slice reads as much as it gives, not the whole table; a reshape moves
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from monograph.fusion.group import Fusion, Group
from monograph.ir.dims import Symbol, evaluate_dim, shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.types import TensorType
from monograph.kernel.expr import Buffer
from monograph.targets.slot_builder import is_view

Sizes = Mapping[Symbol, int]
_PARTIAL = frozenset(("slice", "gather", "gather_elements", "gather_nd", "dynamic_slice", "take"))


def bytes_of(value: Value, sizes: Sizes) -> int:
    """Bytes of a value in memory."""
    if not isinstance(value.type, TensorType):
        return 0
    count = evaluate_dim(shape_product(value.type.shape), sizes)
    return count * value.dtype.numpy.itemsize


def bytes_of_buffer(buffer: Buffer, sizes: Sizes) -> int:
    """Bytes of a kernel's buffer."""
    return evaluate_dim(shape_product(buffer.shape), sizes) * buffer.dtype.numpy.itemsize


def bytes_moved_unfused(fusion: Fusion, sizes: Sizes) -> int:
    """What every node of a graph would move if it were a kernel of its own."""
    nodes = dict.fromkeys(node for group in fusion.groups for node in group.nodes)
    return sum(_by_node(node, sizes) for node in nodes)


def bytes_moved_by_group(group: Group, sizes: Sizes) -> tuple[int, int]:
    """What a kernel reads and writes."""
    if len(group.nodes) == 1 and is_view(group.nodes[0]):
        return 0, 0
    read = 0
    for value in group.inputs():
        readers = [use.node for use in value.uses if use.node in group.nodes]
        read += max((_read(node, value, sizes) for node in readers), default=0)
    return read, sum(bytes_of(value, sizes) for value in group.outputs())


def _by_node(node: Node, sizes: Sizes) -> int:
    if is_view(node):
        return 0
    read = sum(_read(node, value, sizes) for value in dict.fromkeys(node.operands))
    return read + sum(bytes_of(value, sizes) for value in node.results)


def _read(node: Node, value: Value, sizes: Sizes) -> int:
    whole = bytes_of(value, sizes)
    if node.op.name not in _PARTIAL or value is not node.operands[0]:
        return whole
    return min(whole, bytes_of(node.results[0], sizes))
