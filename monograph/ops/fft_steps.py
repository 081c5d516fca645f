"""What Fourier transforms are made of: what they read, turns of the circle, and short sums.

Numbers are pairs of a real and an imaginary part. A step of Stockham's algorithm takes ``radix``
elements that are far apart, transforms them (a butterfly) and turns each; how the elements of a
step become the lanes of a vector is for those who use this to say.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Shape
from monograph.ir.lower import LoopBuilder, Memory, Scalar
from monograph.ir.types import DType, f64

MAX_UNROLLED_PRIME = 13
"""The largest prime whose step is written out."""

Pair: TypeAlias = tuple[Scalar, Scalar]
"""A real and an imaginary part."""


@dataclass(frozen=True)
class Source:
    """What an axis is read from: the operand, or what an earlier axis left."""

    memory: Memory | None = None

    def element(self, b: LoopBuilder, shape: Shape, place: Sequence[Scalar]) -> Scalar:
        """The element at a place of the numbers seen in a shape."""
        if self.memory is None:
            return b.reshaped(0, shape, place)
        return b.load(b.viewed(self.memory, shape), place)


@dataclass(frozen=True)
class Factor:
    """What sums are divided by: a number of elements, or its root."""

    count: Dim
    is_root: bool

    def scaled(self, b: LoopBuilder, part: Scalar) -> Scalar:
        """A part of a sum, divided."""
        if isinstance(self.count, int):
            by = 1.0 / (math.sqrt(self.count) if self.is_root else self.count)
            return b.apply("multiply", part, b.literal(by, part.dtype))
        count = b.cast(b.index(self.count), f64)
        divisor = b.apply("sqrt", count) if self.is_root else count
        return b.apply("divide", part, b.cast(divisor, part.dtype))


def plus(b: LoopBuilder, x: Pair, y: Pair) -> Pair:
    """The sum of complex numbers."""
    return b.apply("add", x[0], y[0]), b.apply("add", x[1], y[1])


def minus(b: LoopBuilder, x: Pair, y: Pair) -> Pair:
    """The difference of complex numbers."""
    return b.apply("subtract", x[0], y[0]), b.apply("subtract", x[1], y[1])


def multiply_pairs(b: LoopBuilder, x: Pair, y: Pair) -> Pair:
    """The product of complex numbers."""
    (a, c), (d, e) = x, y
    real = b.apply("subtract", b.apply("multiply", a, d), b.apply("multiply", c, e))
    return real, b.apply("fma", a, e, b.apply("multiply", c, d))


def factors(size: int) -> list[int]:
    """The steps of a length: fours, a two, odd primes."""
    found = []
    for factor in (4, 2):
        while size % factor == 0:
            found.append(factor)
            size //= factor
    factor = 3
    while size > 1:
        if factor * factor > size:
            factor = size
        while size % factor == 0:
            found.append(factor)
            size //= factor
        factor += 2
    return found


class TwiddleFactors:
    """exp(∓2πi t/n) for t < n, where n is ``fold`` times the length, and the steps made of them."""

    def __init__(self, b: LoopBuilder, dtype: DType, size: Dim, fold: int, inverse: bool) -> None:
        self.b = b
        self.fold = fold
        self.size = size
        self.sign = 1.0 if inverse else -1.0
        whole = size * fold
        self.cosine, self.sine = (b.temporary(dtype, (whole,)) for _ in range(2))
        b.fill(self.cosine, lambda at: self.cosine_of(at[0]))
        b.fill(self.sine, lambda at: self.sine_of(at[0]))

    def _angle(self, t: Scalar) -> Scalar:
        b = self.b
        count = b.cast(b.index(self.size * self.fold), f64)
        share = b.apply("divide", b.cast(t, f64), count)
        return b.apply("multiply", share, b.literal(2 * math.pi, f64))

    def cosine_of(self, t: Scalar) -> Scalar:
        """The real part of the t-th turn, computed."""
        return self.b.apply("cos", self._angle(t))

    def sine_of(self, t: Scalar) -> Scalar:
        """The imaginary part of the t-th turn, computed."""
        b = self.b
        return b.apply("multiply", b.literal(self.sign, f64), b.apply("sin", self._angle(t)))

    def turn(self, t: Scalar) -> Pair:
        """The t-th turn of the whole, folded, length."""
        return self.b.load(self.cosine, [t]), self.b.load(self.sine, [t])

    def butterfly(self, x: list[Pair]) -> list[Pair]:
        """The transform of a few numbers."""
        b = self.b
        if len(x) == 2:
            return [plus(b, *x), minus(b, *x)]
        if len(x) == 4:
            return self._four(x)
        if len(x) == 8:
            return self._eight(x)
        return self._odd(x)

    def _multiply_by_i(self, x: Pair) -> Pair:
        """A number times ∓i."""
        b, (real, imaginary) = self.b, x
        if self.sign < 0:
            return imaginary, b.apply("negate", real)
        return b.apply("negate", imaginary), real

    def _four(self, x: list[Pair]) -> list[Pair]:
        b = self.b
        even, odd = plus(b, x[0], x[2]), plus(b, x[1], x[3])
        across, aside = minus(b, x[0], x[2]), self._multiply_by_i(minus(b, x[1], x[3]))
        return [
            plus(b, even, odd),
            plus(b, across, aside),
            minus(b, even, odd),
            minus(b, across, aside),
        ]

    def _eight(self, x: list[Pair]) -> list[Pair]:
        """Fours of the even and of the odd elements; the odd ones turn by eighths."""
        b = self.b
        even, odd = self._four(x[0::2]), self._four(x[1::2])
        odd = [
            odd[0],
            self._eighth(odd[1], 1),
            self._multiply_by_i(odd[2]),
            self._eighth(odd[3], -1),
        ]
        pairs = list(zip(even, odd, strict=True))
        return [plus(b, *pair) for pair in pairs] + [minus(b, *pair) for pair in pairs]

    def _eighth(self, x: Pair, straight: int) -> Pair:
        """A number turned by an eighth, or by three if ``straight`` is -1."""
        b, aside = self.b, self._multiply_by_i(x)
        root = b.literal(math.sqrt(0.5), x[0].dtype)
        along = plus if straight > 0 else minus
        total = along(b, aside, x)
        return b.apply("multiply", root, total[0]), b.apply("multiply", root, total[1])

    def _odd(self, x: list[Pair]) -> list[Pair]:
        """Σ x[j] wʲᵏ by the sums and differences of mirrored terms: cosines and sines alone."""
        b, radix = self.b, len(x)
        pairs = range(1, radix // 2 + 1)
        sums = [plus(b, x[j], x[radix - j]) for j in pairs]
        differences = [minus(b, x[j], x[radix - j]) for j in pairs]
        first = x[0]
        for each in sums:
            first = plus(b, first, each)
        found = [first, *x[1:]]
        for k in pairs:
            straight, across = x[0], (b.literal(0, x[0][0].dtype),) * 2
            for j in pairs:
                angle = 2 * math.pi * (j * k % radix) / radix
                straight = self._with(straight, sums[j - 1], math.cos(angle))
                across = self._with(across, differences[j - 1], math.sin(angle))
            aside = self._multiply_by_i(across)
            found[k], found[radix - k] = plus(b, straight, aside), minus(b, straight, aside)
        return found

    def _with(self, total: Pair, x: Pair, factor: float) -> Pair:
        """``total + factor * x``."""
        b = self.b
        by = b.literal(factor, x[0].dtype)
        return b.apply("fma", by, x[0], total[0]), b.apply("fma", by, x[1], total[1])
