"""QR by Householder's reflectors, as loops over one matrix at a time.

Column by column, the adjoint of a reflector I - tau v vᴴ takes what lies below the diagonal to
zero; v begins with a 1 and goes on where the zeros would be. Signs are LAPACK's, which make r's
diagonal real. All of it in f64 (c128), rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

from monograph.ir.dims import Dim, dim_min
from monograph.ir.lower import LoopBuilder, Memory, Position, Scalar
from monograph.ops.matrix_loops import conjugate, doubled_copy, number, rounded, working_dtype


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
    rounded(b, reflectors.packed, 0)
    rounded(b, reflectors.tau, 1)


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
    rounded(b, orthogonal, 0)

    def element(at: Position) -> Scalar:
        row, column = at[-2:]
        below = b.apply("less", column, row)
        held = b.clamp(row, 0, reflectors.rows)
        return b.select(below, zero, b.load(reflectors.packed, [*at[:-2], held, column]))

    b.fill(b.result(1), element)


def _factorize(b: LoopBuilder) -> Reflectors:
    shape = b.operands[0].shape
    batch, (rows, columns) = shape[:-2], shape[-2:]
    packed = doubled_copy(b)
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
    below = b.variable(number(b, 0.0))
    with b.loop(rows - 1 - column) as k:
        element = b.load(packed, [*at, column + 1 + k, column])
        below.set(b.apply("add", below.get(), _squared(b, element)))
    head, squares = b.load(packed, [*at, column, column]), below.get()
    length = b.apply("sqrt", b.apply("add", _squared(b, head), squares))
    straight = b.apply("real", head) if head.dtype.is_complex else head
    diagonal = b.apply("negate", b.apply("copysign", length, straight))
    is_zero = b.apply("equal", squares, number(b, 0.0))
    if head.dtype.is_complex:
        is_real = b.apply("equal", b.apply("imag", head), number(b, 0.0))
        is_zero = b.apply("logical_and", is_zero, is_real)
    tau = b.apply("divide", b.apply("subtract", diagonal, head), diagonal)
    b.store(reflectors.tau, [*at, column], b.select(is_zero, number(b, 0.0), tau))
    with b.when(b.apply("logical_not", is_zero)):
        divisor = b.apply("subtract", head, diagonal)
        b.store(packed, [*at, column, column], diagonal)
        with b.loop(rows - 1 - column) as k:
            place = [*at, column + 1 + k, column]
            b.store(packed, place, b.apply("divide", b.load(packed, place), divisor))


def _squared(b: LoopBuilder, x: Scalar) -> Scalar:
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
    (memory, columns), rows = target, reflectors.rows
    packed, sums = reflectors.packed, reflectors.sums
    column, tau = reflector
    width = columns - first
    with b.loop(width, lanes=True) as j:
        b.store(sums, [*at, j], b.load(memory, [*at, column, first + j]))
    with b.loop(rows - 1 - column) as k:
        row = column + 1 + k
        factor = conjugate(b, b.load(packed, [*at, row, column]))
        with b.loop(width, lanes=True) as j:
            product = b.apply("multiply", factor, b.load(memory, [*at, row, first + j]))
            b.store(sums, [*at, j], b.apply("add", b.load(sums, [*at, j]), product))
    with b.loop(width, lanes=True) as j:
        scaled = b.apply("multiply", tau, b.load(sums, [*at, j]))
        b.store(sums, [*at, j], scaled)
        place = [*at, column, first + j]
        b.store(memory, place, b.apply("subtract", b.load(memory, place), scaled))
    with b.loop(rows - 1 - column) as k:
        row = column + 1 + k
        factor = b.load(packed, [*at, row, column])
        with b.loop(width, lanes=True) as j:
            place = [*at, row, first + j]
            product = b.apply("multiply", factor, b.load(sums, [*at, j]))
            b.store(memory, place, b.apply("subtract", b.load(memory, place), product))
