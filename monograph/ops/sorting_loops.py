"""A stable merge sort, as loops: the order of each row's elements.

Elements become integers that compare as they do, with every NaN the largest, so a comparison is
one instruction; flipped bits turn the order round. Runs of 1, 2, 4… are merged from one half of
the temporaries into the other, keys and indices alike, so memory is read from front to back.
"""

from __future__ import annotations

from monograph.ir.dims import Dim, provably_less, shape_product
from monograph.ir.lower import Cell, LoopBuilder, Memory, Scalar
from monograph.ir.types import DType, bool_, dtype_of, f64, i64, u8

i32 = dtype_of("i32")


def lower_argsort(b: LoopBuilder, axis: int, descending: bool) -> None:
    """The indices that sort along an axis, equal elements in order of index."""
    (x,) = b.operands
    normal = axis % x.rank
    size, inner = x.shape[normal], shape_product(x.shape[normal + 1 :])
    shape = (shape_product(x.shape[:normal]), size, inner)
    rows = shape[0] * inner
    result = b.viewed(b.result(), shape)
    # One element more than there are: a run that is used up is read once beyond its end.
    keys = b.temporary(key_dtype(x.dtype), (2, rows, size + 1))
    order = b.temporary(i32 if provably_less(size, 1 << 31) else i64, (2, rows, size + 1))
    with b.parallel((shape[0], inner)) as (before, after):
        row = before * inner + after
        with b.loop(size, lanes=True) as k:
            key = sort_key(b, b.reshaped(0, shape, [before, k, after]), descending)
            b.store(keys, [b.index(0), row, k], key)
            b.store(order, [b.index(0), row, k], k)
        side = _merge_all(b, keys, order, row, size)
        with b.loop(size, lanes=True) as k:
            b.store(result, [before, k, after], b.load(order, [side, row, k]))


def key_dtype(dtype: DType) -> DType:
    """The integers that elements are compared as."""
    if dtype is bool_:
        return u8
    if not dtype.is_float:
        return dtype
    return i64 if dtype is f64 else i32


def sort_key(b: LoopBuilder, x: Scalar, descending: bool) -> Scalar:
    """An integer that compares as the element does: NaN is largest, -0.0 equals 0.0."""
    key = key_dtype(x.dtype)
    if not x.dtype.is_float:
        number = b.cast(x, key)
    else:
        bits = b.apply("bitcast", b.apply("add", x, b.literal(0.0, x.dtype)), dtype=key)
        sign = b.apply("shift_right", bits, b.literal(key.bits - 1, key))
        largest = b.literal((1 << (key.bits - 1)) - 1, key)
        folded = b.apply("bitwise_xor", bits, b.apply("bitwise_and", sign, largest))
        number = b.select(b.apply("is_nan", x), largest, folded)
    return b.apply("bitwise_not", number) if descending else number


def _merge_all(b: LoopBuilder, keys: Memory, order: Memory, row: Scalar, size: Dim) -> Scalar:
    """Merge runs until one is left; the half of the temporaries that holds it."""
    width, side = b.variable(b.index(1)), b.variable(b.index(0))
    end = b.index(size)
    with b.while_(lambda: b.apply("less", width.get(), end)):
        length, source = width.get(), side.get()
        start = b.variable(b.index(0))
        with b.while_(lambda: b.apply("less", start.get(), end)):
            low = start.get()
            middle = b.apply("minimum", low + length, end)
            high = b.apply("minimum", middle + length, end)
            _merge(b, keys, order, (row, source), (low, middle, high))
            start.set(high)
        side.set(1 - source)
        width.set(length + length)
    return side.get()


def _merge(
    b: LoopBuilder,
    keys: Memory,
    order: Memory,
    where: tuple[Scalar, Scalar],
    run: tuple[Scalar, Scalar, Scalar],
) -> None:
    """Merge low..middle with middle..high of one half into the same place of the other."""
    (row, source), (low, middle, high) = where, run
    left, right, place = b.variable(low), b.variable(middle), b.variable(low)

    def step(cell: Cell, one: Scalar) -> None:
        cell.set(cell.get() + one)

    with b.while_(lambda: b.apply("less", place.get(), high)):
        i, j, k = left.get(), right.get(), place.get()
        a, c = b.load(keys, [source, row, i]), b.load(keys, [source, row, j])
        left_is_over = b.apply("greater_equal", i, middle)
        right_is_left = b.apply("less", j, high)
        smaller = b.apply("logical_or", left_is_over, b.apply("less", c, a))
        takes_right = b.apply("logical_and", right_is_left, smaller)
        chosen = b.select(takes_right, j, i)
        b.store(keys, [1 - source, row, k], b.select(takes_right, c, a))
        b.store(order, [1 - source, row, k], b.load(order, [source, row, chosen]))
        one = b.cast(takes_right, i64)
        step(right, one)
        step(left, 1 - one)
        step(place, b.index(1))
