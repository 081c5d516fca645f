"""Fourier transforms, as loops: several transforms side by side, one a lane, or row by row.

A few transforms are brought together, element by element, into planes of real and imaginary parts
in which the lanes of a vector are neighbours. There Stockham's algorithm takes one factor of the
length after the other: 4, 2, then odd primes; each step reads one pair of planes and writes the
other, and the last leaves the frequencies in order. So every access is of whole vectors, whatever
the length, and the turns of a step are the same in all lanes.

Long contiguous rows, and few, go one by one instead (``fft_rows``).

Real numbers of even length are transformed as half as many complex ones, every other number being
the imaginary part. A length that only the call knows is one step of that many terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Shape, shape_product
from monograph.ir.lower import LoopBuilder, Memory, Scalar
from monograph.ir.types import c128, f32, f64
from monograph.ops.fft_rows import FirstTurns, Row, suits_rows
from monograph.ops.fft_steps import (
    MAX_UNROLLED_PRIME,
    Factor,
    Pair,
    Source,
    TwiddleFactors,
    factors,
    minus,
    multiply_pairs,
    plus,
)

LANES = 8
"""Transforms side by side."""
MIN_INNER_ELEMENTS = 4
"""Elements behind the axis from which they are the lanes, being neighbours in memory."""
MAX_PRIVATE_ELEMENTS = 4096
"""Elements up to which a thread has room of its own for the planes, which stay in its cache."""
MIN_F32_ELEMENTS = 32
"""Elements from which single precision is computed in as such; of fewer, zeros come out as zeros.

