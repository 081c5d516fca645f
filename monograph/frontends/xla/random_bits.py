"""XLA's ``RngBitGenerator``: random bits of a state, by Threefry or Philox, and the next state.

Both are counters put through a block cipher (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", 2011). The state is a 64-bit key and a counter of 64 bits (Threefry) or of 128 (Philox).
How results are laid out from the words is XLA's own, so that every bit is the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from monograph import functional as F
from monograph.ir.build import apply_many, cast_to, constant
from monograph.ir.graph import Value
from monograph.ir.types import DType, dtype_of, u32, u64
from monograph.ops.random import Threefry

PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
PHILOX_ROUNDS = 10


def random_bits(
    state: Value, shape: Sequence[int], dtype: DType, algorithm: str
) -> tuple[Value, Value]:
    """The next state, and bits of an unsigned ``dtype``; ``state`` is u64[2], or u64[3].

    ``algorithm`` is ``"three_fry"`` or ``"philox"``.
    """
    if algorithm == "three_fry":
        return _threefry(state, tuple(shape), dtype)
    return _philox(state, tuple(shape), dtype)


def _word(state: Value, place: int) -> Value:
    return F.reshape(F.slice(state, [place], [place + 1]), ())


def _number(value: int, dtype: DType) -> Value:
    return constant(dtype.numpy.type(value))


def _halves(x: Value) -> tuple[Value, Value]:
    """The low and the high 32 bits."""
    high = F.shift_right(x, F.full(x.shape, 32, u64))
    return cast_to(F.bitwise_and(x, _number(0xFFFFFFFF, u64)), u32), cast_to(high, u32)


def _join_halves(low: Value, high: Value) -> Value:
    """64 bits of two halves."""
    shifted = F.shift_left(cast_to(high, u64), F.full(high.shape, 32, u64))
    return F.bitwise_or(cast_to(low, u64), shifted)


# Threefry -----------------------------------------------------------------------------------------


def _threefry(state: Value, shape: tuple[int, ...], dtype: DType) -> tuple[Value, Value]:
    """Two words a counter: of 32 bits, they are the two halves of an axis that is split."""
    key, counter = _word(state, 0), _word(state, 1)
    if dtype is u64:
        first, second = _threefry_blocks(key, counter, shape)
        return _next(state, counter, math.prod(shape)), _join_halves(first, second)
    whole = shape or (1,)
    axis = _split_axis(whole)
    pairs = (whole[axis] + 1) // 2 if shape else 1
    half = (*whole[:axis], pairs, *whole[axis + 1 :])
    first, second = _threefry_blocks(key, counter, half)
    beside = F.concat([F.unsqueeze(first, axis + 1), F.unsqueeze(second, axis + 1)], axis + 1)
    flat = F.reshape(beside, (*whole[:axis], 2 * pairs, *whole[axis + 1 :]))
    found = F.slice(flat, [0] * len(whole), list(whole))
    bits = _narrow(F.reshape(found, shape), dtype)
    return _next(state, counter, math.prod(half)), bits


def _split_axis(shape: tuple[int, ...]) -> int:
    """The first axis of an even size, or else the largest one."""
    even = [axis for axis, size in enumerate(shape) if size % 2 == 0]
    return even[0] if even else shape.index(max(shape))


def _threefry_blocks(key: Value, counter: Value, shape: tuple[int, ...]) -> tuple[Value, Value]:
    numbers = F.reshape(F.iota((math.prod(shape),), 0, u64), shape)
    low, high = _halves(F.add(numbers, counter))
    keys = [F.expand(part, shape) for part in _halves(key)]
    first, second = apply_many(Threefry(), *keys, low, high)
    return first, second


def _next(state: Value, counter: Value, used: int) -> Value:
    moved = F.add(counter, _number(used, u64))
    return F.concat([F.slice(state, [0], [1]), F.reshape(moved, (1,))], 0)


# Philox -------------------------------------------------------------------------------------------


def _philox(state: Value, shape: tuple[int, ...], dtype: DType) -> tuple[Value, Value]:
    """Four words a counter of 128 bits, one after another."""
    count = math.prod(shape)
    words = 2 if dtype is u64 else 4
    blocks = -(-count // words)
    is_long = state.shape[0] == 3
    low, high = (
        (_word(state, 1), _word(state, 2)) if is_long else (_word(state, 1), _word(state, 0))
    )
    counters = F.add(F.iota((blocks,), 0, u64), low)
    carried = F.where(F.less(counters, low), F.add(high, _number(1, u64)), high)
    four = _philox_blocks([*_halves(counters), *_halves(carried)], _halves(_word(state, 0)))
    if dtype is u64:
        four = [_join_halves(*four[:2]), _join_halves(*four[2:])]
    flat = F.reshape(F.concat([F.unsqueeze(each, 1) for each in four], 1), (blocks * words,))
    bits = _narrow(F.reshape(F.slice(flat, [0], [count]), shape), dtype)
    moved = F.add(low, _number(blocks, u64))
    parts = [F.slice(state, [0], [1]), F.reshape(moved, (1,))]
    if is_long:
        is_over = F.less(moved, low)
        parts.append(F.reshape(F.where(is_over, F.add(high, _number(1, u64)), high), (1,)))
    return F.concat(parts, 0), bits


def _philox_blocks(counter: list[Value], key: tuple[Value, Value]) -> list[Value]:
    x, keys = counter, list(key)
    for _ in range(PHILOX_ROUNDS):
        low0, high0 = _product(x[0], PHILOX_MULTIPLIERS[0])
        low1, high1 = _product(x[2], PHILOX_MULTIPLIERS[1])
        x = [
            F.bitwise_xor(F.bitwise_xor(high1, x[1]), keys[0]),
            low1,
            F.bitwise_xor(F.bitwise_xor(high0, x[3]), keys[1]),
            low0,
        ]
        keys = [
            F.add(each, _number(step, u32))
            for each, step in zip(keys, PHILOX_KEY_STEPS, strict=True)
        ]
    return x


def _product(x: Value, factor: int) -> tuple[Value, Value]:
    """The halves of a product of 32-bit numbers."""
    return _halves(F.multiply(cast_to(x, u64), _number(factor, u64)))


def _narrow(bits: Value, dtype: DType) -> Value:
    if bits.dtype is dtype:
        return bits
    mask = (1 << dtype.bits) - 1
    return cast_to(F.bitwise_and(bits, _number(mask, u32)), dtype_of(dtype))
