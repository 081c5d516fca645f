"""The role of each op in quantization: multiplies, passes on, reads, or refuses quantized values.

=============  ====================================================================================
contraction    multiplies integers and sums them: its inputs are worth storing as integers
transparent    moves elements or chooses among them: the same on integers, with the same scale
elementwise    computes in float; can read integers and scale them in its own kernel
float          anything else: reads floats
=============  ====================================================================================
"""

from __future__ import annotations

from enum import Enum

from monograph.ir.graph import Node, Value
from monograph.ir.op import Trait
from monograph.ir.types import TensorType, f32
from monograph.ops.conv import Conv
from monograph.ops.data import Constant, Full, Weight
from monograph.ops.elementwise.arithmetic import Add, Multiply, Subtract
from monograph.ops.elementwise.select import Clip, Maximum, Minimum
from monograph.ops.joining import Concat
from monograph.ops.linalg import Linear, Matmul
from monograph.ops.math import Sigmoid
from monograph.ops.pool import AvgPool, MaxPool
from monograph.ops.rectifier import Hardsigmoid, Hardswish, Hardtanh, LeakyRelu, Relu, Relu6
from monograph.ops.reduce.statistics import Mean
from monograph.ops.shape import Expand, Reshape, Squeeze, Transpose, Unsqueeze
from monograph.ops.slicing import Slice

CONTRACTIONS = (Conv, Linear, Matmul)
VIEWS = (Reshape, Transpose, Squeeze, Unsqueeze, Expand, Slice)
"""Moves that kernels carry out while they read: nothing is stored for them."""
TRANSPARENT = (*VIEWS, Concat, MaxPool)
READERS = (
    *(Add, Subtract, Multiply, Maximum, Minimum, Clip, Sigmoid, Relu, Relu6, LeakyRelu),
    *(Hardswish, Hardsigmoid, Hardtanh, AvgPool, Mean),
)
KNOWN = (Constant, Weight, Full)


class Role(Enum):
    """What an op does with quantized numbers."""

    CONTRACTION = "contraction"
    TRANSPARENT = "transparent"
    ELEMENTWISE = "elementwise"
    FLOAT = "float"


def role_of(node: Node) -> Role:
    """The role of a node; of other dtypes than f32 it is always float."""
    if not all(_is_f32(value) for value in (*node.operands, *node.results)):
        return Role.FLOAT
    if isinstance(node.op, CONTRACTIONS):
        return Role.CONTRACTION if not is_known(node.operands[0]) else Role.FLOAT
    if isinstance(node.op, TRANSPARENT):
        return Role.FLOAT if any(map(is_known, node.operands)) else Role.TRANSPARENT
    return Role.ELEMENTWISE if isinstance(node.op, READERS) else Role.FLOAT


def is_known(value: Value) -> bool:
    """Whether a value is a constant or a weight."""
    return isinstance(value.op, KNOWN)


def weight_of(node: Node) -> Value | None:
    """The weight of a contraction; None if both of its operands are computed."""
    return node.operands[1] if is_known(node.operands[1]) else None


def is_fused(value: Value) -> bool:
    """Whether a value stays in registers: its only reader computes it element by element."""
    producer, users = value.producer, value.users
    if producer is None or len(value.uses) != 1 or not users[0].op.has(Trait.ELEMENTWISE):
        return False
    if isinstance(producer.op, TRANSPARENT):
        return False
    # Of several operands that could be computed here, the last one is; the others are stored.
    candidates = [v for v in users[0].operands if v.producer is not None and not is_known(v)]
    return candidates[-1] is value


def input_channel_axis(node: Node) -> int:
    """The axis of a contraction's first operand along which it sums."""
    return 1 if isinstance(node.op, Conv) else node.operands[0].rank - 1


def output_channel_axis(node: Node) -> int:
    """The axis of a contraction's weight that is its output channel."""
    return node.operands[1].rank - 1 if isinstance(node.op, Matmul) else 0


def _is_f32(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.dtype is f32
