"""Data and shapes: weights, constants, reshapes, slices, joins."""

from __future__ import annotations

import math

import torch

from monograph.exporters.fx.emitter import TABLE, FxEmitter, Term
from monograph.frontends.torch.types import dtype_to_torch
from monograph.ir.dims import Dim, dim_max, dim_min
from monograph.ir.graph import Node
from monograph.ir.types import i64
from monograph.ops.data import Constant, DimValue, Full, Iota, Weight
from monograph.ops.joining import Concat, Split, Stack
from monograph.ops.shape import Expand, Reshape, Squeeze, Tile, Transpose, Unsqueeze
from monograph.ops.slicing import Flip, Pad, Roll, Slice


@TABLE.writes(Weight)
def _weight(emitter: FxEmitter, node: Node, op: Weight) -> Term:
    return emitter.parameter(op.label, op.data.array())


@TABLE.writes(Constant)
def _constant(emitter: FxEmitter, node: Node, op: Constant) -> Term:
    return emitter.constant(op.data.array(), node.result.name)


@TABLE.writes(Full)
def _full(emitter: FxEmitter, node: Node, op: Full) -> Term:
    shape, dtype = emitter.shape(op.shape), dtype_to_torch(op.dtype)
    element = op.element()
    if not math.isfinite(element):  # TorchScript has no word for it
        return emitter.method("expand", emitter.constant(element, "fill"), shape)
    return emitter.call(torch.full, shape, op.value, dtype=dtype)


@TABLE.writes(Iota)
def _iota(emitter: FxEmitter, node: Node, op: Iota) -> Term:
    """Counted in i64, which every other dtype is made of."""
    axis, rank = op.axis % len(op.shape), len(op.shape)
    counted = emitter.call(torch.arange, emitter.size(op.shape[axis]))
    if op.dtype is not i64:
        counted = emitter.cast(counted, op.dtype)
    if rank == 1:
        return counted
    column = [-1 if position == axis else 1 for position in range(rank)]
    return emitter.method(
        "expand", emitter.method("view", counted, column), emitter.shape(op.shape)
    )


@TABLE.writes(DimValue)
def _dim(emitter: FxEmitter, node: Node, op: DimValue) -> Term:
    return emitter.call(torch.full, [], emitter.size(op.value), dtype=torch.int64)


@TABLE.writes(Reshape)
def _reshape(emitter: FxEmitter, node: Node, op: Reshape) -> Term:
    return emitter.call(torch.reshape, *emitter.operands(node), emitter.shape(op.shape))


@TABLE.writes(Squeeze)
def _squeeze(emitter: FxEmitter, node: Node, op: Squeeze) -> Term:
    shape = emitter.shape(node.result.shape)
    return emitter.call(torch.reshape, *emitter.operands(node), shape)


@TABLE.writes(Unsqueeze)
def _unsqueeze(emitter: FxEmitter, node: Node, op: Unsqueeze) -> Term:
    (made,) = emitter.operands(node)
    for axis in sorted(axis % node.result.rank for axis in op.axes):
        made = emitter.call(torch.unsqueeze, made, axis)
    return made


@TABLE.writes(Expand)
def _expand(emitter: FxEmitter, node: Node, op: Expand) -> Term:
    return emitter.method("expand", *emitter.operands(node), emitter.shape(op.shape))


@TABLE.writes(Tile)
def _tile(emitter: FxEmitter, node: Node, op: Tile) -> Term:
    return emitter.method("repeat", *emitter.operands(node), emitter.shape(op.repeats))


@TABLE.writes(Transpose)
def _transpose(emitter: FxEmitter, node: Node, op: Transpose) -> Term:
    order = [axis % node.result.rank for axis in op.permutation]
    return emitter.call(torch.permute, *emitter.operands(node), order)


@TABLE.writes(Flip)
def _flip(emitter: FxEmitter, node: Node, op: Flip) -> Term:
    return emitter.call(torch.flip, *emitter.operands(node), list(op.axes))


@TABLE.writes(Roll)
def _roll(emitter: FxEmitter, node: Node, op: Roll) -> Term:
    shifts = emitter.shape(op.shifts)
    if not op.axes:
        return emitter.operands(node)[0]
    return emitter.call(torch.roll, *emitter.operands(node), shifts, list(op.axes))


@TABLE.writes(Concat)
def _concat(emitter: FxEmitter, node: Node, op: Concat) -> Term:
    return emitter.call(torch.cat, emitter.operands(node), op.axis)


@TABLE.writes(Stack)
def _stack(emitter: FxEmitter, node: Node, op: Stack) -> Term:
    return emitter.call(torch.stack, emitter.operands(node), op.axis)


@TABLE.writes(Split)
def _split(emitter: FxEmitter, node: Node, op: Split) -> list[Term]:
    (x,) = emitter.operands(node)
    parts = emitter.call(torch.ops.aten.split_with_sizes, x, emitter.shape(op.sizes), op.axis)
    return emitter.unpack(parts, len(op.sizes))


@TABLE.writes(Slice)
def _slice(emitter: FxEmitter, node: Node, op: Slice) -> Term:
    (made,) = emitter.operands(node)
    ranges = zip(op.starts, op.limits, op.steps, node.operands[0].shape, strict=True)
    for axis, (start, limit, step, size) in enumerate(ranges):
        first, last = _inside(start, size), _inside(limit, size)
        if first == 0 and last == size and step == 1:
            continue
        end = dim_max(first, last)
        bounds = (emitter.size(first), emitter.size(end))
        made = emitter.call(torch.ops.aten.slice, made, axis, *bounds, step)
    return made


def _inside(position: Dim, size: Dim) -> Dim:
    return dim_min(dim_max(position, 0), size)


@TABLE.writes(Pad)
def _pad(emitter: FxEmitter, node: Node, op: Pad) -> Term:
    """What goes between elements is a larger tensor that they are written into first."""
    (made,) = emitter.operands(node)
    shape = node.operands[0].shape
    dtype = dtype_to_torch(node.result.dtype)
    for axis, between in enumerate(op.interior):
        if not between or shape[axis] in (0, 1):
            continue
        size = shape[axis]
        grown = (*shape[:axis], size * (between + 1), *shape[axis + 1 :])
        parts = (*shape[: axis + 1], between, *shape[axis + 1 :])
        filling = emitter.call(torch.full, emitter.shape(parts), op.value, dtype=dtype)
        spread = emitter.call(
            torch.cat, [emitter.call(torch.unsqueeze, made, axis + 1), filling], axis + 1
        )
        whole = emitter.call(torch.reshape, spread, emitter.shape(grown))
        shape = (*shape[:axis], size * (between + 1) - between, *shape[axis + 1 :])
        made = emitter.call(torch.narrow, whole, axis, 0, emitter.size(shape[axis]))
    amounts = [each for pair in reversed(list(zip(op.low, op.high, strict=True))) for each in pair]
    cropped: list[Dim] = [min(each, 0) if isinstance(each, int) else 0 for each in amounts]
    widened = [each if crop == 0 else 0 for each, crop in zip(amounts, cropped, strict=True)]
    for step in (widened, cropped):  # what is cropped may be more than there was at first
        if any(each != 0 for each in step):
            sizes = emitter.shape(tuple(step))
            made = emitter.call(torch.ops.aten.constant_pad_nd, made, sizes, op.value)
    return made
