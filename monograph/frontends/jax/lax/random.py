"""Random keys and bits: JAX's own integer arithmetic, so that every bit is the same.

A key is the array of its words. What a generator does with keys is written in JAX, in terms of one
block function; it is traced, and the block function is our ``threefry``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax._src.random import core as random_core
from jax._src.random import prng

from monograph import functional as F
from monograph.frontends.jax.equation import Equation
from monograph.frontends.jax.registry import converter
from monograph.frontends.xla.arithmetic import bitcast as xla_bitcast
from monograph.frontends.xla.random_bits import random_bits
from monograph.ir.build import apply_many
from monograph.ir.dims import shape_product
from monograph.ir.graph import Value
from monograph.ir.types import dtype_of, u32, u64
from monograph.ops.random import Threefry


@converter("threefry2x32")
def convert_threefry(equation: Equation) -> Sequence[Value]:
    """The block function: two words of key, two of counter."""
    return apply_many(Threefry(), *equation.operands)


@converter("random_wrap", "random_unwrap", "random_clone", "to_edtype", "from_edtype")
def convert_wrap(equation: Equation) -> Value:
    """Keys are their words already."""
    return equation.operand


@converter("random_seed")
def convert_seed(equation: Equation) -> list[Value]:
    """A key of a seed."""

    def seed(seeds: Any) -> Any:
        return prng.random_seed_impl_base(seeds, impl=equation["impl"])

    return equation.trace(seed)


@converter("random_split")
def convert_split(equation: Equation) -> list[Value]:
    """New keys of keys."""
    keys = equation.avals[0]

    def split(words: Any) -> Any:
        return prng.random_split_impl_base(
            keys.dtype._impl, words, len(keys.shape), shape=equation["shape"]
        )

    return equation.trace(split)


@converter("random_fold_in")
def convert_fold_in(equation: Equation) -> list[Value]:
    """New keys of keys and numbers."""
    keys = equation.avals[0]

    def fold_in(words: Any, numbers: Any) -> Any:
        return prng.random_fold_in_impl_base(keys.dtype._impl, words, numbers, keys.shape)

    return equation.trace(fold_in)


@converter("random_bits")
def convert_bits(equation: Equation) -> list[Value]:
    """Random bits of keys."""
    keys = equation.avals[0]

    def bits(words: Any) -> Any:
        return prng.random_bits_impl_base(
            keys.dtype._impl,
            words,
            len(keys.shape),
            bit_width=equation["bit_width"],
            shape=equation["shape"],
        )

    return equation.trace(bits)


@converter("random_gamma")
def convert_gamma(equation: Equation) -> list[Value]:
    """Marsaglia and Tsang's method, as JAX writes it."""
    keys = equation.avals[0]

    def gamma(words: Any, a: Any) -> Any:
        wrapped = jax.random.wrap_key_data(words, impl=keys.dtype._impl.name)
        return random_core._gamma_impl(wrapped, a, **equation.params)

    return equation.trace(gamma)


@converter("rng_bit_generator")
def convert_bit_generator(equation: Equation) -> Sequence[Value]:
    """XLA's generator, on processors Philox by default; four words of a key are two long ones."""
    key = equation.operand
    state = key if key.dtype is u64 else xla_bitcast(F.reshape(key, (2, 2)), u64)
    is_threefry = equation["algorithm"] == jax.lax.RandomAlgorithm.RNG_THREE_FRY
    algorithm = "three_fry" if is_threefry else "philox"
    moved, bits = random_bits(state, equation["shape"], dtype_of(equation["dtype"]), algorithm)
    if key.dtype is not u64:
        moved = F.reshape(xla_bitcast(moved, key.dtype), (4,))
    return moved, bits


@converter("iota_2x32_shape")
def convert_iota_pair(equation: Equation) -> Sequence[Value]:
    """The position of each element, counted in 64 bits: the high and the low word."""
    shape = equation.type.shape
    count = F.iota((shape_product(shape),), 0, u64)
    high, low = F.cast(F.shift_right(count, 32), u32), F.cast(count, u32)
    return F.reshape(high, shape), F.reshape(low, shape)
