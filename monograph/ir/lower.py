"""The interfaces through which an op states its formulas: what it reads, and what it computes.

``Op.lower(b, index)`` gives the element at ``index`` of the op's result, as a scalar expression
that the builder ``b`` makes. The kernel layer passes the builder in, so ops import nothing to
their right, and one statement serves every target:

    def lower(self, b: Lowering, index: Position) -> Scalar:  # transpose
        source = [index[self.permutation.index(axis)] for axis in range(len(index))]
        return b.read(0, source)

Python's operators on scalars are index arithmetic (exact integers, floor division by a positive
size); arithmetic on elements is ``b.apply("add", x, y)``.

What is not one formula an element (a running sum, a sort, an elimination) says instead, by
``Op.lower_loops(b)``, which loops fill its results:

    def lower_loops(self, b: LoopBuilder) -> None:  # the running sum of each row
        rows, columns = b.operands[0].shape
        with b.parallel((rows,)) as (row,):
            total = b.variable(b.literal(0, f32))
            with b.loop(columns) as column:
                total.set(b.apply("add", total.get(), b.read(0, [row, column])))
                b.store(b.result(), [row, column], total.get())

There a scalar is what was known when it was made: ``get`` and ``load`` read at once, and what is
written later does not change them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from monograph.ir.dims import Dim, Shape
from monograph.ir.types import DType, TensorType


class Scalar(Protocol):
    """A scalar expression; the operators are index arithmetic."""

    @property
    def dtype(self) -> DType:
        """The type of the number."""

    def __add__(self, other: Scalar | Dim) -> Scalar: ...
    def __sub__(self, other: Scalar | Dim) -> Scalar: ...
    def __mul__(self, other: Scalar | Dim) -> Scalar: ...
    def __floordiv__(self, other: Scalar | Dim) -> Scalar: ...
    def __mod__(self, other: Scalar | Dim) -> Scalar: ...
    def __radd__(self, other: Dim) -> Scalar: ...
    def __rsub__(self, other: Dim) -> Scalar: ...
    def __rmul__(self, other: Dim) -> Scalar: ...


Position: TypeAlias = Sequence[Scalar]
"""Where an element is: one index along each axis."""


class Lowering(Protocol):
    """The builder that the kernel layer passes to ``Op.lower``."""

    @property
    def operands(self) -> tuple[TensorType, ...]:
        """The types of the operands."""

    @property
    def results(self) -> tuple[TensorType, ...]:
        """The types of the results."""

    def read(self, operand: int, index: Position) -> Scalar:
        """An element of an operand, widened to the dtype in which it is computed with."""

    def stored(self, operand: int, index: Position) -> Scalar:
        """An element of an operand, of the operand's own dtype."""

    def broadcast(self, operand: int, index: Position) -> Scalar:
        """The element that meets position ``index`` of the result by NumPy's rule."""

    def reshaped(self, operand: int, shape: Shape, index: Position) -> Scalar:
        """The element at ``index`` of an operand seen in another shape (row-major)."""

    def border(self, operand: int) -> tuple[int, ...]:
        """How far along each axis one may read past either end of an operand, and find zeros."""

    def literal(self, value: bool | int | float, dtype: DType) -> Scalar:
        """A number."""

    def index(self, position: Scalar | Dim) -> Scalar:
        """A position, as an i64."""

    def apply(self, function: str, *operands: Scalar, dtype: DType | None = None) -> Scalar:
        """A scalar function (the primitive elementwise ops, by name)."""

    def cast(self, operand: Scalar, dtype: DType) -> Scalar:
        """A number converted to a dtype."""

    def select(self, condition: Scalar, yes: Scalar, no: Scalar) -> Scalar:
        """One of two values; both are computed, so what they read must be in range."""

    def both(self, left: Scalar, right: Scalar) -> Scalar:
        """Whether two conditions hold; one that is settled already costs nothing."""

    def within(self, position: Scalar, lower: Dim, upper: Dim) -> Scalar:
        """Whether ``lower <= position < upper``."""

    def clamp(self, position: Scalar, lower: Dim, upper: Dim) -> Scalar:
        """The position moved into ``lower <= position < upper``; ``lower`` if that is empty."""

    def most(self, position: Scalar) -> int | None:
        """The largest value that a position takes; None if that is not known."""

    def reduce(self, kind: str, extents: Shape, body: Callable[[Position], Scalar]) -> Scalar:
        """``sum``, ``prod``, ``max``, ``min``, ``any``, ``all``, ``argmax`` or ``argmin``."""

    def checked(self, position: Scalar, size: Dim) -> Scalar:
        """An index read from data (any integer dtype), as a position in ``[0, size)``.

        A negative one counts from the end. One out of range is an error when the kernel runs.
        """


