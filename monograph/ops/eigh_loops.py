"""Eigenvalues and eigenvectors of Hermitian matrices, as loops over one matrix at a time.

The matrix becomes tridiagonal, the iteration finds the eigenvalues and writes its rotations down,
and then the reflectors and the rotations together turn the identity into the vectors. All of it is
in f64 (c128): rotations that are multiplied up in f32 lose a digit at 512 rows.
"""

from __future__ import annotations

from monograph.ir.lower import LoopBuilder, Memory, Position, Scalar
from monograph.ir.types import f64, i64
from monograph.ops.householder_loops import reflect_rows
from monograph.ops.iteration_loops import scale_down, sort_places
from monograph.ops.loop_numbers import Numbers
from monograph.ops.matrix_loops import load_double, working_dtype
from monograph.ops.rotation_loops import (
    Recorder,
    Rotations,
    in_strips,
    strips_of_identity,
    turn,
)
from monograph.ops.tridiagonal_loops import (
    Iteration,
    Tridiagonal,
    make_tridiagonal,
)

UNCONVERGED = "the eigenvalues did not converge"


def lower_eigh_values(b: LoopBuilder, upper: bool) -> None:
    """The loops of ``eigh_values``."""
    _eigenvalues(b, upper, with_vectors=False)


def lower_eigh(b: LoopBuilder, upper: bool) -> None:
    """The loops of ``eigh``; those of its values alone, if nothing reads the vectors."""
    if not b.is_read(1):
        lower_eigh_values(b, upper)
        return
    t, rotations, order = _eigenvalues(b, upper, with_vectors=True)
    batch, size = b.operands[0].shape[:-2], t.size
    turned = strips_of_identity(b, working_dtype(b), batch, size)
    with b.parallel(turned.shape[:-2]) as (*at, strip):
        reflect_rows(b, t.matrix, t.tau, turned, at, strip)
        turn(b, rotations, turned, at, strip)

    def element(at: Position) -> Scalar:
        *batch, row, number = at
        place = b.clamp(b.load(order, [*batch, number]), 0, size)
        if upper:  # the reflectors are those of the matrix turned around
            row, place = size - 1 - row, size - 1 - place
        return in_strips(b, turned, [*batch, place, row])

    b.fill(b.result(1), element)


def _eigenvalues(
    b: LoopBuilder, upper: bool, with_vectors: bool
) -> tuple[Tridiagonal, Rotations, Memory]:
    """Fill the first result; what was done for it, and which row each eigenvalue came from."""
    shape, n = b.operands[0].shape, Numbers(b)
    batch, size = shape[:-2], shape[-1]
    t = Tridiagonal.room(b, working_dtype(b), (*batch, size), is_turned=upper)
    scale = b.temporary(f64, batch)
    kind = working_dtype(b)
    rotations = Rotations.room(b, kind, batch, size if with_vectors else 0)
    order = b.temporary(i64, (*batch, size))
    values = b.result(0)
    b.fill(t.matrix, lambda at: _read_symmetric(b, at, upper))
    with b.parallel(batch) as at:
        scale_down(b, t.matrix, scale, at)
        make_tridiagonal(b, t, at)
        recorder = Recorder(b, rotations, at, size, upper) if with_vectors else None
        b.require(Iteration(b, t, at, recorder).run(), UNCONVERGED)
        if recorder is not None:
            recorder.finish()
        sort_places(b, t.diagonal, order, at, lambda value, other: n.less(value, other))
        factor = b.load(scale, at)
        with b.loop(size) as number:
            place = b.load(order, [*at, number])
            value = n.product(b.load(t.diagonal, [*at, place]), factor)
            b.store(values, [*at, number], value)
    return t, rotations, order


def _read_symmetric(b: LoopBuilder, at: Position, upper: bool) -> Scalar:
    """An element of the whole matrix, of which one triangle was given.

    LAPACK begins at the far end of an upper triangle: it is turned around by both its axes.
    """
    n, size = Numbers(b), b.operands[0].shape[-1]
    *batch, row, column = at
    if upper:
        row, column = size - 1 - row, size - 1 - column
    is_other = b.apply("less", *((column, row) if upper else (row, column)))
    own, mirror = load_double(b, 0, [*batch, row, column]), load_double(b, 0, [*batch, column, row])
    value = b.select(is_other, n.conjugate(mirror), own)
    if not value.dtype.is_complex:
        return value
    return b.select(n.equal(row, column), b.cast(n.real(own), value.dtype), value)
