"""Symmetric matrices, definite or not: x = L D Lᵀ with row exchanges, and systems solved with it.

The factors are packed as LAPACK's sytrf leaves them in the lower triangle: D has blocks of one or
two rows on the diagonal, L has ones there, and what it has below each block stands below D's. The
exchange of a block is its row counted from 1, negative (and written twice) for a block of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod, sqrt
from typing import Any, ClassVar

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.build import Operand, apply, apply_many, as_operands, graph_of
from monograph.ir.graph import Value
from monograph.ir.lower import LoopBuilder
from monograph.ir.op import Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, dtype_of
from monograph.ops.ldl_loops import lower_ldl_factor, lower_ldl_solve
from monograph.ops.matrices import (
    require_matrix,
    sample_complex,
    sample_matrix,
    square_type,
    to_double,
)
from monograph.ops.reduce import as_float
from monograph.ops.rules import broadcast_shapes, require, require_integer, same_dim, same_dtype

ALPHA = (1 + sqrt(17)) / 8  # bounds the growth of elements best


@op("ldl_factor")
class LdlFactor(Op):
    """(packed, pivots) of a symmetric x, of which the lower triangle is read; see the module."""

    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        packed = square_type(self.name, x)
        return packed, packed.with_shape(packed.shape[:-1]).with_dtype(dtype_of("i32"))

    def evaluate(self, x: Array) -> tuple[Array, Array]:
        matrices = np.tril(to_double(x)).reshape(prod(x.shape[:-2]), *x.shape[-2:])
        pivots = [_factor_in_place(matrix) for matrix in matrices]
        return matrices.reshape(x.shape), np.array(pivots, np.int32).reshape(x.shape[:-1])

    def lower_loops(self, b: LoopBuilder) -> None:
        lower_ldl_factor(b, ALPHA)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, x in _symmetric_operands():
            yield Sample(cls(), (x,), note, False)


def _symmetric_operands() -> Iterator[tuple[str, Array]]:
    x, z = sample_matrix(3, 5, 5), sample_complex(4, 4)
    yield "", x + x.transpose(0, 2, 1)
    yield "zero diagonal", np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0]], np.float32)
    yield "c64, strided", (z + z.T)[::-1, ::-1]
    yield "zeros", np.zeros((2, 2), np.float32)
    yield "no matrices", x[:0]
    yield "empty", np.zeros((0, 0))


def _magnitude(x: Any) -> Any:
    """LAPACK's measure of a number: the sum of the magnitudes of its parts."""
    return np.abs(np.real(x)) + np.abs(np.imag(x))


def _factor_in_place(a: Array) -> list[int]:
    """Bunch and Kaufman's elimination of one lower triangle; returns the exchanges."""
    size, k = len(a), 0
    pivots: list[int] = []
    while k < size:
        pivot, step = _choose_pivot(a, k)
        last = k + step - 1
        if pivot != last:
            _exchange(a, k, last, pivot)
        _eliminate(a, k, step)
        pivots += [pivot + 1] if step == 1 else [-(pivot + 1)] * 2
        k += step
    return pivots


def _choose_pivot(a: Array, k: int) -> tuple[int, int]:
    """The row to bring to the diagonal, and the size of the block there."""
    here = _magnitude(a[k, k])
    below = _magnitude(a[k + 1 :, k])
    if not below.size or here >= ALPHA * below.max():
        return k, 1
    row = k + 1 + int(np.argmax(below))
    largest = below.max()
    across = max(_magnitude(a[row, k:row]).max(), _magnitude(a[row + 1 :, row]).max(initial=0.0))
    if here >= ALPHA * largest * (largest / across):
        return k, 1
    if _magnitude(a[row, row]) >= ALPHA * across:
        return row, 1
    return row, 2


def _exchange(a: Array, k: int, last: int, pivot: int) -> None:
    """Rows and columns ``last`` and ``pivot`` of the triangle that is left, exchanged."""
    _swap(a[pivot + 1 :, last], a[pivot + 1 :, pivot])
    _swap(a[last + 1 : pivot, last], a[pivot, last + 1 : pivot])
    a[last, last], a[pivot, pivot] = a[pivot, pivot], a[last, last]
    if last > k:
        a[last, k], a[pivot, k] = a[pivot, k], a[last, k]


