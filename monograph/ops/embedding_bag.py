"""Embedding bags: sums of rows of a table, over runs of indices.

One loop visits a bag's rows and adds them in registers, so the rows are never brought together in
memory. As graph it is a take and a scatter, which is what gradients and exporters see.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.build import Operand, apply, as_operands, graph_of
from monograph.ir.graph import Value
from monograph.ir.lower import LoopBuilder
from monograph.ir.op import Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, i64, wide
from monograph.ops import cumulative, data, elementwise, slicing
from monograph.ops import shape as shape_ops
from monograph.ops.index.reading import take
from monograph.ops.index.rules import check_index
from monograph.ops.index.writing import scatter
from monograph.ops.rules import require, require_float, require_integer, same_dim, same_dtype


@op("bag_sums")
class BagSums(Op):
    """The rows of ``table`` at ``indices``, summed; a bag goes from its offset to the next one.

    Offsets rise from 0, and the last bag ends with the indices. With ``weights``, one an index,
    each row is multiplied by its own.
    """

    def infer(
        self,
        table: TensorType,
        indices: TensorType,
        offsets: TensorType,
        weights: TensorType | None = None,
    ) -> TensorType:
        require_float(self.name, table)
        for each in (indices, offsets):
            require_integer(self.name, each)
        ranks = (table.rank, indices.rank, offsets.rank)
        require(
            ranks == (2, 1, 1),
            "bag_sums: the operands have other ranks",
            expected="a table of rank 2, indices and offsets of rank 1",
            found=f"{table}, {indices}, {offsets}",
        )
        if weights is not None:
            same_dtype(self.name, table, weights)
            same_dim(self.name, "indices and weights", indices.shape[0], weights.shape[0])
        return table.with_shape((offsets.shape[0], table.shape[1]))

    def evaluate(
        self, table: Array, indices: Array, offsets: Array, weights: Array | None = None
    ) -> Array:
        starts = offsets.astype(np.int64)
        ends = np.append(starts[1:], len(indices)) if len(starts) else starts
        if len(starts) and (starts[0] != 0 or (ends < starts).any()):
            raise EvaluationError(
                "bag_sums: the offsets do not rise from 0",
                expected=f"rising numbers from 0 to {len(indices)}",
                found=str(offsets),
            )
        rows = np.take(table, check_index(self.name, indices, table.shape[0], 0), 0)
        if weights is not None:
            rows = rows * weights[:, None]
        sums = [
            rows[start:end].sum(0, dtype=table.dtype)
            for start, end in zip(starts, ends, strict=True)
        ]
        return np.array(sums, table.dtype).reshape(len(offsets), table.shape[1])

    def decompose(
        self, table: Value, indices: Value, offsets: Value, weights: Value | None = None
    ) -> Value:
        rows = take(table, indices, 0)
        if weights is not None:
            rows = rows * shape_ops.unsqueeze(weights, -1)
        sums = data.zeros((offsets.shape[0], table.shape[1]), table.dtype)
        return scatter(sums, shape_ops.unsqueeze(bag_numbers(indices, offsets), -1), rows, "add")

    def lower_loops(self, b: LoopBuilder) -> None:
        """Neighbours in the rows share the lanes of a vector."""
        table, indices, offsets = b.operands[:3]
        bags, count = offsets.shape[0], indices.shape[0]
        with b.parallel((bags, table.shape[1]), lanes=True) as (bag, depth):
            start = b.checked(b.read(2, [bag]), count + 1)
            beyond = b.checked(b.read(2, [b.clamp(bag + 1, 0, bags)]), count + 1)
            is_last = b.apply("equal", bag, b.index(bags - 1))
            end = b.select(is_last, b.index(count), beyond)
            total = b.variable(b.literal(0.0, wide(table.dtype)))
            with b.loop(b.apply("subtract", end, start)) as k:
                place = b.clamp(start + k, 0, count)
                row = b.checked(b.read(1, [place]), table.shape[0])
                value = b.read(0, [row, depth])
                if len(b.operands) > 3:
                    value = b.apply("multiply", value, b.read(3, [place]))
                total.set(b.apply("add", total.get(), value))
            b.store(b.result(), [bag, depth], total.get())

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)
        table = generator.normal(size=(7, 9)).astype(np.float32)
        indices, offsets = np.array([3, 0, 6, 6, -1, 2]), np.array([0, 2, 2, 5])
        weights = generator.normal(size=6).astype(np.float32)
        yield Sample(cls(), (table, indices, offsets))
        yield Sample(cls(), (table, indices, offsets, weights), "weights")
        yield Sample(cls(), (table.T, indices[::2], offsets[:2].astype(np.int32)), "strided")
        yield Sample(cls(), (table, indices[:0], offsets[:2] * 0), "empty bags", False)
        yield Sample(cls(), (table, indices[:0], offsets[:0]), "no bags", False)


@function
def bag_sums(
    table: Operand, indices: Operand, offsets: Operand, weights: Operand | None = None
) -> Value:
    """Sums of the rows of ``table`` at ``indices``, one a bag; bags begin at ``offsets``."""
    given = [each for each in (table, indices, offsets, weights) if each is not None]
    return apply(BagSums(), *as_operands(graph_of(given), given))


@function
def bag_numbers(indices: Operand, offsets: Operand) -> Value:
    """The number of each index's bag, found by counting the bags that have begun."""
    places, starts = as_operands(graph_of([indices, offsets]), [indices, offsets])
    count = places.shape[0]
    ones = data.ones(starts.shape, i64)
    begun = scatter(data.zeros((count + 1,), i64), shape_ops.unsqueeze(starts, -1), ones, "add")
    running = slicing.slice(cumulative.cumsum(begun, 0), [0], [count])
    return elementwise.subtract(running, 1)
