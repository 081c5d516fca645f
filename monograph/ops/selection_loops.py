"""The first few of an order, as loops: a heap of the best elements that a row has shown so far.

An element is held as one unsigned integer: its key, which compares as the element does, above its
index, so that of equal elements the lower index is better. The worst of the heap is at its top:
most elements are not better than that one, which takes one comparison to see. A better one takes
its place and sinks. In the end the heap is emptied, the worst first.
"""

from __future__ import annotations

from monograph.ir.dims import Dim, shape_product
from monograph.ir.lower import LoopBuilder, Memory, Scalar
from monograph.ir.types import DType, bool_, i64, u64
from monograph.ops.sorting_loops import key_dtype, sort_key

LARGEST = 4096
"""Elements that a heap may hold: it should stay in the cache next to the core."""
FEW = 8
"""How many times as many elements as are wanted a row has, for a heap to be quicker than a sort."""
INDEX_BITS = 32


def may_select(dtype: DType, size: Dim, k: Dim) -> bool:
    """Whether selecting is possible and quicker than sorting: few of many, with small keys."""
    if not isinstance(k, int) or not 0 < k <= LARGEST or key_dtype(dtype).bits > INDEX_BITS:
        return False
    low, high = (size, size) if isinstance(size, int) else size.bounds()
    return low is not None and low >= FEW * k and high is not None and high < 1 << INDEX_BITS


def lower_top_k_indices(b: LoopBuilder, k: int, axis: int, largest: bool) -> None:
    """The indices of the ``k`` first elements in order of size."""
    (x,) = b.operands
    normal = axis % x.rank
    size, inner = x.shape[normal], shape_product(x.shape[normal + 1 :])
    outer = shape_product(x.shape[:normal])
    result = b.viewed(b.result(), (outer, k, inner))
    with b.parallel((outer, inner)) as (before, after):
        heap = b.local(u64, k)
        with b.loop(k) as place:
            b.store(heap, [place], b.literal((1 << u64.bits) - 1, u64))

        def element(place: Scalar) -> Scalar:
            return b.reshaped(0, (outer, size, inner), [before, place, after])

        with b.loop(k) as place:
            _sink(b, heap, b.index(k), _packed(b, element(place), place, largest))
        worst = b.variable(_worst(b, heap, element(b.index(0)).dtype, largest))
        beyond = "less_equal" if largest else "greater_equal"
        with b.loop(size - k) as rest:
            place = rest + k
            value = element(place)
            is_no_better = b.apply(beyond, value, worst.get())  # a NaN is looked at closely
            with b.when(b.apply("logical_not", is_no_better)):
                packed = _packed(b, value, place, largest)
                with b.when(b.apply("less", packed, b.load(heap, [b.index(0)]))):
                    _sink(b, heap, b.index(k), packed)
                    worst.set(_worst(b, heap, value.dtype, largest))
        with b.loop(k) as done:
            last = b.index(k - 1) - done
            b.store(result, [before, last, after], _index(b, b.load(heap, [b.index(0)])))
            _sink(b, heap, last, b.load(heap, [last]))


def _packed(b: LoopBuilder, value: Scalar, place: Scalar, largest: bool) -> Scalar:
    """An element's key above its index."""
    key = b.cast(sort_key(b, value, largest), u64)
    high = b.apply("shift_left", key, b.literal(INDEX_BITS, u64))
    return b.apply("bitwise_or", high, b.cast(place, u64))


def _index(b: LoopBuilder, packed: Scalar) -> Scalar:
    mask = b.literal((1 << INDEX_BITS) - 1, u64)
    return b.cast(b.apply("bitwise_and", packed, mask), i64)


def _worst(b: LoopBuilder, heap: Memory, dtype: DType, largest: bool) -> Scalar:
    """The element at the top of the heap, of its key."""
    key = key_dtype(dtype)
    packed = b.load(heap, [b.index(0)])
    number = b.cast(b.apply("shift_right", packed, b.literal(INDEX_BITS, u64)), key)
    if largest:
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


def _sink(b: LoopBuilder, heap: Memory, size: Scalar, value: Scalar) -> None:
    """Put a value in place of the top of the first ``size`` elements, and let it sink."""
    place = b.variable(b.index(0))
    with b.while_(lambda: b.apply("less", place.get() * 2 + 1, size)):
        here = place.get()
        left = here * 2 + 1
        right = b.apply("minimum", left + 1, size - 1)
        first, second = b.load(heap, [left]), b.load(heap, [right])
        child = b.select(b.apply("greater", second, first), right, left)
        worse = b.apply("maximum", first, second)
        sinks = b.apply("greater", worse, value)
        with b.when(sinks):
            b.store(heap, [here], worse)
            place.set(child)
        with b.when(b.apply("logical_not", sinks)):
            b.store(heap, [here], value)
            place.set(size)
    with b.when(b.apply("less", place.get(), size)):
        b.store(heap, [place.get()], value)
