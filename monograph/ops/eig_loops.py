"""Eigenvalues and eigenvectors of any square matrix, as loops over one matrix at a time.

The matrix becomes Hessenberg and then, by a QR iteration, triangular: a real one up to pairs of
rows (``francis_loops``), which a complex rotation each then makes triangles, a complex one at once
(``complex_schur_loops``). The vectors of the triangle follow by substitution, each by itself, and
the basis takes them back. They have length 1, and those that are complex a real largest element.
All of it is in f64 (c128), rounded once.
"""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim
from monograph.ir.lower import LoopBuilder, Memory, Position, Scalar
from monograph.ir.types import bool_, c128, f64
from monograph.ops.complex_schur_loops import ComplexIteration
from monograph.ops.francis_loops import Francis
from monograph.ops.hessenberg_loops import Hessenberg, make_hessenberg
from monograph.ops.iteration_loops import scale_down
from monograph.ops.loop_numbers import Numbers
from monograph.ops.matrix_loops import load_double, working_dtype
from monograph.ops.schur_loops import EPSILON, MIN_NORMAL

UNCONVERGED = "the eigenvalues did not converge"
RESCALING_MAGNITUDE = 2.0**300
"""Elements of a vector from which it is made smaller before they overflow."""


@dataclass(frozen=True)
class Schur:
    """Triangles, bases (by columns, one a row) and eigenvalues, for the matrices of a batch."""

    triangle: Memory
    basis: Memory
    values: Memory
    """Real parts, then imaginary parts."""
    pairs: Memory | None
    """What the triangles of real matrices were made of, with rows that belong together."""

    @property
    def size(self) -> Dim:
        return self.triangle.shape[-1]


def lower_eig_values(b: LoopBuilder) -> None:
    """The loops of ``eig_values``."""
    _, values, scale = _iterate(b, with_basis=False)
    _fill_values(b, values, scale)


def lower_eig(b: LoopBuilder) -> None:
    """The loops of ``eig``; those of its values alone, if nothing reads the vectors."""
    if not b.is_read(1):
        lower_eig_values(b)
        return
    h, values, scale = _iterate(b, with_basis=True)
    schur = _triangle(b, h, values)
    _fill_values(b, values, scale)
    vectors = _vectors(b, schur)
    n, is_real = Numbers(b), not b.operands[0].dtype.is_complex

    def element(at: Position) -> Scalar:
        *batch, row, number = at
        if not is_real:
            return b.load(vectors, [*batch, number, row])
        imaginary = b.load(values, [*batch, b.index(1), number])
        is_second = n.less(imaginary, n.of(0.0))
        source = b.clamp(b.select(is_second, number - 1, number), 0, schur.size)
        value = b.load(vectors, [*batch, source, row])
        return b.select(is_second, n.conjugate(value), value)

    b.fill(b.result(1), element)


def _iterate(b: LoopBuilder, with_basis: bool) -> tuple[Hessenberg, Memory, Memory]:
    shape = b.operands[0].shape
    h = Hessenberg.room(b, working_dtype(b), shape)
    values = b.temporary(f64, (*shape[:-2], 2, shape[-1]))
    scale = b.temporary(f64, shape[:-2])
    b.fill(h.matrix, lambda at: load_double(b, 0, at))
    with b.parallel(shape[:-2]) as at:
        scale_down(b, h.matrix, scale, at)
        make_hessenberg(b, h, at, with_basis)
        kind = ComplexIteration if h.matrix.dtype.is_complex else Francis
        b.require(kind(b, h, values, at, with_basis).run(), UNCONVERGED)
    return h, values, scale


def _fill_values(b: LoopBuilder, values: Memory, scale: Memory) -> None:
    n = Numbers(b)

    def element(at: Position) -> Scalar:
        *batch, number = at
        factor = b.load(scale, batch)
        parts = [b.load(values, [*batch, b.index(part), number]) for part in range(2)]
        scaled = [n.product(part, factor) for part in parts]
        return b.apply("complex", *scaled, dtype=c128)

    b.fill(b.result(0), element)


