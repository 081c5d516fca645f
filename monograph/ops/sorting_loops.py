"""Stable sorts, as loops: the order of each row's elements.

Elements become unsigned integers that compare as they do, with every NaN the largest; flipped bits
turn the order round. Short rows are sorted by insertion. Longer ones by their digits of eight bits,
the lowest first: each pass counts the digits, which says where each digit's elements begin, and
moves keys and indices there in order. A digit that all elements share takes no pass, and integers
are counted from the least of a row: those of a small range have one or two digits that differ.
"""

from __future__ import annotations

from monograph.ir.dims import Dim, provably_less, shape_product
from monograph.ir.lower import Cell, LoopBuilder, Memory, Scalar
from monograph.ir.types import DType, bool_, dtype_of, f64, i64, u8, u64, wide

i32, u32 = dtype_of("i32"), dtype_of("u32")
SHORT = 32
"""Elements up to which inserting them one by one is quickest."""
NEAR = 2048
"""Elements up to which a thread has room of its own for a row, which stays in its cache."""
DIGIT = 8
DIGITS = 1 << DIGIT


def lower_argsort(b: LoopBuilder, axis: int, descending: bool) -> None:
    """The indices that sort along an axis, equal elements in order of index."""
    (x,) = b.operands
    normal = axis % x.rank
    size, inner = x.shape[normal], shape_product(x.shape[normal + 1 :])
    shape = (shape_product(x.shape[:normal]), size, inner)
    if isinstance(size, int) and size <= SHORT:
        _insert(b, shape, size, descending)
    else:
        _by_digits(b, shape, descending)


def key_dtype(dtype: DType) -> DType:
    """The unsigned integers that elements are compared as."""
    if dtype is bool_:
        return u8
    if dtype.is_float:
        return u64 if dtype is f64 else u32
    return dtype_of(f"u{wide(dtype).bits}")


def sort_key(b: LoopBuilder, x: Scalar, descending: bool) -> Scalar:
    """An unsigned integer that compares as the element does: -0.0 equals 0.0."""
    key = key_dtype(x.dtype)
    top = b.literal(1 << (key.bits - 1), key)
    ones = b.literal((1 << key.bits) - 1, key)
    if x.dtype.is_float:
        bits = b.apply("bitcast", b.apply("add", x, b.literal(0.0, x.dtype)), dtype=key)
        negative = b.apply("greater_equal", bits, top)
        folded = b.apply("bitwise_xor", bits, b.select(negative, ones, top))
        number = b.select(b.apply("is_nan", x), ones, folded)
    elif x.dtype is bool_ or x.dtype is key:
        number = b.cast(x, key)
    else:
        number = b.apply("bitwise_xor", b.cast(x, key), top)
    return b.apply("bitwise_not", number) if descending else number


def _insert(b: LoopBuilder, shape: tuple[Dim, Dim, Dim], size: int, descending: bool) -> None:
    result = b.viewed(b.result(), shape)
    with b.parallel((shape[0], shape[2])) as (before, after):
        keys = b.local(key_dtype(b.operands[0].dtype), SHORT)
        order = b.local(i32, SHORT)
        with b.loop(size) as k:
            key = sort_key(b, b.reshaped(0, shape, [before, k, after]), descending)
            place = b.variable(k)

            def moves() -> Scalar:
                """Whether the element below is larger, and has to make room."""
                below = b.apply("maximum", place.get() - 1, b.index(0))
                larger = b.apply("greater", b.load(keys, [below]), key)
                return b.apply("logical_and", larger, b.apply("greater", place.get(), b.index(0)))

            with b.while_(moves):
                here = place.get()
                b.store(keys, [here], b.load(keys, [here - 1]))
                b.store(order, [here], b.load(order, [here - 1]))
                place.set(here - 1)
            b.store(keys, [place.get()], key)
            b.store(order, [place.get()], k)
        with b.loop(size) as k:
            b.store(result, [before, k, after], b.load(order, [k]))


