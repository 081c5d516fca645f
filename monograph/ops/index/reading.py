"""Reading at positions that are data: gather, take, take_along_axis."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from monograph.ir.build import Operand, apply, as_operands, cast_to, graph_of
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, i64
from monograph.ops import data, index, joining
from monograph.ops import shape as shape_ops
from monograph.ops.index.rules import (
    broadcast_beside,
    check_alongside,
    check_index,
    check_shape,
    flat_index,
    flat_index_along,
    vector_length,
)
from monograph.ops.rules import normalize_axis, require, require_integer, same_dim


@op("gather", traits=Trait.STORAGE)
class Gather(Op):
    """The parts of ``x`` that index vectors name; ONNX knows it as GatherND.

    The last dimension of ``indices`` is a vector of k indices into the k axes of ``x`` that follow
    the ``batch_dims`` leading ones, which both operands share.
    """

    batch_dims: int = 0

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        require_integer(self.name, indices)
        batch_dims = self.batch_dims
        require(
            0 <= batch_dims < indices.rank and batch_dims <= x.rank,
            "gather: wrong number of batch dimensions",
            expected="batch dimensions in both operands, and one more in indices",
            found=f"batch_dims = {batch_dims} with {x} and {indices}",
        )
        depth = vector_length(self.name, x, indices, batch_dims)
        batch = [
            same_dim(self.name, f"the operands' dimensions {axis}", x.shape[axis], dim)
            for axis, dim in enumerate(indices.shape[:batch_dims])
        ]
        return x.with_shape((*batch, *indices.shape[batch_dims:-1], *x.shape[batch_dims + depth :]))

    def evaluate(self, x: Array, indices: Array) -> Array:
        first, last = self.batch_dims, self.batch_dims + indices.shape[-1]
        batch, indexed, rest = x.shape[:first], x.shape[first:last], x.shape[last:]
        check_shape(self.name, "the indices' batch", indices.shape[:first], batch)
        places = indices.shape[:-1]
        flat = flat_index(self.name, np.moveaxis(indices, -1, 0), places, indexed, first)
        table = x.reshape(prod(batch), prod(indexed), *rest)
        rows = flat.reshape(prod(batch), prod(places[first:]))
        return table[np.arange(prod(batch))[:, None], rows].reshape(places + rest)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        x, indices = b.operands
        first, places = self.batch_dims, indices.rank - 1
        depth = vector_length(self.name, x, indices, first)
        vector = [
            b.checked(b.read(1, [*index[:places], b.index(k)]), x.shape[first + k])
            for k in range(depth)
        ]
        return b.read(0, [*index[:first], *vector, *index[places:]])

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x, indices = node.operands
        complete = _with_batch_coordinates(indices, self.batch_dims)
        return apply(index.Scatter("add"), data.zeros_like(x), complete, grad), None

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
        pairs = np.array([[0, 1], [2, -1], [0, 1], [-3, 0]])
        yield Sample(cls(), (x, pairs))
        yield Sample(cls(), (x, pairs[:, :1].astype(np.int8)), "rows")
        yield Sample(cls(), (x[:2], np.array([1, 3, -5], np.int32)), "one element")
        yield Sample(cls(), (x, np.zeros((2, 0), np.int64)), "no index, the whole")
        yield Sample(cls(1), (x, np.array([[[0], [3]], [[1], [1]], [[-1], [2]]])), "batch")
        yield Sample(cls(2), (x, (np.arange(24).reshape(3, 4, 2, 1) * 7) % 5), "two batch axes")
        yield Sample(cls(), (x.T[::2], pairs[::-2, ::-1].astype(np.uint8) % 3), "strided")
        empty = np.zeros((0, 4), np.float32)
        yield Sample(cls(), (empty, np.zeros((5, 0, 1), np.int64)), "empty", False)


@function
def gather(x: Operand, indices: Operand, batch_dims: int = 0) -> Value:
    """``x[indices[..., 0], indices[..., 1], …]`` for each vector in the last dimension."""
    return apply(Gather(batch_dims), x, indices)


def _with_batch_coordinates(indices: Value, batch_dims: int) -> Value:
    """Index vectors with their own position in the batch dimensions put in front."""
    if not batch_dims:
        return indices
    column = (*indices.shape[:-1], 1)
    coordinates = [data.iota(column, axis) for axis in range(batch_dims)]
    return joining.concat([*coordinates, cast_to(indices, i64)], -1)


@op("take", traits=Trait.STORAGE)
class Take(Op):
    """The slices of ``x`` at ``indices`` along ``axis``, which gives way to their dimensions."""

    axis: int = 0

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        require_integer(self.name, indices)
        axis = normalize_axis(self.name, self.axis, x.rank)
        return x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))

    def holds_at_all_sizes(self, x: TensorType, indices: TensorType) -> bool:
        return True  # indices are checked as they are read

    def evaluate(self, x: Array, indices: Array) -> Array:
        axis = self.axis % x.ndim
        return np.take(x, check_index(self.name, indices, x.shape[axis], axis), axis)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        x, indices = b.operands
        axis = self.axis % x.rank
        behind = axis + indices.rank
        along = b.checked(b.read(1, index[axis:behind]), x.shape[axis])
        return b.read(0, [*index[:axis], along, *index[behind:]])

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x, indices = node.operands
        axis, places = self.axis % x.rank, indices.rank
        # Scatter writes along leading axes: bring the axis there, and take it back afterwards.
        moved = (axis, *range(axis), *range(axis + 1, x.rank))
        inner = range(axis, axis + places)
        updates = shape_ops.transpose(
            grad, (*inner, *(a for a in range(grad.rank) if a not in inner))
        )
        zeros = data.zeros([x.shape[a] for a in moved], x.dtype)
        total = apply(index.Scatter("add"), zeros, shape_ops.unsqueeze(indices, -1), updates)
        return shape_ops.transpose(total, tuple(map(moved.index, range(x.rank)))), None

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
        yield Sample(cls(0), (x, np.array([2, 0, 2, -1])))
        yield Sample(cls(1), (x, np.array([[3, -4], [1, 1]], np.int8)), "a matrix of indices")
        yield Sample(cls(-1), (x, np.array(3, np.uint32)), "one index")
        yield Sample(cls(2), (x.T[::2, ::-1], np.array([0, 9, 2, 9, 1])[::2]), "strided")
        yield Sample(cls(0), (x, np.zeros((0, 2), np.int64)), "no index", False)
        yield Sample(cls(0), (np.zeros((0, 2), np.float32), np.zeros(0, np.int64)), "empty", False)
        special = np.array([np.nan, -0.0, np.inf], np.float32)
        yield Sample(cls(0), (special, np.array([1, 0, 2, 0])), "special", False)
        yield Sample(cls(0), (np.array([True, False]), np.array([1, 1, 0])), "bool")


@function
def take(x: Operand, indices: Operand, axis: int = 0) -> Value:
    """The slices of ``x`` at ``indices`` along ``axis``."""
    value, places = as_operands(graph_of([x, indices]), [x, indices])
    return apply(Take(normalize_axis("take", axis, value.rank)), value, places)


@op("take_along_axis", traits=Trait.STORAGE)
class TakeAlongAxis(Op):
    """For each element of ``indices``, the element of ``x`` there along ``axis``.

    On the other axes the position stays; ``indices`` may be smaller than ``x`` on them. ONNX knows
    it as GatherElements.
    """

    axis: int

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        check_alongside(self.name, self.axis, x, indices)
        return x.with_shape(indices.shape)

    def evaluate(self, x: Array, indices: Array) -> Array:
        flat = flat_index_along(self.name, x, indices, self.axis)
        return x.reshape(-1)[flat]

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        x, axis = b.operands[0], self.axis % len(index)
        along = b.checked(b.read(1, index), x.shape[axis])
        return b.read(0, [*index[:axis], along, *index[axis + 1 :]])

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x, indices = node.operands
        return apply(index.PutAlongAxis(self.axis, "add"), data.zeros_like(x), indices, grad), None

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
        yield Sample(cls(1), (x, np.array([[0, 3, -1, 0, 2]] * 3)))
        yield Sample(cls(0), (x, np.array([[2, 0, -3, 1]] * 2, np.int8)), "first axis")
        yield Sample(cls(-1), (x, np.array([[1], [0]], np.uint8)), "a corner")
        yield Sample(cls(0), (x.T[::2], np.array([[0, 1, -1]] * 4)[::3]), "strided")
        yield Sample(cls(1), (x, np.zeros((3, 0), np.int64)), "no index", False)
        yield Sample(cls(0), (x[:0], np.zeros((0, 4), np.int64)), "empty", False)


@function
def take_along_axis(x: Operand, indices: Operand, axis: int) -> Value:
    """``x[..., indices[i], ...]`` at each position i; the other dimensions broadcast."""
    value, places = as_operands(graph_of([x, indices]), [x, indices])
    normal = normalize_axis("take_along_axis", axis, value.rank)
    value, places = broadcast_beside(value, places, normal)
    return apply(TakeAlongAxis(normal), value, places)
