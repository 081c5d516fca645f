"""Schur's form of complex matrices, as loops: a triangle.

A QR iteration on a Hessenberg matrix with Wilkinson's shift, from the bottom up: a rotation of the
first two rows makes a bulge of one element, and further ones chase it down. Rows are changed in
their whole length, zeros included: vectors are that long.
"""

from __future__ import annotations

from monograph.ir.lower import Cell, Memory, Scalar
from monograph.ops.schur_loops import (
    EPSILON,
    MIN_NORMAL,
    SWEEPS_PER_EXCEPTIONAL_SHIFT,
    SchurIteration,
)


class ComplexIteration(SchurIteration):
    """The iteration on a complex matrix."""

    def _step(self, top: Scalar, bottom: Scalar) -> None:
        b, n = self.b, self.n
        is_found = n.equal(top, bottom)
        with b.when(is_found):
            self._store_value(bottom)
            self.bottom.set(bottom - 1)
            self.tries.set(b.index(0))
        with b.when(n.no(is_found)):
            self._sweep(top, bottom)

    def _size(self, row: Scalar, column: Scalar) -> Scalar:
        """The magnitudes of an element's parts, added up."""
        return self._extent(self.element(row, column))

    def _extent(self, x: Scalar) -> Scalar:
        b, n = self.b, self.n
        return n.sum(*(n.magnitude(b.apply(part, x)) for part in ("real", "imag")))

    def _store_value(self, row: Scalar) -> None:
        b, value = self.b, self.element(row, row)
        for number, part in enumerate(("real", "imag")):
            place = [*self.at, b.index(number), self._hold_row(row)]
            b.store(self.parts, place, b.apply(part, value))

    def _is_negligible(self, row: Scalar) -> Scalar:
        n = self.n
        total = n.sum(self._size(row - 1, row - 1), self._size(row, row))
        bound = n.larger(n.product(n.of(EPSILON), total), n.of(MIN_NORMAL / EPSILON))
        return n.at_most(self._size(row, row - 1), bound)

    def _shift(self, top: Scalar, bottom: Scalar) -> Scalar:
        """The eigenvalue of the last two rows that is nearer to the last element."""
        b, n = self.b, self.n
        tries = self.tries.get()
        here = self.element(bottom, bottom)
        half = n.product(n.difference(self.element(bottom - 1, bottom - 1), here), n.of(0.5))
        half = n.kept(half)
        across = n.product(self.element(bottom - 1, bottom), self.element(bottom, bottom - 1))
        across = n.kept(across)
        root = n.kept(n.root(n.sum(n.product(half, half), across)))
        along = n.real(n.product(n.conjugate(half), root))
        root = b.select(n.less(along, n.of(0.0)), n.negative(root), root)
        divisor = n.kept(n.sum(half, root))
        is_nothing = n.equal(self._extent(divisor), n.of(0.0))
        safe = b.select(is_nothing, b.cast(n.of(1.0), divisor.dtype), divisor)
        usual = n.difference(here, n.quotient(across, safe))
        odd = n.product(n.of(0.75), self._size(bottom, bottom - 1))
        is_stuck = n.equal(tries % SWEEPS_PER_EXCEPTIONAL_SHIFT, b.index(0))
        return n.kept(b.select(is_stuck, n.sum(here, b.cast(odd, here.dtype)), usual))

    def _sweep(self, top: Scalar, bottom: Scalar) -> None:
        """Chase a bulge from the top to the bottom."""
        b, n = self.b, self.n
        self.sweeps.set(self.sweeps.get() + 1)
        self.tries.set(self.tries.get() + 1)
        shift = self._shift(top, bottom)
        x: Cell = b.variable(n.difference(self.element(top, top), shift))
        y: Cell = b.variable(self.element(top + 1, top))
        row = b.variable(top)
        with b.while_(lambda: n.less(row.get(), bottom)):
            here = row.get()
            cosine, sine = self._rotation(x.get(), y.get())
            self._turn_rows(self.h.matrix, here, cosine, sine, is_basis=False)
            with b.when(n.less(top, here)):
                self._put(here + 1, here - 1, n.of(0.0))
            self._turn_columns(here, cosine, sine, b.apply("minimum", here + 2, bottom), top)
            if self.with_basis:
                self._turn_rows(self.h.basis, here, cosine, sine, is_basis=True)
            x.set(self.element(here + 1, here))
            y.set(self.element(here + 2, here))
            row.set(here + 1)

    def _rotation(self, x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
        """(c, s), c real, with c x + s y the length of both in x's direction, -s̄ x + c y = 0."""
        b, n = self.b, self.n
        size, other = n.kept(n.magnitude(x)), n.kept(n.magnitude(y))
        length = n.root(n.plus_product(n.product(size, size), other, other))
        is_none = n.equal(length, n.of(0.0))
        length = n.kept(b.select(is_none, n.of(1.0), length))
        is_straight = n.equal(size, n.of(0.0))
        safe = b.select(is_straight, n.of(1.0), size)
        one = b.cast(n.of(1.0), x.dtype)
        direction = b.select(is_straight, one, n.quotient(x, b.cast(safe, x.dtype)))
        sine = n.product(direction, n.quotient(n.conjugate(y), b.cast(length, y.dtype)))
        cosine = b.select(is_none, n.of(1.0), n.quotient(size, length))
        return n.kept(cosine), n.kept(sine)

    def _turn_rows(
        self, target: Memory, row: Scalar, cosine: Scalar, sine: Scalar, is_basis: bool
    ) -> None:
        """Turn two rows; the basis' rows are columns, which the adjoint turns."""
        b, n = self.b, self.n
        upper, lower = self._hold_row(row), self._hold_row(row + 1)
        s = n.conjugate(sine) if is_basis else sine
        with b.loop(self.h.size, lanes=True) as column:
            x, y = (b.load(target, [*self.at, each, column]) for each in (upper, lower))
            first = n.sum(n.product(cosine, x), n.product(s, y))
            second = n.difference(n.product(cosine, y), n.product(n.conjugate(s), x))
            b.store(target, [*self.at, upper, column], first)
            b.store(target, [*self.at, lower, column], second)

    def _turn_columns(
        self, column: Scalar, cosine: Scalar, sine: Scalar, end: Scalar, top: Scalar
    ) -> None:
        """Turn two columns back, in the rows up to ``end`` that matter."""
        b, n = self.b, self.n
        start = b.index(0) if self.with_basis else top
        back = n.conjugate(sine)
        with b.loop(end + 1 - start) as k:
            row = start + k
            x, y = self.element(row, column), self.element(row, column + 1)
            self._put(row, column, n.sum(n.product(cosine, x), n.product(back, y)))
            self._put(row, column + 1, n.difference(n.product(cosine, y), n.product(sine, x)))
