"""Hermitian matrices made tridiagonal, and the eigenvalues of tridiagonal ones, as loops.

Reflectors I - tau v vᴴ from both sides take what lies off three diagonals to zero, column by
column. The change that one makes to the rest of the matrix is held back until the next one is
known: then each row is changed and multiplied by it in one visit. The iteration is LAPACK's steqr:
implicit QL, or QR where the larger numbers lie at the other end, with Wilkinson's shift. Signs are
LAPACK's too.
"""

from __future__ import annotations

from collections.abc import Sequence

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Shape
from monograph.ir.lower import Cell, LoopBuilder, Memory, Position, Scalar
from monograph.ir.types import DType, f64
from monograph.ops.householder_loops import make_reflector
from monograph.ops.loop_numbers import Numbers
from monograph.ops.rotation_loops import Recorder

EPSILON = 2.0**-53
MIN_NORMAL = 2.0**-1022
ROWS_PER_STEP = 4
"""Rows that are visited at once."""


@dataclass(frozen=True)
class Tridiagonal:
    """A batch of matrices on the way: reflectors in their rows, and the two diagonals."""

    matrix: Memory
    """Row i holds the reflector of column i, from column i + 1 on."""
    tau: Memory
    diagonal: Memory
    beside: Memory
    vectors: tuple[Memory, Memory, Memory]
    """The last reflector v, its w, and the next product: the change is v wᴴ + w vᴴ."""
    is_turned: bool
    """Whether the two diagonals are written from their end."""

    @property
    def size(self) -> Dim:
        return self.matrix.shape[-1]

    @classmethod
    def room(cls, b: LoopBuilder, dtype: DType, vector: Shape, is_turned: bool) -> Tridiagonal:
        """Memory for matrices whose rows are ``vector``, batch and all."""
        return cls(
            b.temporary(dtype, (*vector, vector[-1])),
            b.temporary(dtype, vector),
            b.temporary(f64, vector),
            b.temporary(f64, vector),
            (b.temporary(dtype, vector), b.temporary(dtype, vector), b.temporary(dtype, vector)),
            is_turned,
        )


