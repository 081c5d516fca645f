"""The exponential of a matrix, as loops over one matrix at a time.

The matrix is halved until it is small, its series is summed, and the sum squared as often as it was
halved. The series goes to the sixteenth power, in groups of four terms that the fourth power
separates (Paterson and Stockmeyer): six products of matrices instead of fifteen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import factorial

from monograph.ir.dims import Dim
from monograph.ir.lower import LoopBuilder, Memory, Position, Scalar
from monograph.ops.loop_numbers import Numbers
from monograph.ops.matrix_loops import copy_as_double, number, round_into, working_dtype

TERMS_PER_PRODUCT = 4
"""Terms of the series that share a product."""
TILE_ROWS = 4
"""Rows of a product that are computed together, each in registers of its own."""

TILE_COLUMNS = 8
"""Columns of a product that are computed together."""
MIN_PACKED_SIZE, MAX_PRIVATE_SIZE = 48, 4096
"""Sizes above which columns are laid side by side, and up to which a thread has room for them."""

Start = Callable[[Scalar, Scalar], Scalar]
"""(row, column) → what the sum of products there begins with."""


def lower_matrix_exp(b: LoopBuilder) -> None:
    """The loops of ``matrix_exp``; for f64 the series is long enough at a norm of a half."""
    shape = b.operands[0].shape
    batch, size = shape[:-2], shape[-1]
    scaled = copy_as_double(b)
    powers = [scaled, *(b.temporary(working_dtype(b), shape) for _ in range(TERMS_PER_PRODUCT - 1))]
    total, spare = (b.temporary(working_dtype(b), shape) for _ in range(2))
    zero = b.cast(number(b, 0.0), working_dtype(b))
    with b.parallel(batch) as at:
        halvings, scale = _halvings(b, scaled, at, size)
        with b.loop(size) as row, b.loop(size, lanes=True) as column:
            place = [*at, row, column]
            b.store(scaled, place, b.apply("multiply", b.load(scaled, place), scale))

        def nothing(row: Scalar, column: Scalar) -> Scalar:
            return zero

        for power in range(1, TERMS_PER_PRODUCT):
            _multiply(b, powers[power], powers[power - 1], scaled, at, size, nothing)
        first = _terms(b, powers, at, TERMS_PER_PRODUCT - 1, TERMS_PER_PRODUCT)
        with b.loop(size) as row, b.loop(size, lanes=True) as column:
            b.store(total, [*at, row, column], first(row, column))
        for group in reversed(range(TERMS_PER_PRODUCT - 1)):
            terms = _terms(b, powers, at, group, TERMS_PER_PRODUCT - 1)
            _multiply(b, spare, powers[-1], total, at, size, terms)
            total, spare = spare, total
        with b.loop(halvings):
            _multiply(b, spare, total, total, at, size, nothing)
            with b.loop(size) as row, b.loop(size, lanes=True) as column:
                place = [*at, row, column]
                b.store(total, place, b.load(spare, place))
    round_into(b, total)


def _terms(b: LoopBuilder, powers: list[Memory], at: Position, group: int, last: int) -> Start:
    """A group of the series over the fourth power of the matrix as often: up to power ``last``."""

    def sum_at(row: Scalar, column: Scalar) -> Scalar:
        is_diagonal = b.apply("equal", row, column)
        constant = number(b, 1.0 / factorial(TERMS_PER_PRODUCT * group))
        total = b.cast(b.select(is_diagonal, constant, number(b, 0.0)), powers[0].dtype)
        for power in range(1, last + 1):
            factor = number(b, 1.0 / factorial(TERMS_PER_PRODUCT * group + power))
            entry = b.load(powers[power - 1], [*at, row, column])
            total = b.apply("add", total, b.apply("multiply", entry, factor))
        return total

    return sum_at


def _halvings(b: LoopBuilder, matrix: Memory, at: Position, size: Dim) -> tuple[Scalar, Scalar]:
    """How often the largest sum of a column is halved until it is small, and by what in all."""
    largest = b.variable(number(b, 0.0))
    with b.loop(size) as column:
        total = b.variable(number(b, 0.0))
        with b.loop(size) as row:
            entry = b.apply("abs", b.load(matrix, [*at, row, column]))
            total.set(b.apply("add", total.get(), entry))
        largest.set(b.apply("maximum", largest.get(), total.get()))
    half = number(b, 0.5)
    norm = b.variable(b.select(b.apply("is_finite", largest.get()), largest.get(), half))
    times, scale = b.variable(b.index(0)), b.variable(number(b, 1.0))
    with b.while_(lambda: b.apply("greater", norm.get(), half)):
        norm.set(b.apply("multiply", norm.get(), half))
        scale.set(b.apply("multiply", scale.get(), half))
        times.set(times.get() + 1)
    return times.get(), scale.get()


def _multiply(
    b: LoopBuilder,
    target: Memory,
    left: Memory,
    right: Memory,
    at: Position,
    size: Dim,
    start: Start,
) -> None:
    """``target`` = ``start`` + ``left`` · ``right``.

    Of a large matrix some columns are first laid side by side: in their own rows they would lie too
    far apart to stay in the nearest cache.
    """
    sums = partial(_sum_products, b, target, left, at, size, start)
    if not isinstance(size, int) or size <= MIN_PACKED_SIZE or size > MAX_PRIVATE_SIZE:
        with b.loop(-(-size // TILE_ROWS)) as block, b.loop(size, lanes=True) as column:
            sums(block, column, lambda k: b.load(right, [*at, k, column]))
        return
    strip = b.local(right.dtype, size * TILE_COLUMNS)
    with b.loop(-(-size // TILE_COLUMNS)) as number_:
        first, count = b.piece(number_, TILE_COLUMNS, size)
        with b.loop(size) as k, b.loop(count, lanes=True) as column:
            b.store(strip, [k * TILE_COLUMNS + column], b.load(right, [*at, k, first + column]))
        with b.loop(-(-size // TILE_ROWS)) as block, b.loop(count, lanes=True) as column:
            sums(block, first + column, lambda k: b.load(strip, [k * TILE_COLUMNS + column]))


def _sum_products(
    b: LoopBuilder,
    target: Memory,
    left: Memory,
    at: Position,
    size: Dim,
    start: Start,
    block: Scalar,
    column: Scalar,
    entry_of: Callable[[Scalar], Scalar],
) -> None:
    """Some rows of a product, at a column (in the lanes of a vector).

    The last few rows are clamped to the last one, which is then computed more than once.
    """
    rows = [b.clamp(block * TILE_ROWS + k, 0, size) for k in range(TILE_ROWS)]
    totals = [b.variable(start(row, column)) for row in rows]
    with b.loop(size) as k:
        entry = entry_of(k)
        for row, total in zip(rows, totals, strict=True):
            factor = b.load(left, [*at, row, k])
            total.set(Numbers(b).plus_product(total.get(), factor, entry))
    for row, total in zip(rows, totals, strict=True):
        b.store(target, [*at, row, column], total.get())
