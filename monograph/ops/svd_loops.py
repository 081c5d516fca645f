"""Singular values and vectors, as loops over one matrix at a time.

A matrix that is wider than high is taken as its adjoint, which swaps left and right. It becomes
bidiagonal, the iteration finds the singular values and writes its rotations down, and then those
turn the products of the reflectors of either side into the vectors. All of it is in f64 (c128),
since rotations that are multiplied up in f32 lose a digit at 512 rows.
"""

from __future__ import annotations

from collections.abc import Callable

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, dim_max, dim_min, provably_less
from monograph.ir.lower import LoopBuilder, Memory, Position, Scalar
from monograph.ir.types import f64, i64
from monograph.ops.bidiagonal_loops import LEFT, RIGHT, Bidiagonal, Iteration, make_bidiagonal
from monograph.ops.householder_loops import reflect_columns, reflect_rows
from monograph.ops.iteration_loops import scale_down, sort_places
from monograph.ops.loop_numbers import Numbers
from monograph.ops.matrix_loops import load_double, working_dtype
from monograph.ops.rotation_loops import (
    Recorder,
    Rotations,
    in_strips,
    strip_width,
    strips_of_identity,
    turn,
)

UNCONVERGED = "the singular values did not converge"


@dataclass(frozen=True)
class SingularValues:
    """Singular values that are found, and what their vectors are made of."""

    bidiagonal: Bidiagonal
    rotations: Rotations
    order: Memory
    is_wide: bool | Scalar
    """Whether the matrix was taken as its adjoint; a scalar if its sizes do not tell yet."""


def lower_singular_values(b: LoopBuilder) -> None:
    """The loops of ``singular_values``."""
    _singular_values(b, b.result(), with_vectors=False)


def lower_svd(b: LoopBuilder, full_matrices: bool) -> None:
    """The loops of ``svd``; those of its values alone, if nothing reads the vectors."""
    if not (b.is_read(0) or b.is_read(2)):
        _singular_values(b, b.result(1), with_vectors=False)
        return
    found = _singular_values(b, b.result(1), with_vectors=True)
    left, right = _compute_left_vectors(b, found, full_matrices), _right(b, found)
    n, t = Numbers(b), found.bidiagonal

    def element(batch: Position, number: Scalar, row: Scalar, is_left: bool) -> Scalar:
        """Of one of the matrix's own vectors; the adjoint's are the other way round."""
        place, sign = _place(b, found, batch, number)

        def of_left() -> Scalar:
            return in_strips(b, left, [*batch, place, b.clamp(row, 0, t.rows)])

        def of_right() -> Scalar:
            held = [*batch, b.clamp(place, 0, t.columns), b.clamp(row, 0, t.columns)]
            value = in_strips(b, right, held)
            return n.product(value, b.cast(sign, n.real(value).dtype))

        if is_left:
            return _either(b, found.is_wide, of_right, of_left)
        return _either(b, found.is_wide, of_left, of_right)

    b.fill(b.result(0), lambda at: element(at[:-2], at[-1], at[-2], True))
    b.fill(b.result(2), lambda at: n.conjugate(element(at[:-2], at[-2], at[-1], False)))


def _either(
    b: LoopBuilder, which: bool | Scalar, yes: Callable[[], Scalar], no: Callable[[], Scalar]
) -> Scalar:
    if isinstance(which, bool):
        return yes() if which else no()
    return b.select(which, yes(), no())


def _place(
    b: LoopBuilder, found: SingularValues, batch: Position, number: Scalar
) -> tuple[Scalar, Scalar]:
    """Which row a singular vector is in, and the sign it takes; those without a value stay."""
    n, count = Numbers(b), found.bidiagonal.columns
    held = b.clamp(number, 0, count)
    place = b.load(found.order, [*batch, held])
    value = b.load(found.bidiagonal.diagonal, [*batch, b.clamp(place, 0, count)])
    inside = b.apply("less", number, b.index(count))
    row = b.clamp(b.select(inside, place, number), 0, found.bidiagonal.rows)
    return row, n.signed(n.of(1.0), value)