def _triangle(b: LoopBuilder, h: Hessenberg, values: Memory) -> Schur:
    """The triangle that is left when pairs of rows are turned by a complex rotation each."""
    if h.matrix.dtype.is_complex:
        return Schur(h.matrix, h.basis, values, None)
    n, shape, size = Numbers(b), h.matrix.shape, h.size
    schur = Schur(b.temporary(c128, shape), b.temporary(c128, shape), values, h.matrix)
    b.fill(schur.triangle, lambda at: b.load(h.matrix, at))
    b.fill(schur.basis, lambda at: b.load(h.basis, at))
    with b.parallel(shape[:-2]) as at, b.loop(size) as step:
        bottom = size - 1 - step
        imaginary = b.load(values, [*at, b.index(1), bottom])
        with b.when(n.less(imaginary, n.of(0.0))):
            _split_pair(b, schur, at, b.clamp(bottom - 1, 0, size), bottom)
    return schur


def _split_pair(b: LoopBuilder, schur: Schur, at: Position, top: Scalar, bottom: Scalar) -> None:
    """Turn two rows, and two columns, so that the first holds the first eigenvalue alone."""
    n, t = Numbers(b), schur.triangle
    below = n.real(b.load(t, [*at, bottom, top]))
    shift = b.load(schur.values, [*at, b.index(1), top])
    length = n.root(n.plus_product(n.product(below, below), shift, shift))
    cosine = n.kept(n.quotient(shift, length))  # times i
    sine = n.kept(n.quotient(below, length))
    turn = n.kept(b.apply("complex", n.of(0.0), cosine, dtype=c128))
    back = n.kept(n.conjugate(turn))
    with b.loop(schur.size, lanes=True) as column:
        x, y = (b.load(t, [*at, row, column]) for row in (top, bottom))
        b.store(t, [*at, top, column], n.sum(n.product(back, x), n.product(sine, y)))
        b.store(t, [*at, bottom, column], n.difference(n.product(turn, y), n.product(sine, x)))
    with b.loop(schur.size) as row:
        x, y = (b.load(t, [*at, row, column]) for column in (top, bottom))
        b.store(t, [*at, row, top], n.sum(n.product(turn, x), n.product(sine, y)))
        b.store(t, [*at, row, bottom], n.difference(n.product(back, y), n.product(sine, x)))
    with b.loop(schur.size, lanes=True) as column:
        x, y = (b.load(schur.basis, [*at, row, column]) for row in (top, bottom))
        place = [*at, top, column]
        b.store(schur.basis, place, n.sum(n.product(turn, x), n.product(sine, y)))
        place = [*at, bottom, column]
        b.store(schur.basis, place, n.difference(n.product(back, y), n.product(sine, x)))
    b.store(t, [*at, bottom, top], n.of(0.0))


def _vectors(b: LoopBuilder, schur: Schur) -> Memory:
    """The eigenvectors, one a row."""
    shape = schur.triangle.shape
    small, vectors = b.temporary(c128, shape), b.temporary(c128, shape)
    with b.parallel(shape[:-1]) as (*at, number):
        _substitute(b, schur, small, at, number)
        _take_back(b, schur, small, vectors, at, number)
        _normalize(b, schur, vectors, at, number)
    return vectors


def _substitute(b: LoopBuilder, schur: Schur, small: Memory, at: Position, number: Scalar) -> None:
    """The triangle's own vector for an eigenvalue, which ends in a 1."""
    n, t, size = Numbers(b), schur.triangle, schur.size
    parts = [b.load(schur.values, [*at, b.index(part), number]) for part in range(2)]
    value = n.kept(b.apply("complex", *parts, dtype=c128))
    bound = n.product(n.of(EPSILON), n.sum(*(n.magnitude(part) for part in parts)))
    least = n.kept(n.larger(bound, n.of(MIN_NORMAL / EPSILON)))
    b.store(small, [*at, number, number], n.of(1.0))
    with b.loop(number) as step:
        row = b.clamp(number - 1 - step, 0, size)
        total = b.variable(b.cast(n.of(0.0), c128))
        with b.loop(step + 1) as k:
            place = b.clamp(row + 1 + k, 0, size)
            x = b.load(small, [*at, number, place])
            total.set(n.sum(total.get(), n.product(b.load(t, [*at, row, place]), x)))
        gap = n.kept(n.difference(value, b.load(t, [*at, row, row])))
        is_small = n.less(n.magnitude(gap), least)
        divisor = b.select(is_small, b.cast(least, c128), gap)
        found = n.kept(n.quotient(total.get(), divisor))
        b.store(small, [*at, number, row], found)
        extent = n.kept(n.magnitude(found))
        with b.when(n.less(n.of(RESCALING_MAGNITUDE), extent)), b.loop(step + 2) as k:
            held = [*at, number, b.clamp(row + k, 0, size)]
            b.store(small, held, n.quotient(b.load(small, held), extent))


