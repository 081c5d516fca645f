"""Elimination, substitution and Cholesky's factor, as loops over one matrix at a time.

Everything is computed in f64 (complex numbers in c128) and rounded once, as the ops' evaluation
does. Matrices of a batch are independent, and so are the columns of a right side; rows are walked
along in vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Shape, dim_min, provably_equal
from monograph.ir.lower import Cell, LoopBuilder, Memory, Position, Scalar
from monograph.ir.types import DType, bool_, c128, f64, i64, u64

SINGULAR = "the matrix is singular"
PANEL_COLUMNS = 8
"""Columns that are eliminated before the rest of the matrix is visited once for all of them."""


@dataclass(frozen=True)
class Factors:
    """L and U of the matrices of a batch in one memory, and which row stands where."""

    packed: Memory
    order: Memory
    sign: Memory
    """1 or -1 for each matrix: whether rows were exchanged an even number of times."""
    batch: Shape
    size: Dim


def number(b: LoopBuilder, value: float) -> Scalar:
    """An f64."""
    return b.literal(value, f64)


def working_dtype(b: LoopBuilder) -> DType:
    """What the elements of the matrices are computed in."""
    return c128 if b.operands[0].dtype.is_complex else f64


def load_double(b: LoopBuilder, operand: int, index: Position) -> Scalar:
    """An element of an operand, as an f64 (a c128)."""
    element = b.read(operand, index)
    return b.cast(element, c128 if element.dtype.is_complex else f64)


def conjugate(b: LoopBuilder, x: Scalar) -> Scalar:
    """The conjugate of a complex number; a real one is its own."""
    return b.apply("conj", x) if x.dtype.is_complex else x


def size_of_parts(b: LoopBuilder, x: Scalar) -> Scalar:
    """LAPACK's measure of a number: the magnitudes of its parts added up."""
    if not x.dtype.is_complex:
        return b.apply("abs", x)
    real, imaginary = (b.apply("abs", b.apply(part, x)) for part in ("real", "imag"))
    return b.apply("add", real, imaginary)


def batch_place(b: LoopBuilder, at: Position, own: Shape, batch: Shape) -> list[Scalar]:
    """Where the matrix of a smaller batch is that meets position ``at`` of the whole batch."""
    added = len(batch) - len(own)
    found = []
    for place, dim, target in zip(at[added:], own, batch[added:], strict=True):
        if dim == 1:
            found.append(b.index(0))
        else:
            found.append(place if provably_equal(dim, target) else b.clamp(place, 0, dim))
    return found


def copy_as_double(b: LoopBuilder, operand: int = 0) -> Memory:
    """An operand's elements in f64 (c128), in memory of their own."""
    copy = b.temporary(working_dtype(b), b.operands[operand].shape)
    b.fill(copy, lambda at: load_double(b, operand, at))
    return copy


def round_into(b: LoopBuilder, source: Memory, result: int = 0) -> None:
    """Fill a result from f64 memory of its shape."""
    b.fill(b.result(result), lambda at: b.load(source, at))


def exchange(b: LoopBuilder, memory: Memory, first: Position, second: Position) -> None:
    """Let two elements change places."""
    one, other = b.load(memory, first), b.load(memory, second)
    b.store(memory, first, other)
    b.store(memory, second, one)


def pivot_row(b: LoopBuilder, packed: Memory, at: Position, step: Scalar, rows: Dim) -> Scalar:
    """The row from ``step`` on with the largest element in that column: the first, or a NaN."""
    best = b.variable(number(b, -1.0))
    chosen = b.variable(step)
    with b.loop(rows - step) as below:
        size = size_of_parts(b, b.load(packed, [*at, step + below, step]))
        so_far = best.get()
        fresh = b.apply("logical_not", b.apply("is_nan", so_far))
        is_nan = b.apply("logical_and", b.apply("is_nan", size), fresh)
        better = b.apply("logical_or", b.apply("greater", size, so_far), is_nan)
        with b.when(better):
            best.set(size)
            chosen.set(step + below)
    return chosen.get()