def _swap(a: Array, b: Array) -> None:
    held = a.copy()
    a[...], b[...] = b, held


def _eliminate(a: Array, k: int, step: int) -> None:
    """Take the block's rows out of those below it, and leave their factors in its columns."""
    block = a[k : k + step, k : k + step]
    whole = block if step == 1 else np.array([[block[0, 0], block[1, 0]], block[1]])
    columns = a[k + step :, k : k + step]
    if not np.any(whole):
        return
    factors = np.linalg.solve(whole, columns.T).T  # the block is symmetric
    a[k + step :, k + step :] -= np.tril(factors @ columns.T)
    a[k + step :, k : k + step] = factors


@function
def ldl_factor(x: Operand) -> tuple[Value, Value]:
    """(packed, pivots) of a symmetric matrix, definite or not, as LAPACK's sytrf packs them."""
    packed, pivots = apply_many(LdlFactor(), as_float(x))
    return packed, pivots


@op("ldl_solve")
class LdlSolve(Op):
    """The x with a x = b, for what ``ldl_factor`` gives of a."""

    complex_loops: ClassVar[bool] = True

    def infer(self, packed: TensorType, pivots: TensorType, b: TensorType) -> TensorType:
        same_dtype(self.name, packed, b)
        square = square_type(self.name, packed)
        require_integer(self.name, pivots)
        rows, columns = require_matrix(self.name, b)
        same_dim(self.name, "the sizes of the matrix and of the right side", square.shape[-1], rows)
        require(
            pivots.rank == square.rank - 1,
            "ldl_solve: the pivots do not fit",
            expected="one for each row of each matrix",
            found=pivots,
        )
        same_dim(self.name, "the pivots and the rows", square.shape[-1], pivots.shape[-1])
        batch = broadcast_shapes(self.name, square.shape[:-2], b.shape[:-2])
        return b.with_shape((*batch, rows, columns))

    def evaluate(self, packed: Array, pivots: Array, b: Array) -> Array:
        flat = to_double(packed).reshape(prod(packed.shape[:-2]), *packed.shape[-2:])
        exchanges = pivots.reshape(len(flat), packed.shape[-1])
        whole = [_rebuild_matrix(*pair) for pair in zip(flat, exchanges, strict=True)]
        return np.linalg.solve(np.array(whole).reshape(packed.shape), to_double(b))

    def lower_loops(self, b: LoopBuilder) -> None:
        lower_ldl_solve(b)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, x in _symmetric_operands():
            if note != "zeros":
                packed, pivots = LdlFactor().evaluate(x)
                b = np.ones((*x.shape[:-1], 2), x.dtype)
                yield Sample(cls(), (packed.astype(x.dtype), pivots, b), note, False)


def _rebuild_matrix(packed: Array, pivots: Array) -> Array:
    """The symmetric matrix that was factored: the steps of the elimination, the last one first."""
    size = len(packed)
    if size and (np.abs(pivots).max() > size or np.abs(pivots).min() < 1):
        raise EvaluationError(
            "ldl_solve: an exchange with a row that is not there",
            expected=f"rows 1 to {size}",
            found=str(pivots.tolist()),
        )
    blocks: list[tuple[int, int]] = []
    k = 0
    while k < size:
        step = 2 if pivots[k] < 0 and k + 1 < size else 1
        blocks.append((k, step))
        k += step
    whole = np.zeros_like(packed)
    for k, step in reversed(blocks):
        end = k + step
        lower = np.tril(packed[k:end, k:end])
        block = lower + np.tril(lower, -1).T
        factors = packed[end:, k:end]
        whole[end:, end:] += factors @ block @ factors.T
        whole[end:, k:end] = factors @ block
        whole[k:end, end:] = whole[end:, k:end].T
        whole[k:end, k:end] = block
        rows = [end - 1, abs(int(pivots[k])) - 1]
        whole[rows] = whole[rows[::-1]]
        whole[:, rows] = whole[:, rows[::-1]]
    return whole


@function
def ldl_solve(packed: Operand, pivots: Operand, b: Operand) -> Value:
    """The x with a x = b, for what ``ldl_factor`` gives of a."""
    operands = as_operands(graph_of([packed, pivots, b]), [packed, pivots, b])
    return apply(LdlSolve(), *operands)
