"""Random numbers of the usual distributions, and dropout: arithmetic on the bits of ``random``.

Each is a function of its key alone, so that a gradient that needs the same numbers again draws them
again from the same key.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from monograph.ir.build import Operand, apply, cast_to
from monograph.ir.dims import Dim, Shape
from monograph.ir.graph import Node, Value
from monograph.ir.op import Gradients, Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import (
    Array,
    DType,
    TensorType,
    bf16,
    dtype_of,
    f16,
    f32,
    f64,
    i32,
    integer_limits,
    wide,
)
from monograph.ops import data, elementwise, joining, random
from monograph.ops.erf_inv import ErfInv
from monograph.ops.random import RandomBits, check_key
from monograph.ops.rules import require, require_float
from monograph.ops.shape import expand, one_value, require_shape

MANTISSA_BITS = {f64: 52, f32: 23, f16: 10, bf16: 7}


def check_float(name: str, dtype: DType) -> None:
    """The dtypes in which random reals can be drawn."""
    require(
        dtype in MANTISSA_BITS,
        f"{name}: wrong dtype",
        expected=", ".join(map(str, MANTISSA_BITS)),
        found=dtype,
    )


@op("uniform")
class Uniform(Op):
    """Uniform reals in [low, high): multiples of 2^-23 (in f32; of the dtype's precision) scaled.

    Scaling rounds, so ``high`` itself can occur when the bounds are not 0 and 1.
    """

    shape: Shape
    low: float = 0.0
    high: float = 1.0
    dtype: DType = f32

    def infer(self, key: TensorType) -> TensorType:
        check_key(self.name, key)
        require_shape(self.name, self.shape)
        check_float(self.name, self.dtype)
        require(
            math.isfinite(self.high - self.low) and self.low <= self.high,
            "uniform: no such range",
            expected="finite bounds, low no greater than high",
            found=f"{self.low} to {self.high}",
        )
        return TensorType(self.dtype, self.shape, device=key.device)

    def _bits(self) -> tuple[RandomBits, int, float]:
        """The random bits to draw, how many to drop, and what one step of the others is worth."""
        mantissa = MANTISSA_BITS[self.dtype]
        width = 8 if mantissa < 8 else self.dtype.bits
        return RandomBits(self.shape, dtype_of(f"u{width}")), width - mantissa, 2.0**-mantissa

    def evaluate(self, key: Array) -> Array:
        bits, dropped, step = self._bits()
        drawn = bits.evaluate(key)
        kind = wide(self.dtype).numpy.type
        unit = (drawn >> drawn.dtype.type(dropped)).astype(kind) * kind(step)
        scaled = unit * kind(self.high - self.low) + kind(self.low)
        return np.asarray(np.maximum(scaled, kind(self.low)))

    def decompose(self, key: Value) -> Value:
        bits, dropped, step = self._bits()
        unit = cast_to(apply(bits, key) >> dropped, wide(self.dtype)) * step
        if (self.low, self.high) != (0.0, 1.0):
            scaled = unit * (self.high - self.low) + self.low
            unit = elementwise.maximum(scaled, self.low)
        return cast_to(unit, self.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        key = np.array([7, 2**31 + 5], np.uint32)
        yield Sample(cls((3, 4)), (key,))
        yield Sample(cls((3, 4), -2.5, 4.0), (key,), "bounds")
        yield Sample(cls(()), (key,), "scalar")
        yield Sample(cls((0, 3)), (key,), "empty")
        for name in ("f64", "f16", "bf16"):
            yield Sample(cls((6,), 0.0, 1.0, dtype_of(name)), (key,), name)


@function
def uniform(
    key: Operand,
    shape: Sequence[Dim] = (),
    low: float = 0.0,
    high: float = 1.0,
    dtype: DType | str = f32,
) -> Value:
    """Uniform random reals in [low, high)."""
    return apply(Uniform(tuple(shape), float(low), float(high), dtype_of(dtype)), key)


@op("normal")
class Normal(Op):
    """Normal reals of mean 0 and deviation 1: the inverse of the distribution, of uniform ones."""

    shape: Shape
    dtype: DType = f32

    def infer(self, key: TensorType) -> TensorType:
        return self._uniform().infer(key)

    def _uniform(self) -> Uniform:
        """Uniform in (-1, 1): -1 itself would be infinite."""
        one = np.ones((), self.dtype.numpy) if self.dtype in MANTISSA_BITS else np.float64(1)
        above = -np.nextafter(one, one - one)
        return Uniform(self.shape, float(above), 1.0, self.dtype)

    def evaluate(self, key: Array) -> Array:
        flat = self._uniform().evaluate(key).astype(self.dtype.numpy)
        points = flat.astype(wide(self.dtype).numpy)
        return np.asarray(ErfInv().evaluate(points) * points.dtype.type(math.sqrt(2)))

    def decompose(self, key: Value) -> Value:
        flat = cast_to(apply(self._uniform(), key), wide(self.dtype))
        return cast_to(apply(ErfInv(), flat) * math.sqrt(2), self.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        key = np.array([7, 2**31 + 5], np.uint32)
        yield Sample(cls((3, 4)), (key,))
        yield Sample(cls(()), (key,), "scalar")
        yield Sample(cls((0, 3)), (key,), "empty")
        for name in ("f64", "f16", "bf16"):
            yield Sample(cls((6,), dtype_of(name)), (key,), name)


@function
def normal(
    key: Operand,
    shape: Sequence[Dim] = (),
    mean: Operand = 0.0,
    deviation: Operand = 1.0,
    dtype: DType | str = f32,
) -> Value:
    """Normal random reals of this mean and standard deviation."""
    standard = apply(Normal(tuple(shape), dtype_of(dtype)), key)
    scaled = standard if _is_number(deviation, 1) else standard * deviation
    return scaled if _is_number(mean, 0) else scaled + mean


def _is_number(operand: Operand, number: int) -> bool:
    return isinstance(operand, int | float) and operand == number


@function
def bernoulli(key: Operand, p: Operand = 0.5, shape: Sequence[Dim] | None = None) -> Value:
    """True with probability ``p``, which broadcasts to ``shape`` (its own unless given)."""
    chance = cast_to(one_value(p), f32)
    sizes = chance.shape if shape is None else tuple(shape)
    return uniform(key, sizes) < expand(chance, sizes)


@op("randint")
class RandInt(Op):
    """Uniform integers in [low, high).

    Twice the dtype's bits are drawn and reduced modulo the span, so the bias is negligible.
    """

    shape: Shape
    low: int
    high: int
    dtype: DType = i32

    def infer(self, key: TensorType) -> TensorType:
        check_key(self.name, key)
        require_shape(self.name, self.shape)
        require(
            self.dtype.is_integer and self.dtype.bits >= 8,
            "randint: wrong dtype",
            expected="an integer dtype of 8 bits or more",
            found=self.dtype,
        )
        least, greatest = integer_limits(self.dtype)
        require(
            least <= self.low < self.high <= greatest + 1,
            "randint: no such range",
            expected=f"low less than high, both in {self.dtype}",
            found=f"{self.low} to {self.high}",
        )
        return TensorType(self.dtype, self.shape, device=key.device)

    def _plan(self) -> tuple[RandomBits, int, int]:
        """The bits to draw twice, the span, and what the high draw is multiplied by, modulo it."""
        width = self.dtype.bits
        span = self.high - self.low
        return RandomBits(self.shape, dtype_of(f"u{width}")), span, pow(2, width, span)

    def evaluate(self, key: Array) -> Array:
        bits, span, multiplier = self._plan()
        keys = np.stack(random.arrays_of_counters(key, (2,)), -1)
        high, low = bits.evaluate(keys[0]), bits.evaluate(keys[1])
        unsigned = bits.dtype.numpy.type
        if span > np.iinfo(unsigned).max:
            offset = low
        else:
            high, low = high % unsigned(span), low % unsigned(span)
            offset = (high * unsigned(multiplier) + low) % unsigned(span)
        shifted = offset + unsigned(self.low % 2**self.dtype.bits)
        return np.asarray(shifted).astype(self.dtype.numpy)

    def decompose(self, key: Value) -> Value:
        bits, span, multiplier = self._plan()
        for_high, for_low = joining.unstack(random.split_key(key, 2))
        low = apply(bits, for_low)
        if span < 2**self.dtype.bits:
            high = apply(bits, for_high)
            low = (high % span * multiplier + low % span) % span
        return cast_to(low + self.low % 2**self.dtype.bits, self.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        key = np.array([7, 2**31 + 5], np.uint32)
        yield Sample(cls((3, 4), 0, 10), (key,))
        yield Sample(cls((20,), -3, 3), (key,), "negative")
        yield Sample(cls((), 5, 6), (key,), "scalar, one choice")
        yield Sample(cls((0, 3), 0, 2), (key,), "empty")
        yield Sample(cls((6,), -(2**31), 2**31), (key,), "all of i32")
        yield Sample(cls((6,), -(2**40), 2**50, dtype_of("i64")), (key,), "i64")
        yield Sample(cls((6,), 1, 200, dtype_of("u8")), (key,), "u8")


@function
def randint(
    key: Operand, shape: Sequence[Dim], low: int, high: int, dtype: DType | str = i32
) -> Value:
    """Uniform random integers in [low, high)."""
    return apply(RandInt(tuple(shape), low, high, dtype_of(dtype)), key)


@op("dropout")
class Dropout(Op):
    """Each element is zero with probability ``rate``, else divided by what is left, 1 - ``rate``.

    The mask is a function of the key, so its gradient is the same dropout of the gradient.
    """

    rate: float

    def infer(self, x: TensorType, key: TensorType) -> TensorType:
        require_float(self.name, x)
        check_key(self.name, key)
        require(
            0.0 <= self.rate <= 1.0,
            "dropout: the rate is not a probability",
            expected="0 to 1",
            found=self.rate,
        )
        return x.with_shape(x.shape)

    def _scale(self) -> float:
        return 1.0 / (1.0 - self.rate) if self.rate < 1.0 else 0.0

    def evaluate(self, x: Array, key: Array) -> Array:
        if self.rate == 0.0:
            return x
        kept = Uniform(x.shape).evaluate(key) >= np.float32(self.rate)
        return np.asarray(np.where(kept, x * x.dtype.type(self._scale()), x.dtype.type(0)))

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return apply(self, grad, node.operands[1]), None

    def decompose(self, x: Value, key: Value) -> Value:
        if self.rate == 0.0:
            return x
        if self.rate == 1.0:
            return data.zeros_like(x)
        kept = apply(Uniform(x.shape), key) >= self.rate
        scaled = cast_to(x, wide(x.dtype)) * self._scale()
        return cast_to(elementwise.where(kept, scaled, 0.0), x.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        key = np.array([7, 2**31 + 5], np.uint32)
        x = np.arange(1, 25, dtype=np.float32).reshape(4, 6)
        yield Sample(cls(0.5), (x, key))
        yield Sample(cls(0.1), (x.T[::2], key), "strided")
        yield Sample(cls(0.0), (x, key), "keeps all")
        yield Sample(cls(1.0), (x, key), "keeps nothing")
        yield Sample(cls(0.5), (np.full((), 3.0, np.float32), key), "scalar")
        yield Sample(cls(0.5), (np.zeros((0, 2), np.float32), key), "empty", False)
        special = np.array([np.nan, np.inf, -np.inf, -0.0] * 3, np.float32)
        yield Sample(cls(0.5), (special, key), "special", False)


@function
def dropout(x: Operand, key: Operand, rate: float = 0.5) -> Value:
    """``x`` with elements zeroed at random and the others scaled up to keep the mean."""
    value = one_value(x)
    return value if rate == 0 else apply(Dropout(float(rate)), value, key)
