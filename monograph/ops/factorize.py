"""Matrices taken apart: Cholesky, QR, LU.

The spectral ones (eigh, eig, svd) are in ``spectral``, and what is solved with all of them in
``solve``. Matrices are the last two dimensions, batches come before them. What does not exist (the
Cholesky factor of an indefinite matrix) is an ``EvaluationError``.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import ClassVar, Literal

import numpy as np

from monograph.errors import DifferentiationError, EvaluationError
from monograph.ir.build import Operand, apply, apply_many
from monograph.ir.dims import Dim, dim_min, provably_less
from monograph.ir.graph import Node, Value
from monograph.ir.lower import LoopBuilder
from monograph.ir.op import Gradients, Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, dtype_of, i64
from monograph.ops import (
    control,
    data,
    elementwise,
    index,
    joining,
    linalg,
    matrix_loops,
    reflector_loops,
    slicing,
    solve,
    triangle,
)
from monograph.ops import shape as shape_ops
from monograph.ops.matrices import (
    adjoint,
    fit,
    on_diagonal,
    require_matrix,
    sample_complex,
    sample_matrices,
    sample_matrix,
    square_type,
    to_double,
)
from monograph.ops.reduce import as_float, one_value
from monograph.ops.rules import require, require_integer

i32 = dtype_of("i32")


@op("cholesky")
class Cholesky(Op):
    """The triangle L with x = L Lᴴ and a positive diagonal; with ``upper``, Lᴴ.

    Only the triangle of ``x`` that the result has is read. The gradient is that of a Hermitian
    operand, itself Hermitian.
    """

    upper: bool = False
    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        return square_type(self.name, x)

    def evaluate(self, x: Array) -> Array:
        factor: Array = np.linalg.cholesky(to_double(x), upper=self.upper)
        if np.isnan(factor).any():  # which LAPACK may not look for
            raise EvaluationError("the matrix is not positive definite", found="NaN in it")
        return factor

    def lower_loops(self, b: LoopBuilder) -> None:
        matrix_loops.lower_cholesky(b, self.upper)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        """L⁻ᴴ Φ(Lᴴ gL) L⁻¹ made Hermitian; Φ is the lower triangle with half the diagonal."""
        lower = adjoint(node.result) if self.upper else node.result
        arriving = adjoint(grad) if self.upper else grad
        product = triangle.tril(linalg.matmul(adjoint(lower), arriving))
        halved = elementwise.where(on_diagonal(*product.shape[-2:]), product * 0.5, product)
        left = solve.triangular_solve(adjoint(lower), halved, upper=True)
        both = solve.triangular_solve(lower, left, upper=False, left=False)
        return (fit((both + adjoint(both)) * 0.5, node.operands[0]),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        root = sample_matrix(2, 3, 3)
        positive = root @ root.transpose(0, 2, 1) + np.eye(3, dtype=np.float32)
        wide = sample_complex(3, 3)
        for upper in (False, True):
            yield Sample(cls(upper), (positive,), "", False)
            hermitian = (wide @ wide.conj().T + np.eye(3)).astype(np.complex64)
            yield Sample(cls(upper), (hermitian.T[::-1, ::-1],), "c64, strided", False)
            yield Sample(cls(upper), (np.zeros((0, 3, 3), np.float32),), "no matrices", False)
            yield Sample(cls(upper), (np.zeros((0, 0)),), "empty", False)

        def through_lower(x: Value) -> Value:
            return cholesky(linalg.matmul(x, adjoint(x)))

        def through_upper(x: Value) -> Value:
            return cholesky(linalg.matmul(x, adjoint(x)), upper=True)

        yield Sample(through_lower, (root,), "of a product")
        yield Sample(through_upper, (root,), "of a product, upper")


@function
def cholesky(x: Operand, upper: bool = False) -> Value:
    """The lower triangle L with x = L Lᴴ for a positive definite x; with ``upper``, Lᴴ."""
    return apply(Cholesky(upper), as_float(x))


@op("qr")
class Qr(Op):
    """x = q r with orthonormal columns q and an upper triangle r.

    For x of [m, n], q is [m, k] and r is [k, n], where k is the lesser of m and n or, with
    ``complete``, m. The signs are LAPACK's: r's diagonal may be negative.
    """

    complete: bool = False
    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        rows, columns = require_matrix(self.name, x)
        inner = rows if self.complete else dim_min(rows, columns)
        batch = x.shape[:-2]
        return x.with_shape((*batch, rows, inner)), x.with_shape((*batch, inner, columns))

    def evaluate(self, x: Array) -> tuple[Array, Array]:
        q, r = np.linalg.qr(to_double(x), "complete" if self.complete else "reduced")
        return q, r

    def lower_loops(self, b: LoopBuilder) -> None:
        reflector_loops.lower_qr(b)

    def vjp(self, node: Node, grad_q: Value, grad_r: Value) -> Gradients:
        x, (q, r) = node.operands[0], node.results
        rows, columns = x.shape[-2:]
        if self.complete and provably_less(columns, rows):
            raise DifferentiationError(
                "qr: the complete factors of a tall matrix have no gradient",
                expected="a matrix with no more rows than columns, or the reduced factors",
                found=str(x.type),
                hint="the columns that complete q are not determined by x",
            )
        if not provably_less(rows, columns):
            return (fit(_tall_qr_gradient(q, r, grad_q, grad_r), x),)
        # x = [b c] and r = [r1 r2] with b square: b = q r1 and r2 = qᴴ c.
        right = slicing.slice(x, [rows], [None], axes=[-1])
        left_r = slicing.slice(r, [0], [rows], axes=[-1])
        left_grad = slicing.slice(grad_r, [0], [rows], axes=[-1])
        right_grad = slicing.slice(grad_r, [rows], [None], axes=[-1])
        through_q = grad_q + linalg.matmul(right, adjoint(right_grad))
        left = _tall_qr_gradient(q, left_r, through_q, left_grad)
        return (fit(joining.concat([left, linalg.matmul(q, right_grad)], -1), x),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, x in _sample_factors():
            yield Sample(cls(), (x,), note, x.size > 0 and x.dtype != np.complex64)
            yield Sample(cls(True), (x,), f"complete {note}", False)
        yield Sample(cls(True), (sample_matrix(3, 4),), "complete wide, differentiable")


def _sample_factors() -> Iterator[tuple[str, Array]]:
    yield from sample_matrices(seed=2)
    yield "f64", sample_matrix(1, 1).astype(np.float64)


def _tall_qr_gradient(q: Value, r: Value, grad_q: Value, grad_r: Value) -> Value:
    """(gQ + Q S(triu(gR Rᴴ - Qᴴ gQ))) R⁻ᴴ, where S(X) is X + Xᴴ with the diagonal counted once."""
    inner = linalg.matmul(grad_r, adjoint(r)) - linalg.matmul(adjoint(q), grad_q)
    upper = triangle.triu(inner)
    both = upper + adjoint(upper)
    halved = elementwise.where(on_diagonal(*both.shape[-2:]), both * 0.5, both)
    total = grad_q + linalg.matmul(q, halved)
    return solve.triangular_solve(adjoint(r), total, upper=False, left=False)


@function
def qr(x: Operand, mode: Literal["reduced", "complete"] = "reduced") -> tuple[Value, Value]:
    """(q, r): orthonormal columns and an upper triangle with x = q r."""
    require(
        mode in ("reduced", "complete"),
        "qr: no such mode",
        expected="reduced or complete",
        found=mode,
    )
    q, r = apply_many(Qr(mode == "complete"), as_float(x))
    return q, r


@op("householder_qr")
class HouseholderQr(Op):
    """QR as LAPACK's geqrf leaves it: r above the diagonal, the reflectors below it, and tau.

    q is the product of I - tauᵢ vᵢ vᵢᴴ, where vᵢ is 1 at i and goes on with column i below it.
    """

    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        rows, columns = require_matrix(self.name, x)
        return x.with_shape(x.shape), x.with_shape((*x.shape[:-2], dim_min(rows, columns)))

    def evaluate(self, x: Array) -> tuple[Array, Array]:
        if x.size == 0:
            return x, np.zeros((*x.shape[:-2], min(x.shape[-2:])), x.dtype)
        packed, tau = np.linalg.qr(to_double(x), "raw")
        return np.swapaxes(packed, -1, -2), tau

    def lower_loops(self, b: LoopBuilder) -> None:
        reflector_loops.lower_householder_qr(b)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, x in _sample_factors():
            yield Sample(cls(), (x,), note, False)


@function
def householder_qr(x: Operand) -> tuple[Value, Value]:
    """(packed, tau): r and the reflectors of q in one matrix, as LAPACK's geqrf."""
    packed, tau = apply_many(HouseholderQr(), as_float(x))
    return packed, tau