def _by_digits(b: LoopBuilder, shape: tuple[Dim, Dim, Dim], descending: bool) -> None:
    outer, size, inner = shape
    dtype = key_dtype(b.operands[0].dtype)
    result = b.viewed(b.result(), shape)
    numbers = i32 if provably_less(size, 1 << 31) else i64
    # One element more than there are, so that the first of an empty row can be looked at.
    whole = (2, outer * inner, size + 1)
    is_near = isinstance(size, int) and size <= NEAR
    if not is_near:
        keys, order = b.temporary(dtype, whole), b.temporary(numbers, whole)
    with b.parallel((outer, inner)) as (before, after):
        row = before * inner + after
        if isinstance(size, int) and is_near:
            row, own = b.index(0), (2, 1, size + 1)
            keys = b.viewed(b.local(dtype, 2 * (size + 1)), own)
            order = b.viewed(b.local(numbers, 2 * (size + 1)), own)
        with b.loop(size, lanes=True) as k:
            key = sort_key(b, b.reshaped(0, shape, [before, k, after]), descending)
            b.store(keys, [b.index(0), row, k], key)
            b.store(order, [b.index(0), row, k], k)
        counts = b.local(i64, dtype.bits // DIGIT * DIGITS)
        side = b.variable(b.index(0))
        if b.operands[0].dtype.is_float:
            _sort_shared(b, keys, order, counts, (row, side), size)
        else:
            _sort_near(b, keys, order, counts, (row, side), size)
        last = side.get()
        with b.loop(size, lanes=True) as k:
            b.store(result, [before, k, after], b.load(order, [last, row, k]))


def _sort_shared(
    b: LoopBuilder,
    keys: Memory,
    order: Memory,
    counts: Memory,
    where: tuple[Scalar, Cell],
    size: Dim,
) -> None:
    """Passes over all digits that not all elements share, which are counted at once."""
    (row, side), dtype = where, keys.dtype
    _count_digits(b, keys, counts, row, size)
    with b.loop(dtype.bits // DIGIT) as number:
        source = side.get()
        first = _digit(b, b.load(keys, [source, row, b.index(0)]), number)
        shared = b.load(counts, [number * DIGITS + first])
        with b.when(b.apply("not_equal", shared, b.index(size))):
            _starts(b, counts, number)
            _move(b, keys, order, counts, (row, source, number))
            side.set(1 - source)


def _sort_near(
    b: LoopBuilder,
    keys: Memory,
    order: Memory,
    counts: Memory,
    where: tuple[Scalar, Cell],
    size: Dim,
) -> None:
    """Passes over the digits that the distance of the least and the largest has."""
    (row, side), dtype = where, keys.dtype
    first = b.load(keys, [b.index(0), row, b.index(0)])
    least, most = b.variable(first), b.variable(first)
    with b.loop(size) as k:
        key = b.load(keys, [b.index(0), row, k])
        least.set(b.apply("minimum", least.get(), key))
        most.set(b.apply("maximum", most.get(), key))
    start, span = least.get(), b.apply("subtract", most.get(), least.get())
    with b.loop(size, lanes=True) as k:
        place = [b.index(0), row, k]
        b.store(keys, place, b.apply("subtract", b.load(keys, place), start))
    nothing = b.literal(0, dtype)
    with b.loop(dtype.bits // DIGIT) as number:
        rest = b.apply("shift_right", span, b.cast(number * DIGIT, dtype))
        with b.when(b.apply("not_equal", rest, nothing)):
            source = side.get()
            with b.loop(DIGITS, lanes=True) as value:
                b.store(counts, [number * DIGITS + value], b.index(0))
            with b.loop(size) as k:
                key = b.load(keys, [source, row, k])
                place = [number * DIGITS + _digit(b, key, number)]
                b.store(counts, place, b.load(counts, place) + 1)
            _starts(b, counts, number)
            _move(b, keys, order, counts, (row, source, number))
            side.set(1 - source)


def _digit(b: LoopBuilder, key: Scalar, number: Scalar) -> Scalar:
    """A digit of a key, as a position."""
    distance = b.cast(number * DIGIT, key.dtype)
    moved = b.apply("shift_right", key, distance)
    return b.cast(b.apply("bitwise_and", moved, b.literal(DIGITS - 1, key.dtype)), i64)


def _count_digits(b: LoopBuilder, keys: Memory, counts: Memory, row: Scalar, size: Dim) -> None:
    passes = keys.dtype.bits // DIGIT
    with b.loop(passes * DIGITS, lanes=True) as k:
        b.store(counts, [k], b.index(0))
    with b.loop(size) as k:
        key = b.load(keys, [b.index(0), row, k])
        for number in range(passes):
            place = [_digit(b, key, b.index(number)) + number * DIGITS]
            b.store(counts, place, b.load(counts, place) + 1)


def _starts(b: LoopBuilder, counts: Memory, number: Scalar) -> None:
    """Counts of a digit become where its elements begin."""
    total = b.variable(b.index(0))
    with b.loop(DIGITS) as value:
        place = [number * DIGITS + value]
        count, start = b.load(counts, place), total.get()
        b.store(counts, place, start)
        total.set(start + count)


def _move(
    b: LoopBuilder,
    keys: Memory,
    order: Memory,
    counts: Memory,
    where: tuple[Scalar, Scalar, Scalar],
) -> None:
    """Move the elements of one half to where their digit says in the other, in order."""
    row, source, number = where
    with b.loop(keys.shape[-1] - 1) as k:
        key = b.load(keys, [source, row, k])
        place = [number * DIGITS + _digit(b, key, number)]
        target = b.load(counts, place)
        b.store(counts, place, target + 1)
        b.store(keys, [1 - source, row, target], key)
        b.store(order, [1 - source, row, target], b.load(order, [source, row, k]))
