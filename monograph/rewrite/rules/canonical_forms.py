"""Canonical forms: the one spelling that ``canonicalize`` makes of the others."""

from __future__ import annotations

import dataclasses

import numpy as np

from monograph.ir.build import constant
from monograph.ir.graph import Node, Value
from monograph.ir.interpret import evaluate_op
from monograph.ir.op import Op
from monograph.ir.types import Kind
from monograph.ops.data import Constant, Full, full
from monograph.ops.elementwise import Greater, GreaterEqual, Negate, Subtract, less, less_equal
from monograph.ops.joining import Concat, Split, Stack
from monograph.ops.math import Reciprocal, Square
from monograph.ops.reduce import Reduction
from monograph.ops.shape import Expand, Squeeze, Transpose, Unsqueeze, expand
from monograph.ops.slicing import Flip
from monograph.ops.softmax import LogSoftmax, Softmax
from monograph.rewrite.rule import Rule, rewrite

ALONG_AN_AXIS = (Concat, LogSoftmax, Softmax, Split)
ALONG_AXES = (Flip, Reduction)

COMPARISONS = (
    Rule(
        "greater_as_less",
        pattern=lambda x, y: Greater()(x, y),
        replacement=lambda x, y: less(y, x),
        floats="exact",
    ),
    Rule(
        "greater_equal_as_less_equal",
        pattern=lambda x, y: GreaterEqual()(x, y),
        replacement=lambda x, y: less_equal(y, x),
        floats="exact",
    ),
)


@rewrite(
    "subtracted_constant",
    root=Subtract,
    floats="exact: IEEE subtraction is addition of the negated operand",
)
def subtracted_constant(node: Node) -> Value | None:
    """x - c → x + (-c), so that constants meet in sums."""
    x, subtrahend = node.operands
    if x.dtype.kind not in (Kind.SIGNED, Kind.FLOAT):
        return None
    negated = _negate(subtrahend)
    return None if negated is None else x + negated


def _negate(value: Value) -> Value | None:
    """The negated constant, spread like the given one; None where the dtype has no negatives."""
    node = value.producer
    if node is None:
        return None
    if isinstance(node.op, Expand):
        inner = _negate(node.operands[0])
        return None if inner is None else expand(inner, value.shape)
    if isinstance(node.op, Full):
        return full(value.shape, -node.op.value, value.dtype)
    if not isinstance(node.op, Constant):
        return None
    array = node.op.data.array()
    with np.errstate(all="ignore"):
        negated = np.asarray(evaluate_op(Negate(), [array])).astype(array.dtype)
        back = np.asarray(evaluate_op(Negate(), [negated])).astype(array.dtype)
    return constant(negated) if back.tobytes() == array.tobytes() else None


@rewrite(
    "decomposed_alias",
    root=(Reciprocal, Square, Squeeze, Stack, Unsqueeze),
    floats="exact: the op is defined as that",
)
def decomposed_alias(node: Node) -> Value | None:
    """square(x) → x * x, reciprocal(x) → 1 / x, squeeze(x) → reshape(x), stack → concat."""
    result: Value = node.op.decompose(*node.operands)
    return result


@rewrite("counted_from_the_front", root=(*ALONG_AN_AXIS, *ALONG_AXES, Transpose), floats="exact")
def counted_from_the_front(node: Node) -> tuple[Value, ...] | None:
    """Axes as the functions write them: not negative, and sorted where their order is free."""
    normal = _normal_op(node.op, node.operands[0].rank)
    return None if normal == node.op else node.graph.create(normal, node.operands).results


def _normal_op(op: Op, rank: int) -> Op:
    if isinstance(op, Transpose):
        return Transpose(tuple(axis % rank for axis in op.permutation))
    if isinstance(op, ALONG_AN_AXIS):
        return dataclasses.replace(op, axis=op.axis % rank)
    assert isinstance(op, ALONG_AXES)
    return dataclasses.replace(op, axes=tuple(sorted(axis % rank for axis in op.axes)))


RULES: tuple[Rule, ...] = (
    *COMPARISONS,
    subtracted_constant,
    decomposed_alias,
    counted_from_the_front,
)
