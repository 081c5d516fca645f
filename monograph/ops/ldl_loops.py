"""Bunch and Kaufman's elimination of symmetric matrices and substitution with it, as loops.

Blocks of one or two rows are taken out, as the numbers ask for. The loops count rows all the same:
a row that a block of two has taken already is passed over. Everything is in f64 (c128), rounded
once.
"""

from __future__ import annotations

from monograph.ir.dims import Dim
from monograph.ir.lower import Cell, LoopBuilder, Memory, Position, Scalar
from monograph.ir.types import bool_, i64, u64
from monograph.ops.loop_numbers import Numbers
from monograph.ops.matrix_loops import (
    SINGULAR,
    batch_place,
    exchange,
    load_double,
    round_into,
    size_of_parts,
    working_dtype,
)


def lower_ldl_factor(b: LoopBuilder, alpha: float) -> None:
    """The loops of ``ldl_factor``; ``alpha`` decides between one row and two."""
    n, shape = Numbers(b), b.operands[0].shape
    batch, size = shape[:-2], shape[-1]
    packed = b.temporary(working_dtype(b), shape)
    columns = [b.temporary(working_dtype(b), shape[:-1]) for _ in range(2)]

    def lower_triangle(at: Position) -> Scalar:
        return b.select(n.less(at[-2], at[-1]), n.of(0.0), load_double(b, 0, at))

    b.fill(packed, lower_triangle)
    with b.parallel(batch) as at:
        elimination = _Elimination(b, packed, columns, at, size)
        taken = b.variable(b.literal(False, bool_))
        with b.loop(size) as k:
            passed = taken.get()
            taken.set(b.literal(False, bool_))
            with b.when(n.no(passed)):
                elimination.block(k, alpha, taken)
    round_into(b, packed)


