"""Prologue fusion: producers that a matmul recomputes while it packs its operands.

A product packs its operands, each element once, in the order in which it reads them. An operand
that is made of fewer bits (bytes that are widened, less a zero point) is then read as those; and
what is made of weights alone is packed before the first call, where a kernel of its own would run
in every call.
"""

from __future__ import annotations

from collections.abc import Sequence

from monograph.fusion.cost import nbytes, work
from monograph.ir.dims import shape_product
from monograph.ir.graph import Node, Output, Value
from monograph.ir.op import Trait
from monograph.ir.types import TensorType
from monograph.ops.conv import Conv
from monograph.ops.data import Constant, Weight
from monograph.ops.elementwise.arithmetic import Add, Subtract
from monograph.ops.elementwise.convert import Cast
from monograph.ops.linalg import DotGeneral
from monograph.ops.shape import Reshape


def is_prologue(
    source: Sequence[Node],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    group: Sequence[Node],
    max_instructions: int,
) -> bool:
    """Whether the pointwise nodes of ``source`` are for a group of products to compute.

    Unless weights alone are read, they take at most so many instructions an element.
    """
    products = [node.op for node in group if node.op.has(Trait.CONTRACTION)]
    read = [value for value in inputs if isinstance(value.type, TensorType)]
    if all(value.producer is not None and is_stored(value.producer) for value in read):
        return bool(read) and all(isinstance(x, DotGeneral | Conv) for x in products)
    if not products or not all(isinstance(each, DotGeneral) for each in products):
        return False
    made = max(nbytes(value) for value in outputs)
    return sum(map(work, source)) <= max_instructions and 2 * bytes_read(read) <= made


def is_widened_for_products(node: Node) -> bool:
    """Whether a node widens integers that products alone read, perhaps moved by a number.

    They had better stay in few bits until then.
    """
    if not isinstance(node.op, Cast) or not node.operands[0].dtype.is_integer:
        return False
    (result,) = node.results
    if not result.dtype.is_integer or 2 * node.operands[0].dtype.bits > result.dtype.bits:
        return False
    readers = [use.node for use in result.uses]
    moved = [each for each in readers if isinstance(each.op, Add | Subtract)]
    readers = [each for each in readers if each not in moved]
    readers += [use.node for each in moved for use in each.results[0].uses]
    return bool(readers) and all(isinstance(each.op, DotGeneral) for each in readers)


def is_image(source: Sequence[Node], group: Sequence[Node]) -> bool:
    """Whether nodes give an image its shape for a convolution that looks at windows of it.

    A reshape costs nothing in memory. As part of the subscripts, every tap of a window would have
    to find out where its element is, and the image could not be given a border.
    """
    if not all(isinstance(node.op, Reshape) for node in source):
        return False
    made = {value for node in source for value in node.results}
    convolutions = (node for node in group if isinstance(node.op, Conv))
    return any(
        node.operands[0] in made and any(dim != 1 for dim in node.operands[1].shape[2:])
        for node in convolutions
    )


def is_stored(node: Node) -> bool:
    """Whether a node's result lies in memory before the program starts, or is no result."""
    return isinstance(node.op, Constant | Weight | Output)


def bytes_read(values: Sequence[Value]) -> int:
    """Bytes of what is read; a single number is read once, and stays in a register."""
    tensors = [value for value in values if isinstance(value.type, TensorType)]
    return sum(nbytes(value) for value in tensors if shape_product(value.shape) != 1)
