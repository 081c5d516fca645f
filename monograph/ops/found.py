"""The search of ``nonzero`` by itself, in memory for as many positions as there are elements.

How many are found is known only at the end, so native code has this search, with its count, and
whoever runs it takes as many as there are (``runtime.bounded``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.ir.build import apply_many
from monograph.ir.dims import shape_product
from monograph.ir.graph import Value
from monograph.ir.lower import LoopBuilder, Position, Scalar
from monograph.ir.op import Op, Sample, op
from monograph.ir.types import Array, TensorType, bool_, i64
from monograph.ops import data, elementwise
from monograph.ops.index.writing import unravelled
from monograph.ops.rules import require
from monograph.ops.shape import reshape


@op("found_rows")
class FoundRows(Op):
    """The positions of what is true, one row each, in row-major order, and how many there are.

    There are as many rows as elements; what is in those that no element needs is not said.
    """

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require(
            x.dtype is bool_ and x.rank > 0,
            "found_rows: conditions are needed",
            expected="bool, of rank 1 or more",
            found=x,
        )
        return x.with_shape((x.size, x.rank)).with_dtype(i64), TensorType(i64, ())

    def evaluate(self, x: Array) -> tuple[Array, Array]:
        found = np.argwhere(x)
        rows = np.zeros((x.size, x.ndim), np.int64)
        rows[: len(found)] = found
        return rows, np.asarray(len(found))

    def lower_loops(self, b: LoopBuilder) -> None:
        """Count what each line has, say where each line's rows begin, and write them."""
        (x,) = b.operands
        *outer, size = x.shape
        lines = shape_product(outer)
        rows, count = b.result(0), b.result(1)
        firsts = b.temporary(i64, (lines,))

        def element(line: Scalar, place: Scalar) -> Scalar:
            return b.reshaped(0, (lines, size), [line, place])

        def found_in(index: Position) -> Scalar:
            (line,) = index
            return b.reduce("sum", (size,), lambda at: b.cast(element(line, at[0]), i64))

        b.fill(firsts, found_in)
        with b.parallel(()):
            total = b.variable(b.literal(0, i64))
            with b.loop(lines) as line:
                here = b.load(firsts, [line])
                b.store(firsts, [line], total.get())
                total.set(b.apply("add", total.get(), here))
            b.store(count, [], total.get())
        with b.parallel((lines,)) as (line,):
            row = b.variable(b.load(firsts, [line]))
            before = unravelled(line, tuple(1 if dim == 0 else dim for dim in outer))
            with b.loop(size) as place, b.when(element(line, place)):
                free = b.checked(row.get(), x.size)
                for axis, position in enumerate([*before, place]):
                    b.store(rows, [free, b.index(axis)], b.index(position))
                row.set(b.apply("add", row.get(), b.literal(1, i64)))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.random.default_rng(0).random((3, 4, 5)) < 0.4

        def those(x: Value) -> tuple[Value, Value]:
            rows, count = found_rows(x)
            places = reshape(data.iota((x.tensor.size,)), (x.tensor.size, 1))
            return elementwise.where(elementwise.less(places, count), rows, 0), count

        yield Sample(those, (x,), "", False)
        yield Sample(those, (x[0, 0],), "vector", False)
        yield Sample(those, (x & False,), "none", False)
        yield Sample(those, (x[:, :0],), "empty", False)
        yield Sample(those, (x[:, ::2, ::-1],), "strided", False)


def found_rows(x: Value) -> tuple[Value, Value]:
    """The positions of what is true, followed by anything, and how many; see ``FoundRows``."""
    rows, count = apply_many(FoundRows(), x)
    return rows, count
