"""Schur's form of real matrices, as loops: blocks of one or two rows on the diagonal.

The method is that of LAPACK's lahqr: Francis' implicit double shift on a Hessenberg matrix, from
the bottom up, with its tests for what is negligible, its exceptional shifts and its standard form
of two rows that belong together. Rows are changed in their whole length, zeros included: vectors
are that long.
"""

from __future__ import annotations

from collections.abc import Sequence

from monograph.ir.lower import Cell, Memory, Scalar
from monograph.ops.schur_loops import (
    EPSILON,
    MIN_NORMAL,
    SWEEPS_PER_EXCEPTIONAL_SHIFT,
    SchurIteration,
)


class Francis(SchurIteration):
    """The iteration on a real matrix."""

    def _step(self, top: Scalar, bottom: Scalar) -> None:
        b, n = self.b, self.n
        with b.when(n.equal(top, bottom)):
            self._store_value(bottom, self.element(bottom, bottom), n.of(0.0))
        with b.when(n.equal(top + 1, bottom)):
            self._pair(self._hold_row(top), bottom)
        is_found = n.at_most(bottom, top + 1)
        with b.when(is_found):
            self.bottom.set(top - 1)
            self.tries.set(b.index(0))
        with b.when(n.no(is_found)):
            self._sweep(top, bottom)

    def _size(self, row: Scalar, column: Scalar) -> Scalar:
        return self.n.magnitude(self.element(row, column))

    def _store_value(self, row: Scalar, real: Scalar, imaginary: Scalar) -> None:
        for part, value in enumerate((real, imaginary)):
            self.b.store(self.parts, [*self.at, self.b.index(part), self._hold_row(row)], value)

    # Which rows -----------------------------------------------------------------------------------

    def _is_negligible(self, row: Scalar) -> Scalar:
        b, n, size = self.b, self.n, self.h.size
        above = row - 1
        below, beside = self._size(row, above), self._size(above, row)
        here, there = self.element(row, row), self.element(above, above)
        total = n.sum(n.magnitude(there), n.magnitude(here))
        zero = n.of(0.0)
        further = b.select(n.less(b.index(1), row), self._size(above, row - 2), zero)
        lower = b.select(n.less(row, b.index(size - 1)), self._size(row + 1, row), zero)
        total = b.select(n.equal(total, zero), n.sum(further, lower), total)
        is_small = n.at_most(below, n.product(n.of(EPSILON), total))
        more, less = n.larger(below, beside), b.apply("minimum", below, beside)
        gap = n.magnitude(n.difference(there, here))
        far, near = n.larger(n.magnitude(here), gap), b.apply("minimum", n.magnitude(here), gap)
        scale = n.sum(far, more)
        safe = b.select(n.equal(scale, zero), n.of(1.0), scale)
        bound = n.product(n.of(EPSILON), n.product(near, n.quotient(far, safe)))
        bound = n.larger(n.of(MIN_NORMAL), bound)
        is_smaller = n.at_most(n.product(less, n.quotient(more, safe)), bound)
        is_nothing = n.at_most(below, n.of(MIN_NORMAL / EPSILON))
        return n.either(is_nothing, n.both(is_small, is_smaller))

    # A sweep --------------------------------------------------------------------------------------

    def _sweep(self, top: Scalar, bottom: Scalar) -> None:
        """Chase a bulge of three rows from where it may begin down to the bottom."""
        b, n = self.b, self.n
        self.sweeps.set(self.sweeps.get() + 1)
        self.tries.set(self.tries.get() + 1)
        shifts = self._shifts(top, bottom)
        start = b.variable(bottom - 2)
        first = [b.variable(n.of(0.0)) for _ in range(3)]
        self._look(start.get(), shifts, first)

        def goes_up() -> Scalar:
            row = start.get()
            return n.both(n.less(top, row), n.no(self._may_begin(row, first)))

        with b.while_(goes_up):
            start.set(start.get() - 1)
            self._look(start.get(), shifts, first)
        step = b.variable(start.get())
        with b.while_(lambda: n.less(step.get(), bottom)):
            self._reflect(step.get(), start.get(), bottom, top, first)
            step.set(step.get() + 1)

    def _shifts(self, top: Scalar, bottom: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        """The eigenvalues of the last two rows: two real parts, and the first's imaginary one."""
        b, n = self.b, self.n
        tries = self.tries.get()
        is_stuck = n.equal(tries % SWEEPS_PER_EXCEPTIONAL_SHIFT, b.index(0))
        at_bottom = n.equal(tries % (2 * SWEEPS_PER_EXCEPTIONAL_SHIFT), b.index(0))
        here = b.select(at_bottom, bottom, top)
        beside = n.sum(
            b.select(at_bottom, self._size(bottom, bottom - 1), self._size(top + 1, top)),
            b.select(at_bottom, self._size(bottom - 1, bottom - 2), self._size(top + 2, top + 1)),
        )
        odd = n.plus_product(self.element(here, here), n.of(0.75), beside)
        a = b.select(is_stuck, odd, self.element(bottom - 1, bottom - 1))
        d = b.select(is_stuck, odd, self.element(bottom, bottom))
        c = b.select(is_stuck, beside, self.element(bottom, bottom - 1))
        other = n.product(n.of(-0.4375), beside)
        above = b.select(is_stuck, other, self.element(bottom - 1, bottom))
        sizes = [n.magnitude(each) for each in (a, above, c, d)]
        scale = n.sum(n.sum(sizes[0], sizes[1]), n.sum(sizes[2], sizes[3]))
        scale = n.kept(b.select(n.equal(scale, n.of(0.0)), n.of(1.0), scale))
        a, above, c, d = (n.quotient(each, scale) for each in (a, above, c, d))
        middle = n.kept(n.product(n.of(0.5), n.sum(a, d)))
        product = n.product(n.difference(a, middle), n.difference(d, middle))
        found = n.kept(n.minus_product(product, above, c))
        root = n.kept(n.root(n.magnitude(found)))
        plus, minus = n.sum(middle, root), n.difference(middle, root)
        nearer = n.at_most(n.magnitude(n.difference(plus, d)), n.magnitude(n.difference(minus, d)))
        is_pair = n.at_most(n.of(0.0), found)
        real = b.select(is_pair, middle, b.select(nearer, plus, minus))
        imaginary = b.select(is_pair, root, n.of(0.0))
        real, imaginary = n.kept(n.product(real, scale)), n.kept(n.product(imaginary, scale))
        return real, real, imaginary

    def _look(self, row: Scalar, shifts: Sequence[Scalar], first: Sequence[Cell]) -> None:
        """The first column of the shifted matrix's square, if the bulge begins at a row."""
        n = self.n
        one, two, imaginary = shifts
        here, after = self.element(row, row), self.element(row + 1, row + 1)
        below = self.element(row + 1, row)
        scale = n.sum(n.magnitude(n.difference(here, two)), n.magnitude(imaginary))
        scale = n.kept(n.sum(scale, n.magnitude(below)))
        scale = n.kept(self.b.select(n.equal(scale, n.of(0.0)), n.of(1.0), scale))
        below = n.quotient(below, scale)
        square = n.product(n.difference(here, one), n.quotient(n.difference(here, two), scale))
        square = n.plus_product(square, below, self.element(row, row + 1))
        square = n.plus_product(square, imaginary, n.quotient(imaginary, scale))
        total = n.difference(n.difference(n.sum(here, after), one), two)
        second = n.product(below, total)
        third = n.product(below, self.element(row + 2, row + 1))
        parts = [n.kept(each) for each in (square, second, third)]
        size = n.sum(n.sum(n.magnitude(parts[0]), n.magnitude(parts[1])), n.magnitude(parts[2]))
        size = n.kept(self.b.select(n.equal(size, n.of(0.0)), n.of(1.0), size))
        for cell, part in zip(first, parts, strict=True):
            cell.set(n.quotient(part, size))

    def _may_begin(self, row: Scalar, first: Sequence[Cell]) -> Scalar:
        """Whether two neighbouring elements are so small that the bulge may begin below them."""
        n = self.n
        one, two, three = (n.magnitude(cell.get()) for cell in first)
        around = n.sum(self._size(row - 1, row - 1), self._size(row, row))
        around = n.sum(around, self._size(row + 1, row + 1))
        bound = n.product(n.product(n.of(EPSILON), one), around)
        return n.at_most(n.product(self._size(row, row - 1), n.sum(two, three)), bound)

    def _reflect(
        self, row: Scalar, start: Scalar, bottom: Scalar, top: Scalar, first: Sequence[Cell]
    ) -> None:
        """Move the bulge one row down, by a reflector of three rows, or of the last two."""
        b, n = self.b, self.n
        is_first = n.equal(row, start)
        has_third = n.less(row + 1, bottom)
        column = self.element(row, row - 1)
        x = [
            n.kept(b.select(is_first, cell.get(), self.element(row + k, row - 1)))
            for k, cell in enumerate(first)
        ]
        x[2] = n.kept(b.select(has_third, x[2], n.of(0.0)))
        squares = n.kept(n.plus_product(n.product(x[1], x[1]), x[2], x[2]))
        is_zero = n.equal(squares, n.of(0.0))
        length = n.root(n.plus_product(squares, x[0], x[0]))
        beta = n.kept(b.select(is_zero, x[0], n.negative(n.signed(length, x[0]))))
        safe = b.select(is_zero, n.of(1.0), beta)
        tau = b.select(is_zero, n.of(0.0), n.quotient(n.difference(beta, x[0]), safe))
        tau = n.kept(tau)
        divisor = b.select(is_zero, n.of(1.0), n.difference(x[0], beta))
        v = [n.kept(n.quotient(each, divisor)) for each in x[1:]]
        last = b.select(has_third, row + 2, row + 1)
        rows = [row, row + 1, last]
        self._change_rows(self.h.matrix, rows, v, tau)
        self._change_columns(rows, v, tau, b.apply("minimum", row + 3, bottom), top)
        if self.with_basis:
            self._change_rows(self.h.basis, rows, v, tau)
        kept = n.product(column, n.difference(n.of(1.0), tau))
        with b.when(n.less(top, row)):
            self._put(row, row - 1, b.select(is_first, kept, beta))
            self._put(row + 1, row - 1, n.of(0.0))
            with b.when(has_third):
                self._put(row + 2, row - 1, n.of(0.0))

    def _change_rows(
        self, target: Memory, rows: Sequence[Scalar], v: Sequence[Scalar], tau: Scalar
    ) -> None:
        """Reflect three rows; of two, the third is the second again and changes nothing."""
        b, n = self.b, self.n
        held = [self._hold_row(row) for row in rows]
        with b.loop(self.h.size, lanes=True) as column:
            x = [b.load(target, [*self.at, row, column]) for row in held]
            total = n.plus_product(n.plus_product(x[0], v[0], x[1]), v[1], x[2])
            total = n.negative(n.product(tau, total))
            b.store(target, [*self.at, held[2], column], n.plus_product(x[2], total, v[1]))
            b.store(target, [*self.at, held[1], column], n.plus_product(x[1], total, v[0]))
            b.store(target, [*self.at, held[0], column], n.sum(x[0], total))

    def _change_columns(
        self, columns: Sequence[Scalar], v: Sequence[Scalar], tau: Scalar, end: Scalar, top: Scalar
    ) -> None:
        """Reflect three columns, in the rows up to ``end`` that matter."""
        b, n = self.b, self.n
        start = b.index(0) if self.with_basis else top
        held = [self._hold_row(column) for column in columns]
        with b.loop(end + 1 - start) as k:
            row = self._hold_row(start + k)
            x = [b.load(self.h.matrix, [*self.at, row, column]) for column in held]
            total = n.plus_product(n.plus_product(x[0], v[0], x[1]), v[1], x[2])
            total = n.kept(n.negative(n.product(tau, total)))
            b.store(self.h.matrix, [*self.at, row, held[2]], n.plus_product(x[2], total, v[1]))
            b.store(self.h.matrix, [*self.at, row, held[1]], n.plus_product(x[1], total, v[0]))
            b.store(self.h.matrix, [*self.at, row, held[0]], n.sum(x[0], total))

    # Two rows -------------------------------------------------------------------------------------

    def _pair(self, top: Scalar, bottom: Scalar) -> None:
        """Two rows in standard form: a triangle, or equal numbers on the diagonal (lanv2)."""
        a, above = self.element(top, top), self.element(top, bottom)
        below, d = self.element(bottom, top), self.element(bottom, bottom)
        cosine, sine, are_conjugate = self._standard_turn(a, above, below, d)
        self._turn_rows(self.h.matrix, top, bottom, cosine, sine)
        self._turn_columns(top, bottom, cosine, sine)
        if self.with_basis:
            self._turn_rows(self.h.basis, top, bottom, cosine, sine)
        self._finish_pair(top, bottom, are_conjugate)

    def _turn_rows(
        self, target: Memory, top: Scalar, bottom: Scalar, cosine: Scalar, sine: Scalar
    ) -> None:
        b, n = self.b, self.n
        upper, lower = self._hold_row(top), self._hold_row(bottom)
        with b.loop(self.h.size, lanes=True) as column:
            x, y = (b.load(target, [*self.at, row, column]) for row in (upper, lower))
            first = n.plus_product(n.product(cosine, x), sine, y)
            second = n.minus_product(n.product(cosine, y), sine, x)
            b.store(target, [*self.at, upper, column], first)
            b.store(target, [*self.at, lower, column], second)

    def _turn_columns(self, top: Scalar, bottom: Scalar, cosine: Scalar, sine: Scalar) -> None:
        b, n = self.b, self.n
        with b.loop(bottom + 1) as k:
            row = self._hold_row(k)
            x, y = self.element(row, top), self.element(row, bottom)
            self._put(row, top, n.plus_product(n.product(cosine, x), sine, y))
            self._put(row, bottom, n.minus_product(n.product(cosine, y), sine, x))

    def _finish_pair(self, top: Scalar, bottom: Scalar, are_conjugate: Scalar) -> None:
        """The two eigenvalues, and exact zeros and equals where rounding left almost that."""
        b, n = self.b, self.n
        a, d = self.element(top, top), self.element(bottom, bottom)
        above, below = self.element(top, bottom), self.element(bottom, top)
        middle = n.product(n.of(0.5), n.sum(a, d))
        a, d = (n.kept(b.select(are_conjugate, middle, each)) for each in (a, d))
        below = n.kept(b.select(are_conjugate, below, n.of(0.0)))
        root = n.product(n.root(n.magnitude(above)), n.root(n.magnitude(below)))
        root = n.kept(b.select(are_conjugate, root, n.of(0.0)))
        self._put(top, top, a)
        self._put(bottom, bottom, d)
        self._put(bottom, top, below)
        self._store_value(top, a, root)
        self._store_value(bottom, d, b.select(are_conjugate, n.negative(root), root))

    def _standard_turn(
        self, a: Scalar, above: Scalar, below: Scalar, d: Scalar
    ) -> tuple[Scalar, Scalar, Scalar]:
        """The cosine and sine that take two rows to standard form, and whether that is no triangle.

        A triangle has two real eigenvalues, other rows in this form two conjugate ones.
        """
        b, n = self.b, self.n
        zero, one, half = n.of(0.0), n.of(1.0), n.of(0.5)
        gap = n.difference(a, d)
        p = n.kept(n.product(half, gap))
        sizes = n.magnitude(above), n.magnitude(below)
        most, least = n.larger(*sizes), b.apply("minimum", *sizes)
        least = n.product(least, n.product(n.signed(one, above), n.signed(one, below)))
        scale = n.larger(n.magnitude(p), most)
        scale = n.kept(b.select(n.equal(scale, zero), one, scale))
        found = n.product(n.quotient(p, scale), p)
        found = n.kept(n.plus_product(found, n.quotient(most, scale), least))
        are_real = n.at_most(n.of(4 * EPSILON), found)
        root = n.product(n.root(scale), n.root(n.larger(found, zero)))
        z = n.kept(n.sum(p, n.signed(root, p)))
        length = n.kept(n.root(n.plus_product(n.product(below, below), z, z)))
        safe = b.select(n.equal(length, zero), one, length)
        straight = n.quotient(z, safe), n.quotient(below, safe)
        # Nearly equal or conjugate: make the diagonal equal, and then a triangle if it can be one.
        both = n.kept(n.sum(above, below))
        tau = n.root(n.plus_product(n.product(both, both), gap, gap))
        tau = n.kept(b.select(n.equal(tau, zero), one, tau))
        share = n.quotient(n.magnitude(both), tau)
        cosine = n.kept(n.root(n.product(half, n.sum(one, share))))
        sine = n.quotient(p, n.product(tau, cosine))
        sine = n.kept(n.negative(n.product(sine, n.signed(one, both))))
        cosine, sine, stays = self._as_triangle((a, above, below, d), cosine, sine)
        is_triangle = n.equal(below, zero)
        is_turned = n.equal(above, zero)
        opposite = n.less(n.product(n.signed(one, above), n.signed(one, below)), zero)
        is_full = n.no(n.either(is_triangle, is_turned))
        is_pair = n.both(n.both(n.equal(gap, zero), opposite), is_full)
        is_standard = n.either(is_triangle, is_pair)
        c = b.select(are_real, straight[0], cosine)
        s = b.select(are_real, straight[1], sine)
        c, s = b.select(is_turned, zero, c), b.select(is_turned, one, s)
        stays = n.both(stays, n.both(is_full, n.no(are_real)))
        return (
            n.kept(b.select(is_standard, one, c)),
            n.kept(b.select(is_standard, zero, s)),
            n.either(is_pair, stays),
        )

    def _as_triangle(
        self, rows: tuple[Scalar, Scalar, Scalar, Scalar], cosine: Scalar, sine: Scalar
    ) -> tuple[Scalar, Scalar, Scalar]:
        """Turned on, if rows of an equal diagonal have real eigenvalues after all; else whether."""
        b, n = self.b, self.n
        zero, one = n.of(0.0), n.of(1.0)
        a, above, below, d = rows
        left = n.plus_product(n.product(a, cosine), above, sine)
        right = n.minus_product(n.product(above, cosine), a, sine)
        low = n.plus_product(n.product(below, cosine), d, sine)
        far = n.minus_product(n.product(d, cosine), below, sine)
        above = n.kept(n.plus_product(n.product(right, cosine), far, sine))
        below = n.kept(n.minus_product(n.product(low, cosine), left, sine))
        same = n.less(zero, n.product(n.signed(one, above), n.signed(one, below)))
        is_any = n.both(n.no(n.equal(below, zero)), n.no(n.equal(above, zero)))
        total = n.magnitude(n.sum(above, below))
        scale = n.root(b.select(n.equal(total, zero), one, total))
        c = n.quotient(n.root(n.magnitude(above)), scale)
        s = n.quotient(n.root(n.magnitude(below)), scale)
        turned = n.both(same, is_any)
        is_low = n.both(n.equal(above, zero), n.no(n.equal(below, zero)))
        on = n.minus_product(n.product(cosine, c), sine, s)
        across = n.plus_product(n.product(cosine, s), sine, c)
        found = b.select(turned, on, cosine), b.select(turned, across, sine)
        return (
            b.select(is_low, n.negative(sine), found[0]),
            b.select(is_low, cosine, found[1]),
            n.both(is_any, n.no(same)),
        )
