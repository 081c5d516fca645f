"""Fourier transforms, as loops: several transforms side by side, one a lane.

A few transforms are brought together, element by element, into planes of real and imaginary parts
in which the lanes of a vector are neighbours. There Stockham's algorithm takes one factor of the
length after the other: 4, 2, then odd primes; each step reads one pair of planes and writes the
other, and the last leaves the frequencies in order. So every access is of whole vectors, whatever
the length, and the turns of a step are the same in all lanes.

Real numbers of even length are transformed as half as many complex ones, every other number being
the imaginary part. A length that only the call knows is one step of that many terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from monograph.ir.dims import Dim, Shape, shape_product
from monograph.ir.lower import LoopBuilder, Memory, Scalar
from monograph.ir.types import DType, c128, f32, f64

LANES = 8
"""Transforms side by side."""
FEW = 4
"""Elements behind the axis from which they are the lanes, being neighbours in memory."""
NEAR = 4096
"""Elements up to which a thread has room of its own for the planes, which stay in its cache."""
LONG = 32
"""Elements from which single precision is computed in as such; of fewer, zeros come out as zeros.

A length that only the call knows is summed term by term, where roundings would add up.
"""
UNROLLED = 13
"""The largest prime whose step is written out."""

Pair: TypeAlias = tuple[Scalar, Scalar]
"""A real and an imaginary part."""
Line: TypeAlias = Callable[[Scalar, Scalar], Pair]
"""(position along the axis, lane) → an element of what is transformed."""
Parts: TypeAlias = tuple[Scalar, ...]
"""One part of a real number, two of a complex one."""


@dataclass(frozen=True)
class Source:
    """What an axis is read from: the operand, or what an earlier axis left."""

    memory: Memory | None = None

    def element(self, b: LoopBuilder, shape: Shape, place: Sequence[Scalar]) -> Scalar:
        """The element at a place of the numbers seen in a shape."""
        if self.memory is None:
            return b.reshaped(0, shape, place)
        return b.load(b.viewed(self.memory, shape), place)


# What the ops are -------------------------------------------------------------------------------


def lower_fft(b: LoopBuilder, axes: Sequence[int], inverse: bool, scale: str) -> None:
    """The loops of ``fft``: an axis after the other, the later ones in the result itself."""
    shape = b.operands[0].shape
    if not axes:
        b.fill(b.result(), lambda at: b.read(0, at))
    factor = _factor(scale, [shape[axis] for axis in axes])
    source = Source()
    for number, axis in enumerate(axes):
        last = number == len(axes) - 1
        _Axis(b, shape, shape, axis, factor if last else None).complex(source, b.result(), inverse)
        source = Source(b.result())


def lower_rfft(b: LoopBuilder, axes: Sequence[int], scale: str) -> None:
    """The loops of ``rfft``: the last axis first, as it alone is of real numbers."""
    shape, half = b.operands[0].shape, b.results[0].shape
    factor = _factor(scale, [shape[axis] for axis in axes])
    *others, last = axes
    _Axis(b, shape, half, last, None if others else factor).from_real(b.result())
    for number, axis in enumerate(others):
        final = number == len(others) - 1
        transform = _Axis(b, half, half, axis, factor if final else None)
        transform.complex(Source(b.result()), b.result(), inverse=False)


def lower_irfft(b: LoopBuilder, axes: Sequence[int], length: Dim, scale: str) -> None:
    """The loops of ``irfft``: the last axis last."""
    shape = b.operands[0].shape
    *others, last = axes
    factor = _factor(scale, [*(shape[axis] for axis in others), length])
    source = Source()
    if others:
        between = b.temporary(b.operands[0].dtype, shape)
        for axis in others:
            _Axis(b, shape, shape, axis, None).complex(source, between, inverse=True)
            source = Source(between)
    _Axis(b, shape, b.results[0].shape, last, factor).to_real(source, b.result(), length)


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


def _factor(scale: str, sizes: Sequence[Dim]) -> Factor | None:
    return None if scale == "none" else Factor(shape_product(sizes), scale == "root")


# One axis -----------------------------------------------------------------------------------------


class _Axis:
    """Transforms along one axis of numbers that become another shape along it."""

    def __init__(
        self, b: LoopBuilder, shape: Shape, target: Shape, axis: int, factor: Factor | None
    ) -> None:
        self.b = b
        self.axis = axis % len(shape)
        self.outer = shape_product(shape[: self.axis])
        self.inner = shape_product(shape[self.axis + 1 :])
        self.size = shape[self.axis]
        self.shape = (self.outer, self.size, self.inner)
        self.target = (self.outer, target[self.axis], self.inner)
        self.factor = factor
        given = f64 if b.operands[0].dtype in (f64, c128) else f32
        is_short = not isinstance(self.size, int) or self.size < LONG
        self.dtype = f64 if is_short else given

    def complex(self, source: Source, result: Memory, inverse: bool) -> None:
        """Complex numbers to as many."""
        b = self.b
        turns = _Turns(b, self.dtype, self.size, 1, inverse)
        with self.lines() as lines:
            planes = lines.planes(self.size)
            lines.gather(self.size, planes, lambda k, lane: lines.read(source, k, lane))
            done = turns.transformed(lines, planes, self.size)
            lines.scatter(self.size, result, lambda k, lane: done.get(b, k, lane))

    def from_real(self, result: Memory) -> None:
        """Real numbers to half a spectrum."""
        b, size = self.b, self.size
        zero = b.literal(0, self.dtype)
        if not isinstance(size, int) or size % 2:
            turns = _Turns(b, self.dtype, size, 1, False)
            with self.lines() as lines:
                planes = lines.planes(size)
                lines.gather(size, planes, lambda k, lane: (lines.real(k, lane), zero))
                whole = turns.transformed(lines, planes, size)
                lines.scatter(size // 2 + 1, result, lambda k, lane: whole.get(b, k, lane))
            return
        half = size // 2
        turns = _Turns(b, self.dtype, half, 2, False)
        with self.lines() as lines:
            planes = lines.planes(half)
            lines.gather(
                half,
                planes,
                lambda k, lane: (lines.real(k * 2, lane), lines.real(k * 2 + 1, lane)),
            )
            done = turns.transformed(lines, planes, half)

            def element(k: Scalar, lane: Scalar) -> Pair:
                return _unfolded(b, turns, done, (k, lane), half)

            lines.scatter(half + 1, result, element)

    def to_real(self, source: Source, result: Memory, length: Dim) -> None:
        """Half a spectrum to real numbers."""
        b = self.b
        if isinstance(length, int) and length % 2 == 0:
            self._folded_to_real(source, result, length // 2)
            return
        half = length // 2 + 1
        turns = _Turns(b, self.dtype, length, 1, True)
        with self.lines() as lines:
            planes = lines.planes(length)

            def ends_real(k: Scalar, lane: Scalar) -> Pair:
                """The imaginary part of the first, and of a middle one, does not count."""
                real, imaginary = lines.read(source, k, lane)
                ends = b.apply("equal", (k * 2) % length, b.index(0))
                return real, b.select(ends, b.literal(0, self.dtype), imaginary)

            def mirrored(k: Scalar, lane: Scalar) -> Pair:
                real, imaginary = lines.read(source, length - half - k, lane)
                return real, b.apply("negate", imaginary)

            lines.gather(half, planes, ends_real)
            lines.gather(length - half, planes, mirrored, half)
            done = turns.transformed(lines, planes, length)
            lines.scatter(length, result, lambda k, lane: done.get(b, k, lane)[:1])

    def _folded_to_real(self, source: Source, result: Memory, half: int) -> None:
        b = self.b
        turns = _Turns(b, self.dtype, half, 2, True)
        zero = b.literal(0, self.dtype)
        with self.lines() as lines:
            planes = lines.planes(half)

            def folded(k: Scalar, lane: Scalar) -> Pair:
                """(X[k] + X*[m-k]) + i w (X[k] - X*[m-k]); the ends of the spectrum are real."""
                here, there = lines.read(source, k, lane), lines.read(source, half - k, lane)
                first = b.apply("equal", k, b.index(0))
                here = (here[0], b.select(first, zero, here[1]))
                there = (there[0], b.select(first, zero, b.apply("negate", there[1])))
                total, difference = _plus(b, here, there), _minus(b, here, there)
                real, imaginary = _times(b, difference, turns.turn(k))
                return _plus(b, total, (b.apply("negate", imaginary), real))

            lines.gather(half, planes, folded)
            done = turns.transformed(lines, planes, half)
            for step, begin, times in _in_blocks(half):
                with b.loop(times) as block, lines.lanes() as lane:
                    for number in range(step):
                        k = block * step + begin + number
                        even, odd = done.get(b, k, lane)
                        lines.put(result, k * 2, lane, (even,))
                        lines.put(result, k * 2 + 1, lane, (odd,))

    @contextmanager
    def lines(self) -> Iterator[_Lines]:
        """The transforms, a few side by side: along the elements behind the axis, if there are."""
        b = self.b
        beside = not isinstance(self.inner, int) or self.inner >= FEW
        count = self.inner if beside else self.outer * self.inner
        tiles = -(-count // LANES)
        with b.parallel((self.outer, tiles) if beside else (tiles,)) as place:
            start, width = b.index(0), b.index(count)
            if not isinstance(count, int) or count > LANES:
                start, width = b.piece(place[-1], LANES, count)
            if isinstance(count, int) and count % LANES == 0:
                width = b.index(LANES)
            tile = place[0] * tiles + place[-1] if beside else place[-1]
            whole = self.outer * tiles if beside else tiles
            yield _Lines(self, place[0] if beside else None, (tile, whole), start, width)


@dataclass(frozen=True)
class _Planes:
    """Real and imaginary parts, [position, lane]; far away, [tile, position, lane]."""

    real: Memory
    imaginary: Memory
    tile: Scalar | None

    def _place(self, k: Scalar, lane: Scalar) -> list[Scalar]:
        return [k, lane] if self.tile is None else [self.tile, k, lane]

    def get(self, b: LoopBuilder, k: Scalar, lane: Scalar) -> Pair:
        place = self._place(k, lane)
        return b.load(self.real, place), b.load(self.imaginary, place)

    def set(self, b: LoopBuilder, k: Scalar, lane: Scalar, value: Pair) -> None:
        place = self._place(k, lane)
        b.store(self.real, place, value[0])
        b.store(self.imaginary, place, value[1])


@dataclass(frozen=True)
class _Lines:
    """The transforms that are computed side by side."""

    axis: _Axis
    outer: Scalar | None
    """Which run of elements they lie in; None if each lane has its own."""
    tile: tuple[Scalar, Dim]
    """Which of how many."""
    start: Scalar
    width: Scalar

    def lanes(self) -> AbstractContextManager[Scalar]:
        """The lanes, all at once."""
        return self.axis.b.loop(self.width, lanes=True)

    def place(self, k: Scalar, lane: Scalar) -> list[Scalar]:
        """Where position ``k`` of a lane's transform is: before, along and behind the axis."""
        line = self.start + lane
        if self.outer is not None:
            return [self.outer, k, line]
        inner = self.axis.inner
        return [line // inner, k, line % inner]

    def real(self, k: Scalar, lane: Scalar) -> Scalar:
        """An element of an operand of real numbers."""
        element = self.axis.b.reshaped(0, self.axis.shape, self.place(k, lane))
        return self.axis.b.cast(element, self.axis.dtype)

    def read(self, source: Source, k: Scalar, lane: Scalar) -> Pair:
        """An element of complex numbers."""
        b = self.axis.b
        element = source.element(b, self.axis.shape, self.place(k, lane))
        real, imaginary = b.apply("real", element), b.apply("imag", element)
        return b.cast(real, self.axis.dtype), b.cast(imaginary, self.axis.dtype)

    def planes(self, size: Dim) -> tuple[_Planes, _Planes]:
        """Two pairs of planes: what a step reads, and what it writes."""
        b, dtype = self.axis.b, self.axis.dtype
        if isinstance(size, int) and size <= NEAR:
            near = [b.viewed(b.local(dtype, size * LANES), (size, LANES)) for _ in range(4)]
            return _Planes(near[0], near[1], None), _Planes(near[2], near[3], None)
        tile, tiles = self.tile
        far = [b.temporary(dtype, (tiles, size, LANES)) for _ in range(4)]
        return _Planes(far[0], far[1], tile), _Planes(far[2], far[3], tile)

    def gather(
        self, count: Dim, planes: tuple[_Planes, _Planes], element: Line, first: Dim = 0
    ) -> None:
        """Bring elements into the first planes, from ``first`` on."""
        b = self.axis.b
        for step, begin, times in _in_blocks(count):
            with b.loop(times) as block, self.lanes() as lane:
                for k in range(step):
                    place = block * step + begin + k
                    planes[0].set(b, place + first, lane, element(place, lane))

    def scatter(
        self, count: Dim, result: Memory, element: Callable[[Scalar, Scalar], Parts]
    ) -> None:
        """Bring elements to where they belong."""
        b = self.axis.b
        for step, begin, times in _in_blocks(count):
            with b.loop(times) as block, self.lanes() as lane:
                for k in range(step):
                    place = block * step + begin + k
                    self.put(result, place, lane, element(place, lane))

    def put(self, result: Memory, k: Scalar, lane: Scalar, value: Parts) -> None:
        """Store an element of the result, scaled: both parts of a complex number."""
        b, factor = self.axis.b, self.axis.factor
        scaled = [part if factor is None else factor.scaled(b, part) for part in value]
        parts = [b.cast(part, f64 if result.dtype in (f64, c128) else f32) for part in scaled]
        whole = parts[0] if len(parts) == 1 else b.apply("complex", *parts, dtype=result.dtype)
        b.store(b.viewed(result, self.axis.target), self.place(k, lane), whole)


def _in_blocks(count: Dim) -> Iterator[tuple[int, Dim, Dim]]:
    """(elements at once, where they begin, how often): blocks of a square, then what is left."""
    if not isinstance(count, int) or count < LANES:
        yield 1, 0, count
        return
    yield LANES, 0, count // LANES
    if count % LANES:
        yield 1, count - count % LANES, count % LANES


# Steps --------------------------------------------------------------------------------------------


def _plus(b: LoopBuilder, x: Pair, y: Pair) -> Pair:
    return b.apply("add", x[0], y[0]), b.apply("add", x[1], y[1])


def _minus(b: LoopBuilder, x: Pair, y: Pair) -> Pair:
    return b.apply("subtract", x[0], y[0]), b.apply("subtract", x[1], y[1])


def _times(b: LoopBuilder, x: Pair, y: Pair) -> Pair:
    (a, c), (d, e) = x, y
    real = b.apply("subtract", b.apply("multiply", a, d), b.apply("multiply", c, e))
    return real, b.apply("fma", a, e, b.apply("multiply", c, d))


def _unfolded(
    b: LoopBuilder, turns: _Turns, planes: _Planes, place: tuple[Scalar, Scalar], half: int
) -> Pair:
    """X[k] = ½ (Z[k] + Z*[m-k]) - ½ i w (Z[k] - Z*[m-k]), of the spectrum of folded numbers."""
    k, lane = place
    zr, zi = planes.get(b, k % half, lane)
    yr, yi = planes.get(b, (half - k) % half, lane)
    total = b.apply("add", zr, yr), b.apply("subtract", zi, yi)
    difference = b.apply("add", zi, yi), b.apply("subtract", yr, zr)  # times -i
    turned = _times(b, difference, turns.turn(k))
    point = b.literal(0.5, zr.dtype)
    real, imaginary = _plus(b, total, turned)
    return b.apply("multiply", real, point), b.apply("multiply", imaginary, point)


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


class _Turns:
    """exp(∓2πi t/n) for t < n, where n is ``fold`` times the length, and the steps made of them."""

    def __init__(self, b: LoopBuilder, dtype: DType, size: Dim, fold: int, inverse: bool) -> None:
        self.b = b
        self.fold = fold
        self.size = size
        self.sign = 1.0 if inverse else -1.0
        whole = size * fold
        self.cosine, self.sine = (b.temporary(dtype, (whole,)) for _ in range(2))

        def angle(t: Scalar) -> Scalar:
            count = b.cast(b.index(whole), f64)
            share = b.apply("divide", b.cast(t, f64), count)
            return b.apply("multiply", share, b.literal(2 * math.pi, f64))

        b.fill(self.cosine, lambda at: b.apply("cos", angle(at[0])))
        sign = b.literal(self.sign, f64)
        b.fill(self.sine, lambda at: b.apply("multiply", sign, b.apply("sin", angle(at[0]))))

    def turn(self, t: Scalar) -> Pair:
        """The t-th turn of the whole, folded, length."""
        return self.b.load(self.cosine, [t]), self.b.load(self.sine, [t])

    def transformed(self, lines: _Lines, planes: tuple[_Planes, _Planes], size: Dim) -> _Planes:
        """The planes that hold the transform once all steps are done."""
        source, target = planes
        done: Dim = 1
        for radix in factors(size) if isinstance(size, int) else [size]:
            self._step(lines, source, target, radix, done)
            source, target = target, source
            done = done * radix
        return source

    def _step(self, lines: _Lines, source: _Planes, target: _Planes, radix: Dim, done: Dim) -> None:
        """Sums of ``radix`` elements that are far apart, to where the next step wants them."""
        b = self.b
        rest = self.size // (radix * done)
        with b.loop(rest) as p:
            if not isinstance(radix, int) or radix > UNROLLED:
                self._long_step(lines, (source, target), radix, done, p)
                return
            turns = [self.turn(p * (k * done * self.fold)) for k in range(1, radix)]
            with b.loop(done) as q, lines.lanes() as lane:
                inputs = [source.get(b, q + (p + rest * k) * done, lane) for k in range(radix)]
                for k, value in enumerate(self._butterfly(inputs)):
                    turned = value if rest == 1 or k == 0 else _times(b, value, turns[k - 1])
                    target.set(b, q + (p * radix + k) * done, lane, turned)

    def _long_step(
        self,
        lines: _Lines,
        planes: tuple[_Planes, _Planes],
        radix: Dim,
        done: Dim,
        p: Scalar,
    ) -> None:
        """A step of many terms, one sum after the other."""
        b, (source, target) = self.b, planes
        rest = self.size // (radix * done)
        zero = b.literal(0, lines.axis.dtype)
        with b.loop(done) as q, b.loop(radix) as k:
            outer = self.turn(p * k * (done * self.fold))
            with lines.lanes() as lane:
                real, imaginary = b.variable(zero), b.variable(zero)
                with b.loop(radix) as j:
                    turn = self.turn(((j * k) % radix) * (self.size // radix * self.fold))
                    value = source.get(b, q + (p + j * rest) * done, lane)
                    product = _times(b, value, turn)
                    real.set(b.apply("add", real.get(), product[0]))
                    imaginary.set(b.apply("add", imaginary.get(), product[1]))
                total = _times(b, (real.get(), imaginary.get()), outer)
                target.set(b, q + (p * radix + k) * done, lane, total)

    def _butterfly(self, x: list[Pair]) -> list[Pair]:
        """The transform of a few numbers."""
        b = self.b
        if len(x) == 2:
            return [_plus(b, *x), _minus(b, *x)]
        if len(x) == 4:
            return self._four(x)
        return self._odd(x)

    def _turned(self, x: Pair) -> Pair:
        """A number times ∓i."""
        b, (real, imaginary) = self.b, x
        if self.sign < 0:
            return imaginary, b.apply("negate", real)
        return b.apply("negate", imaginary), real

    def _four(self, x: list[Pair]) -> list[Pair]:
        b = self.b
        even, odd = _plus(b, x[0], x[2]), _plus(b, x[1], x[3])
        across, aside = _minus(b, x[0], x[2]), self._turned(_minus(b, x[1], x[3]))
        return [
            _plus(b, even, odd),
            _plus(b, across, aside),
            _minus(b, even, odd),
            _minus(b, across, aside),
        ]

    def _odd(self, x: list[Pair]) -> list[Pair]:
        """Σ x[j] wʲᵏ by the sums and differences of mirrored terms: cosines and sines alone."""
        b, radix = self.b, len(x)
        pairs = range(1, radix // 2 + 1)
        sums = [_plus(b, x[j], x[radix - j]) for j in pairs]
        differences = [_minus(b, x[j], x[radix - j]) for j in pairs]
        first = x[0]
        for each in sums:
            first = _plus(b, first, each)
        found = [first, *x[1:]]
        for k in pairs:
            straight, across = x[0], (b.literal(0, x[0][0].dtype),) * 2
            for j in pairs:
                angle = 2 * math.pi * (j * k % radix) / radix
                straight = self._with(straight, sums[j - 1], math.cos(angle))
                across = self._with(across, differences[j - 1], math.sin(angle))
            aside = self._turned(across)
            found[k], found[radix - k] = _plus(b, straight, aside), _minus(b, straight, aside)
        return found

    def _with(self, total: Pair, x: Pair, factor: float) -> Pair:
        """``total + factor * x``."""
        b = self.b
        by = b.literal(factor, x[0].dtype)
        return b.apply("fma", by, x[0], total[0]), b.apply("fma", by, x[1], total[1])
