"""QR by Householder's reflectors, as loops over one matrix at a time.

Column by column, the adjoint of a reflector I - tau v vᴴ takes what lies below the diagonal to
zero; v begins with a 1 and goes on where the zeros would be. Signs are LAPACK's, which make r's
diagonal real. All of it in f64 (c128), rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, dim_min
from monograph.ir.lower import LoopBuilder, Memory, Position, Scalar
from monograph.ops.loop_numbers import Numbers
from monograph.ops.matrix_loops import conjugate, copy_as_double, number, round_into, working_dtype

ROWS_PER_STEP = 4
"""Rows that a reflector meets at once."""


@dataclass(frozen=True)
class Reflectors:
    """r above the diagonal and reflectors below it, and tau, for matrices of a batch."""

    packed: Memory
    tau: Memory
    sums: Memory
    """A row for each matrix, to add up products in."""
    rows: Dim
    columns: Dim

    @property
    def count(self) -> Dim:
        """How many reflectors there are."""
        return dim_min(self.rows, self.columns)


def lower_householder_qr(b: LoopBuilder) -> None:
    """The loops of ``householder_qr``."""
    reflectors = _factorize(b)
    round_into(b, reflectors.packed, 0)
    round_into(b, reflectors.tau, 1)


def lower_qr(b: LoopBuilder) -> None:
    """The loops of ``qr``: the reflectors applied to the identity, the last one first."""
    reflectors = _factorize(b)
    q, count = b.results[0], reflectors.count
    orthogonal = b.temporary(working_dtype(b), q.shape)
    one, zero = number(b, 1.0), number(b, 0.0)
    b.fill(orthogonal, lambda at: b.select(b.apply("equal", at[-2], at[-1]), one, zero))
    with b.parallel(q.shape[:-2]) as at, b.loop(count) as step:
        column = count - 1 - step
        tau = b.load(reflectors.tau, [*at, column])
        _reflect(b, reflectors, (orthogonal, q.shape[-1]), at, (column, tau), column)
    round_into(b, orthogonal, 0)

    def element(at: Position) -> Scalar:
        row, column = at[-2:]
        below = b.apply("less", column, row)
        held = b.clamp(row, 0, reflectors.rows)
        return b.select(below, zero, b.load(reflectors.packed, [*at[:-2], held, column]))

    b.fill(b.result(1), element)


def _factorize(b: LoopBuilder) -> Reflectors:
    shape = b.operands[0].shape
    batch, (rows, columns) = shape[:-2], shape[-2:]
    packed = copy_as_double(b)
    tau = b.temporary(working_dtype(b), (*batch, dim_min(rows, columns)))
    widest = b.results[0].shape[-1]  # of q, if that is wanted: it may be wider than the matrix
    sums = b.temporary(working_dtype(b), (*batch, columns + widest))
    found = Reflectors(packed, tau, sums, rows, columns)
    with b.parallel(batch) as at, b.loop(found.count) as column:
        _make(b, found, at, column)
        # The 1 that a reflector begins with stands on r's diagonal, so r's element waits.
        turned = conjugate(b, b.load(tau, [*at, column]))
        _reflect(b, found, (packed, columns), at, (column, turned), column + 1)
    return found


def _make(b: LoopBuilder, reflectors: Reflectors, at: Position, column: Scalar) -> None:
    """The reflector of a column, in its place, and r's diagonal element above it."""
    packed, rows = reflectors.packed, reflectors.rows
    parts = [
        b.variable(number(b, 0.0)) for _ in range(ROWS_PER_STEP)
    ]  # sums that do not wait on each other

    def add(places: Sequence[Scalar]) -> None:
        for place, part in zip(places, parts, strict=False):
            element = b.load(packed, [*at, place, column])
            part.set(b.apply("add", part.get(), _square_magnitude(b, element)))

    _by_rows(b, column + 1, rows - 1 - column, add)
    head, totals = b.load(packed, [*at, column, column]), [part.get() for part in parts]
    squares = b.apply("add", b.apply("add", *totals[:2]), b.apply("add", *totals[2:]))
    length = b.apply("sqrt", b.apply("add", _square_magnitude(b, head), squares))
    straight = b.apply("real", head) if head.dtype.is_complex else head
    diagonal = b.apply("negate", b.apply("copysign", length, straight))
    is_zero = b.apply("equal", squares, number(b, 0.0))
    if head.dtype.is_complex:
        is_real = b.apply("equal", b.apply("imag", head), number(b, 0.0))
        is_zero = b.apply("logical_and", is_zero, is_real)
    tau = b.apply("divide", b.apply("subtract", diagonal, head), diagonal)
    b.store(reflectors.tau, [*at, column], b.select(is_zero, number(b, 0.0), tau))
    with b.when(b.apply("logical_not", is_zero)):
        one = b.cast(number(b, 1.0), head.dtype)
        inverse = b.apply("divide", one, b.apply("subtract", head, diagonal))
        factor = Numbers(b).kept(inverse)
        b.store(packed, [*at, column, column], diagonal)
        with b.loop(rows - 1 - column) as k:
            place = [*at, column + 1 + k, column]
            b.store(packed, place, b.apply("multiply", b.load(packed, place), factor))


