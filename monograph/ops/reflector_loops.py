"""QR by Householder's reflectors, as loops over one matrix at a time.

Column by column, a reflector I - tau v vᵀ takes what lies below the diagonal to zero; v begins with
a 1 and goes on where the zeros would be. Signs are LAPACK's. All of it in f64, rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

from monograph.ir.dims import Dim, dim_min
from monograph.ir.lower import LoopBuilder, Memory, Position, Scalar
from monograph.ir.types import f64
from monograph.ops.matrix_loops import doubled_copy, number, rounded


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
    orthogonal = b.temporary(f64, q.shape)
    one, zero = number(b, 1.0), number(b, 0.0)
    b.fill(orthogonal, lambda at: b.select(b.apply("equal", at[-2], at[-1]), one, zero))
    with b.parallel(q.shape[:-2]) as at, b.loop(count) as step:
        column = count - 1 - step
        _reflect(b, reflectors, (orthogonal, q.shape[-1]), at, column, column)
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
    tau = b.temporary(f64, (*batch, dim_min(rows, columns)))
    widest = b.results[0].shape[-1]  # of q, if that is wanted: it may be wider than the matrix
    sums = b.temporary(f64, (*batch, columns + widest))
    found = Reflectors(packed, tau, sums, rows, columns)
    with b.parallel(batch) as at, b.loop(found.count) as column:
        _make(b, found, at, column)
        # The 1 that a reflector begins with stands on r's diagonal, so r's element waits.
        _reflect(b, found, (packed, columns), at, column, column + 1)
    return found


def _make(b: LoopBuilder, reflectors: Reflectors, at: Position, column: Scalar) -> None:
    """The reflector of a column, in its place, and r's diagonal element above it."""
    packed, rows = reflectors.packed, reflectors.rows
    below = b.variable(number(b, 0.0))
    with b.loop(rows - 1 - column) as k:
        element = b.load(packed, [*at, column + 1 + k, column])
        below.set(b.apply("add", below.get(), b.apply("multiply", element, element)))
    head, squares = b.load(packed, [*at, column, column]), below.get()
    length = b.apply("sqrt", b.apply("add", b.apply("multiply", head, head), squares))
    diagonal = b.apply("negate", b.apply("copysign", length, head))
    is_zero = b.apply("equal", squares, number(b, 0.0))
    tau = b.apply("divide", b.apply("subtract", diagonal, head), diagonal)
    b.store(reflectors.tau, [*at, column], b.select(is_zero, number(b, 0.0), tau))
    with b.when(b.apply("logical_not", is_zero)):
        divisor = b.apply("subtract", head, diagonal)
        b.store(packed, [*at, column, column], diagonal)
        with b.loop(rows - 1 - column) as k:
            place = [*at, column + 1 + k, column]
            b.store(packed, place, b.apply("divide", b.load(packed, place), divisor))


def _reflect(
    b: LoopBuilder,
    reflectors: Reflectors,
    target: tuple[Memory, Dim],
    at: Position,
    column: Scalar,
    first: Scalar,
) -> None:
    """Apply the reflector of a column to the columns of ``target`` from ``first`` on."""
    (memory, columns), rows = target, reflectors.rows
    packed, sums = reflectors.packed, reflectors.sums
    tau = b.load(reflectors.tau, [*at, column])
    width = columns - first
    with b.loop(width, lanes=True) as j:
        b.store(sums, [*at, j], b.load(memory, [*at, column, first + j]))
    with b.loop(rows - 1 - column) as k:
        row = column + 1 + k
        factor = b.load(packed, [*at, row, column])
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
