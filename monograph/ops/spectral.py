"""Eigenvalues and singular values: eigh, eig, svd, and each without its vectors.

Matrices are the last two dimensions, batches come before them. Vectors are determined up to a
factor of modulus 1 (the algorithm chooses it), and a loss must not depend on it for the gradient
to mean something. Ops that give values alone have gradients where the vectors' would be infinite,
as at equal singular values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.build import Operand, apply, apply_many
from monograph.ir.dims import dim_min
from monograph.ir.graph import Node, Value
from monograph.ir.lower import LoopBuilder
from monograph.ir.op import Gradients, Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType
from monograph.ops import elementwise, linalg, slicing, solve
from monograph.ops import shape as shape_ops
from monograph.ops.eig_loops import lower_eig, lower_eig_values
from monograph.ops.eigh_loops import lower_eigh, lower_eigh_values
from monograph.ops.matrices import (
    adjoint,
    complex_dtype,
    diagonal,
    fit,
    on_diagonal,
    real_dtype,
    require_matrix,
    sample_complex,
    sample_matrices,
    sample_matrix,
    square_type,
    to_double,
    with_diagonal,
)
from monograph.ops.reduce import as_float
from monograph.ops.svd_loops import UNCONVERGED, lower_singular_values, lower_svd


def _scale_columns(x: Value, factors: Value) -> Value:
    """Each column times its factor."""
    return x * elementwise.cast(shape_ops.unsqueeze(factors, -2), x.dtype)


def _finite(x: Array) -> Array:
    """The matrices in double precision; with an infinity among them, LAPACK may never return."""
    if not np.isfinite(x).all():
        raise EvaluationError(
            UNCONVERGED, expected="finite elements", found="NaN or an infinity among them"
        )
    return to_double(x)


def _gaps(values: Value) -> Value:
    """values[j] - values[i] at row i and column j; 1 on the diagonal."""
    gaps = shape_ops.unsqueeze(values, -2) - shape_ops.unsqueeze(values, -1)
    size = values.shape[-1]
    return elementwise.where(on_diagonal(size, size), 1.0, gaps)


def _symmetric(x: Value) -> Value:
    return (x + adjoint(x)) * 0.5


@op("eigh")
class Eigh(Op):
    """Eigenvalues, real and ascending, and orthonormal eigenvectors (columns) of a Hermitian x.

    Only the lower triangle is read or, with ``upper``, the other one.
    """

    upper: bool = False
    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        vectors = square_type(self.name, x)
        return vectors.with_shape(vectors.shape[:-1]).with_dtype(real_dtype(x.dtype)), vectors

    def evaluate(self, x: Array) -> tuple[Array, Array]:
        values, vectors = np.linalg.eigh(to_double(x), "U" if self.upper else "L")
        return values, vectors

    def lower_loops(self, b: LoopBuilder) -> None:
        lower_eigh(b, self.upper)

    def vjp(self, node: Node, grad_values: Value, grad_vectors: Value) -> Gradients:
        """V (diag(gW) + Vᴴ gV / (wⱼ - wᵢ)) Vᴴ, made Hermitian."""
        values, vectors = node.results
        turned = linalg.matmul(adjoint(vectors), grad_vectors)
        divided = turned / elementwise.cast(_gaps(values), turned.dtype)
        inner = with_diagonal(divided, elementwise.cast(grad_values, turned.dtype))
        outer = linalg.matmul(vectors, linalg.matmul(inner, adjoint(vectors)))
        return (fit(_symmetric(outer), node.operands[0]),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for upper in (False, True):
            for note, x in _hermitian_operands():
                yield Sample(cls(upper), (x,), note, False)

        def of_symmetric(x: Value) -> tuple[Value, Value]:
            return eigh(_symmetric(x))

        yield Sample(of_symmetric, (sample_matrix(2, 3, 3),), "made symmetric")


def _hermitian_operands() -> Iterator[tuple[str, Array]]:
    x, z = sample_matrix(2, 3, 3), sample_complex(3, 3)
    yield "", x + x.transpose(0, 2, 1)
    yield "c64, strided", (z + z.conj().T)[::-1, ::-1]
    yield "one triangle", x[0]
    yield "no matrices", x[:0]
    yield "empty", np.zeros((2, 0, 0))


@function
def eigh(x: Operand, upper: bool = False) -> tuple[Value, Value]:
    """(values, vectors) of a Hermitian matrix, of which one triangle is read."""
    values, vectors = apply_many(Eigh(upper), as_float(x))
    return values, vectors


@op("eigh_values")
class EighValues(Op):
    """The eigenvalues, real and ascending, of a Hermitian matrix, of which one triangle is read."""

    upper: bool = False
    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        square = square_type(self.name, x)
        return square.with_shape(square.shape[:-1]).with_dtype(real_dtype(x.dtype))

    def evaluate(self, x: Array) -> Array:
        return np.linalg.eigvalsh(to_double(x), "U" if self.upper else "L")

    def lower_loops(self, b: LoopBuilder) -> None:
        lower_eigh_values(b, self.upper)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        _, vectors = apply_many(Eigh(self.upper), x)
        return (fit(linalg.matmul(_scale_columns(vectors, grad), adjoint(vectors)), x),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, x in _hermitian_operands():
            yield Sample(cls(note == "one triangle"), (x,), note, False)

        def of_symmetric(x: Value) -> Value:
            return eigh_values(_symmetric(x))

        yield Sample(of_symmetric, (sample_matrix(2, 3, 3),), "made symmetric")


@function
def eigh_values(x: Operand, upper: bool = False) -> Value:
    """The eigenvalues of a Hermitian matrix, ascending."""
    return apply(EighValues(upper), as_float(x))


@op("eig")
class Eig(Op):
    """Eigenvalues and eigenvectors (columns of norm 1) of any square matrix: complex numbers."""

    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        vectors = square_type(self.name, x).with_dtype(complex_dtype(x.dtype))
        return vectors.with_shape(vectors.shape[:-1]), vectors

    def evaluate(self, x: Array) -> tuple[Array, Array]:
        values, vectors = np.linalg.eig(to_double(x))
        return values, vectors

    def lower_loops(self, b: LoopBuilder) -> None:
        lower_eig(b)

    def vjp(self, node: Node, grad_values: Value, grad_vectors: Value) -> Gradients:
        """V⁻ᴴ (diag(gW) + (Vᴴ gV - Vᴴ V diag(Re Vᴴ gV)) / conj(wⱼ - wᵢ)) Vᴴ."""
        values, vectors = node.results
        turned = linalg.matmul(adjoint(vectors), grad_vectors)
        along = elementwise.real(diagonal(turned))  # a vector's length is fixed at 1
        across = turned - linalg.matmul(adjoint(vectors), _scale_columns(vectors, along))
        inner = with_diagonal(across / elementwise.conj(_gaps(values)), grad_values)
        outer = solve.solve(adjoint(vectors), linalg.matmul(inner, adjoint(vectors)))
        return (fit(outer, node.operands[0]),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, x in _square_operands():
            yield Sample(cls(), (x,), note, False)

        def magnitudes(x: Value) -> tuple[Value, Value]:
            values, vectors = eig(x)
            return elementwise.abs(values), elementwise.abs(vectors)

        yield Sample(magnitudes, (sample_matrix(2, 3, 3),), "magnitudes")


def _square_operands() -> Iterator[tuple[str, Array]]:
    x = sample_matrix(2, 3, 3)
    yield "", x
    yield "turns", np.array([[0, -1], [1, 0]], np.float32)
    yield "c64, strided", sample_complex(4, 4)[:, ::-1].T
    yield "no matrices", x[:0]
    yield "empty", np.zeros((0, 0))


@function
def eig(x: Operand) -> tuple[Value, Value]:
    """(values, vectors) of a square matrix, complex, in LAPACK's order."""
    values, vectors = apply_many(Eig(), as_float(x))
    return values, vectors


