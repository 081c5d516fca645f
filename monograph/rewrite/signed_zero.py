"""Proves that a value is never -0.0, from the few nodes that produce it."""

from __future__ import annotations

import numpy as np

from monograph.ir.graph import Node, Value
from monograph.ir.types import Kind
from monograph.ops.data import Constant, Full, Iota
from monograph.ops.elementwise import (
    FLOATS,
    Abs,
    Add,
    Cast,
    Maximum,
    Multiply,
    Where,
)
from monograph.ops.joining import Concat
from monograph.ops.math import Exp, Exp2, Sigmoid, Square
from monograph.ops.rectifier import Relu
from monograph.ops.shape import Expand, Reshape, Squeeze, Transpose, Unsqueeze
from monograph.ops.slicing import Flip, Slice
from monograph.ops.softmax import Softmax
from monograph.ops.trigonometry import Cosh
from monograph.rewrite.constants import real_splat

MAX_DEPTH = 6

_NEVER_BELOW_ZERO = (Abs, Cosh, Exp, Exp2, Iota, Relu, Sigmoid, Softmax, Square)
_MOVING = (Concat, Expand, Flip, Reshape, Slice, Squeeze, Transpose, Unsqueeze)


def never_negative_zero(value: Value, depth: int = MAX_DEPTH) -> bool:
    """Whether no element can be -0.0, so that adding 0.0 changes nothing."""
    if value.dtype.kind not in FLOATS:
        return value.dtype.kind is not Kind.COMPLEX
    node = value.producer
    if node is None or not depth:
        return False
    op = node.op
    if isinstance(op, Constant):
        array = op.data.array().astype(np.float64)
        return not bool(((array == 0) & np.signbit(array)).any())
    if isinstance(op, Full):
        return op.value != 0 or not np.signbit(float(op.value))
    if isinstance(op, _NEVER_BELOW_ZERO):
        return True
    if isinstance(op, Cast):
        return not node.operands[0].dtype.is_float
    return _from_operands(node, depth - 1)


def _from_operands(node: Node, depth: int) -> bool:
    """What the operands say, for ops whose zeros come from theirs."""
    if isinstance(node.op, Multiply):
        return node.operands[0] is node.operands[1]
    if isinstance(node.op, Add):  # -0.0 is the sum of two -0.0 alone
        return any(never_negative_zero(operand, depth) for operand in node.operands)
    if isinstance(node.op, Maximum):  # 0.0 is the larger of the zeros
        return any(_is_at_least_zero(operand) for operand in node.operands)
    if isinstance(node.op, Where):
        return all(never_negative_zero(operand, depth) for operand in node.operands[1:])
    if isinstance(node.op, _MOVING):
        return all(never_negative_zero(operand, depth) for operand in node.operands)
    return False


def _is_at_least_zero(value: Value) -> bool:
    """Whether a constant is nowhere below 0.0 (-0.0 is below it)."""
    number = real_splat(value)
    return number is not None and number >= 0 and not np.signbit(number)
