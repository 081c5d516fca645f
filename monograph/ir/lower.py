"""What an op is told by when it says which elements it reads and what it computes of them.

``Op.lower(b, index)`` gives the element at ``index`` of the op's result, as a scalar expression
that the builder ``b`` makes. The kernel layer passes the builder in, so ops import nothing to
their right, and one statement serves every target:

    def lower(self, b: Lowering, index: Position) -> Scalar:  # transpose
        source = [index[self.permutation.index(axis)] for axis in range(len(index))]
        return b.read(0, source)

Python's operators on scalars are index arithmetic (exact integers, floor division by a positive
size); arithmetic on elements is ``b.apply("add", x, y)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    def reduce(self, kind: str, extents: Shape, body: Callable[[Position], Scalar]) -> Scalar:
        """``sum``, ``prod``, ``max``, ``min``, ``any``, ``all``, ``argmax`` or ``argmin``."""

    def checked(self, position: Scalar, size: Dim) -> Scalar:
        """An index read from data (any integer dtype), as a position in ``[0, size)``.

        A negative one counts from the end. One out of range is an error when the kernel runs.
        """
