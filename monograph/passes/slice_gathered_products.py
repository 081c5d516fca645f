"""Slices a product to the rows and columns that a gather with constant indices reads.

A table of relative positions has a row for every distance that a model may meet, and a short text
meets few of them. Models multiply by the whole table and then pick scores by their distance. The
distances are arithmetic on positions, so they are known when the program is compiled:

    take_along_axis(q @ table, at)   ──▶   take_along_axis(q @ table[385:640], at - 385)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.dims import shape_product
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.op import Op, Trait
from monograph.ops import slicing
from monograph.ops.index import TakeAlongAxis
from monograph.ops.linalg import DotGeneral, Linear, Matmul
from monograph.ops.shape import Expand, Reshape, Transpose
from monograph.passes.base import Pass, PassResult
from monograph.rewrite.constant_evaluator import ConstantEvaluator

PRODUCTS = (DotGeneral, Linear, Matmul)
MAX_SLICED_SHARE = 0.75
"""The share of an axis up to which reading a part of it is worth a slice."""
MAX_NODES_PASSED = 16
"""Nodes above a gather that a slice passes, at most."""


@dataclass(frozen=True)
class SliceGatheredProducts(Pass):
    """Let a product that only a gather reads have the columns (or rows) that are gathered.

        %p = matmul(%q, %t) : f32[4, 90]               %s = slice(%t) {…} : f32[8, 3]
        %y = take_along_axis(%p, %i)           ─▶      %p = matmul(%q, %s) : f32[4, 3]
            {axis = 1} : f32[4, 2]                     %j = subtract(%i, %c) : i64[4, 2]
                                                       %y = take_along_axis(%p, %j) {axis = 1} : …

    The slice goes as far up as values have one reader: through elementwise ops, transposes,
    reshapes that keep the axis, and products. Gathers of what no product makes stay as they are.
    """

    name: ClassVar[str] = "slice_gathered_products"

    def run(self, graph: Graph) -> PassResult:
        """Narrow, in regions too."""
        narrowed = 0
        known = ConstantEvaluator()
        for node in list(graph.walk()):
            if isinstance(node.op, TakeAlongAxis):
                narrowed += _narrow(node, node.op, known)
        return PassResult(narrowed > 0, {"narrowed": narrowed})


def _narrow(node: Node, op: TakeAlongAxis, known: ConstantEvaluator) -> bool:
    """Replace one gather by one of less, if it is known to read little of a product."""
    x, indices = node.operands
    axis = op.axis % x.rank
    part = _find_gathered_range(x, axis, indices, known) if _is_product(x, axis) else None
    if part is None:
        return False
    start, limit = part
    with node.graph.inserting_before(node, node.location):
        less = _cut(x, axis, start, limit)
        places = _shift_positions(indices, start) if start else indices
        result = node.graph.create(op, (less, places)).result
    name = node.result.name
    node.graph.replace(node, [result])
    node.graph.rename(result, name)
    return True


def _shift_positions(indices: Value, start: int) -> Value:
    """Positions counted from another start; of what is spread, before it is."""
    node = indices.producer
    if node is None or not isinstance(node.op, Expand):
        return indices - start
    return node.graph.create(node.op, (node.operands[0] - start,)).result


def _find_gathered_range(
    x: Value, axis: int, indices: Value, known: ConstantEvaluator
) -> tuple[int, int] | None:
    """From where to where an axis is read, if that is known and little of it."""
    size = x.shape[axis]
    if not isinstance(size, int):
        return None
    contents = known.contents(indices)
    if contents is None or contents.size == 0:
        return None
    start, limit = int(np.min(contents)), int(np.max(contents)) + 1
    is_inside = start >= 0 and limit <= size
    return (start, limit) if is_inside and limit - start <= MAX_SLICED_SHARE * size else None


def _is_product(value: Value, axis: int, reach: int = MAX_NODES_PASSED) -> bool:
    """Whether narrowing a value along an axis narrows a product."""
    node = value.producer
    axes = _operand_axes(value, axis) if reach else None
    if node is None or axes is None:
        return False
    if isinstance(node.op, PRODUCTS):
        return True
    above = zip(node.operands, axes, strict=True)
    return any(_is_product(operand, each, reach - 1) for operand, each in above if each is not None)


def _cut(value: Value, axis: int, start: int, limit: int, reach: int = MAX_NODES_PASSED) -> Value:
    """A part of a value along an axis, computed of parts of what the value is computed of."""
    node = value.producer
    axes = _operand_axes(value, axis) if reach else None
    if node is None or axes is None:
        return slicing.slice(value, (start,), (limit,), axes=(axis,))
    operands = [
        operand if each is None else _cut(operand, each, start, limit, reach - 1)
        for operand, each in zip(node.operands, axes, strict=True)
    ]
    op: Op = node.op
    if isinstance(op, Reshape):
        op = replace(op, shape=(*op.shape[:axis], limit - start, *op.shape[axis + 1 :]))
    return node.graph.create(op, operands, location=node.location).result


def _operand_axes(value: Value, axis: int) -> Sequence[int | None] | None:
    """For each operand of what makes a value, the axis that is the value's; None: all is needed.

    None for all of them if the value has other readers, or its op mixes the axis with others.
    """
    node = value.producer
    if node is None or len(value.uses) != 1 or len(node.results) != 1:
        return None
    op = node.op
    if op.has(Trait.ELEMENTWISE):
        return [_align_axis(operand, axis - value.rank) for operand in node.operands]
    if isinstance(op, Transpose):
        return [op.permutation[axis] % value.rank]
    if isinstance(op, Reshape):
        return _trace_axis_through_reshape(node.operands[0], value, axis)
    if isinstance(op, Linear):
        is_last = axis == value.rank - 1
        axes = [None, 0, 0] if is_last else [axis, None, None]
        return axes[: len(node.operands)]
    return _factor_axes(node, axis) if isinstance(op, Matmul | DotGeneral) else None


def _align_axis(operand: Value, from_end: int) -> int | None:
    """The axis of a broadcast operand, counted from the end; None if it is the same all along."""
    axis = operand.rank + from_end
    return None if axis < 0 or operand.shape[axis] == 1 else axis


def _trace_axis_through_reshape(source: Value, value: Value, axis: int) -> Sequence[int] | None:
    """The axis of what is reshaped that stays one, with as many elements before it."""
    before, size = shape_product(value.shape[:axis]), value.shape[axis]
    for each, dim in enumerate(source.shape):
        if dim == size and shape_product(source.shape[:each]) == before:
            return [each]
    return None


def _factor_axes(node: Node, axis: int) -> Sequence[int | None] | None:
    """The axis of the one factor that has it; the axes of a batch are left whole."""
    left, right = node.operands
    if isinstance(node.op, Matmul):
        from_end = axis - node.result.rank
        if left.rank < 2 or right.rank < 2 or from_end < -2:
            return None
        return [None, right.rank - 1] if from_end == -1 else [left.rank - 2, None]
    assert isinstance(node.op, DotGeneral)
    left_free, right_free = node.op.free_axes(left.rank, right.rank)
    place = axis - len(node.op.lhs_batch)
    if place < 0:
        return None
    if place < len(left_free):
        return [left_free[place], None]
    return [None, right_free[place - len(left_free)]]