class _Elimination:
    """The elimination of one lower triangle, in its place."""

    def __init__(
        self, b: LoopBuilder, packed: Memory, columns: list[Memory], at: Position, size: Dim
    ) -> None:
        self.b, self.n, self.packed, self.columns = b, Numbers(b), packed, columns
        self.at, self.size = at, size

    def a(self, row: Scalar, column: Scalar) -> Scalar:
        return self.b.load(self.packed, [*self.at, row, column])

    def magnitude(self, row: Scalar, column: Scalar) -> Scalar:
        return size_of_parts(self.b, self.a(row, column))

    def swap(self, one: tuple[Scalar, Scalar], other: tuple[Scalar, Scalar]) -> None:
        exchange(self.b, self.packed, [*self.at, *one], [*self.at, *other])

    def block(self, k: Scalar, alpha: float, taken: Cell) -> None:
        """Take one or two rows out, from row ``k`` on."""
        b, n = self.b, self.n
        pivot, is_pair = b.variable(k), b.variable(b.literal(False, bool_))
        self._choose(k, alpha, pivot, is_pair)
        chosen, pair = pivot.get(), is_pair.get()
        following = b.clamp(k + 1, 0, self.size)
        last = b.select(pair, following, k)
        with b.when(n.no(n.equal(chosen, last))):
            self._exchange(k, last, chosen)
        counted = chosen + 1
        b.store(b.result(1), [*self.at, k], b.select(pair, b.index(0) - counted, counted))
        with b.when(pair):
            b.store(b.result(1), [*self.at, following], b.index(0) - counted)
            self._take_two(k, following)
            taken.set(b.literal(True, bool_))
        with b.when(n.no(pair)):
            self._take_one(k)

    def _choose(self, k: Scalar, alpha: float, pivot: Cell, is_pair: Cell) -> None:
        """The row to bring to the diagonal, and whether it comes with a second one."""
        b, n, share = self.b, self.n, self.n.of(alpha)
        largest, row = b.variable(n.of(0.0)), b.variable(k)
        with b.loop(self.size - 1 - k) as below:
            size = self.magnitude(k + 1 + below, k)
            with b.when(n.less(largest.get(), size)):
                largest.set(size)
                row.set(k + 1 + below)
        here, most, found = self.magnitude(k, k), largest.get(), row.get()
        with b.when(n.less(here, n.product(share, most))):
            across = self._largest_across(k, found)
            bound = n.product(n.product(share, most), n.quotient(most, across))
            with b.when(n.less(here, bound)):
                pivot.set(found)
                is_pair.set(n.less(self.magnitude(found, found), n.product(share, across)))

    def _largest_across(self, k: Scalar, row: Scalar) -> Scalar:
        """The largest element beside the diagonal in a row of what is left."""
        b, n = self.b, self.n
        largest = b.variable(n.of(0.0))
        with b.loop(row - k) as beside:
            largest.set(n.larger(largest.get(), self.magnitude(row, k + beside)))
        with b.loop(self.size - 1 - row) as below:
            largest.set(n.larger(largest.get(), self.magnitude(row + 1 + below, row)))
        return largest.get()

    def _exchange(self, k: Scalar, last: Scalar, pivot: Scalar) -> None:
        """Let two rows and columns of what is left change places."""
        b, n = self.b, self.n
        with b.loop(self.size - 1 - pivot) as below:
            row = pivot + 1 + below
            self.swap((row, last), (row, pivot))
        with b.loop(pivot - last - 1) as between:
            row = last + 1 + between
            self.swap((row, last), (pivot, row))
        self.swap((last, last), (pivot, pivot))
        with b.when(n.less(k, last)):
            self.swap((last, k), (pivot, k))

    def _copy_column(self, number: int, column: Scalar, first: Scalar) -> Memory:
        """A column from row ``first`` on, in memory side by side."""
        b, copy = self.b, self.columns[number]
        with b.loop(self.size - first) as below:
            b.store(copy, [*self.at, first + below], self.a(first + below, column))
        return copy

    def _take_one(self, k: Scalar) -> None:
        b, n = self.b, self.n
        head = self.a(k, k)
        column = self._copy_column(0, k, k + 1)
        with b.when(n.no(n.equal(head, n.of(0.0)))), b.loop(self.size - 1 - k) as below:
            row = k + 1 + below
            factor = n.kept(n.quotient(b.load(column, [*self.at, row]), head))
            with b.loop(below + 1, lanes=True) as beside:
                place = k + 1 + beside
                left = n.minus_product(
                    self.a(row, place), factor, b.load(column, [*self.at, place])
                )
                b.store(self.packed, [*self.at, row, place], left)
            b.store(self.packed, [*self.at, row, k], factor)

    def _take_two(self, k: Scalar, following: Scalar) -> None:
        b, n = self.b, self.n
        between = self.a(following, k)
        above, below = (n.kept(n.quotient(self.a(each, each), between)) for each in (k, following))
        shared = n.kept(n.difference(n.product(above, below), n.of(1.0)))
        scale = n.kept(n.quotient(n.kept(n.quotient(n.of(1.0), shared)), between))
        first, second = self._copy_column(0, k, k + 2), self._copy_column(1, following, k + 2)
        with b.loop(self.size - 2 - k) as step:
            row = k + 2 + step
            x, y = (b.load(each, [*self.at, row]) for each in (first, second))
            left = n.kept(n.product(scale, n.difference(n.product(below, x), y)))
            right = n.kept(n.product(scale, n.difference(n.product(above, y), x)))
            with b.loop(step + 1, lanes=True) as beside:
                place = k + 2 + beside
                rest = n.minus_product(self.a(row, place), left, b.load(first, [*self.at, place]))
                rest = n.minus_product(rest, right, b.load(second, [*self.at, place]))
                b.store(self.packed, [*self.at, row, place], rest)
            b.store(self.packed, [*self.at, row, k], left)
            b.store(self.packed, [*self.at, row, following], right)


def lower_ldl_solve(b: LoopBuilder) -> None:
    """The loops of ``ldl_solve``: down with L and D, and up again with the transpose of L."""
    batch, columns = b.results[0].shape[:-2], b.results[0].shape[-1]
    own = b.operands[2].shape[:-2]
    x = b.temporary(working_dtype(b), b.results[0].shape)
    b.fill(x, lambda at: load_double(b, 2, [*batch_place(b, at[:-2], own, batch), *at[-2:]]))
    with b.parallel((*batch, columns), lanes=True) as (*at, column):
        substitution = _Substitution(b, x, at, column)
        substitution.down()
        substitution.up()
    round_into(b, x)


