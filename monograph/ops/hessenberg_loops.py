"""Any square matrix made upper Hessenberg: zeros below the diagonal under the main one, as loops.

Reflectors H = I - tau v vᴴ from both sides do it, column by column; their product is kept by
columns, one a row of memory, so that every visit is along rows. All of it in f64 (c128), with
LAPACK's signs.
"""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Shape
from monograph.ir.lower import LoopBuilder, Memory, Position, Scalar
from monograph.ir.types import DType
from monograph.ops.householder_loops import make_reflector
from monograph.ops.loop_numbers import Numbers


@dataclass(frozen=True)
class Hessenberg:
    """A batch of matrices on their way to Schur's form."""

    matrix: Memory
    basis: Memory
    """Row k holds column k of Q, with the given matrix being Q matrix Qᴴ."""
    reflectors: Memory
    sums: Memory

    @property
    def size(self) -> Dim:
        return self.matrix.shape[-1]

    @classmethod
    def room(cls, b: LoopBuilder, dtype: DType, shape: Shape) -> Hessenberg:
        """Memory for matrices of this shape, batch and all."""
        matrix, basis, reflectors = (b.temporary(dtype, shape) for _ in range(3))
        return cls(matrix, basis, reflectors, b.temporary(dtype, shape[:-1]))


def make_hessenberg(b: LoopBuilder, h: Hessenberg, at: Position, with_basis: bool) -> None:
    """Reduce one matrix in place, and write the basis if it is wanted."""
    n, size = Numbers(b), h.size
    if with_basis:
        with b.loop(size) as row, b.loop(size, lanes=True) as column:
            one = b.select(n.equal(row, column), n.of(1.0), n.of(0.0))
            b.store(h.basis, [*at, row, column], one)
    with b.loop(size) as step, b.when(n.less(step + 2, b.index(size))):
        with b.loop(size - 1 - step) as k:
            element = b.load(h.matrix, [*at, step + 1 + k, step])
            b.store(h.reflectors, [*at, step, step + 1 + k], element)
        tau, _ = make_reflector(b, h.reflectors, at, step, step + 1)
        _reflect_rows(b, h, h.matrix, at, step, n.conjugate(tau), is_basis=False)
        _reflect_columns(b, h, at, step, tau)
        if with_basis:
            _reflect_rows(b, h, h.basis, at, step, tau, is_basis=True)
        with b.loop(size - 2 - step) as k:
            b.store(h.matrix, [*at, step + 2 + k, step], n.of(0.0))


def _reflect_rows(
    b: LoopBuilder,
    h: Hessenberg,
    target: Memory,
    at: Position,
    step: Scalar,
    tau: Scalar,
    is_basis: bool,
) -> None:
    """Take tau v (vᴴ target) from a memory, or of the basis, whose rows are columns, its mirror."""
    n, size = Numbers(b), h.size

    def factor(row: Scalar, is_conjugate: bool) -> Scalar:
        v = b.load(h.reflectors, [*at, step, row])
        return n.conjugate(v) if is_conjugate else v

    with b.loop(size, lanes=True) as column:
        b.store(h.sums, [*at, column], n.of(0.0))
    with b.loop(size - 1 - step) as k:
        row = step + 1 + k
        v = factor(row, not is_basis)
        with b.loop(size, lanes=True) as column:
            total = b.load(h.sums, [*at, column])
            held = b.load(target, [*at, row, column])
            b.store(h.sums, [*at, column], n.plus_product(total, v, held))
    with b.loop(size - 1 - step) as k:
        row = step + 1 + k
        v = n.kept(n.product(tau, factor(row, is_basis)))
        with b.loop(size, lanes=True) as column:
            held = b.load(target, [*at, row, column])
            total = b.load(h.sums, [*at, column])
            b.store(target, [*at, row, column], n.minus_product(held, v, total))


def _reflect_columns(
    b: LoopBuilder, h: Hessenberg, at: Position, step: Scalar, tau: Scalar
) -> None:
    """Take tau (matrix v) vᴴ from the matrix."""
    n, size = Numbers(b), h.size
    with b.loop(size) as row:
        total = b.variable(b.cast(n.of(0.0), h.matrix.dtype))
        with b.loop(size - 1 - step) as k:
            v = b.load(h.reflectors, [*at, step, step + 1 + k])
            held = b.load(h.matrix, [*at, row, step + 1 + k])
            total.set(n.plus_product(total.get(), held, v))
        scaled = n.kept(n.product(tau, total.get()))
        with b.loop(size - 1 - step, lanes=True) as k:
            place = [*at, row, step + 1 + k]
            v = n.conjugate(b.load(h.reflectors, [*at, step, step + 1 + k]))
            b.store(h.matrix, place, n.minus_product(b.load(h.matrix, place), scaled, v))
