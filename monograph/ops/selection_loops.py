"""Top-k as loops: a heap of the best elements of each row so far.

An element is held by its key, which compares as the element does, and its index, so that of equal
elements the lower index is better: both in one unsigned integer if the key is short, else beside
each other. The worst of the heap is at its top: most elements are not better than that one, which
takes one comparison to see. A better one takes its place and sinks. In the end the heap is emptied,
the worst first.
"""

from __future__ import annotations

from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, shape_product
from monograph.ir.lower import LoopBuilder, Memory, Scalar
from monograph.ir.types import DType, bool_, i64, u64
from monograph.ops.sorting_loops import key_dtype, sort_key

MAX_HEAP_ELEMENTS = 4096
"""Elements that a heap may hold: it should stay in the cache next to the core."""
MIN_ROW_TO_HEAP_RATIO = 8
"""How many times as many elements as are wanted a row has, for a heap to be quicker than a sort."""
INDEX_BITS = 32

Entry: TypeAlias = tuple[Scalar, ...]
"""A key above an index, in one number or in two; the first decides before the second."""


def may_select(size: Dim, k: Dim) -> bool:
    """Whether selecting is possible and quicker than sorting: few of many."""
    if not isinstance(k, int) or not 0 < k <= MAX_HEAP_ELEMENTS:
        return False
    low, high = (size, size) if isinstance(size, int) else size.bounds()
    return (
        low is not None
        and low >= MIN_ROW_TO_HEAP_RATIO * k
        and high is not None
        and high < 1 << INDEX_BITS
    )


def lower_top_k_indices(b: LoopBuilder, k: int, axis: int, largest: bool) -> None:
    """The indices of the ``k`` first elements in order of size."""
    (x,) = b.operands
    normal = axis % x.rank
    size, inner = x.shape[normal], shape_product(x.shape[normal + 1 :])
    outer = shape_product(x.shape[:normal])
    result = b.viewed(b.result(), (outer, k, inner))
    with b.parallel((outer, inner)) as (before, after):

        def element(place: Scalar) -> Scalar:
            return b.reshaped(0, (outer, size, inner), [before, place, after])

        heap = _Heap.of(b, element(b.index(0)).dtype, k, largest)
        with b.loop(k) as place:
            heap.sink(b.index(k), heap.entry(element(place), place))
        worst = b.variable(heap.worst())
        beyond = "less_equal" if largest else "greater_equal"
        with b.loop(size - k) as rest:
            place = rest + k
            value = element(place)
            is_no_better = b.apply(beyond, value, worst.get())  # a NaN is looked at closely
            with b.when(b.apply("logical_not", is_no_better)):
                entry = heap.entry(value, place)
                with b.when(heap.is_less(entry, heap.get(b.index(0)))):
                    heap.sink(b.index(k), entry)
                    worst.set(heap.worst())
        with b.loop(k) as done:
            last = b.index(k - 1) - done
            b.store(result, [before, last, after], heap.index(heap.get(b.index(0))))
            heap.sink(last, heap.get(last))


@dataclass(frozen=True)
class _Heap:
    """Entries in memory, none of them better than its parent."""

    b: LoopBuilder
    dtype: DType
    largest: bool
    parts: tuple[Memory, ...]

    @staticmethod
    def of(b: LoopBuilder, dtype: DType, size: int, largest: bool) -> _Heap:
        """A heap of entries that are worse than any element."""
        count = 1 if key_dtype(dtype).bits <= INDEX_BITS else 2
        parts = tuple(b.local(u64, size) for _ in range(count))
        with b.loop(size) as place:
            for part in parts:
                b.store(part, [place], b.literal((1 << u64.bits) - 1, u64))
        return _Heap(b, dtype, largest, parts)

    def entry(self, value: Scalar, place: Scalar) -> Entry:
        """An element's key above its index."""
        b = self.b
        key, index = b.cast(sort_key(b, value, self.largest), u64), b.cast(place, u64)
        if len(self.parts) > 1:
            return key, index
        high = b.apply("shift_left", key, b.literal(INDEX_BITS, u64))
        return (b.apply("bitwise_or", high, index),)

    def index(self, entry: Entry) -> Scalar:
        b = self.b
        mask = b.literal((1 << INDEX_BITS) - 1, u64)
        return b.cast(b.apply("bitwise_and", entry[-1], mask), i64)

    def get(self, place: Scalar) -> Entry:
        return tuple(self.b.load(part, [place]) for part in self.parts)

    def set(self, place: Scalar, entry: Entry) -> None:
        for part, number in zip(self.parts, entry, strict=True):
            self.b.store(part, [place], number)

    def is_less(self, left: Entry, right: Entry) -> Scalar:
        """Whether an entry is better than another."""
        b = self.b
        first = b.apply("less", left[0], right[0])
        if len(left) == 1:
            return first
        is_tied = b.apply("equal", left[0], right[0])
        return b.apply(
            "logical_or", first, b.apply("logical_and", is_tied, b.apply("less", left[1], right[1]))
        )

    def worst(self) -> Scalar:
        """The element at the top of the heap, of its key."""
        b, dtype, key = self.b, self.dtype, key_dtype(self.dtype)
        number = self.get(b.index(0))[0]
        if len(self.parts) == 1:
            number = b.apply("shift_right", number, b.literal(INDEX_BITS, u64))
        number = b.cast(number, key)
        if self.largest:
            number = b.apply("bitwise_not", number)
        top = b.literal(1 << (key.bits - 1), key)
        if dtype.is_float:
            ones = b.literal((1 << key.bits) - 1, key)
            negative = b.apply("less", number, top)
            bits = b.apply("bitwise_xor", number, b.select(negative, ones, top))
            return b.apply("bitcast", bits, dtype=dtype)
        if dtype is bool_ or dtype is key:
            return b.cast(number, dtype)
        return b.cast(b.apply("bitwise_xor", number, top), dtype)

    def sink(self, size: Scalar, entry: Entry) -> None:
        """Put an entry in place of the top of the first ``size``, and let it sink."""
        b = self.b
        place = b.variable(b.index(0))
        with b.while_(lambda: b.apply("less", place.get() * 2 + 1, size)):
            here = place.get()
            left = here * 2 + 1
            right = b.apply("minimum", left + 1, size - 1)
            first, second = self.get(left), self.get(right)
            is_second = self.is_less(first, second)
            both = zip(first, second, strict=True)
            worse = tuple(b.select(is_second, y, x) for x, y in both)
            sinks = self.is_less(entry, worse)
            with b.when(sinks):
                self.set(here, worse)
                place.set(b.select(is_second, right, left))
            with b.when(b.apply("logical_not", sinks)):
                self.set(here, entry)
                place.set(size)
        with b.when(b.apply("less", place.get(), size)):
            self.set(place.get(), entry)
