"""Matrices made bidiagonal, and the singular values of bidiagonal ones, as loops.

Reflectors from the left take what lies below the diagonal to zero, reflectors from the right what
lies beyond its neighbour. The iteration is that of Golub, Kahan and Demmel (LAPACK's bdsqr): QR
with an implicit shift, or with none where a singular value is next to nothing, from the larger end
of a block to the smaller one.
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
TOLERANCE = 64 * EPSILON
MIN_MAGNITUDE = 2.0**-1000
ROWS_PER_STEP = 4
"""Rows that are visited at once."""
PARTIAL_SUMS = 8
"""Partial sums of a product of two rows."""
LEFT, RIGHT = 0, 1


@dataclass(frozen=True)
class Bidiagonal:
    """A batch of matrices, at least as high as wide, on the way to two diagonals."""

    matrix: Memory
    """Row k holds the reflector from the right, from column k + 1 on."""
    left: Memory
    """Row k holds the reflector from the left, from row k of the matrix on."""
    taus: tuple[Memory, Memory]
    diagonal: Memory
    beside: Memory
    sums: Memory
    partial: Memory

    @property
    def rows(self) -> Dim:
        return self.matrix.shape[-2]

    @property
    def columns(self) -> Dim:
        return self.matrix.shape[-1]

    @classmethod
    def room(cls, b: LoopBuilder, dtype: DType, shape: Shape) -> Bidiagonal:
        """Memory for matrices of a shape."""
        *batch, rows, columns = shape
        vector = (*batch, columns)
        return cls(
            b.temporary(dtype, shape),
            b.temporary(dtype, (*batch, columns, rows)),
            (b.temporary(dtype, vector), b.temporary(dtype, vector)),
            b.temporary(f64, vector),
            b.temporary(f64, vector),
            b.temporary(dtype, vector),
            b.temporary(dtype, (*batch, ROWS_PER_STEP, PARTIAL_SUMS)),
        )


def make_bidiagonal(b: LoopBuilder, t: Bidiagonal, at: Position) -> None:
    """Reduce one matrix to its two diagonals and its reflectors."""
    n = Numbers(b)
    with b.loop(t.columns) as step:
        with b.loop(t.rows - step) as k:
            held = b.load(t.matrix, [*at, step + k, step])
            b.store(t.left, [*at, step, step + k], held)
        tau, diagonal = make_reflector(b, t.left, at, step, step)
        b.store(t.taus[LEFT], [*at, step], tau)
        b.store(t.diagonal, [*at, step], diagonal)
        with b.when(n.less(step, b.index(t.columns - 1))):
            _reflect_from_left(b, t, at, step, n.conjugate(tau))
            _make_right(b, t, at, step)
            _in_blocks(b, t, at, step)


def _reflect_from_left(
    b: LoopBuilder, t: Bidiagonal, at: Position, step: Scalar, tau: Scalar
) -> None:
    """What the reflector takes from each column, times tau, and row ``step`` less its share."""
    n = Numbers(b)
    width = t.columns - 1 - step
    with b.loop(width, lanes=True) as k:
        b.store(t.sums, [*at, step + 1 + k], n.of(0.0))
    rows = t.rows - step
    with b.loop(rows // ROWS_PER_STEP) as block:
        _add_rows(b, t, at, step, [step + block * ROWS_PER_STEP + k for k in range(ROWS_PER_STEP)])
    with b.loop(rows % ROWS_PER_STEP) as k:
        _add_rows(b, t, at, step, [step + rows // ROWS_PER_STEP * ROWS_PER_STEP + k])
    with b.loop(width, lanes=True) as k:
        taken = n.product(tau, b.load(t.sums, [*at, step + 1 + k]))
        b.store(t.sums, [*at, step + 1 + k], taken)
        place = [*at, step, step + 1 + k]
        b.store(t.matrix, place, n.difference(b.load(t.matrix, place), taken))


def _add_rows(
    b: LoopBuilder, t: Bidiagonal, at: Position, step: Scalar, rows: Sequence[Scalar]
) -> None:
    """Add some rows, times the reflector's elements, to the sums."""
    n = Numbers(b)
    factors = [n.conjugate(b.load(t.left, [*at, step, row])) for row in rows]
    with b.loop(t.columns - 1 - step, lanes=True) as k:
        total = b.load(t.sums, [*at, step + 1 + k])
        for row, factor in zip(rows, factors, strict=True):
            total = n.plus_product(total, b.load(t.matrix, [*at, row, step + 1 + k]), factor)
        b.store(t.sums, [*at, step + 1 + k], total)


