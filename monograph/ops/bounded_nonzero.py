"""``nonzero`` and ``unique`` in memory bounded by the number of elements.

How many are found is known only at the end, so native code has these searches, with their counts,
and whoever runs them takes as many as there are (``specialize.padded_results``).
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
from monograph.ops.index.writing import unravel_index
from monograph.ops.rules import require
from monograph.ops.shape import reshape

SPARSE_LINE_RATIO = 8
"""A line has few that are found if it has less than one in so many."""


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
        """Count what each line has, say where each line's rows begin, and write them.

        Where few are found, a processor guesses well that the next one is not. Otherwise every
        position is written, and the next one over it if it was not to be found: no branch hangs on
        an element, only on whether any of the line are still to come.
        """
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
            start = b.load(firsts, [line])
            row = b.variable(start)
            before = unravel_index(line, tuple(1 if dim == 0 else dim for dim in outer))
            beyond = b.load(firsts, [b.clamp(line + 1, 0, lines)])
            is_last = b.apply("equal", line, b.index(lines - 1))
            end = b.select(is_last, b.load(count, []), beyond)
            are_few = b.apply("less", (end - start) * SPARSE_LINE_RATIO, b.index(size))

            def write(place: Scalar, found: Scalar) -> None:
                free = b.clamp(row.get(), 0, x.size)
                for axis, position in enumerate([*before, place]):
                    b.store(rows, [free, b.index(axis)], b.index(position))
                row.set(b.apply("add", row.get(), found))

            with b.when(are_few), b.loop(size) as place, b.when(element(line, place)):
                write(place, b.literal(1, i64))
            are_many = b.apply("logical_not", are_few)
            with (
                b.when(are_many),
                b.loop(size) as place,
                b.when(b.apply("less", row.get(), end)),
            ):
                write(place, b.cast(element(line, place), i64))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.random.default_rng(0).random((3, 4, 5)) < 0.4

        def those(x: Value) -> tuple[Value, Value]:
            rows, count = find_rows(x)
            places = reshape(data.iota((x.tensor.size,)), (x.tensor.size, 1))
            return elementwise.where(elementwise.less(places, count), rows, 0), count

        yield Sample(those, (x,), "", False)
        yield Sample(those, (x[0, 0],), "vector", False)
        yield Sample(those, (x & False,), "none", False)
        yield Sample(those, (x[:, :0],), "empty", False)
        yield Sample(those, (x[:, ::2, ::-1],), "strided", False)


def find_rows(x: Value) -> tuple[Value, Value]:
    """The positions of what is true, followed by anything, and how many; see ``FoundRows``."""
    rows, count = apply_many(FoundRows(), x)
    return rows, count


@op("numbered_runs")
class NumberedRuns(Op):
    """Of a vector that is true where a run begins: each element's run, and where each run begins.

    The third result is how many runs there are. Behind the beginnings stands the number of
    elements, and what is behind that is not said. The first element begins a run in any case.
    """

    def infer(self, starts: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        require(
            starts.dtype is bool_ and starts.rank == 1,
            "numbered_runs: conditions are needed",
            expected="bool, of rank 1",
            found=starts,
        )
        places = starts.with_shape(starts.shape).with_dtype(i64)
        return places, places.with_shape((starts.shape[0] + 1,)), TensorType(i64, ())

    def evaluate(self, starts: Array) -> tuple[Array, Array, Array]:
        begins = np.array(starts)
        begins[:1] = True
        first = np.full(len(starts) + 1, len(starts))
        found = np.flatnonzero(begins)
        first[: len(found)] = found
        return np.cumsum(begins) - 1, first, np.asarray(len(found))

    def lower_loops(self, b: LoopBuilder) -> None:
        """Where the next run may begin is written at every element, so no branch hangs on one."""
        size = b.operands[0].shape[0]
        runs, first, count = (b.result(k) for k in range(3))
        with b.parallel(()):
            run = b.variable(b.index(-1))
            b.store(first, [b.index(0)], b.index(0))
            with b.loop(size) as place:
                is_first = b.apply("equal", place, b.index(0))
                begins = b.apply("logical_or", is_first, b.read(0, [place]))
                here = b.apply("add", run.get(), b.cast(begins, i64))
                run.set(here)
                if b.is_read(0):
                    b.store(runs, [place], here)
                b.store(first, [b.clamp(here + 1, 0, size + 1)], place + 1)
            b.store(count, [], run.get() + 1)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        starts = np.array([True, False, False, True, True, False])

        def those(x: Value) -> tuple[Value, Value, Value]:
            runs, first, count = number_runs(x)
            is_run = elementwise.less_equal(data.iota(first.shape), count)
            return runs, elementwise.where(is_run, first, 0), count

        yield Sample(those, (starts,), "", False)
        yield Sample(those, (~starts,), "from nowhere", False)
        yield Sample(those, (starts[::2],), "strided", False)
        yield Sample(those, (starts[:0],), "empty", False)


def number_runs(starts: Value) -> tuple[Value, Value, Value]:
    """(each element's run, where each run begins, how many there are); see ``NumberedRuns``."""
    runs, first, count = apply_many(NumberedRuns(), starts)
    return runs, first, count