class Memory(Protocol):
    """A result, or a temporary, that loops fill."""

    @property
    def dtype(self) -> DType:
        """The type of its elements."""

    @property
    def shape(self) -> Shape:
        """Its dimensions."""


class Cell(Protocol):
    """A variable of the loops: each iteration of the parallel loop has its own."""

    def get(self) -> Scalar:
        """What it holds now."""

    def set(self, value: Scalar) -> None:
        """Let it hold this from now on."""


class LoopBuilder(Lowering, Protocol):
    """The builder that the kernel layer passes to ``Op.lower_loops``.

    A lowering is a sequence of stages, each done before the next begins: a ``fill``, or a
    ``parallel`` with statements in it. Only ``fill`` takes formulas with ``reduce``.
    """

    def result(self, number: int = 0) -> Memory:
        """A result of the op; every element must be written."""

    def is_read(self, number: int) -> bool:
        """Whether anything reads a result; one that nothing reads need not be written."""

    def temporary(self, dtype: DType, shape: Shape) -> Memory:
        """Memory that all stages share, with nothing in it yet."""

    def local(self, dtype: DType, size: int) -> Memory:
        """A few elements that each iteration of a parallel loop has for itself."""

    def viewed(self, memory: Memory, shape: Shape) -> Memory:
        """The same memory in another shape (row-major)."""

    def fill(self, target: Memory, body: Callable[[Position], Scalar]) -> None:
        """A stage: ``target[index] = body(index)`` at every index."""

    def parallel(
        self, extents: Shape, *, lanes: bool = False
    ) -> AbstractContextManager[tuple[Scalar, ...]]:
        """A stage: what stands inside, for every position, in any order and at once.

        With ``lanes``, neighbours along the last axis may run in the lanes of a vector: they must
        take the same way through the statements, so ``when`` and ``while_`` depend on other axes.
        """

    def loop(
        self, extent: Dim | Scalar, *, lanes: bool = False, registers: int = 2
    ) -> AbstractContextManager[Scalar]:
        """What stands inside, for 0, 1… up to ``extent``, in order (any order with ``lanes``).

        An extent that is read from data rules out ``lanes``. So many of them run at once as fill
        ``registers``.
        """

    def piece(self, number: Scalar, size: int, whole: Dim) -> tuple[Scalar, Scalar]:
        """Where the ``number``-th piece of ``size`` of a whole begins, and how long it is."""

    def when(self, condition: Scalar) -> AbstractContextManager[None]:
        """What stands inside, if the condition holds."""

    def while_(self, condition: Callable[[], Scalar]) -> AbstractContextManager[None]:
        """What stands inside, as long as the condition, computed each time, holds."""

    def require(self, condition: Scalar, complaint: str) -> None:
        """An error when the kernel runs, unless the condition holds; one complaint a stage."""

    def variable(self, initial: Scalar) -> Cell:
        """A variable of the loop or condition that it is made in."""

    def load(self, memory: Memory, index: Position) -> Scalar:
        """An element as it is now, widened to the dtype in which it is computed with."""

    def store(self, memory: Memory, index: Position, value: Scalar) -> None:
        """Write an element, rounded to the memory's dtype."""