def _square_magnitude(b: LoopBuilder, x: Scalar) -> Scalar:
    """The square of a magnitude."""
    if not x.dtype.is_complex:
        return b.apply("multiply", x, x)
    parts = [b.apply(part, x) for part in ("real", "imag")]
    return b.apply("add", *(b.apply("multiply", part, part) for part in parts))


def _reflect(
    b: LoopBuilder,
    reflectors: Reflectors,
    target: tuple[Memory, Dim],
    at: Position,
    reflector: tuple[Scalar, Scalar],
    first: Scalar,
) -> None:
    """Apply a reflector (its column, its tau) to the columns of ``target`` from ``first`` on."""
    (memory, columns), n = target, Numbers(b)
    packed, sums = reflectors.packed, reflectors.sums
    column, tau = reflector
    width, below = columns - first, reflectors.rows - 1 - column
    with b.loop(width, lanes=True) as j:
        b.store(sums, [*at, j], b.load(memory, [*at, column, first + j]))

    def add(rows: Sequence[Scalar]) -> None:
        factors = [conjugate(b, b.load(packed, [*at, row, column])) for row in rows]
        with b.loop(width, lanes=True) as j:
            total = b.load(sums, [*at, j])
            for row, factor in zip(rows, factors, strict=True):
                total = n.plus_product(total, factor, b.load(memory, [*at, row, first + j]))
            b.store(sums, [*at, j], total)

    def take(rows: Sequence[Scalar]) -> None:
        factors = [b.load(packed, [*at, row, column]) for row in rows]
        with b.loop(width, lanes=True) as j:
            total = b.load(sums, [*at, j])
            for row, factor in zip(rows, factors, strict=True):
                place = [*at, row, first + j]
                b.store(memory, place, n.minus_product(b.load(memory, place), factor, total))

    _by_rows(b, column + 1, below, add)
    with b.loop(width, lanes=True) as j:
        scaled = b.apply("multiply", tau, b.load(sums, [*at, j]))
        b.store(sums, [*at, j], scaled)
        place = [*at, column, first + j]
        b.store(memory, place, b.apply("subtract", b.load(memory, place), scaled))
    _by_rows(b, column + 1, below, take)


def _by_rows(
    b: LoopBuilder, first: Scalar, count: Scalar, visit: Callable[[Sequence[Scalar]], None]
) -> None:
    """Visit some rows, a few at a time: what they share is then read once for all of them."""
    with b.loop(count // ROWS_PER_STEP) as block:
        visit([first + block * ROWS_PER_STEP + k for k in range(ROWS_PER_STEP)])
    with b.loop(count % ROWS_PER_STEP) as k:
        visit([first + count // ROWS_PER_STEP * ROWS_PER_STEP + k])
