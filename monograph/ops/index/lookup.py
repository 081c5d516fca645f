"""Embeddings, one-hot vectors, and the positions of nonzero elements."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.ir.build import Operand, apply, cast_to
from monograph.ir.dims import Dim, Symbol, provably_less
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, DType, Kind, TensorType, bool_, dtype_of, f32, i64, string
from monograph.ops import data, elementwise, reduce
from monograph.ops import shape as shape_ops
from monograph.ops.index.reading import Take
from monograph.ops.index.rules import check_index
from monograph.ops.index.writing import scatter
from monograph.ops.rules import normalize_axis, require, require_integer, result_symbols


@op("embedding", traits=Trait.STORAGE)
class Embedding(Op):
    """Rows of a table. The row at ``padding_index``, if there is one, never learns."""

    padding_index: int | None = None

    def infer(self, table: TensorType, indices: TensorType) -> TensorType:
        require(
            table.rank == 2,
            "embedding: the table is not a matrix",
            expected="rank 2, [rows, features]",
            found=table,
        )
        require_integer(self.name, indices)
        rows, padding = table.shape[0], self.padding_index
        require(
            padding is None
            or not (provably_less(rows, padding + 1) or provably_less(padding, -rows)),
            "embedding: the padding index is not a row",
            expected=f"-{rows} to {rows - 1}",
            found=padding,
        )
        return table.with_shape((*indices.shape, table.shape[1]))

    def evaluate(self, table: Array, indices: Array) -> Array:
        return np.take(table, check_index(self.name, indices, table.shape[0], 0), 0)

    def decompose(self, table: Value, indices: Value) -> Value:
        return apply(Take(0), table, indices)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        table, indices = node.operands
        places = shape_ops.unsqueeze(indices, -1)
        total = scatter(data.zeros_like(table), places, grad, "add")
        if self.padding_index is not None:
            total = scatter(total, np.array([[self.padding_index]]), 0, "set")
        return total, None

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        table = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
        indices = np.array([[0, 4, 1], [4, -2, 0]])
        yield Sample(cls(), (table, indices))
        yield Sample(cls(4), (table, indices), "padding", False)
        yield Sample(cls(), (table[::2, ::-1], np.array(2, np.uint8)), "one index, strided")
        yield Sample(cls(), (table, np.zeros((2, 0), np.int32)), "empty", False)


@function
def embedding(table: Operand, indices: Operand, padding_index: int | None = None) -> Value:
    """The rows of ``table`` at ``indices``; no gradient reaches the row at ``padding_index``."""
    return apply(Embedding(padding_index), table, indices)


@op("one_hot")
class OneHot(Op):
    """``on_value`` at each index along a new ``axis`` of size ``depth``, ``off_value`` elsewhere.

    A negative index counts from the end; one that is outside has no ``on_value``.
    """

    depth: Dim
    axis: int = -1
    on_value: bool | int | float = 1
    off_value: bool | int | float = 0
    dtype: DType = f32

    def infer(self, indices: TensorType) -> TensorType:
        require_integer(self.name, indices)
        require(
            not provably_less(self.depth, 0),
            "one_hot: a negative depth",
            expected="0 or more",
            found=self.depth,
        )
        data.check_fill(self.name, self.on_value, self.dtype)
        data.check_fill(self.name, self.off_value, self.dtype)
        axis = normalize_axis(self.name, self.axis, indices.rank + 1)
        shape = (*indices.shape[:axis], self.depth, *indices.shape[axis:])
        return indices.with_shape(shape).with_dtype(self.dtype)

    def evaluate(self, indices: Array) -> Array:
        (depth,) = data.static_sizes(self.name, (self.depth,))
        places = indices.astype(np.int64)
        if indices.dtype.kind != "u":
            places = np.where(places < 0, places + depth, places)
        hot = np.expand_dims(places, -1) == np.arange(depth)
        on, off = (np.asarray(v).astype(self.dtype.numpy) for v in (self.on_value, self.off_value))
        return np.where(np.moveaxis(hot, -1, self.axis), on, off)

    def decompose(self, indices: Value) -> Value:
        axis = normalize_axis(self.name, self.axis, indices.rank + 1)
        places = cast_to(indices, i64)
        if indices.dtype.kind is Kind.SIGNED:
            wrapped = places + (self.depth if isinstance(self.depth, int) else data.dim(self.depth))
            places = elementwise.where(elementwise.less(places, 0), wrapped, places)
        shape = [1] * axis + [self.depth] + [1] * (indices.rank - axis)
        steps = data.iota(tuple(shape), axis)
        hot = elementwise.equal(shape_ops.unsqueeze(places, axis), steps)
        on, off = (data.full((), v, self.dtype) for v in (self.on_value, self.off_value))
        return elementwise.where(hot, on, off)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls(4), (np.array([[0, 3, 1], [2, 2, 0]]),))
        far, i32 = np.array([-1, 0, 7, -9], np.int8), dtype_of("i32")
        yield Sample(cls(3, 0, 5, -2, i32), (far,), "outside")
        yield Sample(cls(3, 1, True, False, bool_), (np.array([[1, 2]], np.uint8),), "bool")
        yield Sample(cls(2, dtype=dtype_of("f16")), (np.array(1),), "scalar")
        yield Sample(cls(3), (np.zeros((0, 2), np.int64),), "empty")
        yield Sample(cls(0), (np.array([0, 1]),), "no depth")


@function
def one_hot(
    indices: Operand,
    depth: Dim,
    axis: int = -1,
    on_value: bool | int | float = 1,
    off_value: bool | int | float = 0,
    dtype: DType | str = f32,
) -> Value:
    """A new ``axis`` of size ``depth`` that holds ``on_value`` at each index."""
    value, chosen = reduce.one_value(indices), dtype_of(dtype)
    normal = normalize_axis("one_hot", axis, value.rank + 1)
    on, off = data.as_attribute(on_value, chosen), data.as_attribute(off_value, chosen)
    return apply(OneHot(depth, normal, on, off, chosen), value)


@op("nonzero")
class Nonzero(Op):
    """The positions of the elements that are not zero, one row each, in row-major order.

    How many there are is known only at run time: ``count`` names that number, a symbol of its own.
    """

    count: Dim

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.dtype is not string,
            "nonzero: strings are not numbers",
            expected="a number or bool dtype",
            found=x,
        )
        require(
            not provably_less(self.count, 0) and not provably_less(x.size, self.count),
            "nonzero: there cannot be that many",
            expected=f"0 to {x.size}",
            found=self.count,
        )
        return x.with_shape((self.count, x.rank)).with_dtype(i64)

    def evaluate(self, x: Array) -> Array:
        return np.argwhere(x)

    def binds(self) -> tuple[Symbol, ...]:
        return result_symbols(self.count)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.array([[0.0, 2.0, np.nan], [-0.0, 0.0, -np.inf]], np.float32)
        yield Sample(nonzero, (x,))
        yield Sample(cls(3), (x,), "known count")
        yield Sample(cls(1), (np.array(7),), "scalar")
        yield Sample(nonzero, (np.zeros((0, 3), np.int32),), "empty")
        yield Sample(nonzero, (np.array([[True, False, True, True]])[:, ::2],), "bool, strided")


@function
def nonzero(x: Operand) -> Value:
    """The positions of what is not zero: ``i64[count, rank]`` with a new symbol for the count."""
    value = reduce.one_value(x)
    size = value.tensor.size
    upper = size if isinstance(size, int) else size.bounds()[1]
    name = new_symbol_name(value.graph, "nonzero")
    return apply(Nonzero(Symbol(name, 0, upper)), value)


def new_symbol_name(graph: Graph, hint: str) -> str:
    """A name that no symbol has, in this graph or in those that it is a region of."""
    taken = set(graph.symbols())
    while graph.parent is not None:
        graph = graph.parent.graph
        taken.update(graph.symbols())
    numbered = (f"{hint}_{number}" for number in range(1, len(taken) + 2))
    return next(name for name in (hint, *numbered) if name not in taken)
