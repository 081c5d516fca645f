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
MAX_INSERTION_SORT_ELEMENTS = 32
"""Elements up to which inserting them one by one is quickest."""
MAX_PRIVATE_ELEMENTS = 2048
"""Elements up to which a thread has room of its own for a row, which stays in its cache."""
DIGIT_BITS = 8
DIGITS = 1 << DIGIT_BITS


def lower_argsort(b: LoopBuilder, axis: int, descending: bool) -> None:
    """The indices that sort along an axis, equal elements in order of index."""
    (x,) = b.operands
    normal = axis % x.rank
    size, inner = x.shape[normal], shape_product(x.shape[normal + 1 :])
    shape = (shape_product(x.shape[:normal]), size, inner)
    if isinstance(size, int) and size <= MAX_INSERTION_SORT_ELEMENTS:
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
        keys = b.local(key_dtype(b.operands[0].dtype), MAX_INSERTION_SORT_ELEMENTS)
        order = b.local(i32, MAX_INSERTION_SORT_ELEMENTS)
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
    is_near = isinstance(size, int) and size <= MAX_PRIVATE_ELEMENTS
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
        passes = _Passes(b, keys, order, row)
        if b.operands[0].dtype.is_float:
            passes.by_shared_digits()
        else:
            passes.by_distance()
        last = passes.half.get()
        with b.loop(size, lanes=True) as k:
            b.store(result, [before, k, after], b.load(order, [last, row, k]))


class _Passes:
    """Passes over the digits of a row, each of which moves keys and indices to the other half.

    ``half`` says which half the elements are in; ``counts`` holds how often each value of each
    digit occurs, and then where its elements go.
    """

    def __init__(self, b: LoopBuilder, keys: Memory, order: Memory, row: Scalar) -> None:
        self.b = b
        self.keys = keys
        self.order = order
        self.row = row
        self.size = keys.shape[-1] - 1
        self.digits = keys.dtype.bits // DIGIT_BITS
        self.counts = b.local(i64, self.digits * DIGITS)
        self.half: Cell = b.variable(b.index(0))

    def by_shared_digits(self) -> None:
        """Passes over all digits that not all elements share, which are counted at once."""
        b = self.b
        self._count_all()
        with b.loop(self.digits) as number:
            first = self._digit(self._key(self.half.get(), b.index(0)), number)
            shared = b.load(self.counts, [number * DIGITS + first])
            with b.when(b.apply("not_equal", shared, b.index(self.size))):
                self._pass(number)

    def by_distance(self) -> None:
        """Passes over the digits that the distance of the least and the largest has."""
        b, dtype = self.b, self.keys.dtype
        span = self._subtract_least()
        nothing = b.literal(0, dtype)
        with b.loop(self.digits) as number:
            rest = b.apply("shift_right", span, b.cast(number * DIGIT_BITS, dtype))
            with b.when(b.apply("not_equal", rest, nothing)):
                self._count(number)
                self._pass(number)

    def _key(self, half: Scalar, k: Scalar) -> Scalar:
        return self.b.load(self.keys, [half, self.row, k])

    def _digit(self, key: Scalar, number: Scalar) -> Scalar:
        """A digit of a key, as a position."""
        b = self.b
        moved = b.apply("shift_right", key, b.cast(number * DIGIT_BITS, key.dtype))
        return b.cast(b.apply("bitwise_and", moved, b.literal(DIGITS - 1, key.dtype)), i64)

    def _add_one(self, place: Scalar) -> Scalar:
        """Count one more; what was counted before."""
        count = self.b.load(self.counts, [place])
        self.b.store(self.counts, [place], count + 1)
        return count

    def _count_all(self) -> None:
        """Count the values of all digits in one visit."""
        b = self.b
        with b.loop(self.digits * DIGITS, lanes=True) as k:
            b.store(self.counts, [k], b.index(0))
        with b.loop(self.size) as k:
            key = self._key(b.index(0), k)
            for number in range(self.digits):
                self._add_one(self._digit(key, b.index(number)) + number * DIGITS)

    def _count(self, number: Scalar) -> None:
        """Count the values of one digit."""
        b, half = self.b, self.half.get()
        with b.loop(DIGITS, lanes=True) as value:
            b.store(self.counts, [number * DIGITS + value], b.index(0))
        with b.loop(self.size) as k:
            self._add_one(number * DIGITS + self._digit(self._key(half, k), number))

    def _subtract_least(self) -> Scalar:
        """Count the keys from the least of them; how far the largest is."""
        b, half = self.b, self.b.index(0)
        first = self._key(half, b.index(0))
        least, most = b.variable(first), b.variable(first)
        with b.loop(self.size) as k:
            key = self._key(half, k)
            least.set(b.apply("minimum", least.get(), key))
            most.set(b.apply("maximum", most.get(), key))
        start, span = least.get(), b.apply("subtract", most.get(), least.get())
        with b.loop(self.size, lanes=True) as k:
            b.store(self.keys, [half, self.row, k], b.apply("subtract", self._key(half, k), start))
        return span

    def _pass(self, number: Scalar) -> None:
        """Move the elements to where their digit, which is counted, says in the other half."""
        half = self.half.get()
        self._starts(number)
        self._move(half, number)
        self.half.set(1 - half)

    def _starts(self, number: Scalar) -> None:
        """Counts of a digit become where its elements begin."""
        b = self.b
        total = b.variable(b.index(0))
        with b.loop(DIGITS) as value:
            place = [number * DIGITS + value]
            count, start = b.load(self.counts, place), total.get()
            b.store(self.counts, place, start)
            total.set(start + count)

    def _move(self, half: Scalar, number: Scalar) -> None:
        """Move the elements of one half, in order."""
        b, row = self.b, self.row
        with b.loop(self.size) as k:
            key = self._key(half, k)
            target = self._add_one(number * DIGITS + self._digit(key, number))
            b.store(self.keys, [1 - half, row, target], key)
            b.store(self.order, [1 - half, row, target], b.load(self.order, [half, row, k]))