def _right(b: LoopBuilder, found: SingularValues) -> Memory:
    """The right singular vectors as rows, in strips."""
    t, dtype = found.bidiagonal, working_dtype(b)
    batch = b.operands[0].shape[:-2]
    strips = strips_of_identity(b, dtype, batch, t.columns)
    with b.parallel(strips.shape[:-2]) as (*at, strip):
        reflect_rows(b, t.matrix, t.taus[RIGHT], strips, at, strip)
        turn(b, found.rotations, strips, at, strip, RIGHT)
    return strips


def _compute_left_vectors(b: LoopBuilder, found: SingularValues, full_matrices: bool) -> Memory:
    """The left singular vectors as rows, in strips: as many as there are values, or all."""
    t, dtype = found.bidiagonal, working_dtype(b)
    batch = b.operands[0].shape[:-2]
    count = t.rows if full_matrices else t.columns
    columns = strips_of_identity(b, dtype, batch, t.rows, count)
    with b.parallel(columns.shape[:-2]) as (*at, strip):
        reflect_columns(b, t.left, t.taus[LEFT], columns, at, strip)
    width = strip_width(dtype)
    strips = b.temporary(dtype, (*batch, -(-t.rows // width), count, width))

    def transposed(at: Position) -> Scalar:
        *entry, strip, number, lane = at
        row = b.clamp(strip * width + lane, 0, t.rows)
        return in_strips(b, columns, [*entry, row, number])

    b.fill(strips, transposed)
    with b.parallel(strips.shape[:-2]) as (*at, strip):
        turn(b, found.rotations, strips, at, strip, LEFT)
    return strips


def _singular_values(b: LoopBuilder, values: Memory, with_vectors: bool) -> SingularValues:
    """Fill a result with the singular values, descending."""
    shape, n = b.operands[0].shape, Numbers(b)
    batch, (rows, columns) = shape[:-2], shape[-2:]
    high, low = dim_max(rows, columns), dim_min(rows, columns)
    is_wide = _is_wide(b, rows, columns)
    t = Bidiagonal.room(b, working_dtype(b), (*batch, high, low))
    scale, order = b.temporary(f64, batch), b.temporary(i64, (*batch, low))
    room = low if with_vectors else 0
    rotations = Rotations.room(b, working_dtype(b), batch, room, 2)

    def element(at: Position) -> Scalar:
        *entry, i, j = at
        turned = [b.clamp(j, 0, rows), b.clamp(i, 0, columns)]
        straight = [b.clamp(i, 0, rows), b.clamp(j, 0, columns)]
        return _either(
            b,
            is_wide,
            lambda: n.conjugate(load_double(b, 0, [*entry, *turned])),
            lambda: load_double(b, 0, [*entry, *straight]),
        )

    b.fill(t.matrix, element)
    with b.parallel(batch) as at:
        scale_down(b, t.matrix, scale, at)
        make_bidiagonal(b, t, at)
        recorder = Recorder(b, rotations, at, low) if with_vectors else None
        b.require(Iteration(b, t, at, recorder).run(), UNCONVERGED)
        if recorder is not None:
            recorder.finish()
        sort_places(
            b,
            t.diagonal,
            order,
            at,
            lambda value, other: n.less(n.magnitude(other), n.magnitude(value)),
        )
        factor = b.load(scale, at)
        with b.loop(low) as number:
            place = b.load(order, [*at, number])
            value = n.magnitude(b.load(t.diagonal, [*at, place]))
            b.store(values, [*at, number], n.product(value, factor))
    return SingularValues(t, rotations, order, is_wide)


def _is_wide(b: LoopBuilder, rows: Dim, columns: Dim) -> bool | Scalar:
    if provably_less(rows, columns):
        return True
    if not (isinstance(rows, int) and isinstance(columns, int)) and rows != columns:
        return b.apply("less", b.index(rows), b.index(columns))
    return False
