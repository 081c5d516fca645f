"""Fourier transforms of contiguous rows, as loops: the lanes of a vector lie along the row.

The first step takes eight elements, an eighth of the row apart: neighbours in the row are lanes,
and a square of results is turned in registers, so that it lies in a row again. From then on
Stockham's algorithm keeps runs of at least eight elements together, which are lanes as they are,
and which all make the same turn. The first step reads the operand and the last writes the result,
so a row is nowhere brought together with others and what lies between fits in the nearest cache.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim
from monograph.ir.lower import LoopBuilder, Memory, Scalar
from monograph.ir.types import DType
from monograph.ops.fft_steps import (
    MAX_UNROLLED_PRIME,
    Pair,
    TwiddleFactors,
    factors,
    multiply_pairs,
)

FIRST_RADIX = 8
"""Elements of the first step: as many as the lanes of a vector of single precision."""
ROWS_SIDE_BY_SIDE = 8
"""Rows that are transformed side by side otherwise, in four planes."""
MIN_ROWS_FOR_LANES = 32
"""Rows from which it does not matter much that the last of them do not fill a vector."""
L1_BYTES = 32768
"""Bytes that are surely in the nearest cache."""
MAX_PRIVATE_ELEMENTS = 32768
"""Elements up to which a thread has room of its own for a row."""

Read: TypeAlias = Callable[[Scalar], Pair]
"""Position → an element of what is transformed."""
Write: TypeAlias = Callable[[Scalar, Pair], None]
"""Takes an element of the transform."""


def suits_rows(size: Dim, rows: Dim, dtype: DType, *, is_written: bool = False) -> bool:
    """Whether complex rows of a length are better transformed one by one than side by side.

    They are if there are too few of them, if planes of several do not stay in the cache, or if
    they are written to where they are read from, where no squares are turned in registers.
    """
    if not isinstance(size, int) or size % FIRST_RADIX or size < FIRST_RADIX * FIRST_RADIX:
        return False
    if max(factors(size)) > MAX_UNROLLED_PRIME:
        return False
    if isinstance(rows, int) and rows < MIN_ROWS_FOR_LANES and rows % ROWS_SIDE_BY_SIDE:
        return True
    planes = 4 * ROWS_SIDE_BY_SIDE * size * dtype.numpy.itemsize
    return (is_written or planes > L1_BYTES) and size % (FIRST_RADIX * FIRST_RADIX) == 0


def later_steps(size: int) -> list[int]:
    """The steps behind the first; a four and a two are one step of eight."""
    found = factors(size // FIRST_RADIX)
    if 4 in found and 2 in found:
        found.remove(2)
        found[found.index(4)] = 8
    return found


@dataclass(frozen=True)
class Strip:
    """Real and imaginary parts of one row, and an element behind it; far away, [row, position]."""

    real: Memory
    imaginary: Memory
    row: Scalar | None

    def get(self, b: LoopBuilder, k: Scalar) -> Pair:
        """An element."""
        place = [k] if self.row is None else [self.row, k]
        return b.load(self.real, place), b.load(self.imaginary, place)

    def set(self, b: LoopBuilder, k: Scalar, value: Pair) -> None:
        """Write an element."""
        place = [k] if self.row is None else [self.row, k]
        b.store(self.real, place, value[0])
        b.store(self.imaginary, place, value[1])


class FirstTurns:
    """The turns of the first step, in the order in which its lanes take them."""

    def __init__(self, turns: TwiddleFactors, dtype: DType) -> None:
        self.b = turns.b
        shape = (FIRST_RADIX, turns.size // FIRST_RADIX)
        self.cosine, self.sine = (self.b.temporary(dtype, shape) for _ in range(2))
        self.b.fill(self.cosine, lambda at: turns.cosine_of(at[0] * at[1] * turns.fold))
        self.b.fill(self.sine, lambda at: turns.sine_of(at[0] * at[1] * turns.fold))

    def turn(self, k: int, p: Scalar) -> Pair:
        """How the k-th sum of place ``p`` is turned."""
        place = [self.b.index(k), p]
        return self.b.load(self.cosine, place), self.b.load(self.sine, place)


class Row:
    """The transform of one row, inside a parallel loop over the rows."""

    def __init__(self, turns: TwiddleFactors, first: FirstTurns, row: tuple[Scalar, Dim]) -> None:
        self.b = turns.b
        self.turns = turns
        self.first = first
        assert isinstance(turns.size, int)
        self.size = turns.size
        self.strips = [self._strip(*row), self._strip(*row)]

    def _strip(self, row: Scalar, rows: Dim) -> Strip:
        b, dtype, room = self.b, self.first.cosine.dtype, self.size + FIRST_RADIX
        if self.size <= MAX_PRIVATE_ELEMENTS:
            return Strip(b.local(dtype, room), b.local(dtype, room), None)
        real, imaginary = (b.temporary(dtype, (rows, room)) for _ in range(2))
        return Strip(real, imaginary, row)

    def transform(self, read: Read, write: Write) -> None:
        """All steps: the first reads, and the last writes. ``read`` may use the second strip."""
        b = self.b
        source, target = self.strips
        self._first_step(read, source)
        done = FIRST_RADIX
        *middle, last = later_steps(self.size)
        for radix in middle:
            self._step(source, partial(target.set, b), radix, done)
            source, target = target, source
            done *= radix
        self._step(source, write, last, done)

    def spectrum(self, read: Read) -> Strip:
        """The transform in a strip, which goes round: the first element is behind the last too."""
        b = self.b
        _, target = self.strips if len(later_steps(self.size)) % 2 else reversed(self.strips)
        self.transform(read, partial(target.set, b))
        target.set(b, b.index(self.size), target.get(b, b.index(0)))
        return target

    def _first_step(self, read: Read, target: Strip) -> None:
        b, rest = self.b, self.size // FIRST_RADIX
        with b.loop(rest, lanes=True, registers=1) as p:
            sums = self.turns.butterfly([read(p + rest * k) for k in range(FIRST_RADIX)])
            for k, value in enumerate(sums):
                turned = multiply_pairs(b, value, self.first.turn(k, p)) if k else value
                target.set(b, p * FIRST_RADIX + k, turned)

    def _step(self, source: Strip, write: Write, radix: int, done: int) -> None:
        b, turns = self.b, self.turns
        rest = self.size // (radix * done)
        with b.loop(rest) as p:
            angles = [turns.turn(p * (k * done * turns.fold)) for k in range(1, radix)]
            with b.loop(done, lanes=True, registers=1) as q:
                inputs = [source.get(b, q + (p + rest * k) * done) for k in range(radix)]
                for k, value in enumerate(turns.butterfly(inputs)):
                    turned = (
                        value if rest == 1 or k == 0 else multiply_pairs(b, value, angles[k - 1])
                    )
                    write(q + (p * radix + k) * done, turned)