def eliminate(
    b: LoopBuilder,
    packed: Memory,
    at: Position,
    exchanged: Callable[[Scalar, Scalar], None] | None,
) -> None:
    """Turn a matrix into its factors L and U, in place, a panel of columns at a time.

    ``exchanged(row, other)`` is told which rows change places; without it, none do.
    """
    rows, columns = packed.shape[-2:]
    steps = dim_min(rows, columns)
    with b.loop(-(-steps // PANEL_COLUMNS)) as panel:
        start, width = b.piece(panel, PANEL_COLUMNS, steps)
        with b.loop(width) as k:
            step = start + k
            if exchanged is not None:
                chosen = pivot_row(b, packed, at, step, rows)
                with b.loop(columns, lanes=True) as column:
                    exchange(b, packed, [*at, step, column], [*at, chosen, column])
                exchanged(step, chosen)
            _eliminate_column(b, packed, at, step, start + width)
        _finish_rows(b, packed, at, start, width)
        _finish_rest(b, packed, at, start, start + width)


def _eliminate_column(
    b: LoopBuilder, packed: Memory, at: Position, step: Scalar, end: Scalar
) -> None:
    """Take multiples of row ``step`` from those below it, in the columns up to ``end``.

    A head of 0 divides by 1 instead.
    """
    head = b.load(packed, [*at, step, step])
    is_zero = b.apply("equal", head, number(b, 0.0))
    safe = b.select(is_zero, number(b, 1.0), head)
    with b.loop(packed.shape[-2] - 1 - step) as below:
        row = step + 1 + below
        factor = b.apply("divide", b.load(packed, [*at, row, step]), safe)
        b.store(packed, [*at, row, step], factor)
        with b.loop(end - 1 - step) as beside:
            _subtract(b, packed, at, (row, step + 1 + beside), [(factor, step)])


def _finish_rows(
    b: LoopBuilder, packed: Memory, at: Position, start: Scalar, width: Scalar
) -> None:
    """The rest of a panel's own rows."""
    first = start + width
    with b.loop(width) as k, b.loop(k) as above:
        factor = b.load(packed, [*at, start + k, start + above])
        with b.loop(packed.shape[-1] - first, lanes=True) as beside:
            _subtract(b, packed, at, (start + k, first + beside), [(factor, start + above)])


def _finish_rest(
    b: LoopBuilder, packed: Memory, at: Position, start: Scalar, first: Scalar
) -> None:
    """The rows and columns beyond a panel; a panel that is not full has no columns beyond it."""
    rows, columns = packed.shape[-2:]
    with b.loop(rows - first) as below:
        row = first + below
        sources = [start + k for k in range(PANEL_COLUMNS)]
        held = [b.clamp(source, 0, columns) for source in sources]
        factors = [b.load(packed, [*at, row, column]) for column in held]
        terms = list(zip(factors, sources, strict=True))
        with b.loop(columns - first, lanes=True) as beside:
            _subtract(b, packed, at, (row, first + beside), terms)


def _subtract(
    b: LoopBuilder,
    packed: Memory,
    at: Position,
    place: tuple[Scalar, Scalar],
    terms: Sequence[tuple[Scalar, Scalar]],
) -> None:
    """Take from an element, for each (factor, row), the factor times that row's element."""
    row, column = place
    value = b.load(packed, [*at, row, column])
    for factor, source in terms:
        product = b.apply("multiply", factor, b.load(packed, [*at, source, column]))
        value = b.apply("subtract", value, product)
    b.store(packed, [*at, row, column], value)


def lower_lu_factor(b: LoopBuilder, pivot: bool) -> None:
    """The loops of ``lu_factor``."""
    shape = b.operands[0].shape
    packed = copy_as_double(b)
    with b.parallel(shape[:-2]) as at:

        def note(step: Scalar, chosen: Scalar) -> None:
            b.store(b.result(1), [*at, step], b.cast(chosen + 1, b.results[1].dtype))

        if not pivot:
            with b.loop(dim_min(*shape[-2:])) as step:
                note(step, step)
        eliminate(b, packed, at, note if pivot else None)
    round_into(b, packed)


def factorize(b: LoopBuilder) -> Factors:
    """Factors of the square matrices that are the first operand."""
    shape = b.operands[0].shape
    batch, size = shape[:-2], shape[-1]
    packed = copy_as_double(b)
    order = b.temporary(i64, (*batch, size))
    sign = b.temporary(f64, batch)
    with b.parallel(batch) as at:
        parity = b.variable(number(b, 1.0))

        def note(step: Scalar, chosen: Scalar) -> None:
            exchange(b, order, [*at, step], [*at, chosen])
            moved = b.apply("not_equal", chosen, step)
            turned = b.apply("negate", parity.get())
            parity.set(b.select(moved, turned, parity.get()))

        with b.loop(size) as row:
            b.store(order, [*at, row], row)
        eliminate(b, packed, at, note)
        b.store(sign, at, parity.get())
    return Factors(packed, order, sign, batch, size)


def require_regular(b: LoopBuilder, factors: Factors) -> None:
    """An error if a matrix has no inverse: an element of U's diagonal is 0."""
    with b.parallel(factors.batch) as at, b.loop(factors.size) as k:
        head = b.load(factors.packed, [*at, k, k])
        b.require(b.apply("not_equal", head, number(b, 0.0)), SINGULAR)


def less_products(
    b: LoopBuilder,
    start: Scalar,
    terms: tuple[Dim | Scalar, Scalar | Dim],
    matrix: tuple[Memory, Position, Scalar],
    solution: tuple[Memory, Position, Scalar],
) -> Scalar:
    """``start`` less row · column over ``terms`` = (how many, from where on)."""
    (count, first), (packed, at, row), (x, there, column) = terms, matrix, solution
    total: Cell = b.variable(start)
    with b.loop(count) as k:
        place = k + first
        factor = b.load(packed, [*at, row, place])
        product = b.apply("multiply", factor, b.load(x, [*there, place, column]))
        total.set(b.apply("subtract", total.get(), product))
    return total.get()


def substitute(b: LoopBuilder, factors: Factors, x: Memory, identity: bool) -> None:
    """Fill ``x`` with the solutions for the second operand, or for the identity."""
    size, columns = factors.size, x.shape[-1]
    batch = x.shape[:-2]
    with b.parallel((*batch, columns), lanes=True) as (*at, column):
        own = batch_place(b, at, factors.batch, batch)
        with b.loop(size) as row:
            source = b.load(factors.order, [*own, row])
            if identity:
                start = b.cast(b.apply("equal", source, column, dtype=bool_), f64)
                start = b.cast(start, x.dtype)
            else:
                right = batch_place(b, at, b.operands[1].shape[:-2], batch)
                start = load_double(b, 1, [*right, b.checked(source, size), column])
            matrix, solution = (factors.packed, own, row), (x, at, column)
            b.store(x, [*at, row, column], less_products(b, start, (row, 0), matrix, solution))
        with b.loop(size) as back:
            row = size - 1 - back
            start = b.load(x, [*at, row, column])
            matrix, solution = (factors.packed, own, row), (x, at, column)
            total = less_products(b, start, (back, row + 1), matrix, solution)
            head = b.load(factors.packed, [*own, row, row])
            b.store(x, [*at, row, column], b.apply("divide", total, head))


def lower_solve(b: LoopBuilder) -> None:
    """The loops of ``solve``."""
    _lower_solution(b, identity=False)


def lower_inverse(b: LoopBuilder) -> None:
    """The loops of ``inverse``."""
    _lower_solution(b, identity=True)


def _lower_solution(b: LoopBuilder, *, identity: bool) -> None:
    """What the right-hand sides, or the identity in place of them, are when divided by a matrix."""
    factors = factorize(b)
    require_regular(b, factors)
    x = b.temporary(working_dtype(b), b.results[0].shape)
    substitute(b, factors, x, identity=identity)
    round_into(b, x)


def lower_determinant(b: LoopBuilder) -> None:
    """The loops of ``determinant``: the product of U's diagonal, and the sign."""
    factors = factorize(b)
    with b.parallel(factors.batch) as at:
        product = b.variable(b.cast(b.load(factors.sign, at), working_dtype(b)))
        singular = b.variable(b.literal(False, bool_))
        with b.loop(factors.size) as k:
            head = b.load(factors.packed, [*at, k, k])
            product.set(b.apply("multiply", product.get(), head))
            is_zero = b.apply("equal", head, number(b, 0.0))
            singular.set(b.apply("logical_or", singular.get(), is_zero))
        b.store(b.result(), at, b.select(singular.get(), number(b, 0.0), product.get()))


def lower_slogdet(b: LoopBuilder) -> None:
    """The loops of ``slogdet``; a singular matrix has sign 0 and logarithm -inf."""
    factors = factorize(b)
    zero = number(b, 0.0)
    with b.parallel(factors.batch) as at:
        sign = b.variable(b.cast(b.load(factors.sign, at), working_dtype(b)))
        total = b.variable(zero)
        with b.loop(factors.size) as k:
            head = b.load(factors.packed, [*at, k, k])
            sign.set(b.apply("multiply", sign.get(), _direction(b, head)))
            magnitude = b.apply("log", b.apply("abs", head))
            total.set(b.apply("add", total.get(), magnitude))
        b.store(b.result(0), at, sign.get())
        singular = b.apply("equal", sign.get(), zero)
        b.store(b.result(1), at, b.select(singular, number(b, float("-inf")), total.get()))


def _direction(b: LoopBuilder, head: Scalar) -> Scalar:
    """The sign of a number, of a complex one its direction; a NaN counts as positive."""
    if head.dtype.is_complex:
        return b.apply("sign", head)
    zero = number(b, 0.0)
    turned = b.select(b.apply("less", head, zero), number(b, -1.0), number(b, 1.0))
    return b.select(b.apply("equal", head, zero), zero, turned)


def lower_triangular_solve(b: LoopBuilder, upper: bool, unit_diagonal: bool) -> None:
    """The loops of ``triangular_solve``: one row after the other, from the diagonal's far end."""
    matrix, (result,) = b.operands[0], b.results
    size, columns, batch = matrix.shape[-1], result.shape[-1], result.shape[:-2]
    x = b.temporary(working_dtype(b), result.shape)
    with b.parallel((*batch, columns), lanes=True) as (*at, column):
        own = batch_place(b, at, matrix.shape[:-2], batch)
        right = batch_place(b, at, b.operands[1].shape[:-2], batch)
        with b.loop(size) as step:
            row = size - 1 - step if upper else step
            total = b.variable(load_double(b, 1, [*right, row, column]))
            with b.loop(step) as k:
                place = size - 1 - k if upper else k
                known = b.load(x, [*at, place, column])
                product = b.apply("multiply", load_double(b, 0, [*own, row, place]), known)
                total.set(b.apply("subtract", total.get(), product))
            value = total.get()
            if not unit_diagonal:
                value = b.apply("divide", value, load_double(b, 0, [*own, row, row]))
            b.store(x, [*at, row, column], value)
    round_into(b, x)


def lower_cholesky(b: LoopBuilder, upper: bool) -> None:
    """The loops of ``cholesky``: U with x = Uᴴ U, row by row; L is U turned over."""
    shape = b.operands[0].shape
    batch, size = shape[:-2], shape[-1]
    rows = b.temporary(working_dtype(b), shape)

    def turned(at: Position) -> Position:
        return at if upper else [*at[:-2], at[-1], at[-2]]

    def mirrored(x: Scalar) -> Scalar:
        return x if upper else conjugate(b, x)

    b.fill(rows, lambda at: mirrored(load_double(b, 0, turned(at))))
    with b.parallel(batch) as at, b.loop(size) as step:
        head = b.load(rows, [*at, step, step])
        if head.dtype.is_complex:  # what the diagonal has of an imaginary part does not count
            head = b.apply("real", head)
            b.store(rows, [*at, step, step], head)
        positive = b.apply("greater", head, number(b, 0.0))
        b.require(positive, "the matrix is not positive definite")
        root = b.apply("sqrt", head)
        with b.loop(size - step, lanes=True) as beside:
            place = [*at, step, step + beside]
            b.store(rows, place, b.apply("divide", b.load(rows, place), root))
        with b.loop(size - 1 - step) as below:
            row = step + 1 + below
            factor = conjugate(b, b.load(rows, [*at, step, row]))
            with b.loop(size - row, lanes=True) as beside:
                place = [*at, row, row + beside]
                product = b.apply("multiply", factor, b.load(rows, [*at, step, row + beside]))
                b.store(rows, place, b.apply("subtract", b.load(rows, place), product))

    def element(at: Position) -> Scalar:
        row, column = turned(at)[-2:]
        outside = b.apply("less", column, row)
        return b.select(outside, number(b, 0.0), mirrored(b.load(rows, turned(at))))

    b.fill(b.result(), element)


def lower_exchanges(b: LoopBuilder, size: Dim) -> None:
    """The loops of ``pivots_to_permutation``."""
    pivots = b.operands[0]
    order = b.result()
    with b.parallel(pivots.shape[:-1]) as at:
        with b.loop(size) as row:
            b.store(order, [*at, row], row)
        with b.loop(pivots.shape[-1]) as step:
            counted = b.cast(b.read(0, [*at, step]), i64)
            partner = b.checked(b.cast(counted - 1, u64), size)
            exchange(b, order, [*at, b.checked(step, size)], [*at, partner])
