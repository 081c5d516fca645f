"""Reading and writing at positions that are data: gather and scatter in their general form."""

from __future__ import annotations

from collections.abc import Sequence

from monograph import functional as F
from monograph.exporters.stablehlo.emitter import TABLE, Emitter, Term
from monograph.exporters.stablehlo.sizes import is_known, write_integers
from monograph.ir.dims import Dim, Shape
from monograph.ir.graph import Node, Value
from monograph.ir.types import Kind, TensorType, i64, wide
from monograph.ops.index.lookup import Embedding
from monograph.ops.index.reading import Gather, Take, TakeAlongAxis
from monograph.ops.index.writing import PutAlongAxis, Scatter

WORDS = {"add": "add", "multiply": "multiply", "max": "maximum", "min": "minimum"}


def _positions(emitter: Emitter, indices: Term, sizes: Sequence[Dim]) -> Term:
    """Index vectors as i64, those below zero counted from the end of their axis."""
    wide_ = emitter.convert(indices, i64)
    if indices.type.dtype.kind is Kind.UNSIGNED or not sizes:
        return wide_
    row = emitter.sizes.vector(sizes)
    moved = emitter.binary("add", wide_, emitter.broadcast(row, wide_.type.shape))
    below = emitter.compare("LT", wide_, emitter.filled(0, wide_.type))
    return emitter.select(below, moved, wide_)


def _gather(
    emitter: Emitter,
    x: Term,
    indices: Term,
    axes: Sequence[int],
    offsets: Sequence[int],
    result: TensorType,
) -> Term:
    """Slices of ``x`` at index vectors into ``axes``, put at ``offsets`` of the result."""
    if result.size == 0:
        return emitter.filled(0, result)
    sizes = [1 if axis in axes else dim for axis, dim in enumerate(x.type.shape)]
    dimensions = (
        f"offset_dims = {list(offsets)}, collapsed_slice_dims = {sorted(axes)}, "
        f"start_index_map = {list(axes)}, index_vector_dim = {indices.type.rank - 1}"
    )
    attributes = f"dimension_numbers = #stablehlo.gather<{dimensions}>, indices_are_sorted = false"
    if not is_known(sizes):
        widths = emitter.sizes.vector(sizes)
        return emitter.op("dynamic_gather", [x, indices, widths], result, attributes)
    attributes += f", slice_sizes = {write_integers(sizes)}"
    return emitter.op("gather", [x, indices], result, attributes)


@TABLE.writes(Take)
def _take(emitter: Emitter, node: Node, op: Take) -> Term:
    x, indices = emitter.operands(node)
    axis = op.axis % x.type.rank
    column = emitter.reshape(indices, (*indices.type.shape, 1))
    places = _positions(emitter, column, [x.type.shape[axis]])
    places_rank = indices.type.rank
    offsets = [k for k in range(node.result.rank) if not axis <= k < axis + places_rank]
    return _gather(emitter, x, places, [axis], offsets, node.result.tensor)


@TABLE.expands(Embedding)
def _embedding(op: Embedding, table: Value, indices: Value) -> Value:
    return F.take(table, indices, 0)


@TABLE.writes(Gather)
def _gather_vectors(emitter: Emitter, node: Node, op: Gather) -> Term:
    x, indices = emitter.operands(node)
    depth, first = _depth(indices), op.batch_dims
    sizes = x.type.shape[first : first + depth]
    places = _positions(emitter, indices, sizes)
    columns = [emitter.iota((*indices.type.shape[:-1], 1), axis) for axis in range(first)]
    places = _join(emitter, [*columns, places])
    offsets = range(indices.type.rank - 1, node.result.rank)
    return _gather(
        emitter, x, places, list(range(first + depth)), list(offsets), node.result.tensor
    )


def _depth(indices: Term) -> int:
    """How many numbers an index vector has."""
    size = indices.type.shape[-1]
    assert isinstance(size, int)  # the ops' type rules see to it
    return size


def _join(emitter: Emitter, parts: Sequence[Term]) -> Term:
    """Index vectors of several columns."""
    if len(parts) == 1:
        return parts[0]
    width = sum(map(_depth, parts))
    shape = (*parts[0].type.shape[:-1], width)
    attribute = f"dimension = {len(shape) - 1} : i64"
    return emitter.op("concatenate", parts, TensorType(i64, shape), attribute)


def _along(emitter: Emitter, indices: Term, x: Term, axis: int) -> Term:
    """For each element of ``indices``, the whole vector of its place in ``x``."""
    column: Shape = (*indices.type.shape, 1)
    own = _positions(emitter, emitter.reshape(indices, column), [x.type.shape[axis]])
    parts = [own if each == axis else emitter.iota(column, each) for each in range(x.type.rank)]
    return _join(emitter, parts)


@TABLE.writes(TakeAlongAxis)
def _take_along_axis(emitter: Emitter, node: Node, op: TakeAlongAxis) -> Term:
    x, indices = emitter.operands(node)
    places = _along(emitter, indices, x, op.axis % x.type.rank)
    return _gather(emitter, x, places, list(range(x.type.rank)), [], node.result.tensor)


def _scatter(
    emitter: Emitter, mode: str, x: Term, places: Term, updates: Term, axes: Sequence[int]
) -> Term:
    """Updates joined in at index vectors into the leading ``axes``, in order."""
    scalar = x.type.with_shape(())

    def join(pair: list[Term]) -> list[Term]:
        return [pair[1] if mode == "set" else emitter.binary(WORDS[mode], *pair)]

    windows = list(range(places.type.rank - 1, updates.type.rank))
    dimensions = (
        f"update_window_dims = {windows}, inserted_window_dims = {list(axes)}, "
        f"scatter_dims_to_operand_dims = {list(axes)}, "
        f"index_vector_dim = {places.type.rank - 1}"
    )
    attributes = (
        f"scatter_dimension_numbers = #stablehlo.scatter<{dimensions}>, "
        "indices_are_sorted = false, unique_indices = false"
    )
    region = emitter.block([scalar, scalar], join)
    return emitter.op("scatter", [x, places, updates], x.type, attributes, region)


def _write(emitter: Emitter, node: Node, mode: str, places: Term, axes: Sequence[int]) -> Term:
    x, _, updates = emitter.operands(node)
    exact = wide(x.type.dtype) if mode in ("add", "multiply") else x.type.dtype
    target, values = (emitter.convert(each, exact) for each in (x, updates))
    made = _scatter(emitter, mode, target, places, values, axes)
    return emitter.convert(made, x.type.dtype)


@TABLE.writes(Scatter)
def _scatter_vectors(emitter: Emitter, node: Node, op: Scatter) -> Term:
    x, indices, _ = emitter.operands(node)
    depth = _depth(indices)
    places = _positions(emitter, indices, x.type.shape[:depth])
    return _write(emitter, node, op.mode, places, list(range(depth)))


@TABLE.writes(PutAlongAxis)
def _put_along_axis(emitter: Emitter, node: Node, op: PutAlongAxis) -> Term:
    x, indices, _ = emitter.operands(node)
    places = _along(emitter, indices, x, op.axis % x.type.rank)
    return _write(emitter, node, op.mode, places, list(range(x.type.rank)))