def _make_right(b: LoopBuilder, t: Bidiagonal, at: Position, step: Scalar) -> None:
    """The reflector of a row, in its place, and the element beside the diagonal."""
    n = Numbers(b)
    if t.matrix.dtype.is_complex:
        with b.loop(t.columns - 1 - step, lanes=True) as k:
            place = [*at, step, step + 1 + k]
            b.store(t.matrix, place, n.conjugate(b.load(t.matrix, place)))
    tau, beside = make_reflector(b, t.matrix, at, step, step + 1)
    b.store(t.taus[RIGHT], [*at, step], tau)
    b.store(t.beside, [*at, step], beside)


def _in_blocks(b: LoopBuilder, t: Bidiagonal, at: Position, step: Scalar) -> None:
    """Both reflectors applied to the rows below ``step``, a few at a time."""
    rows = t.rows - 1 - step
    with b.loop(rows // ROWS_PER_STEP) as block:
        _reflect_rows(
            b, t, at, step, [step + 1 + block * ROWS_PER_STEP + k for k in range(ROWS_PER_STEP)]
        )
    with b.loop(rows % ROWS_PER_STEP) as k:
        _reflect_rows(b, t, at, step, [step + 1 + rows // ROWS_PER_STEP * ROWS_PER_STEP + k])


def _reflect_rows(
    b: LoopBuilder, t: Bidiagonal, at: Position, step: Scalar, rows: Sequence[Scalar]
) -> None:
    """Some rows less the left reflector's share, and then less the right one's."""
    n, width = Numbers(b), t.columns - 1 - step
    factors = [n.negative(b.load(t.left, [*at, step, row])) for row in rows]

    def changed(row: Scalar, factor: Scalar, column: Scalar) -> Scalar:
        """An element less the left reflector's share, written in its place."""
        place = [*at, row, column]
        value = n.plus_product(b.load(t.matrix, place), factor, b.load(t.sums, [*at, column]))
        b.store(t.matrix, place, value)
        return value

    whole = width // PARTIAL_SUMS
    with b.loop(PARTIAL_SUMS, lanes=True) as lane:
        totals = [b.variable(b.cast(n.of(0.0), t.matrix.dtype)) for _ in rows]
        with b.loop(whole) as piece:
            column = step + 1 + piece * PARTIAL_SUMS + lane
            u = b.load(t.matrix, [*at, step, column])
            for row, factor, total in zip(rows, factors, totals, strict=True):
                total.set(n.plus_product(total.get(), changed(row, factor, column), u))
        for number, total in enumerate(totals):
            b.store(t.partial, [*at, b.index(number), lane], total.get())
    sums = [b.variable(b.cast(n.of(0.0), t.matrix.dtype)) for _ in rows]
    with b.loop(PARTIAL_SUMS) as lane:
        for number, total in enumerate(sums):
            total.set(n.sum(total.get(), b.load(t.partial, [*at, b.index(number), lane])))
    with b.loop(width % PARTIAL_SUMS) as k:
        column = step + 1 + whole * PARTIAL_SUMS + k
        u = b.load(t.matrix, [*at, step, column])
        for row, factor, total in zip(rows, factors, sums, strict=True):
            total.set(n.plus_product(total.get(), changed(row, factor, column), u))
    tau = n.negative(b.load(t.taus[RIGHT], [*at, step]))
    shares = [n.product(tau, total.get()) for total in sums]
    with b.loop(width, lanes=True) as k:
        column = step + 1 + k
        u = n.conjugate(b.load(t.matrix, [*at, step, column]))
        for row, share in zip(rows, shares, strict=True):
            place = [*at, row, column]
            b.store(t.matrix, place, n.plus_product(b.load(t.matrix, place), share, u))


# The iteration ------------------------------------------------------------------------------------


class Iteration:
    """QR on the two diagonals of one matrix; the diagonal becomes its singular values.

    They come in any order, and with signs that the vectors take. ``end`` is the last row that is
    not done, ``start`` the first of those that hang together with it. A sweep goes from ``first``
    to ``last`` of these, in ``step``'s direction: the other one swaps left and right.
    """

    def __init__(
        self, b: LoopBuilder, t: Bidiagonal, at: Position, recorder: Recorder | None
    ) -> None:
        self.b, self.n, self.t, self.at, self.recorder = b, Numbers(b), t, at, recorder
        self.sweeps, self.step = b.variable(b.index(0)), b.variable(b.index(1))
        self.end = b.variable(b.index(t.columns - 1))

    def d(self, row: Scalar) -> Scalar:
        return self.b.load(self.t.diagonal, [*self.at, row])

    def e(self, row: Scalar) -> Scalar:
        return self.b.load(self.t.beside, [*self.at, row])

    def put_d(self, row: Scalar, value: Scalar) -> None:
        self.b.store(self.t.diagonal, [*self.at, row], value)

    def put_e(self, row: Scalar, value: Scalar) -> None:
        self.b.store(self.t.beside, [*self.at, row], value)

    def _after(self, row: Scalar) -> Scalar:
        """Where the element between a row and the one after it in the direction is."""
        return row + (self.step.get() - 1) // 2

    def run(self) -> Scalar:
        """All singular values; whether they were found."""
        b, n = self.b, self.n
        with b.while_(lambda: n.both(n.less(b.index(0), self.end.get()), self._goes_on())):
            start = self._start()
            end = self.end.get()
            with b.when(n.equal(start, end)):
                self.end.set(end - 1)
            with b.when(n.less(start, end)):
                self._next(start, end)
        return self._goes_on()

    def _goes_on(self) -> Scalar:
        fewer = self.n.less(self.sweeps.get(), self.b.index(30 * self.t.columns + 30))
        return fewer if self.recorder is None else self.n.both(fewer, self.recorder.has_room())

    def _start(self) -> Scalar:
        """The first row that hangs together with the last one."""
        b, n = self.b, self.n
        start = b.variable(self.end.get())

        def hangs_together() -> Scalar:
            row = b.clamp(start.get() - 1, 0, self.t.columns)
            sizes = n.sum(n.magnitude(self.d(row)), n.magnitude(self.d(start.get())))
            bound = n.plus_product(n.of(MIN_MAGNITUDE), sizes, n.of(EPSILON))
            matters = n.no(n.at_most(n.magnitude(self.e(row)), bound))
            return n.both(n.less(b.index(0), start.get()), matters)

        with b.while_(hangs_together):
            start.set(start.get() - 1)
        return start.get()

    def _next(self, start: Scalar, end: Scalar) -> None:
        """A sweep over a block, unless an element of it turns out to be negligible."""
        b, n = self.b, self.n
        down = n.at_most(n.magnitude(self.d(end)), n.magnitude(self.d(start)))
        self.step.set(b.select(down, b.index(1), b.index(-1)))
        step = self.step.get()
        first, last = b.select(down, start, end), b.select(down, end, start)
        smallest, largest, is_done = self._estimates(first, end - start, step)
        with b.when(n.no(is_done)):
            self.sweeps.set(self.sweeps.get() + 1)
            if self.recorder is not None:
                side = b.select(down, b.index(RIGHT), b.index(LEFT))
                self.recorder.sweep(first, end - start, step, side)
            shift = self._shift(first, last, smallest, largest, step)
            unshifted = n.equal(shift, n.of(0.0))
            with b.when(unshifted):
                self._plain_sweep(first, last, end - start, step)
            with b.when(n.no(unshifted)):
                self._sweep_with_shift(first, last, end - start, step, shift)

    def _estimates(
        self, first: Scalar, count: Scalar, step: Scalar
    ) -> tuple[Scalar, Scalar, Scalar]:
        """About the smallest singular value, the largest element, whether something was zeroed."""
        b, n = self.b, self.n
        running = n.magnitude(self.d(first))
        mu, smallest, largest = (b.variable(running) for _ in range(3))
        is_done = b.variable(n.less(n.of(1.0), n.of(0.0)))
        row = b.variable(first)
        with b.loop(count):
            following = row.get() + step
            place = self._after(row.get())
            size, next_size = n.magnitude(self.e(place)), n.magnitude(self.d(following))
            with b.when(n.at_most(size, n.product(n.of(TOLERANCE), mu.get()))):
                self.put_e(place, n.of(0.0))
                is_done.set(n.less(n.of(0.0), n.of(1.0)))
            total = n.sum(mu.get(), size)
            empty = n.equal(total, n.of(0.0))
            share = n.quotient(mu.get(), b.select(empty, n.of(1.0), total))
            mu.set(n.product(next_size, share))
            smallest.set(b.apply("minimum", smallest.get(), mu.get()))
            largest.set(n.larger(largest.get(), n.larger(size, next_size)))
            row.set(following)
        return smallest.get(), largest.get(), is_done.get()

    def _shift(
        self, first: Scalar, last: Scalar, smallest: Scalar, largest: Scalar, step: Scalar
    ) -> Scalar:
        """The smaller singular value of the last two rows; 0 where that would cost accuracy."""
        b, n = self.b, self.n
        before = last - step
        f, g, h = self.d(before), self.e(self._after(before)), self.d(last)
        f, g, h = (n.magnitude(each) for each in (f, g, h))
        low, high = b.apply("minimum", f, h), n.larger(f, h)
        none = n.equal(low, n.of(0.0))
        safe = b.select(none, n.of(1.0), high)
        across = n.quotient(g, safe)
        across = n.product(across, across)
        plus = n.sum(n.of(1.0), n.quotient(low, safe))
        minus = n.quotient(n.difference(high, low), safe)
        roots = [n.root(n.plus_product(across, each, each)) for each in (plus, minus)]
        found = n.quotient(n.product(n.of(2.0), low), n.sum(*roots))
        head = n.magnitude(self.d(first))
        ratio = n.quotient(found, b.select(n.equal(head, n.of(0.0)), n.of(1.0), head))
        small = n.less(n.product(ratio, ratio), n.of(EPSILON))
        size = b.cast(b.index(self.t.columns), f64)
        bound = n.product(n.product(n.of(TOLERANCE), size), smallest)
        tiny = n.at_most(bound, n.product(n.of(EPSILON), largest))
        keep = n.no(n.either(none, n.either(small, tiny)))
        return b.select(keep, found, n.of(0.0))

    def _record(self, one: tuple[Scalar, Scalar], other: tuple[Scalar, Scalar]) -> None:
        if self.recorder is not None:
            n = self.n
            self.recorder.rotation(one[0], n.negative(one[1]), other[0], n.negative(other[1]))

    def _plain_sweep(self, first: Scalar, last: Scalar, count: Scalar, step: Scalar) -> None:
        """A sweep without a shift, which computes small singular values to full accuracy."""
        b, n = self.b, self.n
        cosine, old_cosine = b.variable(n.of(1.0)), b.variable(n.of(1.0))
        old_sine = b.variable(n.of(0.0))
        row = b.variable(first)
        with b.loop(count) as k:
            here, following = row.get(), row.get() + step
            between = self.e(self._after(here))
            c, s, r = n.rotation(n.product(self.d(here), cosine.get()), between)
            with b.when(n.less(b.index(0), k)):
                self.put_e(self._after(here - step), n.product(old_sine.get(), r))
            turned = n.product(self.d(following), s)
            old_c, old_s, length = n.rotation(n.product(old_cosine.get(), r), turned)
            self.put_d(here, length)
            self._record((c, s), (old_c, old_s))
            cosine.set(c)
            old_cosine.set(old_c)
            old_sine.set(old_s)
            row.set(following)
        left = n.product(self.d(last), cosine.get())
        self.put_d(last, n.product(left, old_cosine.get()))
        self.put_e(self._after(last - step), n.product(left, old_sine.get()))

    def _sweep_with_shift(
        self, first: Scalar, last: Scalar, count: Scalar, step: Scalar, shift: Scalar
    ) -> None:
        b, n = self.b, self.n
        head = self.d(first)
        size = n.difference(n.magnitude(head), shift)
        direction = n.sum(n.signed(n.of(1.0), head), n.quotient(shift, head))
        f, g = b.variable(n.product(size, direction)), b.variable(self.e(self._after(first)))
        row = b.variable(first)
        with b.loop(count) as k:
            self._rotate(f, g, row.get(), step, (n.less(b.index(0), k), n.less(k, count - 1)))
            row.set(row.get() + step)
        self.put_e(self._after(last - step), f.get())

    def _rotate(
        self, f: Cell, g: Cell, here: Scalar, step: Scalar, inside: tuple[Scalar, Scalar]
    ) -> None:
        """A rotation from one side and one from the other, which chase an element along."""
        b, n = self.b, self.n
        following = here + step
        has_before, has_after = inside
        c, s, r = n.rotation(f.get(), g.get())
        with b.when(has_before):
            self.put_e(self._after(here - step), r)
        d, e, beyond = self.d(here), self.e(self._after(here)), self.d(following)
        turned = n.plus_product(n.product(c, d), s, e)
        beside = n.minus_product(n.product(c, e), s, d)
        below = n.product(c, beyond)
        left_c, left_s, length = n.rotation(turned, n.product(s, beyond))
        self.put_d(here, length)
        f.set(n.plus_product(n.product(left_c, beside), left_s, below))
        self.put_d(following, n.minus_product(n.product(left_c, below), left_s, beside))
        with b.when(has_after):
            place = self._after(following)
            further = self.e(place)
            g.set(n.product(left_s, further))
            self.put_e(place, n.product(left_c, further))
        self._record((c, s), (left_c, left_s))
