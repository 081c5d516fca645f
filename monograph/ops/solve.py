"""Linear equations and what goes with them: solve, inverse, determinant, matrix exponential.

Matrices are the last two dimensions; batches before them broadcast. A system that has no solution
because its matrix is singular is an ``EvaluationError``, except that a triangular one divides by
its zeros as IEEE 754 says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from monograph.ir.build import Operand, apply, apply_many, promote_operands
from monograph.ir.dims import provably_different
from monograph.ir.graph import Node, Value
from monograph.ir.lower import LoopBuilder
from monograph.ir.op import Gradients, Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType
from monograph.ops import (
    cumulative,
    data,
    elementwise,
    factorize,
    joining,
    linalg,
    matrix_loops,
    reduce,
    slicing,
    spectral,
    triangle,
)
from monograph.ops import shape as shape_ops
from monograph.ops.matrices import (
    adjoint,
    fit,
    real_dtype,
    require_matrix,
    require_square,
    sample_complex,
    sample_matrix,
    square_type,
    to_double,
)
from monograph.ops.matrix_exp_loops import lower_matrix_exp
from monograph.ops.reduce import as_float
from monograph.ops.rules import broadcast_shapes, require, same_dim, same_dtype

Transposition: TypeAlias = Literal["none", "transpose", "adjoint"]


class LinearSystem(Op):
    """The x with a x = b, for a square matrix a and columns b."""

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        """The type of b, in the broadcast batch."""
        same_dtype(self.name, a, b)
        size = require_square(self.name, a)
        rows, columns = require_matrix(self.name, b)
        same_dim(self.name, "the sizes of the matrix and of the right side", size, rows)
        batch = broadcast_shapes(self.name, a.shape[:-2], b.shape[:-2])
        return b.with_shape((*batch, rows, columns))

    def _gradients(self, node: Node, to_right: Value) -> tuple[Value, Value]:
        """Of a before it is summed to its shape, and of b."""
        _, b = node.operands
        to_matrix = elementwise.negate(linalg.matmul(to_right, adjoint(node.result)))
        return to_matrix, reduce.sum_to(to_right, b.shape)


@op("solve")
class Solve(LinearSystem):
    """The x with a x = b, for a square matrix a and columns b."""

    complex_loops: ClassVar[bool] = True

    def evaluate(self, a: Array, b: Array) -> Array:
        return np.linalg.solve(to_double(a), to_double(b))

    def lower_loops(self, b: LoopBuilder) -> None:
        matrix_loops.lower_solve(b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a = node.operands[0]
        to_matrix, to_right = self._gradients(node, apply(self, adjoint(a), grad))
        return reduce.sum_to(to_matrix, a.shape), to_right

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, a, b in _systems():
            yield Sample(cls(), (a, b), note, a.dtype != np.complex64 and b.size > 0)


def _systems() -> Iterator[tuple[str, Array, Array]]:
    yield "", sample_matrix(3, 3), sample_matrix(3, 2)
    yield "batch", sample_matrix(2, 3, 3, seed=1), sample_matrix(2, 3, 2)
    yield "one matrix", sample_matrix(3, 3), sample_matrix(2, 3, 1)
    yield "broadcast", sample_matrix(2, 1, 3, 3, seed=1), sample_matrix(2, 3, 2)
    yield "strided", sample_matrix(8, 4).T[:, ::-2], sample_matrix(6, 8).T[::2, ::3]
    yield "c64", sample_complex(3, 3), sample_complex(3, 2, seed=3)
    yield "f64", sample_matrix(1, 1).astype(np.float64), np.ones((1, 1))
    yield "no columns", sample_matrix(3, 3), np.zeros((3, 0), np.float32)
    yield "no matrices", np.zeros((0, 2, 2), np.float32), np.zeros((0, 2, 1), np.float32)
    yield "empty", np.zeros((0, 0)), np.zeros((0, 2))


@function
def solve(a: Operand, b: Operand, left: bool = True) -> Value:
    """The x with a x = b or, unless ``left``, x a = b; a vector b gives a vector."""
    matrix, columns = promote_operands(as_float(a), as_float(b))
    if columns.rank == 1:
        axis = -1 if left else -2
        return shape_ops.squeeze(solve(matrix, shape_ops.unsqueeze(columns, axis), left), axis)
    if left:
        return apply(Solve(), matrix, columns)
    turned = apply(Solve(), shape_ops.swapaxes(matrix, -1, -2), shape_ops.swapaxes(columns, -1, -2))
    return shape_ops.swapaxes(turned, -1, -2)


@op("triangular_solve")
class TriangularSolve(LinearSystem):
    """The x with a x = b, for a lower or ``upper`` triangle a; the rest of it is not read.

    With ``unit_diagonal`` the diagonal is not read either, and counts as ones.
    """

    upper: bool = False
    unit_diagonal: bool = False
    complex_loops: ClassVar[bool] = True

    def evaluate(self, a: Array, b: Array) -> Array:
        matrix, columns = to_double(a), to_double(b)
        if self.upper:  # turned over, an upper triangle is a lower one
            matrix, columns = matrix[..., ::-1, ::-1], columns[..., ::-1, :]
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        x = np.broadcast_to(columns, batch + columns.shape[-2:]).copy()
        for row in range(x.shape[-2]):
            known = matrix[..., row : row + 1, :row] @ x[..., :row, :]
            x[..., row : row + 1, :] -= known
            if not self.unit_diagonal:
                x[..., row, :] /= matrix[..., row, row, None]
        return x[..., ::-1, :] if self.upper else x

    def lower_loops(self, b: LoopBuilder) -> None:
        matrix_loops.lower_triangular_solve(b, self.upper, self.unit_diagonal)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a = node.operands[0]
        turned = TriangularSolve(not self.upper, self.unit_diagonal)
        to_matrix, to_right = self._gradients(node, apply(turned, adjoint(a), grad))
        offset = 1 if self.unit_diagonal else 0
        cut = triangle.triu(to_matrix, offset) if self.upper else triangle.tril(to_matrix, -offset)
        return reduce.sum_to(cut, a.shape), to_right

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, a, b in _systems():
            away = (a + np.eye(a.shape[-1]) * 3).astype(a.dtype)
            for upper in (False, True):
                gradient = a.dtype != np.complex64 and b.size > 0
                yield Sample(cls(upper), (away, b), f"{note} upper {upper}", gradient)
            yield Sample(cls(False, True), (a, b), f"{note} unit", gradient)
        zeros = np.array([[0, 0], [1, 2]], np.float32)
        yield Sample(cls(), (zeros, np.array([[1], [0]], np.float32)), "singular", False)


@function
def triangular_solve(
    a: Operand,
    b: Operand,
    upper: bool = False,
    left: bool = True,
    transpose: Transposition = "none",
    unit_diagonal: bool = False,
) -> Value:
    """The x with a x = b, or x a = b unless ``left``, for a triangle a.

    ``upper`` says which triangle of ``a`` is read, before ``transpose`` turns it. A vector b gives
    a vector.
    """
    require(
        transpose in ("none", "transpose", "adjoint"),
        "triangular_solve: no such transposition",
        expected="none, transpose or adjoint",
        found=transpose,
    )
    matrix, columns = promote_operands(as_float(a), as_float(b))
    if columns.rank == 1:
        axis = -1 if left else -2
        wide = shape_ops.unsqueeze(columns, axis)
        solved = triangular_solve(matrix, wide, upper, left, transpose, unit_diagonal)
        return shape_ops.squeeze(solved, axis)
    if transpose != "none":
        matrix = adjoint(matrix) if transpose == "adjoint" else shape_ops.swapaxes(matrix, -1, -2)
        upper = not upper
    if left:
        return apply(TriangularSolve(upper, unit_diagonal), matrix, columns)
    turned = TriangularSolve(not upper, unit_diagonal)
    rows = (shape_ops.swapaxes(part, -1, -2) for part in (matrix, columns))
    return shape_ops.swapaxes(apply(turned, *rows), -1, -2)


@op("inverse")
class Inverse(Op):
    """The y with x y = y x = 1."""

    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        return square_type(self.name, x)

    def evaluate(self, x: Array) -> Array:
        return np.linalg.inv(to_double(x))

    def lower_loops(self, b: LoopBuilder) -> None:
        matrix_loops.lower_inverse(b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        turned = adjoint(node.result)
        product = linalg.matmul(turned, linalg.matmul(grad, turned))
        return (fit(elementwise.negate(product), node.operands[0]),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, a, _ in _systems():
            yield Sample(cls(), (a,), note, a.dtype != np.complex64 and a.size > 0)


@function
def inverse(x: Operand) -> Value:
    """The inverse of a square matrix."""
    return apply(Inverse(), as_float(x))


@op("determinant")
class Determinant(Op):
    """The determinant of a square matrix; 1 of an empty one."""

    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        require_square(self.name, x)
        return x.with_shape(x.shape[:-2])

    def evaluate(self, x: Array) -> Array:
        return np.asarray(np.linalg.det(to_double(x)))

    def lower_loops(self, b: LoopBuilder) -> None:
        matrix_loops.lower_determinant(b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        """The cofactors, from the singular values: they exist for singular matrices too."""
        (x,) = node.operands
        u, s, vh = spectral.svd(x)
        before = cumulative.cumprod(s, -1, exclusive=True)
        others = before * cumulative.cumprod(s, -1, exclusive=True, reverse=True)
        columns = u * elementwise.cast(shape_ops.unsqueeze(others, -2), x.dtype)
        sign = elementwise.conj(apply(self, u) * apply(self, vh))
        scale = shape_ops.unsqueeze(grad * sign, (-2, -1))
        return (fit(scale * linalg.matmul(columns, vh), x),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, a, _ in _systems():
            yield Sample(cls(), (a,), note, a.dtype != np.complex64 and a.size > 0)
        singular = np.array([[1, 2, 3], [2, 4, 6], [1, 0, 1]], np.float32)
        yield Sample(determinant, (singular,), "singular")
        yield Sample(determinant, (np.zeros((2, 2), np.float32),), "zeros")


@function
def determinant(x: Operand) -> Value:
    """The determinant of a square matrix."""
    return apply(Determinant(), as_float(x))


@op("slogdet")
class Slogdet(Op):
    """The determinant as its sign (of modulus 1, or 0) and the logarithm of its magnitude."""

    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require_square(self.name, x)
        sign = x.with_shape(x.shape[:-2])
        return sign, sign.with_dtype(real_dtype(x.dtype))

    def evaluate(self, x: Array) -> tuple[Array, Array]:
        sign, magnitude = np.linalg.slogdet(to_double(x))
        return np.asarray(sign), np.asarray(magnitude)

    def lower_loops(self, b: LoopBuilder) -> None:
        matrix_loops.lower_slogdet(b)

    def vjp(self, node: Node, grad_sign: Value, grad_magnitude: Value) -> Gradients:
        (x,), (sign, _) = node.operands, node.results
        scale = elementwise.cast(grad_magnitude, x.dtype)
        if x.dtype.is_complex:  # the sign of a real determinant does not move
            turn = elementwise.imag(elementwise.conj(grad_sign) * sign)
            scale = elementwise.complex(grad_magnitude, elementwise.negate(turn))
        return (fit(shape_ops.unsqueeze(scale, (-2, -1)) * adjoint(inverse(x)), x),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, a, _ in _systems():
            yield Sample(cls(), (a,), note, a.dtype != np.complex64 and a.size > 0)
        yield Sample(cls(), (np.zeros((2, 2), np.float32),), "singular", False)


@function
def slogdet(x: Operand) -> tuple[Value, Value]:
    """(sign, logarithm of the magnitude) of the determinant."""
    sign, magnitude = apply_many(Slogdet(), as_float(x))
    return sign, magnitude


@op("matrix_exp")
class MatrixExp(Op):
    """The exponential of a square matrix: 1 + x + x²/2 + x³/6 + …"""

    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        return square_type(self.name, x)

    def evaluate(self, x: Array) -> Array:
        """Taylor's series of x / 2ˢ, whose norm is at most a half, squared s times."""
        matrix = to_double(x)
        norm = np.abs(matrix).sum(-2).max(-1, initial=0.0)
        halvings = np.ceil(np.log2(np.where((norm > 0) & np.isfinite(norm), norm, 0.5))) + 1
        halvings = np.maximum(halvings, 0)[..., None, None]
        scaled = matrix * np.exp2(-halvings)
        term = np.broadcast_to(np.eye(x.shape[-1]), x.shape)
        total = term.astype(matrix.dtype)
        for power in range(1, 19):
            term = term @ scaled / power
            total = total + term
        for step in range(int(halvings.max(initial=0.0))):
            total = np.where(step < halvings, total @ total, total)
        return total

    def lower_loops(self, b: LoopBuilder) -> None:
        lower_matrix_exp(b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        """The upper right block of exp([[xᴴ, g], [0, xᴴ]])."""
        (x,) = node.operands
        size, turned = x.shape[-1], adjoint(x)
        upper = joining.concat([turned, grad], -1)
        lower = joining.concat([data.zeros_like(turned), turned], -1)
        block = apply(self, joining.concat([upper, lower], -2))
        return (fit(slicing.slice(block, [0, size], [size, None], axes=[-2, -1]), x),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, a, _ in _systems():
            yield Sample(cls(), (a,), note, a.dtype != np.complex64 and a.size > 0)
        yield Sample(cls(), (sample_matrix(2, 3, 3) * 8,), "large", False)


@function
def matrix_exp(x: Operand) -> Value:
    """The exponential of a square matrix."""
    return apply(MatrixExp(), as_float(x))


@function
def matrix_power(x: Operand, power: int) -> Value:
    """The product of ``power`` copies of a square matrix; of its inverse if negative."""
    base = inverse(x) if power < 0 else shape_ops.one_value(x)
    require(
        base.rank >= 2 and not provably_different(base.shape[-2], base.shape[-1]),
        "matrix_power: a square matrix is needed",
        expected="two dimensions of one size, or more before them",
        found=base.type,
    )
    result: Value | None = None
    remaining = abs(power)
    while remaining:
        if remaining & 1:
            result = base if result is None else linalg.matmul(result, base)
        remaining >>= 1
        base = linalg.matmul(base, base) if remaining else base
    if result is not None:
        return result
    with base.graph.as_current():
        identity = data.eye(base.shape[-2], base.shape[-1], dtype=base.dtype)
    return shape_ops.expand(identity, base.shape)


@function
def pseudo_inverse(
    x: Operand, relative: float | None = None, absolute: float = 0.0, hermitian: bool = False
) -> Value:
    """Moore and Penrose's inverse: singular values up to a tolerance count as 0.

    The tolerance is the greater of ``absolute`` and ``relative`` times the largest singular value;
    unless one is given, ``relative`` is the larger dimension times the dtype's epsilon.
    """
    value = as_float(x)
    if hermitian:
        eigenvalues, vectors = spectral.eigh(value)
        kept = _is_above_tolerance(elementwise.abs(eigenvalues), value, relative, absolute)
        return _product(vectors, _reciprocal(eigenvalues, kept), adjoint(vectors))
    u, s, vh = spectral.svd(value)
    kept = _is_above_tolerance(s, value, relative, absolute)
    return _product(adjoint(vh), _reciprocal(s, kept), adjoint(u))


def _is_above_tolerance(
    magnitudes: Value, x: Value, relative: float | None, absolute: float
) -> Value:
    """Which singular values lie above the tolerance."""
    if magnitudes.shape[-1] == 0:
        return elementwise.greater(magnitudes, 0.0)
    largest = reduce.max(magnitudes, -1, keepdims=True)
    if relative is not None or absolute:
        factor = relative or 0.0
        return magnitudes > elementwise.maximum(largest * factor, absolute)
    epsilon = float(elementwise.float_facts(magnitudes.dtype).eps)
    rows, columns = x.shape[-2:]
    if isinstance(rows, int) and isinstance(columns, int):
        return magnitudes > largest * (max(rows, columns) * epsilon)
    longer = elementwise.maximum(data.dim(rows), data.dim(columns))
    return magnitudes > largest * elementwise.cast(longer, magnitudes.dtype) * epsilon


def _reciprocal(values: Value, kept: Value) -> Value:
    return elementwise.where(kept, 1.0 / elementwise.where(kept, values, 1.0), 0.0)


def _product(left: Value, entries: Value, right: Value) -> Value:
    scale = elementwise.cast(shape_ops.unsqueeze(entries, -2), left.dtype)
    return linalg.matmul(left * scale, right)


@function
def matrix_rank(
    x: Operand, relative: float | None = None, absolute: float = 0.0, hermitian: bool = False
) -> Value:
    """How many singular values lie above a tolerance (see ``pseudo_inverse``), as ``i64``."""
    value = as_float(x)
    if hermitian:
        magnitudes = elementwise.abs(spectral.eigh_values(value))
    else:
        magnitudes = spectral.singular_values(value)
    return reduce.count_nonzero(_is_above_tolerance(magnitudes, value, relative, absolute), -1)


@function
def least_squares(a: Operand, b: Operand, relative: float | None = None) -> Value:
    """The x that makes a x - b least; the shortest such x where several do."""
    matrix, columns = promote_operands(as_float(a), as_float(b))
    return linalg.matmul(pseudo_inverse(matrix, relative), columns)


@function
def cholesky_solve(b: Operand, factor: Operand, upper: bool = False) -> Value:
    """The x with a x = b, for the Cholesky factor of a."""
    columns, triangle_ = promote_operands(as_float(b), as_float(factor))
    if upper:
        half = triangular_solve(triangle_, columns, upper, transpose="adjoint")
        return triangular_solve(triangle_, half, upper)
    half = triangular_solve(triangle_, columns)
    return triangular_solve(triangle_, half, transpose="adjoint")


@function
def lu_solve(
    packed: Operand,
    pivots: Operand,
    b: Operand,
    left: bool = True,
    transpose: Transposition = "none",
) -> Value:
    """The x with a x = b, or x a = b unless ``left``, for the factors of a by ``lu_factor``.

    ``transpose`` solves with the transpose or the adjoint of a instead.
    """
    both, columns = promote_operands(as_float(packed), as_float(b))
    if not left:  # x a = b is aᵀ xᵀ = bᵀ
        rows = shape_ops.swapaxes(columns, -1, -2)
        turned: Transposition = "transpose" if transpose == "none" else "none"
        if transpose == "adjoint":  # (aᴴ)ᵀ is the conjugate of a
            both = elementwise.conj(both)
        return shape_ops.swapaxes(lu_solve(both, pivots, rows, True, turned), -1, -2)
    exchange, _, _ = factorize.lu_unpack(both, pivots)
    if transpose == "none":
        ordered = linalg.matmul(shape_ops.swapaxes(exchange, -1, -2), columns)
        half = triangular_solve(both, ordered, unit_diagonal=True)
        return triangular_solve(both, half, upper=True)
    half = triangular_solve(both, columns, upper=True, transpose=transpose)
    whole = triangular_solve(both, half, transpose=transpose, unit_diagonal=True)
    return linalg.matmul(exchange, whole)
