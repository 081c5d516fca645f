"""What the ops on matrices share: type rules, double precision, adjoints, diagonals.

A matrix is the last two dimensions of a tensor; the ones before them are a batch. LAPACK does the
work in float64 for float32 operands too, so that the oracle is right to the last bit or two.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.ir.dims import Dim, dim_min
from monograph.ir.graph import Value
from monograph.ir.types import Array, DType, TensorType, c64, c128, f32, f64
from monograph.ops import data, elementwise, reduce, slicing
from monograph.ops import shape as shape_ops
from monograph.ops.rules import require, require_float, same_dim


def require_matrix(name: str, x: TensorType) -> tuple[Dim, Dim]:
    """The rows and columns of an operand that must be a matrix of floats, or a batch of them."""
    require_float(name, x)
    require(
        x.rank >= 2,
        f"{name}: a matrix is needed",
        expected="floats in two dimensions or more",
        found=x,
    )
    return x.shape[-2], x.shape[-1]


def require_square(name: str, x: TensorType) -> Dim:
    """The size of an operand that must be a square matrix, or a batch of them."""
    rows, columns = require_matrix(name, x)
    return same_dim(name, "the matrix is not square: its dimensions", rows, columns)


def square_type(name: str, x: TensorType) -> TensorType:
    """The type of a square operand, its two dimensions spelled alike."""
    size = require_square(name, x)
    return x.with_shape((*x.shape[:-2], size, size))


def real_dtype(dtype: DType) -> DType:
    """The dtype of magnitudes: itself for a float, that of the parts for a complex number."""
    if not dtype.is_complex:
        return dtype
    return f64 if dtype is c128 else f32


def complex_dtype(dtype: DType) -> DType:
    """The complex dtype that holds numbers of a float or complex dtype."""
    return c128 if dtype in (f64, c128) else c64


def to_double(x: Array) -> Array:
    """The same numbers in float64 or complex128."""
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def adjoint(x: Value) -> Value:
    """The conjugate transpose of each matrix."""
    return elementwise.conj(shape_ops.swapaxes(x, -1, -2))


def on_diagonal(rows: Dim, columns: Dim) -> Value:
    """True on the diagonal of a matrix, false elsewhere."""
    shape = (rows, columns)
    return elementwise.equal(data.iota(shape, 0), data.iota(shape, 1))


def diagonal(x: Value) -> Value:
    """The main diagonal of each matrix, as a last axis."""
    size = dim_min(x.shape[-2], x.shape[-1])
    square = slicing.slice(x, [0, 0], [size, size], axes=[-2, -1])
    return reduce.sum(elementwise.where(on_diagonal(size, size), square, 0.0), -1)


def with_diagonal(x: Value, entries: Value) -> Value:
    """Square matrices with other entries on the diagonal."""
    inside = on_diagonal(x.shape[-2], x.shape[-1])
    return elementwise.where(inside, shape_ops.unsqueeze(entries, -2), x)


def fit(gradient: Value, like: Value) -> Value:
    """A gradient in the type of what it belongs to: real, and with its spelling of the shape."""
    held = gradient
    if held.dtype.is_complex and not like.dtype.is_complex:
        held = elementwise.real(held)
    held = elementwise.cast(held, like.dtype)
    return held if held.shape == like.shape else shape_ops.reshape(held, like.shape)


def sample_matrix(*shape: int, seed: int = 0) -> Array:
    """Normal f32 numbers: matrices that are far from singular for the seeds in use."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def sample_complex(*shape: int, seed: int = 0) -> Array:
    """Normal c64 numbers."""
    parts = np.random.default_rng(seed).normal(size=(2, *shape))
    return np.asarray(parts[0] + 1j * parts[1], np.complex64)


def sample_matrices(seed: int) -> Iterator[tuple[str, Array]]:
    """Matrices of every form, each with a word for it; the seed is that of the square one."""
    yield "square", sample_matrix(3, 3, seed=seed)
    yield "tall", sample_matrix(2, 4, 3)
    yield "wide", sample_matrix(3, 5)
    yield "strided", sample_matrix(6, 8).T[::2, ::-2]
    yield "c64", sample_complex(4, 3)
    yield "no rows", np.zeros((2, 0, 3), np.float32)
    yield "no columns", np.zeros((3, 0), np.float32)
    yield "no matrices", np.zeros((0, 3, 2), np.float32)
