"""Reading and writing at positions that are data."""

from __future__ import annotations

import operator

import torch

from monograph.exporters.fx.emitter import TABLE, FxEmitter, Term
from monograph.ir.dims import Dim
from monograph.ir.graph import Node, Value
from monograph.ir.types import Kind, i64
from monograph.ops.index.lookup import Embedding, Nonzero
from monograph.ops.index.reading import Gather, Take, TakeAlongAxis
from monograph.ops.index.writing import PutAlongAxis, Scatter
from monograph.ops.reduce.extremum import Argmax, Argmin
from monograph.ops.sorting import Argsort, TopKIndices

REDUCTIONS = {"add": "sum", "multiply": "prod", "max": "amax", "min": "amin"}

POSITIONS = (Argmax, Argmin, Argsort, Nonzero, TopKIndices)
"""Ops whose results are positions, which are never below zero."""


def _positions(emitter: FxEmitter, term: Term, node: Node, size: Dim) -> Term:
    """Indices as i64, those below zero counted from the end."""
    indices = node.operands[1]
    wide = term if indices.dtype is i64 else emitter.cast(term, i64)
    if indices.dtype.kind is Kind.UNSIGNED or isinstance(indices.op, POSITIONS):
        return wide
    return emitter.call(torch.remainder, wide, emitter.size(size))


def _is_order_of(indices: Value, x: Value, axis: int) -> bool:
    """Whether indices are those that sort ``x`` along an axis."""
    if indices.producer is None or not isinstance(indices.op, Argsort):
        return False
    (source,) = indices.producer.operands
    return source is x and indices.op.axis % x.rank == axis % x.rank


def _refuse_empty(node: Node) -> str | None:
    if any(dim == 0 for dim in node.operands[0].shape):
        return "torch's remainder does not divide by 0"
    return None


@TABLE.writes(Embedding, unless=_refuse_empty)
def _embedding(emitter: FxEmitter, node: Node, op: Embedding) -> Term:
    table, indices = emitter.operands(node)
    places = _positions(emitter, indices, node, node.operands[0].shape[0])
    return emitter.call(torch.nn.functional.embedding, places, table)


@TABLE.writes(Take, unless=_refuse_empty)
def _take(emitter: FxEmitter, node: Node, op: Take) -> Term:
    x, indices = emitter.operands(node)
    source = node.operands[0]
    axis = op.axis % source.rank
    places = _positions(emitter, indices, node, source.shape[axis])
    flat = places if node.operands[1].rank == 1 else emitter.call(torch.reshape, places, [-1])
    made = emitter.call(torch.index_select, x, axis, flat)
    if node.operands[1].rank == 1:
        return made
    return emitter.call(torch.reshape, made, emitter.shape(node.result.shape))


@TABLE.writes(TakeAlongAxis, unless=_refuse_empty)
def _take_along_axis(emitter: FxEmitter, node: Node, op: TakeAlongAxis) -> Term:
    x, indices = emitter.operands(node)
    if _is_order_of(node.operands[1], node.operands[0], op.axis):
        sorted_and_order, _ = indices.args
        return emitter.call(operator.getitem, sorted_and_order, 0)
    places = _positions(emitter, indices, node, node.operands[0].shape[op.axis])
    return emitter.call(torch.gather, x, op.axis, places)


@TABLE.writes(Gather, unless=_refuse_empty)
def _gather(emitter: FxEmitter, node: Node, op: Gather) -> Term:
    """torch's index: one tensor of positions for each axis, the batch axes counted along."""
    x, indices = emitter.operands(node)
    source, vectors = node.operands
    depth, first = vectors.shape[-1], op.batch_dims
    assert isinstance(depth, int)
    if depth + first == 0:
        return emitter.method("expand", x, emitter.shape(node.result.shape))
    positions = []
    for axis in range(first):
        counted = emitter.call(torch.arange, emitter.size(source.shape[axis]))
        column = [-1 if k == axis else 1 for k in range(vectors.rank - 1)]
        positions.append(emitter.method("view", counted, column))
    for k in range(depth):
        part = emitter.call(torch.select, indices, -1, k)
        positions.append(_positions(emitter, part, node, source.shape[first + k]))
    if depth == 0:
        positions = [
            emitter.method("expand", each, emitter.shape(vectors.shape[:-1])) for each in positions
        ]
    return emitter.call(torch.ops.aten.index, x, positions)


@TABLE.writes(PutAlongAxis, unless=_refuse_empty)
def _put_along_axis(emitter: FxEmitter, node: Node, op: PutAlongAxis) -> Term:
    x, indices, values = emitter.operands(node)
    places = _positions(emitter, indices, node, node.operands[0].shape[op.axis])
    if op.mode == "set":
        return emitter.call(torch.scatter, x, op.axis, places, values)
    if op.mode == "add":
        return emitter.call(torch.scatter_add, x, op.axis, places, values)
    how = REDUCTIONS[op.mode]
    return emitter.call(torch.scatter_reduce, x, op.axis, places, values, reduce=how)


def _refuse_scatter(node: Node) -> str | None:
    op = node.op
    assert isinstance(op, Scatter)
    if op.mode not in ("set", "add"):
        return "torch joins no rows by their products or extrema"
    if node.operands[1].shape[-1] == 0:
        return "torch wants an index"
    return _refuse_empty(node)


@TABLE.writes(Scatter, unless=_refuse_scatter)
def _scatter(emitter: FxEmitter, node: Node, op: Scatter) -> Term:
    x, indices, updates = emitter.operands(node)
    depth = node.operands[1].shape[-1]
    assert isinstance(depth, int)
    positions = [
        _positions(emitter, emitter.call(torch.select, indices, -1, k), node, node.result.shape[k])
        for k in range(depth)
    ]
    return emitter.call(torch.index_put, x, positions, updates, accumulate=op.mode == "add")


@TABLE.writes(Nonzero)
def _nonzero(emitter: FxEmitter, node: Node, op: Nonzero) -> Term:
    return emitter.call(torch.nonzero, *emitter.operands(node))