@function
def householder_product(packed: Operand, tau: Operand, columns: Dim | None = None) -> Value:
    """The first columns of the product of reflectors that ``householder_qr`` packs.

    As many columns as ``packed`` has unless ``columns`` says otherwise; LAPACK's orgqr.
    """
    vectors = one_value(packed)
    wanted = vectors.shape[-1] if columns is None else columns
    rows = vectors.shape[-2]
    with vectors.graph.as_current():
        start = data.eye(rows, wanted, dtype=vectors.dtype)
    batch = vectors.shape[:-2]
    return apply_reflectors(vectors, tau, shape_ops.expand(start, (*batch, rows, wanted)))


def apply_reflectors(
    packed: Value, tau: Operand, x: Value, *, transpose: bool = False, left: bool = True
) -> Value:
    """q x or x q, for the q that ``householder_qr`` packs; with ``transpose``, its adjoint."""
    if not left:
        turned = apply_reflectors(packed, tau, adjoint(x), transpose=not transpose)
        return adjoint(turned)
    scales = one_value(tau)
    count = scales.shape[-1]
    reflectors = slicing.slice(packed, [0], [count], axes=[-1])
    unit = on_diagonal(*reflectors.shape[-2:])
    vectors = elementwise.where(unit, 1.0, triangle.tril(reflectors))
    if transpose:
        scales = elementwise.conj(scales)

    def reflect(carry: Value, step: tuple[Value, Value]) -> tuple[Value, tuple[()]]:
        vector, scale = shape_ops.unsqueeze(step[0], -1), shape_ops.unsqueeze(step[1], (-2, -1))
        return carry - scale * linalg.matmul(vector, linalg.matmul(adjoint(vector), carry)), ()

    steps = (shape_ops.moveaxis(vectors, -1, 0), shape_ops.moveaxis(scales, -1, 0))
    result: Value = control.scan(reflect, x, steps, reverse=not transpose)[0]
    return result