@op("eig_values")
class EigValues(Op):
    """The eigenvalues of any square matrix: complex numbers."""

    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        square = square_type(self.name, x).with_dtype(complex_dtype(x.dtype))
        return square.with_shape(square.shape[:-1])

    def evaluate(self, x: Array) -> Array:
        return np.linalg.eigvals(to_double(x))

    def lower_loops(self, b: LoopBuilder) -> None:
        lower_eig_values(b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        _, vectors = apply_many(Eig(), x)
        inverse = shape_ops.unsqueeze(grad, -1) * adjoint(vectors)
        return (fit(solve.solve(adjoint(vectors), inverse), x),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, x in _square_operands():
            yield Sample(cls(), (x,), note, False)

        def magnitudes(x: Value) -> Value:
            return elementwise.abs(eig_values(x))

        yield Sample(magnitudes, (sample_matrix(2, 3, 3),), "magnitudes")


@function
def eig_values(x: Operand) -> Value:
    """The eigenvalues of a square matrix, complex, in LAPACK's order."""
    return apply(EigValues(), as_float(x))


@op("svd")
class Svd(Op):
    """x = u diag(s) vh: orthonormal columns u, singular values s (descending) and rows vh.

    For x of [m, n] and k the lesser of the two, u is [m, k] and vh is [k, n]; with
    ``full_matrices`` they are square. What is added then has no gradient.
    """

    full_matrices: bool = False
    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        rows, columns = require_matrix(self.name, x)
        count, batch = dim_min(rows, columns), x.shape[:-2]
        left, right = (rows, columns) if self.full_matrices else (count, count)
        return (
            x.with_shape((*batch, rows, left)),
            x.with_shape((*batch, count)).with_dtype(real_dtype(x.dtype)),
            x.with_shape((*batch, right, columns)),
        )

    def evaluate(self, x: Array) -> tuple[Array, Array, Array]:
        u, s, vh = np.linalg.svd(_finite(x), self.full_matrices)
        return u, s, vh

    def lower_loops(self, b: LoopBuilder) -> None:
        lower_svd(b, self.full_matrices)

    def vjp(self, node: Node, grad_u: Value, grad_s: Value, grad_vh: Value) -> Gradients:
        """U (K(Uᴴ gU) S + S K(Vᴴ gV) + diag(gS)) Vᴴ and what leaves the spaces of U and V.

        K(X) is (X - Xᴴ) / (sⱼ² - sᵢ²) off the diagonal.
        """
        (x,), (u, s, vh) = node.operands, node.results
        count = s.shape[-1]
        u, grad_u = (slicing.slice(part, [0], [count], axes=[-1]) for part in (u, grad_u))
        vh, grad_vh = (slicing.slice(part, [0], [count], axes=[-2]) for part in (vh, grad_vh))
        grad_v, v = adjoint(grad_vh), adjoint(vh)
        scale = elementwise.cast(s, x.dtype)
        row, column = shape_ops.unsqueeze(scale, -2), shape_ops.unsqueeze(scale, -1)
        gaps = elementwise.cast(_gaps(s * s), x.dtype)
        of_u, of_v = linalg.matmul(adjoint(u), grad_u), linalg.matmul(vh, grad_v)
        inner = (of_u - adjoint(of_u)) / gaps * row + column * ((of_v - adjoint(of_v)) / gaps)
        entries = elementwise.cast(grad_s, x.dtype)
        if x.dtype.is_complex:  # u and v turn together: the angle counts once, over 2s
            angle = diagonal(of_u - adjoint(of_u)) / (scale * 2.0)
            entries = entries + angle
        inner = with_diagonal(inner, entries)
        outside_u = (grad_u - linalg.matmul(u, of_u)) / row
        outside_v = (grad_v - linalg.matmul(v, of_v)) / row
        total = linalg.matmul(linalg.matmul(u, inner) + outside_u, vh)
        return (fit(total + linalg.matmul(u, adjoint(outside_v)), x),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, x in sample_matrices(seed=4):
            yield Sample(cls(), (x,), note, x.size > 0 and x.dtype != np.complex64)
            yield Sample(cls(True), (x,), f"full {note}", False)

        def modulus(x: Value) -> tuple[Value, ...]:
            """Through c128, in which u and vh share a free angle that the loss does not see."""
            u, s, vh = svd(elementwise.complex(x, x[::-1, ::-1] * x))
            middle = linalg.matmul(_scale_columns(u, s * s), vh)
            return elementwise.real(middle), elementwise.imag(middle), elementwise.abs(u)

        yield Sample(modulus, (sample_matrix(4, 3),), "complex inside")


@function
def svd(x: Operand, full_matrices: bool = False) -> tuple[Value, Value, Value]:
    """(u, s, vh) with x = u diag(s) vh; thin unless ``full_matrices``."""
    u, s, vh = apply_many(Svd(full_matrices), as_float(x))
    return u, s, vh


@op("singular_values")
class SingularValues(Op):
    """The singular values of a matrix, descending."""

    complex_loops: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        rows, columns = require_matrix(self.name, x)
        shape = (*x.shape[:-2], dim_min(rows, columns))
        return x.with_shape(shape).with_dtype(real_dtype(x.dtype))

    def evaluate(self, x: Array) -> Array:
        return np.asarray(np.linalg.svd(_finite(x), compute_uv=False))

    def lower_loops(self, b: LoopBuilder) -> None:
        lower_singular_values(b)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        u, _, vh = svd(x)
        return (fit(linalg.matmul(_scale_columns(u, grad), vh), x),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for note, x in sample_matrices(seed=4):
            yield Sample(cls(), (x,), note, x.size > 0)


@function
def singular_values(x: Operand) -> Value:
    """The singular values of a matrix, descending."""
    return apply(SingularValues(), as_float(x))
