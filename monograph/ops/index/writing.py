"""Writing at positions that are data: scatter, put_along_axis.

Where several updates meet in one element they are combined in row-major order, so the last one
stays when ``mode`` is ``"set"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import ClassVar

import numpy as np

from monograph.ir.build import Operand, apply, as_operands, cast_to, graph_of, promote_operands
from monograph.ir.dims import Shape, shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.lower import LoopBuilder, Memory, Scalar
from monograph.ir.op import Gradients, Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, i64, wide
from monograph.ops import data, elementwise
from monograph.ops import shape as shape_ops
from monograph.ops.index.reading import Gather, TakeAlongAxis
from monograph.ops.index.rules import (
    MODES,
    broadcast_beside,
    check_alongside,
    check_mode,
    check_shape,
    check_updates,
    flat_index,
    flat_index_along,
    vector_length,
    write_rows,
)
from monograph.ops.rules import normalize_axis, require, require_integer

ELEMENTS_PER_THREAD = 256
"""Neighbours that one thread writes: a few cache lines of them."""


def begin_writing(b: LoopBuilder, mode: str) -> Memory:
    """A copy of the operand to write into, wide enough that sums are rounded once."""
    (result,) = b.results
    target = b.result()
    if mode in ("add", "multiply") and wide(result.dtype) is not result.dtype:
        target = b.temporary(wide(result.dtype), result.shape)
    b.fill(target, lambda at: b.read(0, at))
    return target


def end_writing(b: LoopBuilder, target: Memory) -> None:
    """Round what was written, if that has not been done along the way."""
    if target.dtype is not b.results[0].dtype:
        b.fill(b.result(), lambda at: b.load(target, at))


def combine_update(b: LoopBuilder, mode: str, old: Scalar, update: Scalar) -> Scalar:
    """An update joined to what stands there; of zeros that tie the update's sign stays."""
    if mode == "set":
        return update
    if mode in ("add", "multiply"):
        return b.apply(mode, old, update)
    stays = b.apply("greater" if mode == "max" else "less", old, update)
    chosen = b.select(stays, old, update)
    # Two choices, and not one by two conditions: vectors of those are slow to join.
    return b.select(b.apply("is_nan", old), old, chosen) if old.dtype.is_float else chosen


def unravel_index(position: Scalar, shape: Shape) -> list[Scalar]:
    """A position in the flattened shape as one along each axis."""
    found: list[Scalar] = []
    for axis in reversed(range(len(shape))):
        found.append(position % shape[axis] if axis else position)
        position = position // shape[axis]
    return found[::-1]


