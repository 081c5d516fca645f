"""Strided operands that a library call reads in place instead of copying.

    %qkv = linear(…) : bf16[8, 512, 2304]        query, key and value are pieces of one product,
    %q = slice(transpose(reshape(%qkv))) …       their heads turned: the library is told where
    attention(%q, %k, %v)                        they begin and how far apart elements are

A transpose or slice whose every reader is such a library is no kernel's to compute.
"""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.graph import Node, Value
from monograph.ir.types import TensorType
from monograph.kernel.layout import MemoryLayout, make_layout
from monograph.ops.attention import Attention
from monograph.ops.shape import Reshape, Transpose
from monograph.ops.slicing import Slice
from monograph.targets.gpu.chip import Chip
from monograph.targets.gpu.choices import prefers_library

STRIDED = (Transpose, Slice)


@dataclass(frozen=True)
class StridedView:
    """Where a value lies in the memory of another: its first element, and strides in elements."""

    base: Value
    layout: MemoryLayout

    @property
    def numbers(self) -> tuple[int, ...]:
        """Offset and strides, all known."""
        found = (self.layout.offset, *self.layout.strides)
        assert all(isinstance(each, int) for each in found)
        return tuple(each for each in found if isinstance(each, int))


def is_read_in_place(node: Node, chip: Chip) -> bool:
    """Whether all who read a transpose or slice are libraries that read it where it lies."""
    if not isinstance(node.op, STRIDED) or not _is_static(node.operands[0]):
        return False
    lies = _through(node, view_of(node.operands[0], chip).layout)
    return lies is not None and _feeds_libraries(node.results[0], lies, chip)


def _feeds_libraries(value: Value, lies: MemoryLayout, chip: Chip) -> bool:
    """Whether only libraries read a value that lies so, perhaps as a view of it in turn."""
    for use in value.uses:
        if _reads_strided(use.node, value, lies, chip):
            continue
        further = _through(use.node, lies)
        if further is None or not _feeds_libraries(use.node.results[0], further, chip):
            return False
    return bool(value.uses)


def _reads_strided(node: Node, value: Value, lies: MemoryLayout, chip: Chip) -> bool:
    """Whether a library takes a value that is not row-major: attention, if depths lie together."""
    if not isinstance(node.op, Attention) or not prefers_library(node, chip):
        return False
    return lies.strides[-1] == 1 and value not in node.operands[3:]


def _is_static(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.is_static


def view_of(value: Value, chip: Chip) -> StridedView:
    """Where a value lies: in the memory of what its views begin with, or row by row in its own."""
    node = value.producer
    if node is not None and (isinstance(node.op, Reshape) or is_read_in_place(node, chip)):
        whole = view_of(node.operands[0], chip)
        lies = _through(node, whole.layout)
        if lies is not None:
            return StridedView(whole.base, lies)
    return StridedView(value, make_layout(value.shape, range(value.rank)))


def _through(node: Node, lies: MemoryLayout) -> MemoryLayout | None:
    """How the result of a transpose, slice or reshape lies if the operand lies so."""
    op = node.op
    if isinstance(op, Transpose):
        strides = tuple(lies.strides[axis % len(lies.strides)] for axis in op.permutation)
        return MemoryLayout(strides, lies.offset)
    if isinstance(op, Slice):
        offset = lies.offset
        for start, stride in zip(op.starts, lies.strides, strict=True):
            offset = offset + start * stride
        pairs = zip(lies.strides, op.steps, strict=True)
        return MemoryLayout(tuple(stride * step for stride, step in pairs), offset)
    if not isinstance(op, Reshape) or not _is_static(node.operands[0]):
        return None
    return lies.viewed(node.operands[0].shape, node.results[0].shape)
