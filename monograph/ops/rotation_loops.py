"""Givens rotations, recorded during an iteration and applied to a matrix afterwards.

An iteration of QR's kind on a few vectors of numbers makes rotations much faster than a matrix of
vectors can follow. So it writes them down, a sweep at a time, and the matrix is turned by all of
them at once, a strip of columns after the other: the strip is in the nearest cache and its columns
in the lanes of a vector, one row stays in a register while a sweep walks along the rows, and the
strips are shared among threads. Both are done in f64, whatever is asked for.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Shape
from monograph.ir.lower import Cell, LoopBuilder, Memory, Position, Scalar
from monograph.ir.types import DType, i64
from monograph.ops.loop_numbers import Numbers
from monograph.ops.matrices import real_dtype

STRIP_VECTORS = 4
"""Vectors that a row of a strip takes: enough to hide how long an addition takes."""
START, COUNT, STEP, SIDE = 0, 1, 2, 3


@dataclass(frozen=True)
class Rotations:
    """Sweeps of rotations of neighbouring rows, for each matrix of a batch.

    A sweep begins at a row and walks ``count`` rows up or down (``step`` is 1 or -1). With f the
    row that it stands on and g the next, row f becomes c f - s g, and what goes on is s f + c g.
    An iteration that turns two matrices makes rotations in pairs; ``side`` says which of them the
    first of a pair is for.
    """

    numbers: Memory
    sweeps: Memory
    count: Memory
    """How many sweeps there are."""
    most: Dim
    most_sweeps: Dim

    @classmethod
    def room(
        cls, b: LoopBuilder, dtype: DType, batch: Shape, size: Dim, matrices: int = 1
    ) -> Rotations:
        """Room for more rotations than the iteration of ``size`` rows ever took, for a dtype.

        About 1.7 sweeps a row are usual, of which the longest come first: 0.8 ``size``².
        """
        most, sweeps = 2 * size * size + 16 * size + 16, 8 * size + 16
        return cls(
            b.temporary(real_dtype(dtype), (*batch, most, 2 * matrices)),
            b.temporary(i64, (*batch, sweeps, 4)),
            b.temporary(i64, batch),
            most,
            sweeps,
        )


class Recorder:
    """Writes the rotations of one matrix down, in the order in which they are made.

    With ``is_turned`` the matrix that they are for has its rows in the other order.
    """

    def __init__(
        self,
        b: LoopBuilder,
        rotations: Rotations,
        at: Position,
        size: Dim,
        is_turned: bool = False,
    ) -> None:
        self.b, self.rotations, self.at, self.size = b, rotations, at, size
        self.is_turned = is_turned
        self.made: Cell = b.variable(b.index(0))
        self.sweeps: Cell = b.variable(b.index(0))

    def has_room(self) -> Scalar:
        """Whether another sweep fits, however long it is."""
        b = self.b
        rotations = b.apply("less", self.made.get() + self.size, b.index(self.rotations.most))
        sweeps = b.apply("less", self.sweeps.get(), b.index(self.rotations.most_sweeps))
        return b.apply("logical_and", rotations, sweeps)

    def sweep(self, start: Scalar, count: Scalar, step: Scalar, side: Scalar | None = None) -> None:
        """Begin a sweep, whose rotations follow."""
        b, place = self.b, self.sweeps.get()
        if self.is_turned:
            start, step = self.size - 1 - start, b.index(0) - step
        fields = (start, count, step, b.index(0) if side is None else side)
        for field, value in enumerate(fields):
            b.store(self.rotations.sweeps, [*self.at, place, b.index(field)], value)
        self.sweeps.set(place + 1)

    def rotation(self, *numbers: Scalar) -> None:
        """The next rotation of the sweep, cosine and sine, or the next pair of them."""
        b, place = self.b, self.made.get()
        for k, value in enumerate(numbers):
            b.store(self.rotations.numbers, [*self.at, place, b.index(k)], value)
        self.made.set(place + 1)

    def finish(self) -> None:
        """Nothing more follows."""
        self.b.store(self.rotations.count, self.at, self.sweeps.get())


def strip_width(dtype: DType) -> int:
    """Columns that lie side by side in a strip: two cache lines."""
    return 1024 // dtype.bits


def strips_of_identity(
    b: LoopBuilder, dtype: DType, batch: Shape, size: Dim, columns: Dim | None = None
) -> Memory:
    """The first columns of the identity in strips: [strip, row, column of the strip]."""
    n, width = Numbers(b), strip_width(dtype)
    count = size if columns is None else columns
    strips = b.temporary(dtype, (*batch, -(-count // width), size, width))

    def element(at: Position) -> Scalar:
        *_, strip, row, column = at
        return b.select(n.equal(row, strip * width + column), n.of(1.0), n.of(0.0))

    b.fill(strips, element)
    return strips


def in_strips(b: LoopBuilder, strips: Memory, at: Position) -> Scalar:
    """The element at a row and a column of a matrix in strips."""
    (*batch, row, column), width = at, strip_width(strips.dtype)
    return b.load(strips, [*batch, column // width, row, column % width])


def lanes_of(b: LoopBuilder, strips: Memory) -> AbstractContextManager[Scalar]:
    """The columns of a strip, in lanes."""
    return b.loop(strip_width(strips.dtype), lanes=True, registers=STRIP_VECTORS)


def turn(
    b: LoopBuilder,
    rotations: Rotations,
    matrix: Memory,
    at: Position,
    strip: Scalar,
    side: int = 0,
) -> None:
    """Turn a strip of columns by all the rotations that are for its side."""
    n = Numbers(b)
    count = b.load(rotations.count, at)
    with lanes_of(b, matrix) as lane:
        number, made = b.variable(b.index(0)), b.variable(b.index(0))
        with b.while_(lambda: n.less(number.get(), count)):
            start, length, step, first = (
                b.load(rotations.sweeps, [*at, number.get(), b.index(field)])
                for field in (START, COUNT, STEP, SIDE)
            )
            cosines = b.index(0) if rotations.numbers.shape[-1] == 2 else _offset(b, first, side)
            row = b.variable(start)
            held = b.variable(b.load(matrix, [*at, strip, start, lane]))
            end = made.get() + length
            with b.while_(lambda: n.less(made.get(), end)):
                cosine = b.load(rotations.numbers, [*at, made.get(), cosines])
                sine = b.load(rotations.numbers, [*at, made.get(), cosines + 1])
                following = row.get() + step
                f, g = held.get(), b.load(matrix, [*at, strip, following, lane])
                ahead, back = n.product(cosine, g), n.product(n.negative(sine), g)
                turned = n.plus_product(back, cosine, f)
                b.store(matrix, [*at, strip, row.get(), lane], turned)
                held.set(n.plus_product(ahead, sine, f))
                row.set(following)
                made.set(made.get() + 1)
            b.store(matrix, [*at, strip, row.get(), lane], held.get())
            number.set(number.get() + 1)


def _offset(b: LoopBuilder, first: Scalar, side: int) -> Scalar:
    """Where a side's cosine stands in a pair of rotations of which the first is for ``first``."""
    is_first = b.apply("equal", first, b.index(side))
    return b.select(is_first, b.index(0), b.index(2))
