"""Random bits from a key: the same key gives the same bits, on every target, in any order.

The generator is Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", 2011), which turns a key and a counter into two random words; element ``i`` of a tensor is
made from counter ``i`` alone, so a target computes any part of it by itself. A key is a ``u32[2]``
tensor. Nothing else is hidden state: use a key once, and ``split_key`` or ``fold_in`` for more.
The layout of counters is that of JAX's partitionable Threefry, so a key gives the bits it gives
there. Everything decomposes into integer arithmetic; ``distributions`` makes numbers of the bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from monograph.ir.build import Operand, apply, apply_many, cast_to, constant
from monograph.ir.dims import Dim, Shape, provably_different, provably_less, shape_product
from monograph.ir.graph import Value
from monograph.ir.op import Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, DType, Kind, TensorType, dtype_of, u32, u64
from monograph.ops import data, joining
from monograph.ops.rules import broadcast_shapes, require
from monograph.ops.shape import expand, one_value, require_shape, reshape

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


@op("threefry", traits=Trait.ELEMENTWISE)
class Threefry(Op):
    """Two random words for each counter: the Threefry-2x32 block function, 20 rounds.

    Key words and counter words are ``u32`` and broadcast.
    """

    def infer(
        self, key0: TensorType, key1: TensorType, counter0: TensorType, counter1: TensorType
    ) -> tuple[TensorType, TensorType]:
        operands = (key0, key1, counter0, counter1)
        require(
            all(operand.dtype is u32 for operand in operands),
            "threefry: words of 32 bits are needed",
            expected="u32 throughout",
            found=", ".join(map(str, operands)),
        )
        shape = broadcast_shapes(self.name, *(operand.shape for operand in operands))
        word = TensorType(u32, shape, device=counter0.device)
        return word, word

    def evaluate(
        self, key0: Array, key1: Array, counter0: Array, counter1: Array
    ) -> tuple[Array, Array]:
        return threefry_words(*np.broadcast_arrays(key0, key1, counter0, counter1))

    def decompose(
        self, key0: Value, key1: Value, counter0: Value, counter1: Value
    ) -> tuple[Value, Value]:
        shape = self.infer(key0.tensor, key1.tensor, counter0.tensor, counter1.tensor)[0].shape
        key2 = key0 ^ key1 ^ constant(PARITY, u32, key0.graph)
        keys = (key0, key1, key2)
        word0, word1 = counter0 + key0, counter1 + key1
        for group in range(5):
            for distance in ROTATIONS[group % 2]:
                word0 = word0 + word1
                word1 = word0 ^ ((word1 << distance) | (word1 >> (32 - distance)))
            word0 = word0 + keys[(group + 1) % 3]
            word1 = word1 + (keys[(group + 2) % 3] + (group + 1))
        return expand(word0, shape), expand(word1, shape)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        words = np.array([0, 1, 2**32 - 1, 0x243F6A88, 0x85A308D3], np.uint32)
        yield Sample(cls(), (words[3], words[4], words, words[::-1]), "one key")
        yield Sample(cls(), (words[:, None], words[0], words, words[1]), "broadcast")
        yield Sample(cls(), (words[0], words[0], words[0], words[0]), "scalars")
        yield Sample(cls(), (words[0], words[1], words[:0], words[:0]), "empty")


def threefry_words(
    key0: Array, key1: Array, counter0: Array, counter1: Array
) -> tuple[Array, Array]:
    """The Threefry-2x32 block function, 20 rounds, on arrays of ``uint32`` of one shape."""
    keys = (key0, key1, key0 ^ key1 ^ np.uint32(PARITY))
    word0, word1 = counter0 + key0, counter1 + key1
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            word0 = word0 + word1
            left, right = np.uint32(distance), np.uint32(32 - distance)
            word1 = word0 ^ ((word1 << left) | (word1 >> right))
        word0 = word0 + keys[(group + 1) % 3]
        word1 = word1 + (keys[(group + 2) % 3] + np.uint32(group + 1))
    return word0, word1


def check_key(name: str, key: TensorType) -> None:
    """A key is two words."""
    require(
        key.dtype is u32 and key.rank == 1 and not provably_different(key.shape[0], 2),
        f"{name}: not a key",
        expected="u32[2]",
        found=key,
    )


def key_words(key: Value) -> tuple[Value, Value]:
    """The two words of a key, as scalars."""
    first, second = joining.unstack(reshape(key, (2,)))
    return first, second


def words_of_counters(key: Value, shape: Shape) -> tuple[Value, Value]:
    """Both words of each element of ``shape``, counted in row-major order."""
    size = shape_product(shape)
    key0, key1 = key_words(key)
    if provably_less(size, 2**32):
        high, low = constant(0, u32, key.graph), data.iota((size,), 0, u32)
    else:
        count = data.iota((size,), 0, u64)
        high, low = cast_to(count >> 32, u32), cast_to(count, u32)
    first, second = apply_many(Threefry(), key0, key1, high, low)
    return reshape(first, shape), reshape(second, shape)


def arrays_of_counters(key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """What ``words_of_counters`` computes, in NumPy."""
    count = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    high, low = (count >> np.uint64(32)).astype(np.uint32), count.astype(np.uint32)
    return threefry_words(key[:1].reshape(()), key[1:].reshape(()), high, low)


@op("random_bits")
class RandomBits(Op):
    """Independent uniform random bits: every unsigned integer of the dtype is equally likely."""

    shape: Shape
    dtype: DType = u32

    def infer(self, key: TensorType) -> TensorType:
        check_key(self.name, key)
        require_shape(self.name, self.shape)
        require(
            self.dtype.kind is Kind.UNSIGNED and self.dtype.bits >= 8,
            "random_bits: bits are unsigned integers",
            expected="u8, u16, u32 or u64",
            found=self.dtype,
        )
        return TensorType(self.dtype, self.shape, device=key.device)

    def evaluate(self, key: Array) -> Array:
        first, second = arrays_of_counters(key, data.static_sizes(self.name, self.shape))
        if self.dtype is u64:
            return (first.astype(np.uint64) << np.uint64(32)) | second
        return (first ^ second).astype(self.dtype.numpy)

    def decompose(self, key: Value) -> Value:
        first, second = words_of_counters(key, self.shape)
        if self.dtype is u64:
            return (cast_to(first, u64) << 32) | cast_to(second, u64)
        return cast_to(first ^ second, self.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        key = np.array([7, 2**31 + 5], np.uint32)
        yield Sample(cls((3, 4)), (key,))
        yield Sample(cls(()), (key,), "scalar")
        yield Sample(cls((0, 3)), (key,), "empty")
        yield Sample(cls((5,), u64), (np.array([1, 0, 9, 0], np.uint32)[::2],), "u64, strided")
        yield Sample(cls((5,), dtype_of("u8")), (key,), "u8")


@function
def random_bits(key: Operand, shape: Sequence[Dim], dtype: DType | str = u32) -> Value:
    """Uniform random bits, as unsigned integers."""
    return apply(RandomBits(tuple(shape), dtype_of(dtype)), key)


@function
def random_key(seed: int) -> Value:
    """The key that a seed of 64 bits stands for."""
    require(
        -(2**63) <= seed < 2**64,
        "random_key: the seed is too large",
        expected="64 bits",
        found=seed,
    )
    return constant(np.array([(seed >> 32) % 2**32, seed % 2**32], np.uint32))


@function
def split_key(key: Operand, count: Dim = 2) -> Value:
    """New keys that share nothing with each other: ``u32[count, 2]``. Do not use ``key`` again."""
    value = one_value(key)
    check_key("split_key", value.tensor)
    return joining.stack(words_of_counters(value, (count,)), -1)


@function
def fold_in(key: Operand, number: Operand) -> Value:
    """A new key for each number (a step, a layer): the key of that position in a sequence."""
    value = one_value(key)
    check_key("fold_in", value.tensor)
    key0, key1 = key_words(value)
    if isinstance(number, int):
        counter = constant(number % 2**32, u32, value.graph)
    else:
        counter = cast_to(one_value(number), u32)
    zero = constant(0, u32, value.graph)
    return joining.stack(apply_many(Threefry(), key0, key1, zero, counter), -1)