@op("scatter")
class Scatter(Op):
    """``x`` with ``updates`` written where index vectors say; ONNX knows it as ScatterND.

    The last dimension of ``indices`` is a vector of k indices into the first k axes of ``x``;
    ``mode`` says how an update joins what stands there.
    """

    mode: str = "set"
    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        check_mode(self.name, self.mode, x, updates)
        require_integer(self.name, indices)
        require(
            indices.rank >= 1,
            "scatter: the indices have no last dimension",
            expected="a rank of at least 1",
            found=indices,
        )
        depth = vector_length(self.name, x, indices, 0)
        check_updates(self.name, updates, (*indices.shape[:-1], *x.shape[depth:]))
        return x.with_shape(x.shape)

    def evaluate(self, x: Array, indices: Array, updates: Array) -> Array:
        depth, places = indices.shape[-1], indices.shape[:-1]
        indexed, rest = x.shape[:depth], x.shape[depth:]
        check_shape(self.name, "the updates", updates.shape, places + rest)
        rows = flat_index(self.name, np.moveaxis(indices, -1, 0), places, indexed, 0)
        result = np.array(x).reshape(prod(indexed), *rest)
        write_rows(self.mode, result, rows.reshape(-1), updates.reshape(prod(places), *rest))
        return result.reshape(x.shape)

    def lower_loops(self, b: LoopBuilder) -> None:
        """One update after the other; the columns of the rows that they write are independent."""
        x, indices, _ = b.operands
        depth = indices.shape[-1]
        assert isinstance(depth, int)
        indexed, columns = x.shape[:depth], shape_product(x.shape[depth:])
        places = shape_product(indices.shape[:-1])
        target = begin_writing(b, self.mode)
        rows = b.viewed(target, (shape_product(indexed), columns))
        with b.parallel((-(-columns // ELEMENTS_PER_THREAD),)) as (tile,):
            first, count = b.piece(tile, ELEMENTS_PER_THREAD, columns)
            with b.loop(places) as place:
                row = b.index(0)
                for axis, size in enumerate(indexed):
                    index = b.reshaped(1, (places, depth), [place, b.index(axis)])
                    row = row * size + b.checked(index, size)
                with b.loop(count, lanes=True) as k:
                    at = (row, first + k)
                    update = b.reshaped(2, (places, columns), [place, first + k])
                    b.store(rows, at, combine_update(b, self.mode, b.load(rows, at), update))
        end_writing(b, target)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        indices = node.operands[1]
        return _update_gradients(
            node,
            grad,
            self.mode,
            read=lambda x: apply(Gather(), x, indices),
            write=lambda mode, x, updates: apply(Scatter(mode), x, indices, updates),
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)
        x = generator.normal(size=(3, 4, 2)).astype(np.float32)
        pairs = np.array([[0, 1], [2, -1], [-3, 1], [1, 0], [2, 3]])
        updates = generator.normal(size=(5, 2)).astype(np.float32)
        for mode in MODES:
            yield Sample(cls(mode), (x, pairs, updates), f"{mode}, some twice")
        yield Sample(cls("add"), (x, np.array([[1], [-1]], np.int8), x[1:]), "rows")
        yield Sample(cls("multiply"), (x, pairs, updates.round()), "by zeros")
        yield Sample(cls(), (x[:2], np.array([1, 3, -2], np.int8), updates[0, 0]), "one element")
        whole = generator.normal(size=(2, 3, 4, 2)).astype(np.float32)
        yield Sample(cls("max"), (x, np.zeros((2, 0), np.int64), whole), "no index, the whole")
        yield Sample(cls("max"), (x * 0, pairs, updates * 0), "ties", False)
        blocks = np.broadcast_to(updates[:, None], (5, 2, 2))
        yield Sample(cls("add"), (x[:, ::-2], pairs[:, :1], blocks), "strided")
        yield Sample(cls(), (x, np.zeros((0, 1), np.int64), x[:0]), "no update", False)
        nines, thrice = np.array([9, 9, 1], np.int8), np.array([[0]] * 3)
        yield Sample(cls("add"), (np.array([120, 5], np.int8), thrice, nines), "i8 wraps around")


@function
def scatter(x: Operand, indices: Operand, updates: Operand, mode: str = "set") -> Value:
    """``x`` with ``updates`` (broadcast) joined in at ``indices``; see ``gather`` for those."""
    target, places, values = _update_operands(x, indices, updates)
    depth = places.shape[-1] if places.rank else 0
    if isinstance(depth, int):
        values = _broadcast_updates(values, (*places.shape[:-1], *target.shape[depth:]))
    return apply(Scatter(mode), target, places, values)


@op("put_along_axis")
class PutAlongAxis(Op):
    """``x`` with each of ``values`` written at its index along ``axis``, other positions kept.

    ``indices`` may be smaller than ``x`` on the other axes. ONNX knows it as ScatterElements.
    """

    axis: int
    mode: str = "set"
    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType, indices: TensorType, values: TensorType) -> TensorType:
        check_mode(self.name, self.mode, x, values)
        check_alongside(self.name, self.axis, x, indices)
        check_updates(self.name, values, indices.shape)
        return x.with_shape(x.shape)

    def evaluate(self, x: Array, indices: Array, values: Array) -> Array:
        check_shape(self.name, "the values", values.shape, indices.shape)
        flat = flat_index_along(self.name, x, indices, self.axis)
        result = np.array(x).reshape(-1)
        write_rows(self.mode, result, flat.reshape(-1), values.reshape(-1))
        return result.reshape(x.shape)

    def lower_loops(self, b: LoopBuilder) -> None:
        """Along the axis in order; positions beside it are independent."""
        x, indices, _ = b.operands
        axis = self.axis % x.rank
        outer, inner = indices.shape[:axis], indices.shape[axis + 1 :]
        target = begin_writing(b, self.mode)
        columns = shape_product(inner)
        with b.parallel((*outer, -(-columns // ELEMENTS_PER_THREAD))) as (*before, tile):
            first, count = b.piece(tile, ELEMENTS_PER_THREAD, columns)
            with b.loop(indices.shape[axis]) as step, b.loop(count) as k:
                after = unravel_index(first + k, inner)
                along = b.checked(b.read(1, [*before, step, *after]), x.shape[axis])
                at = [*before, along, *after]
                value = b.read(2, [*before, step, *after])
                b.store(target, at, combine_update(b, self.mode, b.load(target, at), value))
        end_writing(b, target)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        indices = node.operands[1]
        return _update_gradients(
            node,
            grad,
            self.mode,
            read=lambda x: apply(TakeAlongAxis(self.axis), x, indices),
            write=lambda mode, x, values: apply(PutAlongAxis(self.axis, mode), x, indices, values),
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)
        x = generator.normal(size=(3, 4)).astype(np.float32)
        indices = np.array([[0, 3, -4, 2, 2], [1, 1, 1, 0, 3], [-1, -2, -3, -4, 0]])
        values = generator.normal(size=(3, 5)).astype(np.float32)
        for mode in MODES:
            yield Sample(cls(1, mode), (x, indices, values), f"{mode}, some twice")
        yield Sample(cls(-1, "multiply"), (x, indices, values.round()), "by zeros")
        part = indices[:2, :4].astype(np.int8) % 3
        yield Sample(cls(0, "add"), (x, part, values[:2, :4]), "a part")
        yield Sample(cls(0, "min"), (x.T[::2], indices[::2, ::-2] % 2, values[::2, ::2]), "strided")
        yield Sample(cls(1, "max"), (x * 0, indices, values * 0), "ties", False)
        yield Sample(cls(1), (x, indices[:, :0], values[:, :0]), "no update", False)


@function
def put_along_axis(
    x: Operand, indices: Operand, values: Operand, axis: int, mode: str = "set"
) -> Value:
    """``x`` with ``values`` (broadcast) joined in at ``indices`` along ``axis``."""
    target, places, updates = _update_operands(x, indices, values)
    normal = normalize_axis("put_along_axis", axis, target.rank)
    target, places = broadcast_beside(target, places, normal)
    updates = _broadcast_updates(updates, places.shape)
    rows = _row_indices(target, places) if normal == 0 else None
    if rows is not None and updates.shape == places.shape:
        return apply(Scatter(mode), target, rows, updates)
    return apply(PutAlongAxis(normal, mode), target, places, updates)


def _row_indices(target: Value, places: Value) -> Value | None:
    """One index a row, [rows, 1], if indices along axis 0 are those of whole rows, expanded."""
    node = places.producer
    if node is None or node.op.name != "expand" or places.rank < 2:
        return None
    source = node.operands[0]
    if source.rank != places.rank or source.shape[0] != places.shape[0]:
        return None
    if any(dim != 1 for dim in source.shape[1:]) or places.shape[1:] != target.shape[1:]:
        return None
    return shape_ops.reshape(source, (source.shape[0], 1))


def _update_operands(x: Operand, indices: Operand, updates: Operand) -> tuple[Value, ...]:
    """The operands of a write as values of one graph, with one dtype for ``x`` and the updates."""
    graph = graph_of([x, indices, updates])
    with graph.as_current():
        target, values = promote_operands(x, updates)
    return target, *as_operands(graph, [indices]), values


def _broadcast_updates(updates: Value, shape: Shape) -> Value:
    """Updates broadcast to the shape that they must have, if they can be."""
    return shape_ops.expand(updates, shape) if updates.rank <= len(shape) else updates


def _update_gradients(
    node: Node,
    grad: Value,
    mode: str,
    read: Callable[[Value], Value],
    write: Callable[[str, Value, Value], Value],
) -> Gradients:
    """Gradients of an op that writes updates into ``x``, given how it reads and writes."""
    x, _, updates = node.operands
    if mode == "add":
        return grad, None, read(grad)
    if mode == "set":
        return _set_gradients(x, updates, grad, read, write)
    if mode == "multiply":
        return _multiply_gradients(x, updates, grad, read, write)
    kept = cast_to(elementwise.equal(x, node.result), x.dtype)
    chosen = cast_to(elementwise.equal(updates, read(node.result)), x.dtype)
    share = grad / write("add", kept, chosen)
    return share * kept, None, read(share) * chosen


def _set_gradients(
    x: Value,
    updates: Value,
    grad: Value,
    read: Callable[[Value], Value],
    write: Callable[[str, Value, Value], Value],
) -> Gradients:
    """Of several updates to one element only the last has a gradient: number them to find it."""
    numbers = shape_ops.reshape(data.iota((updates.tensor.size,)), updates.shape)
    winners = read(write("set", data.zeros(x.shape, i64), numbers))
    of_updates = elementwise.where(elementwise.equal(winners, numbers), read(grad), 0)
    return write("set", grad, data.zeros_like(updates)), None, of_updates


def _multiply_gradients(
    x: Value,
    updates: Value,
    grad: Value,
    read: Callable[[Value], Value],
    write: Callable[[str, Value, Value], Value],
) -> Gradients:
    """Each factor's gradient is the product of the others: zeros are counted, not divided by."""
    ones, conj = data.ones_like(x), elementwise.conj
    zero = elementwise.equal(updates, 0)
    factors = elementwise.where(zero, 1, updates)
    count = cast_to(zero, i64)
    other_zeros = read(write("add", data.zeros(x.shape, i64), count)) - count
    others = read(grad * conj(x * write("multiply", ones, factors))) / conj(factors)
    of_updates = elementwise.where(elementwise.equal(other_zeros, 0), others, 0)
    return grad * conj(write("multiply", ones, updates)), None, of_updates