A length that only the call knows is summed term by term, where roundings would add up.
"""

Line: TypeAlias = Callable[[Scalar, Scalar], Pair]
"""(position along the axis, lane) → an element of what is transformed."""
Parts: TypeAlias = tuple[Scalar, ...]
"""One part of a real number, two of a complex one."""


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
        is_short = not isinstance(self.size, int) or self.size < MIN_F32_ELEMENTS
        self.dtype = f64 if is_short else given

    def complex(self, source: Source, result: Memory, inverse: bool) -> None:
        """Complex numbers to as many."""
        b = self.b
        turns = TwiddleFactors(b, self.dtype, self.size, 1, inverse)
        if self.is_row(self.size, is_written=source.memory == result):
            with self.row(turns) as (lines, row):
                row.transform(
                    lambda k: lines.read(source, k, 0), lambda k, x: lines.put(result, k, 0, x)
                )
            return
        with self.lines() as lines:
            planes = lines.planes(self.size)
            lines.gather(self.size, planes, lambda k, lane: lines.read(source, k, lane))
            done = _Steps(b, turns).transformed(lines, planes, self.size)
            lines.scatter(self.size, result, lambda k, lane: done.get(b, k, lane))

    def from_real(self, result: Memory) -> None:
        """Real numbers to half a spectrum."""
        b, size = self.b, self.size
        zero = b.literal(0, self.dtype)
        if not isinstance(size, int) or size % 2:
            turns = TwiddleFactors(b, self.dtype, size, 1, False)
            with self.lines() as lines:
                planes = lines.planes(size)
                lines.gather(size, planes, lambda k, lane: (lines.real(k, lane), zero))
                whole = _Steps(b, turns).transformed(lines, planes, size)
                lines.scatter(size // 2 + 1, result, lambda k, lane: whole.get(b, k, lane))
            return
        half = size // 2
        turns = TwiddleFactors(b, self.dtype, half, 2, False)
        if self.is_row(half):
            self._row_from_real(result, turns, half)
            return
        with self.lines() as lines:
            planes = lines.planes(half)
            lines.gather(
                half,
                planes,
                lambda k, lane: (lines.real(k * 2, lane), lines.real(k * 2 + 1, lane)),
            )
            done = _Steps(b, turns).transformed(lines, planes, half)

            def element(k: Scalar, lane: Scalar) -> Pair:
                here = done.get(b, k % half, lane)
                there = done.get(b, (half - k) % half, lane)
                return _unfold(b, here, there, turns.turn(k))

            lines.scatter(half + 1, result, element)

    def _row_from_real(self, result: Memory, turns: TwiddleFactors, half: int) -> None:
        b = self.b
        with self.row(turns) as (lines, row):
            done = row.spectrum(lambda k: (lines.real(k * 2, 0), lines.real(k * 2 + 1, 0)))

            def unfold(k: Scalar) -> None:
                here, there = done.get(b, k), done.get(b, half - k)
                lines.put(result, k, 0, _unfold(b, here, there, turns.turn(k)))

            with b.loop(half, lanes=True, registers=1) as k:
                unfold(k)
            unfold(b.index(half))

    def to_real(self, source: Source, result: Memory, length: Dim) -> None:
        """Half a spectrum to real numbers."""
        b = self.b
        if isinstance(length, int) and length % 2 == 0:
            self._fold_to_real(source, result, length // 2)
            return
        half = length // 2 + 1
        turns = TwiddleFactors(b, self.dtype, length, 1, True)
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
            done = _Steps(b, turns).transformed(lines, planes, length)
            lines.scatter(length, result, lambda k, lane: done.get(b, k, lane)[:1])

    def _fold_to_real(self, source: Source, result: Memory, half: int) -> None:
        b = self.b
        turns = TwiddleFactors(b, self.dtype, half, 2, True)
        zero = b.literal(0, self.dtype)
        if self.is_row(half):
            self._row_to_real(source, result, turns, half)
            return
        with self.lines() as lines:
            planes = lines.planes(half)

            def folded(k: Scalar, lane: Scalar) -> Pair:
                """The ends of the spectrum are real."""
                here, there = lines.read(source, k, lane), lines.read(source, half - k, lane)
                first = b.apply("equal", k, b.index(0))
                here = (here[0], b.select(first, zero, here[1]))
                there = (there[0], b.select(first, zero, b.apply("negate", there[1])))
                return _fold(b, here, there, turns.turn(k))

            lines.gather(half, planes, folded)
            done = _Steps(b, turns).transformed(lines, planes, half)
            for step, begin, times in _in_blocks(half):
                with b.loop(times) as block, lines.lanes() as lane:
                    for number in range(step):
                        k = block * step + begin + number
                        even, odd = done.get(b, k, lane)
                        lines.put(result, k * 2, lane, (even,))
                        lines.put(result, k * 2 + 1, lane, (odd,))

    def _row_to_real(
        self, source: Source, result: Memory, turns: TwiddleFactors, half: int
    ) -> None:
        b = self.b
        zero = b.literal(0, self.dtype)
        with self.row(turns) as (lines, row):
            given = row.strips[1]
            with b.loop(half, lanes=True, registers=1) as k:
                given.set(b, k, lines.read(source, k, 0))
            for end in (b.index(0), b.index(half)):  # both are real
                given.set(b, end, (lines.read(source, end, 0)[0], zero))

            def folded(k: Scalar) -> Pair:
                real, imaginary = given.get(b, half - k)
                there = real, b.apply("negate", imaginary)
                return _fold(b, given.get(b, k), there, turns.turn(k))

            def write(k: Scalar, value: Pair) -> None:
                lines.put(result, k * 2, 0, value[:1])
                lines.put(result, k * 2 + 1, 0, value[1:])

            row.transform(folded, write)

    def is_row(self, size: Dim, *, is_written: bool = False) -> bool:
        """Whether transforms of so many complex numbers are done one by one."""
        return self.inner == 1 and suits_rows(size, self.outer, self.dtype, is_written=is_written)

    @contextmanager
    def row(self, turns: TwiddleFactors) -> Iterator[tuple[_Lines, Row]]:
        """The transforms one by one: a line of one lane, and its steps."""
        b = self.b
        first = FirstTurns(turns, self.dtype)
        with b.parallel((self.outer,)) as (row,):
            lines = _Lines(self, row, (row, self.outer), b.index(0), b.index(1), 1)
            yield lines, Row(turns, first, (row, self.outer))

    @contextmanager
    def lines(self) -> Iterator[_Lines]:
        """The transforms, a few side by side: along the elements behind the axis, if there are."""
        b = self.b
        beside = not isinstance(self.inner, int) or self.inner >= MIN_INNER_ELEMENTS
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
            yield _Lines(self, place[0] if beside else None, (tile, whole), start, width, count)


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
    count: Dim
    """All the transforms of which a few are these."""

    def lanes(self) -> AbstractContextManager[Scalar]:
        """The lanes, all at once."""
        return self.axis.b.loop(self.width, lanes=True, registers=1)

    def steps(self) -> AbstractContextManager[Scalar]:
        """The lanes of the planes: all of them, as no vector is then cut, unless there is one."""
        if isinstance(self.count, int) and self.count < MIN_INNER_ELEMENTS:
            return self.lanes()
        return self.axis.b.loop(LANES, lanes=True, registers=1)

    def place(self, k: Scalar, lane: Scalar | int) -> list[Scalar]:
        """Where position ``k`` of a lane's transform is: before, along and behind the axis."""
        line = self.start + lane
        if self.outer is not None:
            return [self.outer, k, line]
        inner = self.axis.inner
        return [line // inner, k, line % inner]

    def real(self, k: Scalar, lane: Scalar | int) -> Scalar:
        """An element of an operand of real numbers."""
        element = self.axis.b.reshaped(0, self.axis.shape, self.place(k, lane))
        return self.axis.b.cast(element, self.axis.dtype)

    def read(self, source: Source, k: Scalar, lane: Scalar | int) -> Pair:
        """An element of complex numbers."""
        b = self.axis.b
        element = source.element(b, self.axis.shape, self.place(k, lane))
        real, imaginary = b.apply("real", element), b.apply("imag", element)
        return b.cast(real, self.axis.dtype), b.cast(imaginary, self.axis.dtype)

    def planes(self, size: Dim) -> tuple[_Planes, _Planes]:
        """Two pairs of planes: what a step reads, and what it writes."""
        b, dtype = self.axis.b, self.axis.dtype
        if isinstance(size, int) and size <= MAX_PRIVATE_ELEMENTS:
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

    def put(self, result: Memory, k: Scalar, lane: Scalar | int, value: Parts) -> None:
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


def _fold(b: LoopBuilder, here: Pair, there: Pair, turn: Pair) -> Pair:
    """(X[k] + X*[m-k]) + i w (X[k] - X*[m-k]), given X[k] and X*[m-k]."""
    total, difference = plus(b, here, there), minus(b, here, there)
    real, imaginary = multiply_pairs(b, difference, turn)
    return plus(b, total, (b.apply("negate", imaginary), real))


def _unfold(b: LoopBuilder, here: Pair, there: Pair, turn: Pair) -> Pair:
    """X[k] = ½ (Z[k] + Z*[m-k]) - ½ i w (Z[k] - Z*[m-k]), of the spectrum of folded numbers."""
    (zr, zi), (yr, yi) = here, there
    total = b.apply("add", zr, yr), b.apply("subtract", zi, yi)
    difference = b.apply("add", zi, yi), b.apply("subtract", yr, zr)  # times -i
    turned = multiply_pairs(b, difference, turn)
    point = b.literal(0.5, zr.dtype)
    real, imaginary = plus(b, total, turned)
    return b.apply("multiply", real, point), b.apply("multiply", imaginary, point)


class _Steps:
    """The steps of a length, one after the other."""

    def __init__(self, b: LoopBuilder, turns: TwiddleFactors) -> None:
        self.b = b
        self.turns = turns
        self.size = turns.size
        self.fold = turns.fold

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
            if not isinstance(radix, int) or radix > MAX_UNROLLED_PRIME:
                self._long_step(lines, (source, target), radix, done, p)
                return
            turns = [self.turns.turn(p * (k * done * self.fold)) for k in range(1, radix)]
            with b.loop(done) as q, lines.steps() as lane:
                inputs = [source.get(b, q + (p + rest * k) * done, lane) for k in range(radix)]
                for k, value in enumerate(self.turns.butterfly(inputs)):
                    turned = (
                        value if rest == 1 or k == 0 else multiply_pairs(b, value, turns[k - 1])
                    )
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
            outer = self.turns.turn(p * k * (done * self.fold))
            with lines.steps() as lane:
                real, imaginary = b.variable(zero), b.variable(zero)
                with b.loop(radix) as j:
                    turn = self.turns.turn(((j * k) % radix) * (self.size // radix * self.fold))
                    value = source.get(b, q + (p + j * rest) * done, lane)
                    product = multiply_pairs(b, value, turn)
                    real.set(b.apply("add", real.get(), product[0]))
                    imaginary.set(b.apply("add", imaginary.get(), product[1]))
                total = multiply_pairs(b, (real.get(), imaginary.get()), outer)
                target.set(b, q + (p * radix + k) * done, lane, total)
