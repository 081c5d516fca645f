"""Data and shapes."""

from __future__ import annotations

import numpy as np

from monograph.exporters.stablehlo.emitter import TABLE, Emitter, Term
from monograph.exporters.stablehlo.sizes import is_known, write_integers
from monograph.exporters.stablehlo.types import integers
from monograph.ir.data import Data
from monograph.ir.dims import dim_max, dim_min
from monograph.ir.graph import Node
from monograph.ir.op import Op
from monograph.ops.data import Constant, DimValue, Full, Iota, Weight
from monograph.ops.joining import Concat
from monograph.ops.shape import Expand, Reshape, Squeeze, Transpose, Unsqueeze
from monograph.ops.slicing import Flip, Pad, Slice


@TABLE.writes(Constant)
def _constant(emitter: Emitter, node: Node, op: Constant) -> Term:
    return _data(emitter, node, op.data)


@TABLE.writes(Weight)
def _weight(emitter: Emitter, node: Node, op: Weight) -> Term:
    return _data(emitter, node, op.data)


def _data(emitter: Emitter, node: Node, data: Data) -> Term:
    array = np.asarray(data.splat) if data.splat is not None else data.array()
    return emitter.literal(array, node.result.tensor)


@TABLE.writes(Full)
def _full(emitter: Emitter, node: Node, op: Full) -> Term:
    return emitter.filled(op.value, node.result.tensor)


@TABLE.writes(Iota)
def _iota(emitter: Emitter, node: Node, op: Iota) -> Term:
    return emitter.iota(op.shape, op.axis % node.result.rank, op.dtype)


@TABLE.writes(DimValue)
def _dim(emitter: Emitter, node: Node, op: DimValue) -> Term:
    if isinstance(op.value, int):
        return emitter.filled(op.value, node.result.tensor)
    return emitter.convert(emitter.sizes.size(op.value), node.result.dtype)


@TABLE.writes(Reshape, Squeeze, Unsqueeze)
def _reshape(emitter: Emitter, node: Node, op: Op) -> Term:
    return emitter.reshape(emitter.operands(node)[0], node.result.shape)


@TABLE.writes(Expand)
def _expand(emitter: Emitter, node: Node, op: Expand) -> Term:
    return emitter.broadcast(emitter.operands(node)[0], node.result.shape)


@TABLE.writes(Transpose)
def _transpose(emitter: Emitter, node: Node, op: Transpose) -> Term:
    order = [axis % node.result.rank for axis in op.permutation]
    return emitter.transpose(emitter.operands(node)[0], order)


@TABLE.writes(Flip)
def _flip(emitter: Emitter, node: Node, op: Flip) -> Term:
    axes = sorted(axis % node.result.rank for axis in op.axes)
    attribute = f"dimensions = {integers(axes)}"
    return emitter.op("reverse", emitter.operands(node), node.result.tensor, attribute)


@TABLE.writes(Concat)
def _concat(emitter: Emitter, node: Node, op: Concat) -> Term:
    attribute = f"dimension = {op.axis % node.result.rank} : i64"
    return emitter.op("concatenate", emitter.operands(node), node.result.tensor, attribute)


@TABLE.writes(Slice)
def _slice(emitter: Emitter, node: Node, op: Slice) -> Term:
    (x,) = emitter.operands(node)
    sizes = x.type.shape
    starts = [
        dim_min(dim_max(start, 0), size) for start, size in zip(op.starts, sizes, strict=True)
    ]
    bounds = zip(op.limits, starts, sizes, strict=True)
    limits = [dim_min(dim_max(limit, start), size) for limit, start, size in bounds]
    return emitter.slice(x, starts, limits, op.steps)


@TABLE.writes(Pad)
def _pad(emitter: Emitter, node: Node, op: Pad) -> Term:
    (x,) = emitter.operands(node)
    fill = emitter.number(op.value, x.type.dtype)
    interior = op.interior or (0,) * x.type.rank
    if not is_known([*op.low, *op.high]):
        amounts = [emitter.sizes.vector(each) for each in (op.low, op.high, interior)]
        return emitter.op("dynamic_pad", [x, fill, *amounts], node.result.tensor)
    attributes = (
        f"edge_padding_low = {write_integers(op.low)}, "
        f"edge_padding_high = {write_integers(op.high)}, "
        f"interior_padding = {integers(interior)}"
    )
    return emitter.op("pad", [x, fill], node.result.tensor, attributes)
