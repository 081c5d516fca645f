"""Triangular parts of matrices, from which causal masks are made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.build import Operand, apply
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.op import Family, Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, string
from monograph.ops import data, elementwise, slicing
from monograph.ops.rules import require


@dataclass(frozen=True, eq=False, repr=False)
class Triangle(Op):
    """Keeps one side of a diagonal of the last two dimensions and puts zero in the other."""

    diagonal: Dim = 0

    def infer(self, x: TensorType) -> TensorType:
        """The operand's type; it has at least two dimensions."""
        require(
            x.rank >= 2 and x.dtype is not string,
            f"{self.name}: a matrix is needed",
            expected="numbers in two dimensions or more",
            found=x,
        )
        return x.with_shape(x.shape)

    def _offsets(self, x: Value) -> tuple[Value, Value]:
        """Row number plus diagonal, and column number, of each element of the last two axes."""
        matrix = x.shape[-2:]
        rows, columns = data.iota(matrix, 0), data.iota(matrix, 1)
        shift = self.diagonal if isinstance(self.diagonal, int) else data.dim(self.diagonal)
        return elementwise.add(rows, shift), columns

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Square, wide and tall matrices, off-centre diagonals, batches, empties, NaN."""
        x = np.arange(1, 25, dtype=np.float32).reshape(2, 3, 4)
        yield Sample(cls(), (x,))
        yield Sample(cls(1), (x.transpose(0, 2, 1),), "strided")
        yield Sample(cls(-2), (x,), "below")
        yield Sample(cls(99), (x[0],), "beyond")
        yield Sample(cls(), (np.full((3, 3), np.nan, np.float32),), "NaN", False)
        yield Sample(cls(), (np.zeros((0, 3), np.float32),), "empty", False)
        yield Sample(cls(), (np.ones((2, 2), np.bool_),), "bool")


@op("tril", family=Family.SHAPE)
class Tril(Triangle):
    """The elements on and below a diagonal; zero above it."""

    diagonal: Dim = 0

    def evaluate(self, x: Array) -> Array:
        return np.tril(x, data.static_sizes(self.name, (self.diagonal,))[0])

    def decompose(self, x: Value) -> Value:
        rows, columns = self._offsets(x)
        return elementwise.where(rows >= columns, x, data.full((), slicing.zero_of(x), x.dtype))


@function
def tril(x: Operand, diagonal: Dim = 0) -> Value:
    """The lower triangle: zero above the diagonal, which is moved up by ``diagonal``."""
    return apply(Tril(diagonal), x)


@op("triu", family=Family.SHAPE)
class Triu(Triangle):
    """The elements on and above a diagonal; zero below it."""

    diagonal: Dim = 0

    def evaluate(self, x: Array) -> Array:
        return np.triu(x, data.static_sizes(self.name, (self.diagonal,))[0])

    def decompose(self, x: Value) -> Value:
        rows, columns = self._offsets(x)
        return elementwise.where(rows <= columns, x, data.full((), slicing.zero_of(x), x.dtype))


@function
def triu(x: Operand, diagonal: Dim = 0) -> Value:
    """The upper triangle: zero below the diagonal, which is moved up by ``diagonal``."""
    return apply(Triu(diagonal), x)
