"""Products of Householder's reflectors, a strip of columns at a time.

A reflector I - tau v vᴴ has its v in a row of a memory, from some element on. Their product is
formed by applying them to the identity, whose columns stand in strips (``rotation_loops``).
"""

from __future__ import annotations

from monograph.ir.lower import LoopBuilder, Memory, Position, Scalar
from monograph.ops.loop_numbers import Numbers
from monograph.ops.rotation_loops import lanes_of


def reflect_rows(
    b: LoopBuilder, reflectors: Memory, tau: Memory, matrix: Memory, at: Position, strip: Scalar
) -> None:
    """A strip of the transpose of the product, in place of one of the identity.

    Reflector k begins at element k + 1. A strip of the transpose is some rows of the product, and
    those are rows of the identity that meet the first reflector first.
    """
    size = reflectors.shape[-1]
    with lanes_of(b, matrix) as lane, b.loop(size - 1) as step:
        _reflect(b, reflectors, tau, matrix, [*at, strip, lane], step, step + 1, conjugate=False)


def reflect_columns(
    b: LoopBuilder, reflectors: Memory, tau: Memory, matrix: Memory, at: Position, strip: Scalar
) -> None:
    """A strip of the product, in place of one of the identity; reflector k begins at element k."""
    count = reflectors.shape[-2]
    with lanes_of(b, matrix) as lane, b.loop(count) as step:
        number = count - 1 - step
        _reflect(b, reflectors, tau, matrix, [*at, strip, lane], number, number, conjugate=True)


def _reflect(
    b: LoopBuilder,
    reflectors: Memory,
    tau: Memory,
    matrix: Memory,
    place: Position,
    number: Scalar,
    first: Scalar,
    conjugate: bool,
) -> None:
    """Add -tau (v · column) vᴴ to a column, or with ``conjugate`` -tau (vᴴ · column) v."""
    n, dtype = Numbers(b), matrix.dtype
    (*at, strip, lane), length = place, reflectors.shape[-1] - first

    def element(k: Scalar, conjugated: bool) -> Scalar:
        v = b.load(reflectors, [*at, number, first + k])
        return b.cast(n.conjugate(v) if conjugated else v, dtype)

    total = b.variable(b.cast(n.of(0.0), dtype))
    with b.loop(length) as k:
        held = b.load(matrix, [*at, strip, first + k, lane])
        total.set(n.plus_product(total.get(), element(k, conjugate), held))
    factor = b.cast(b.load(tau, [*at, number]), dtype)
    scaled = n.negative(n.product(factor, total.get()))
    with b.loop(length) as k:
        where = [*at, strip, first + k, lane]
        changed = n.plus_product(b.load(matrix, where), scaled, element(k, not conjugate))
        b.store(matrix, where, changed)


def make_reflector(
    b: LoopBuilder,
    vector: Memory,
    at: Position,
    number: Scalar,
    first: Scalar,
) -> tuple[Scalar, Scalar]:
    """Turn row ``number`` of a memory, from element ``first`` on, into a reflector.

    Its adjoint takes what stood there to (beta, 0, 0…); returns tau and beta, which is real.
    """
    n, size = Numbers(b), vector.shape[-1]
    squares = b.variable(n.of(0.0))
    with b.loop(size - 1 - first) as k:
        element = b.load(vector, [*at, number, first + 1 + k])
        squares.set(n.sum(squares.get(), n.squared(element)))
    head = b.load(vector, [*at, number, first])
    is_zero = n.equal(squares.get(), n.of(0.0))
    if head.dtype.is_complex:
        is_zero = n.both(is_zero, n.equal(b.apply("imag", head), n.of(0.0)))
    length = n.root(n.sum(n.squared(head), squares.get()))
    beta = n.negative(n.signed(length, n.real(head)))
    safe = b.select(is_zero, n.of(1.0), beta)
    tau = n.kept(b.select(is_zero, n.of(0.0), n.quotient(n.difference(safe, head), safe)))
    divisor = b.select(is_zero, n.of(1.0), n.difference(head, beta))
    factor = n.kept(n.quotient(n.of(1.0), divisor))
    with b.loop(size - 1 - first, lanes=True) as k:
        place = [*at, number, first + 1 + k]
        b.store(vector, place, n.product(b.load(vector, place), factor))
    b.store(vector, [*at, number, first], n.of(1.0))
    return tau, b.select(is_zero, n.real(head), beta)