class _Substitution:
    """The solution for one column of right sides, in its place."""

    def __init__(self, b: LoopBuilder, x: Memory, at: Position, column: Scalar) -> None:
        self.b, self.n, self.memory, self.at, self.column = b, Numbers(b), x, at, column
        self.size = b.operands[0].shape[-1]
        self.own = batch_place(b, at, b.operands[0].shape[:-2], b.results[0].shape[:-2])

    def x(self, row: Scalar) -> Scalar:
        return self.b.load(self.memory, [*self.at, row, self.column])

    def put(self, row: Scalar, value: Scalar) -> None:
        self.b.store(self.memory, [*self.at, row, self.column], value)

    def a(self, row: Scalar, column: Scalar) -> Scalar:
        return load_double(self.b, 0, [*self.own, row, column])

    def pivot(self, k: Scalar) -> Scalar:
        """A pivot; one that only an unsigned number holds is none of any row."""
        read = self.b.read(1, [*self.own, k])
        if self.b.operands[1].dtype is not u64:
            return self.b.cast(read, i64)
        return self.b.cast(self.b.apply("minimum", read, self.b.literal(1 << 62, u64)), i64)

    def swap(self, row: Scalar, pivot: Scalar) -> None:
        """Exchange a row with the one that a pivot names, counted from 1."""
        counted = self.b.cast(self.b.apply("abs", pivot) - 1, u64)
        other = self.b.checked(counted, self.size)
        place = [*self.at, row, self.column]
        exchange(self.b, self.memory, place, [*self.at, other, self.column])

    def down(self) -> None:
        """L D x = b, one block after the other."""
        b, n = self.b, self.n
        taken = b.variable(b.literal(False, bool_))
        with b.loop(self.size) as k:
            passed, pivot = taken.get(), self.pivot(k)
            is_pair = n.both(n.less(pivot, b.index(0)), n.less(k, b.index(self.size - 1)))
            taken.set(n.both(is_pair, n.no(passed)))
            with b.when(n.both(n.no(passed), n.no(is_pair))):
                self._down_one(k, pivot)
            with b.when(n.both(n.no(passed), is_pair)):
                self._down_two(k, b.clamp(k + 1, 0, self.size), pivot)

    def _down_one(self, k: Scalar, pivot: Scalar) -> None:
        b, n = self.b, self.n
        self.swap(k, pivot)
        known, head = self.x(k), self.a(k, k)
        b.require(n.no(n.equal(head, n.of(0.0))), SINGULAR)
        with b.loop(self.size - 1 - k) as below:
            row = k + 1 + below
            self.put(row, n.minus_product(self.x(row), self.a(row, k), known))
        self.put(k, n.quotient(known, head))

    def _down_two(self, k: Scalar, following: Scalar, pivot: Scalar) -> None:
        b, n = self.b, self.n
        self.swap(following, pivot)
        first, second = self.x(k), self.x(following)
        with b.loop(self.size - 2 - k) as below:
            row = k + 2 + below
            left = n.minus_product(self.x(row), self.a(row, k), first)
            self.put(row, n.minus_product(left, self.a(row, following), second))
        between = self.a(following, k)
        b.require(n.no(n.equal(between, n.of(0.0))), SINGULAR)
        above, under, one, two = (
            n.kept(n.quotient(each, between))
            for each in (self.a(k, k), self.a(following, following), first, second)
        )
        shared = n.kept(n.difference(n.product(above, under), n.of(1.0)))
        self.put(k, n.quotient(n.difference(n.product(under, one), two), shared))
        self.put(following, n.quotient(n.difference(n.product(above, two), one), shared))

    def up(self) -> None:
        """Lᵀ x = what is there, the last block first."""
        b, n = self.b, self.n
        taken = b.variable(b.literal(False, bool_))
        with b.loop(self.size) as step:
            k = self.size - 1 - step
            passed, pivot = taken.get(), self.pivot(k)
            is_pair = n.both(n.less(pivot, b.index(0)), n.less(b.index(0), k))
            taken.set(n.both(is_pair, n.no(passed)))
            with b.when(n.no(passed)):
                self._less_below(k, step)
                with b.when(is_pair):
                    self._less_below(b.clamp(k - 1, 0, self.size), step)
                self.swap(k, pivot)

    def _less_below(self, column: Scalar, count: Scalar) -> None:
        """An element less what the last ``count`` ones contribute to it by a column of L."""
        b, n = self.b, self.n
        total = b.variable(self.x(column))
        with b.loop(count) as k:
            row = self.size - count + k
            total.set(n.minus_product(total.get(), self.a(row, column), self.x(row)))
        self.put(column, total.get())