@op("lu_factor")
class LuFactor(Op):
    """x = P L U by elimination with row exchanges, packed as LAPACK's getrf leaves it.

    The first result holds U and, below its diagonal, L without its diagonal of ones. The second
    lists the exchanges, ``i32`` and counted from 1: row i changed places with row ``pivots[i]``.
    Without ``pivot`` no rows are exchanged. A singular matrix has a factorization too.
    """

    pivot: bool = True
    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        rows, columns = require_matrix(self.name, x)
        pivots = x.with_shape((*x.shape[:-2], dim_min(rows, columns))).with_dtype(i32)
        return x.with_shape(x.shape), pivots

    def evaluate(self, x: Array) -> tuple[Array, Array]:
        packed = to_double(x).reshape(prod(x.shape[:-2]), *x.shape[-2:])
        rows, columns = x.shape[-2:]
        steps = min(rows, columns)
        pivots = np.zeros((len(packed), steps), np.int32)
        batch = np.arange(len(packed))
        for step in range(steps):
            chosen = np.full(len(batch), step)
            if self.pivot:
                below = packed[:, step:, step]  # LAPACK's measure of a complex number: both parts
                chosen += np.argmax(np.abs(below.real) + np.abs(below.imag), -1)
            pivots[:, step] = chosen + 1
            upper, lower = packed[batch, step].copy(), packed[batch, chosen].copy()
            packed[batch, step], packed[batch, chosen] = lower, upper
            head = packed[:, step, step][:, None]
            safe = np.where(head == 0, 1, head)
            factor = packed[:, step + 1 :, step] / safe
            packed[:, step + 1 :, step] = factor
            rest = packed[:, step, step + 1 :]
            packed[:, step + 1 :, step + 1 :] -= factor[:, :, None] * rest[:, None, :]
        return packed.reshape(x.shape), pivots.reshape(*x.shape[:-2], steps)

    def lower_loops(self, b: LoopBuilder) -> None:
        matrix_loops.lower_lu_factor(b, self.pivot)

    def vjp(self, node: Node, grad: Value, _: Value) -> Gradients:
        """P L⁻ᴴ (tril(Lᴴ gL, -1) + triu(gU Uᴴ)) U⁻ᴴ, for square matrices."""
        x, (packed, pivots) = node.operands[0], node.results
        rows, columns = x.shape[-2:]
        if rows != columns:
            raise DifferentiationError(
                "lu_factor: only the factors of a square matrix have a gradient",
                expected="as many rows as columns",
                found=str(x.type),
            )
        exchange, lower, upper = lu_unpack(packed, pivots)
        below = triangle.tril(linalg.matmul(adjoint(lower), triangle.tril(grad, -1)), -1)
        above = triangle.triu(linalg.matmul(triangle.triu(grad), adjoint(upper)))
        left = solve.triangular_solve(adjoint(lower), below + above, upper=True, unit_diagonal=True)
        inner = solve.triangular_solve(adjoint(upper), left, upper=False, left=False)
        return (fit(linalg.matmul(exchange, inner), x),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, x in _sample_factors():
            square = x.shape[-1] == x.shape[-2] and x.size > 0
            yield Sample(cls(), (x,), note, square)
            yield Sample(cls(False), (x,), f"{note}, no exchanges", False)
        singular = np.array([[1, 2, 3], [2, 4, 6], [1, 2, 3]], np.float32)
        yield Sample(cls(), (singular,), "singular", False)
        yield Sample(cls(), (np.zeros((2, 2), np.float32),), "zeros", False)


@function
def lu_factor(x: Operand, pivot: bool = True) -> tuple[Value, Value]:
    """(packed, pivots): L and U in one matrix, and the row exchanges counted from 1."""
    packed, pivots = apply_many(LuFactor(pivot), as_float(x))
    return packed, pivots


@op("pivots_to_permutation")
class PivotsToPermutation(Op):
    """Where each of ``size`` rows comes from once rows have been exchanged as ``lu_factor`` says.

    Row i of the exchanged matrix is row ``permutation[i]`` of the original.
    """

    size: Dim

    def infer(self, pivots: TensorType) -> TensorType:
        require_integer(self.name, pivots)
        require(
            pivots.rank >= 1,
            "pivots_to_permutation: a list of exchanges is needed",
            expected="integers in one dimension or more",
            found=pivots,
        )
        require(
            not provably_less(self.size, pivots.shape[-1]),
            "pivots_to_permutation: more exchanges than rows",
            expected=f"at most {self.size}",
            found=pivots,
        )
        return pivots.with_shape((*pivots.shape[:-1], self.size)).with_dtype(i64)

    def evaluate(self, pivots: Array) -> Array:
        (size,) = data.static_sizes(self.name, (self.size,))
        flat = pivots.reshape(prod(pivots.shape[:-1]), pivots.shape[-1])
        exchanges = flat.astype(np.int64) - 1
        if pivots.shape[-1] > size or np.any((exchanges < 0) | (exchanges >= size)):
            raise EvaluationError(
                "pivots_to_permutation: an exchange with a row that is not there",
                expected=f"rows 1 to {size}",
                found=str(pivots.tolist()),
            )
        order = np.broadcast_to(np.arange(size), (len(exchanges), size)).copy()
        batch = np.arange(len(exchanges))
        for step in range(exchanges.shape[-1]):
            partner = exchanges[:, step]
            first, second = order[batch, step].copy(), order[batch, partner].copy()
            order[batch, step], order[batch, partner] = second, first
        return order.reshape(*pivots.shape[:-1], size)

    def lower_loops(self, b: LoopBuilder) -> None:
        matrix_loops.lower_exchanges(b, self.size)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        pivots = np.array([[3, 3, 3], [1, 3, 3]], np.int32)
        yield Sample(cls(3), (pivots,))
        yield Sample(cls(5), (pivots[:, ::2].astype(np.int64),), "more rows, strided")
        yield Sample(cls(2), (np.zeros((0, 2), np.int32),), "empty")
        yield Sample(cls(2), (np.zeros((3, 0), np.int32),), "no exchange")


@function
def pivots_to_permutation(pivots: Operand, size: Dim) -> Value:
    """The row of the original that each row of the exchanged matrix is, as ``i64``."""
    return apply(PivotsToPermutation(size), pivots)


@function
def lu_unpack(packed: Operand, pivots: Operand) -> tuple[Value, Value, Value]:
    """(p, l, u) from what ``lu_factor`` returns: x = p l u with a permutation matrix p."""
    both = one_value(packed)
    rows, columns = both.shape[-2:]
    inner = dim_min(rows, columns)
    order = pivots_to_permutation(pivots, rows)
    exchange = index.one_hot(order, rows, axis=-2, dtype=both.dtype)
    strictly = slicing.slice(triangle.tril(both, -1), [0], [inner], axes=[-1])
    lower = elementwise.where(on_diagonal(rows, inner), 1.0, strictly)
    upper = slicing.slice(triangle.triu(both), [0], [inner], axes=[-2])
    return exchange, lower, upper


@function
def lu(x: Operand, pivot: bool = True) -> tuple[Value, Value, Value]:
    """(p, l, u): a permutation matrix, a lower triangle with ones and an upper one, x = p l u."""
    return lu_unpack(*lu_factor(x, pivot))
