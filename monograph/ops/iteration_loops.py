"""Scaling before, and sorting after, the iterations for eigenvalues and singular values.

Very large and very small matrices are brought to a size whose squares are numbers, and what an
iteration finds in any order is put in one.
"""

from __future__ import annotations

from collections.abc import Callable

from monograph.ir.lower import Cell, LoopBuilder, Memory, Position, Scalar
from monograph.ops.loop_numbers import Numbers

MAX_SAFE_MAGNITUDE = 2.0**400
"""Numbers up to this (and down to its inverse) have squares that add up without overflow."""


def scale_down(b: LoopBuilder, matrix: Memory, scale: Memory, at: Position) -> None:
    """Divide a matrix of very large or small numbers by the largest; others stay as they are."""
    n = Numbers(b)
    rows, columns = matrix.shape[-2:]
    largest = b.variable(n.of(0.0))
    with b.loop(rows) as row, b.loop(columns) as column:
        element = n.magnitude(b.load(matrix, [*at, row, column]))
        largest.set(n.larger(largest.get(), element))
    found = largest.get()
    usual = n.both(
        n.less(n.of(1 / MAX_SAFE_MAGNITUDE), found), n.less(found, n.of(MAX_SAFE_MAGNITUDE))
    )
    usable = n.both(b.apply("is_finite", found), n.less(n.of(0.0), found))
    by = b.select(n.both(usable, n.no(usual)), found, n.of(1.0))
    b.store(scale, at, by)
    is_scaled = n.no(n.equal(by, n.of(1.0)))
    with b.when(is_scaled), b.loop(rows) as row, b.loop(columns, lanes=True) as column:
        place = [*at, row, column]
        b.store(matrix, place, n.quotient(b.load(matrix, place), by))


def sort_places(
    b: LoopBuilder,
    values: Memory,
    order: Memory,
    at: Position,
    comes_first: Callable[[Scalar, Scalar], Scalar],
) -> None:
    """Where each value is that comes first, second…; what comes no earlier stays in order."""
    n, size = Numbers(b), values.shape[-1]
    with b.loop(size) as number:
        b.store(order, [*at, number], number)
        value = b.load(values, [*at, number])
        place = b.variable(number)

        def moves_up(place: Cell = place, value: Scalar = value) -> Scalar:
            other = b.load(order, [*at, b.clamp(place.get() - 1, 0, size)])
            earlier = comes_first(value, b.load(values, [*at, other]))
            return n.both(b.apply("greater", place.get(), b.index(0)), earlier)

        with b.while_(moves_up):
            b.store(order, [*at, place.get()], b.load(order, [*at, place.get() - 1]))
            place.set(place.get() - 1)
        b.store(order, [*at, place.get()], number)
