"""Reshape, expand, transpose, slice, pad, concat and their relatives.

Positions and amounts may be symbolic; constants are written wherever they can say the same.
"""

from __future__ import annotations

import numpy as np

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, exports
from monograph.exporters.onnx.scope import Term
from monograph.ir.dims import Dim, Shape, dim_max, dim_min, provably_at_least
from monograph.ops import joining, memory, slicing, triangle
from monograph.ops import shape as s

LAST = np.iinfo(np.int64).max
BEFORE_FIRST = np.iinfo(np.int64).min


@exports(s.Reshape)
def reshape(node: ExportContext[s.Reshape]) -> Exported:
    """reshape → Reshape."""
    return node.reshape(node.inputs[0], node.shape(), node.op.shape)


@exports(s.Expand)
def expand(node: ExportContext[s.Expand]) -> Exported:
    """expand → Expand."""
    return node.expand(node.inputs[0], node.shape(), node.op.shape)


@exports(s.Transpose)
def transpose(node: ExportContext[s.Transpose]) -> Exported:
    """transpose → Transpose."""
    return node.transpose(node.inputs[0], [axis % node.rank for axis in node.op.permutation])


@exports(s.Squeeze)
def squeeze(node: ExportContext[s.Squeeze]) -> Exported:
    """squeeze → Squeeze."""
    axes = sorted(axis % node.rank for axis in node.op.axes)
    return node.emit("Squeeze", node.inputs[0], node.integers(axes)) if axes else node.inputs[0]


@exports(s.Unsqueeze)
def unsqueeze(node: ExportContext[s.Unsqueeze]) -> Exported:
    """unsqueeze → Unsqueeze."""
    axes = sorted(axis % node.result.rank for axis in node.op.axes)
    return node.emit("Unsqueeze", node.inputs[0], node.integers(axes)) if axes else node.inputs[0]


@exports(s.Tile)
def tile(node: ExportContext[s.Tile]) -> Exported:
    """tile → Tile."""
    if not node.op.repeats:
        return node.inputs[0]
    return node.emit("Tile", node.inputs[0], node.sizes(node.op.repeats))


@exports(memory.Copy)
def copy(node: ExportContext[memory.Copy]) -> Exported:
    """copy → Identity."""
    return node.emit("Identity", *node.inputs)


# Parts --------------------------------------------------------------------------------------------


@exports(slicing.Slice)
def slice_(node: ExportContext[slicing.Slice]) -> Exported:
    """Only the axes that are cut; what lies before the front is moved to it first."""
    op, shape = node.op, node.shape()
    ranges = zip(op.starts, op.limits, op.steps, shape, strict=True)
    cut = [
        (axis, dim_max(start, 0), dim_max(limit, 0), step)
        for axis, (start, limit, step, dim) in enumerate(ranges)
        if not (start == 0 and step == 1 and (limit == dim or _reaches_end(limit, dim)))
    ]
    if not cut:
        return node.inputs[0]
    axes, starts, limits, steps = zip(*cut, strict=True)
    return node.emit(
        "Slice",
        node.inputs[0],
        _positions(node, starts),
        _positions(node, limits),
        node.integers(axes),
        node.integers(steps),
    )


def _reaches_end(limit: Dim, dim: Dim) -> bool:
    return provably_at_least(limit, dim)


def _positions(node: ExportContext[slicing.Slice], positions: Shape) -> Term:
    return node.sizes(tuple(min(p, LAST) if isinstance(p, int) else p for p in positions))


@exports(slicing.Flip)
def flip(node: ExportContext[slicing.Flip]) -> Exported:
    """flip → Slice, backwards."""
    axes = sorted(axis % node.rank for axis in node.op.axes)
    if not axes:
        return node.inputs[0]
    ends = (node.integers([bound] * len(axes)) for bound in (LAST, BEFORE_FIRST))
    backwards = node.integers([-1] * len(axes))
    return node.emit("Slice", node.inputs[0], *ends, node.integers(axes), backwards)


@exports(slicing.Pad)
def pad(node: ExportContext[slicing.Pad]) -> Exported:
    """What goes between elements goes behind each first, and is cropped at the end."""
    op = node.op
    fill = node.number(op.value, node.dtype)
    x, shape = node.inputs[0], node.shape()
    low, high = op.low, op.high
    for axis, amount in enumerate(op.interior):
        if amount:
            x, shape = _interleave(node, x, shape, axis, amount, fill)
            behind_last = dim_min(node.shape()[axis], 1) * amount
            high = (*high[:axis], high[axis] - behind_last, *high[axis + 1 :])
    if all(amount == 0 for amount in (*low, *high)):
        return x
    return node.emit("Pad", x, node.sizes((*low, *high)), fill)


def _interleave(
    node: ExportContext[slicing.Pad], x: Term, shape: Shape, axis: int, amount: int, fill: Term
) -> tuple[Term, Shape]:
    """Each element of an axis followed by ``amount`` of ``fill``."""
    apart = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    padded = (*shape[: axis + 1], 1 + amount, *shape[axis + 1 :])
    joined = (*shape[:axis], shape[axis] * (1 + amount), *shape[axis + 1 :])
    pads = [0] * (2 * len(apart))
    pads[len(apart) + axis + 1] = amount
    spread = node.emit("Pad", node.reshape(x, shape, apart), node.integers(pads), fill)
    return node.reshape(spread, padded, joined), joined


@exports(slicing.PadBorder)
def pad_border(node: ExportContext[slicing.PadBorder]) -> Exported:
    """ONNX Runtime crops before it looks how wide a border can be; crops are decomposed."""
    op = node.op
    amounts = (*op.low, *op.high)
    if not amounts:
        return node.inputs[0]
    if op.mode == "wrap" and node.opset < 19:
        return None
    filled = all(provably_at_least(amount, 0) for amount in amounts)
    if not filled or not all(provably_at_least(dim, 1) for dim in node.shape()):
        return None
    return node.emit("Pad", node.inputs[0], node.sizes(amounts), mode=op.mode)


@exports(triangle.Tril, triangle.Triu)
def triangle_(node: ExportContext[triangle.Tril]) -> Exported:
    """tril, triu → Trilu."""
    diagonal = node.scalar_size(node.op.diagonal)
    return node.emit("Trilu", node.inputs[0], diagonal, upper=int(node.op.name == "triu"))


# Joining ------------------------------------------------------------------------------------------


@exports(joining.Concat)
def concat(node: ExportContext[joining.Concat]) -> Exported:
    """concat → Concat."""
    return node.emit("Concat", *node.inputs, axis=node.op.axis % node.rank)


@exports(joining.Split)
def split(node: ExportContext[joining.Split]) -> Exported:
    """split → Split."""
    sizes = node.op.sizes
    if len(sizes) == 1:
        return node.inputs[0]
    axis = node.op.axis % node.rank
    if not node.runs("Split", node.dtype):
        return None
    operands = (node.inputs[0], node.sizes(sizes))
    return node.emit_many("Split", *operands, dtypes=[None] * len(sizes), axis=axis)