def _take_back(
    b: LoopBuilder, schur: Schur, small: Memory, vectors: Memory, at: Position, number: Scalar
) -> None:
    """A vector of the triangle as one of the matrix: a sum of the basis' columns."""
    n, size = Numbers(b), schur.size
    with b.loop(size, lanes=True) as column:
        b.store(vectors, [*at, number, column], n.of(0.0))
    with b.loop(number + 1) as k:
        place = b.clamp(k, 0, size)
        factor = b.load(small, [*at, number, place])
        with b.loop(size, lanes=True) as column:
            total = b.load(vectors, [*at, number, column])
            product = n.product(factor, b.load(schur.basis, [*at, place, column]))
            b.store(vectors, [*at, number, column], n.sum(total, product))


def _normalize(b: LoopBuilder, schur: Schur, vectors: Memory, at: Position, number: Scalar) -> None:
    """Length 1, and a real largest element; the vector of a real matrix's real value is real."""
    n, size = Numbers(b), schur.size
    squares, most, place = b.variable(n.of(0.0)), b.variable(n.of(0.0)), b.variable(b.index(0))
    largest = b.variable(n.of(0.0))
    with b.loop(size) as k:
        largest.set(n.larger(largest.get(), n.magnitude(b.load(vectors, [*at, number, k]))))
    is_nothing = n.equal(largest.get(), n.of(0.0))
    scale = n.kept(b.select(is_nothing, n.of(1.0), largest.get()))
    with b.loop(size) as k:
        square = n.kept(n.squared(n.quotient(b.load(vectors, [*at, number, k]), scale)))
        squares.set(n.sum(squares.get(), square))
        with b.when(n.less(most.get(), square)):
            most.set(square)
            place.set(k)
    length = n.kept(n.product(scale, n.root(squares.get())))
    head = b.load(vectors, [*at, number, b.clamp(place.get(), 0, size)])
    factor = n.quotient(n.conjugate(head), n.product(n.magnitude(head), length))
    is_real = b.literal(False, bool_)
    if schur.pairs is not None:
        imaginary = b.load(schur.values, [*at, b.index(1), number])
        is_real = n.equal(imaginary, n.of(0.0))
        sign = _sign_of_pair(b, schur.pairs, at, number, head)
        straight = b.cast(n.quotient(n.of(1.0), length), c128)
        factor = b.select(is_real, straight, n.product(sign, factor))
    factor = n.kept(factor)
    chosen = place.get()
    with b.loop(size) as k:
        element = n.kept(n.product(b.load(vectors, [*at, number, k]), factor))
        drops = n.either(is_real, n.equal(k, chosen))
        without = b.cast(n.real(element), c128)
        b.store(vectors, [*at, number, k], b.select(drops, without, element))


def _sign_of_pair(
    b: LoopBuilder, pairs: Memory, at: Position, number: Scalar, head: Scalar
) -> Scalar:
    """The sign that LAPACK leaves to the largest element of the first vector of a pair.

    It begins with a vector whose share of the first of two rows is real, where ours is imaginary,
    and turns a largest element that is more real than imaginary the short way.
    """
    n, size = Numbers(b), pairs.shape[-1]
    after = b.clamp(number + 1, 0, size)
    above, below = b.load(pairs, [*at, number, after]), b.load(pairs, [*at, after, number])
    is_low = n.both(n.less(n.magnitude(above), n.magnitude(below)), n.less(n.of(0.0), below))
    real, imaginary = b.apply("imag", head), b.apply("real", head)
    real = b.select(is_low, n.negative(real), real)
    is_short = n.less(n.magnitude(imaginary), n.magnitude(real))
    return n.kept(n.signed(n.of(1.0), b.select(is_short, real, n.of(1.0))))