def make_tridiagonal(b: LoopBuilder, t: Tridiagonal, at: Position) -> None:
    """Reduce one matrix, whole and Hermitian, to its two diagonals and its reflectors."""
    n, size = Numbers(b), t.size
    reflector, other, product = t.vectors
    with b.loop(size, lanes=True) as k:
        b.store(reflector, [*at, k], n.of(0.0))
        b.store(other, [*at, k], n.of(0.0))
    with b.loop(size) as step:
        _change_row(b, t, at, step)
        place = size - 1 - step if t.is_turned else step
        b.store(t.diagonal, [*at, place], n.real(b.load(t.matrix, [*at, step, step])))
        with b.when(b.apply("less", step, b.index(size - 1))):
            _make_reflector(b, t, at, step)
            with b.loop(size - 1 - step, lanes=True) as k:
                b.store(product, [*at, step + 1 + k], n.of(0.0))
            rows = size - 1 - step
            with b.loop(rows // ROWS_PER_STEP) as block:
                first = step + 1 + block * ROWS_PER_STEP
                _change_and_multiply(b, t, at, step, [first + k for k in range(ROWS_PER_STEP)])
            with b.loop(rows % ROWS_PER_STEP) as k:
                _change_and_multiply(
                    b, t, at, step, [step + 1 + rows // ROWS_PER_STEP * ROWS_PER_STEP + k]
                )
            _hold_back(b, t, at, step)


def _change_row(b: LoopBuilder, t: Tridiagonal, at: Position, row: Scalar) -> None:
    """The change of the last step, made to one row from its diagonal on."""
    n = Numbers(b)
    reflector, other, _ = t.vectors
    v, w = (b.load(each, [*at, row]) for each in (reflector, other))
    with b.loop(t.size - row, lanes=True) as k:
        _change(n, t, [*at, row, row + k], v, w)


def _change(n: Numbers, t: Tridiagonal, place: Position, v: Scalar, w: Scalar) -> Scalar:
    """An element less v wᴴ + w vᴴ, written in its place."""
    b, (reflector, other, _) = n.b, t.vectors
    beside = [*place[:-2], place[-1]]
    value = n.minus_product(b.load(t.matrix, place), v, n.conjugate(b.load(other, beside)))
    value = n.minus_product(value, w, n.conjugate(b.load(reflector, beside)))
    b.store(t.matrix, place, value)
    return value


def _make_reflector(b: LoopBuilder, t: Tridiagonal, at: Position, step: Scalar) -> None:
    """The reflector of a column, in its row, and the element beside the diagonal."""
    n = Numbers(b)
    if t.matrix.dtype.is_complex:  # the column is the conjugate of the row
        with b.loop(t.size - 1 - step, lanes=True) as k:
            place = [*at, step, step + 1 + k]
            b.store(t.matrix, place, n.conjugate(b.load(t.matrix, place)))
    tau, beside = make_reflector(b, t.matrix, at, step, step + 1)
    b.store(t.tau, [*at, step], tau)
    place = [*at, t.size - 2 - step if t.is_turned else step]
    b.store(t.beside, place, beside)


def _change_and_multiply(
    b: LoopBuilder, t: Tridiagonal, at: Position, step: Scalar, rows: Sequence[Scalar]
) -> None:
    """The last step's change made to some rows, and those added to the product with the next v."""
    n = Numbers(b)
    reflector, other, product = t.vectors
    held = [[b.load(each, [*at, row]) for each in (reflector, other)] for row in rows]
    factors = [b.load(t.matrix, [*at, step, row]) for row in rows]
    with b.loop(t.size - 1 - step, lanes=True) as k:
        column = step + 1 + k
        total = b.load(product, [*at, column])
        for row, (v, w), factor in zip(rows, held, factors, strict=True):
            value = _change(n, t, [*at, row, column], v, w)
            total = n.plus_product(total, n.conjugate(value), factor)
        b.store(product, [*at, column], total)


def _hold_back(b: LoopBuilder, t: Tridiagonal, at: Position, step: Scalar) -> None:
    """v, and w = x - tau/2 (xᴴ v) v with x = tau A v: the change that the next step makes."""
    n = Numbers(b)
    reflector, other, product = t.vectors
    tau = b.load(t.tau, [*at, step])
    along = b.variable(b.cast(n.of(0.0), t.matrix.dtype))
    with b.loop(t.size - 1 - step) as k:
        x = n.product(tau, b.load(product, [*at, step + 1 + k]))
        v = b.load(t.matrix, [*at, step, step + 1 + k])
        along.set(n.plus_product(along.get(), n.conjugate(x), v))
    back = n.negative(n.product(n.product(tau, n.of(0.5)), along.get()))
    with b.loop(t.size - 1 - step, lanes=True) as k:
        v = b.load(t.matrix, [*at, step, step + 1 + k])
        x = n.product(tau, b.load(product, [*at, step + 1 + k]))
        b.store(other, [*at, step + 1 + k], n.plus_product(x, back, v))
        b.store(reflector, [*at, step + 1 + k], v)


# The iteration ------------------------------------------------------------------------------------


class Iteration:
    """Implicit QL or QR on the two diagonals of one matrix; the diagonal becomes its eigenvalues.

    A block of rows that hang together is walked in ``step``'s direction, from ``here`` to ``last``,
    both of which move as eigenvalues are found.
    """

    def __init__(
        self, b: LoopBuilder, t: Tridiagonal, at: Position, recorder: Recorder | None
    ) -> None:
        self.b, self.n, self.t, self.at, self.recorder = b, Numbers(b), t, at, recorder
        self.first, self.here, self.last, self.step = (b.variable(b.index(0)) for _ in range(4))
        self.sweeps = b.variable(b.index(0))

    def run(self) -> Scalar:
        """All eigenvalues; whether they were found."""
        b, n, size = self.b, self.n, self.t.size
        with b.while_(lambda: n.both(n.less(self.first.get(), b.index(size)), self._goes_on())):
            self._find_block()
            with b.while_(lambda: n.both(self._in_block(), self._goes_on())):
                self._next()
        return self._goes_on()

    def _goes_on(self) -> Scalar:
        fewer = self.n.less(self.sweeps.get(), self.b.index(30 * self.t.size + 30))
        return fewer if self.recorder is None else self.n.both(fewer, self.recorder.has_room())

    def _in_block(self) -> Scalar:
        return self.n.at_most(
            self.b.index(0), (self.last.get() - self.here.get()) * self.step.get()
        )

    def d(self, row: Scalar) -> Scalar:
        return self.b.load(self.t.diagonal, [*self.at, row])

    def e(self, row: Scalar) -> Scalar:
        return self.b.load(self.t.beside, [*self.at, row])

    def _between(self, row: Scalar) -> Scalar:
        """Where the element between a row and the one after it in the direction is."""
        return row + (self.step.get() - 1) // 2

    def _find_block(self) -> None:
        """The next rows up to a negligible element, and where to begin."""
        b, n, size = self.b, self.n, self.t.size
        end = b.variable(self.first.get())

        def hangs_together() -> Scalar:
            row = b.clamp(end.get(), 0, size - 1)
            product = n.product(n.root(n.magnitude(self.d(row))), n.of(EPSILON))
            bound = n.product(n.root(n.magnitude(self.d(self._after(row)))), product)
            inside = n.less(end.get(), b.index(size - 1))
            return n.both(inside, n.no(n.at_most(n.magnitude(self.e(row)), bound)))

        with b.while_(hangs_together):
            end.set(end.get() + 1)
        start, last = self.first.get(), end.get()
        self.first.set(last + 1)
        turned = n.less(n.magnitude(self.d(last)), n.magnitude(self.d(start)))
        self.here.set(b.select(turned, last, start))
        self.last.set(b.select(turned, start, last))
        self.step.set(b.select(turned, b.index(-1), b.index(1)))

    def _after(self, row: Scalar) -> Scalar:
        return self.b.clamp(row + 1, 0, self.t.size)

    def _next(self) -> None:
        """One eigenvalue if it is there, two of the last two rows, or a sweep towards one."""
        b, n = self.b, self.n
        end = b.variable(self.here.get())

        def matters() -> Scalar:
            row = end.get()
            inside = n.no(n.equal(row, self.last.get()))
            other = b.select(inside, row + self.step.get(), row)
            between = self._between(b.select(inside, row, row - self.step.get()))
            element = self.e(b.clamp(between, 0, self.t.size))
            bound = n.product(n.magnitude(self.d(row)), n.of(EPSILON * EPSILON))
            bound = n.plus_product(n.of(MIN_NORMAL), n.magnitude(self.d(other)), bound)
            return n.both(inside, n.no(n.at_most(n.product(element, element), bound)))

        with b.while_(matters):
            end.set(end.get() + self.step.get())
        length = (end.get() - self.here.get()) * self.step.get()
        with b.when(n.no(n.equal(end.get(), self.last.get()))):
            b.store(self.t.beside, [*self.at, self._between(end.get())], n.of(0.0))
        here = self.here.get()
        with b.when(n.equal(length, b.index(0))):
            self.here.set(here + self.step.get())
        with b.when(n.equal(length, b.index(1))):
            self._pair(here)
            self.here.set(here + self.step.get() * 2)
        with b.when(n.less(b.index(1), length)):
            self._sweep(end.get(), length)

    def _pair(self, here: Scalar) -> None:
        """The eigenvalues of two rows, the larger in magnitude first (LAPACK's laev2)."""
        b, n = self.b, self.n
        row = self._between(here)
        a, between, c = self.d(row), self.e(row), self.d(row + 1)
        total, gap, twice = n.sum(a, c), n.difference(a, c), n.sum(between, between)
        root = n.root(n.plus_product(n.product(gap, gap), twice, twice))
        half = n.of(0.5)
        positive = n.at_most(n.of(0.0), total)
        first = n.product(half, n.sum(total, n.signed(root, total)))
        first = b.select(n.equal(total, n.of(0.0)), n.product(half, root), first)
        is_larger = n.less(n.magnitude(c), n.magnitude(a))
        larger, smaller = b.select(is_larger, a, c), b.select(is_larger, c, a)
        second = n.product(n.quotient(larger, first), smaller)
        second = n.minus_product(second, n.quotient(between, first), between)
        second = b.select(n.equal(total, n.of(0.0)), n.negative(first), second)
        rises = n.at_most(n.of(0.0), gap)
        side = b.select(rises, n.sum(gap, root), n.difference(gap, root))
        is_long = n.less(n.magnitude(twice), n.magnitude(side))
        ratio = b.select(is_long, n.quotient(twice, side), n.quotient(side, twice))
        one = n.quotient(n.of(1.0), n.root(n.plus_product(n.of(1.0), ratio, ratio)))
        other = n.negative(n.product(ratio, one))
        cosine, sine = b.select(is_long, other, one), b.select(is_long, one, other)
        same = n.equal(positive, rises)
        b.store(self.t.diagonal, [*self.at, row], first)
        b.store(self.t.diagonal, [*self.at, row + 1], second)
        b.store(self.t.beside, [*self.at, row], n.of(0.0))
        if self.recorder is not None:
            self.recorder.sweep(row + 1, b.index(1), b.index(-1))
            self.recorder.rotation(
                b.select(same, n.negative(sine), cosine), b.select(same, cosine, sine)
            )

    def _sweep(self, end: Scalar, length: Scalar) -> None:
        """A sweep with Wilkinson's shift, from the block's end back to where it is taken from."""
        b, n, step = self.b, self.n, self.step.get()
        here = self.here.get()
        self.sweeps.set(self.sweeps.get() + 1)
        top, near = self.d(here), self.e(self._between(here))
        ratio = n.quotient(n.difference(self.d(here + step), top), n.sum(near, near))
        root = n.root(n.plus_product(n.of(1.0), ratio, ratio))
        shifted = n.difference(self.d(end), top)
        shifted = n.sum(shifted, n.quotient(near, n.sum(ratio, n.signed(root, ratio))))
        if self.recorder is not None:
            self.recorder.sweep(end, length, b.index(0) - step)
        g, s, c, p = (b.variable(each) for each in (shifted, n.of(1.0), n.of(1.0), n.of(0.0)))
        row = b.variable(end)
        with b.loop(length) as k:
            self._rotate((g, s, c, p), row.get(), step, n.less(b.index(0), k))
            row.set(row.get() - step)
        b.store(self.t.diagonal, [*self.at, here], n.difference(self.d(here), p.get()))
        b.store(self.t.beside, [*self.at, self._between(here)], g.get())

    def _rotate(
        self, state: tuple[Cell, Cell, Cell, Cell], row: Scalar, step: Scalar, goes_on: Scalar
    ) -> None:
        """One rotation: of ``row`` and the row before it in the direction."""
        b, n = self.b, self.n
        g, s, c, p = state
        before = row - step
        between = self.e(self._between(before))
        f, kept = n.product(s.get(), between), n.product(c.get(), between)
        cosine, sine, length = n.rotation(g.get(), f)
        with b.when(goes_on):
            b.store(self.t.beside, [*self.at, self._between(row)], length)
        low = n.difference(self.d(row), p.get())
        spread = n.product(n.difference(self.d(before), low), sine)
        spread = n.plus_product(spread, n.product(n.of(2.0), cosine), kept)
        p.set(n.product(sine, spread))
        b.store(self.t.diagonal, [*self.at, row], n.sum(low, n.product(sine, spread)))
        g.set(n.difference(n.product(cosine, spread), kept))
        c.set(cosine)
        s.set(sine)
        if self.recorder is not None:
            self.recorder.rotation(cosine, n.negative(sine))
