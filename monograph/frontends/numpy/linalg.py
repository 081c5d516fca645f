"""NumPy's products, linear algebra and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.numpy.functions import as_inexact, value_of
from monograph.frontends.numpy.registry import implements
from monograph.ir.build import cast_to, promote_operands
from monograph.ir.graph import Value


@implements(np.dot)
def dot(a: Any, b: Any) -> Value:
    """The last axis of one with the last but one of the other."""
    x, y = promote_operands(value_of(a), value_of(b))
    if not x.rank or not y.rank:
        return F.multiply(x, y)
    return F.tensordot(x, y, ((x.rank - 1,), (max(y.rank - 2, 0),)))


@implements(np.vdot)
def vdot(a: Any, b: Any) -> Value:
    """The inner product of all elements, of which the first are conjugated."""
    x, y = promote_operands(F.flatten(value_of(a)), F.flatten(value_of(b)))
    return F.inner(F.conj(x) if x.dtype.is_complex else x, y)


@implements(np.inner)
def inner(a: Any, b: Any) -> Value:
    """Sums of products over the last axes."""
    return F.inner(*promote_operands(value_of(a), value_of(b)))


@implements(np.outer, np.linalg.outer)
def outer(a: Any, b: Any) -> Value:
    """All products of two elements."""
    x, y = promote_operands(value_of(a), value_of(b))
    return F.outer(F.flatten(x), F.flatten(y))


@implements(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Value:
    """Sums of products over axes."""
    x, y = promote_operands(value_of(a), value_of(b))
    if isinstance(axes, int):
        return F.tensordot(x, y, axes)
    left, right = ((each,) if isinstance(each, int) else tuple(each) for each in axes)
    return F.tensordot(x, y, (left, right))


@implements(np.einsum)
def einsum(subscripts: str, *operands: Any, optimize: Any = False) -> Value:
    """Sums of products as an equation says."""
    return F.einsum(subscripts, *promote_operands(*map(value_of, operands)))


@implements(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The sum of the diagonal."""
    return F.sum(diagonal(a, offset, axis1, axis2), -1)


@implements(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The elements whose two places differ by an offset."""
    x = F.moveaxis(value_of(a), (axis1, axis2), (-2, -1))
    rows, columns = x.shape[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise UnsupportedError("numpy.diagonal cannot be traced along symbolic sizes")
    places = np.arange(rows)[: max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)]
    taken = F.take(x, places - min(offset, 0), x.rank - 2)
    index = np.broadcast_to((places + max(offset, 0))[:, None], (len(places), 1))
    return F.squeeze(
        F.take_along_axis(taken, F.broadcast_to(index, (*taken.shape[:-1], 1)), -1), -1
    )


@implements(np.cross, np.linalg.cross)
def cross(a: Any, b: Any, axis: int = -1) -> Value:
    """The cross product of vectors of three elements along an axis."""
    x, y = F.moveaxis(value_of(a), axis, 0), F.moveaxis(value_of(b), axis, 0)
    if x.shape[0] != 3 or y.shape[0] != 3:
        raise UnsupportedError("numpy.cross can be traced for vectors of three elements")
    ahead, behind = [1, 2, 0], [2, 0, 1]
    product = F.subtract(F.multiply(x[ahead], y[behind]), F.multiply(x[behind], y[ahead]))
    return F.moveaxis(product, 0, axis)


@implements(np.kron)
def kron(a: Any, b: Any) -> Value:
    """Each element of one, times all of the other."""
    x, y = value_of(a), value_of(b)
    rank = max(x.rank, y.rank)
    x = F.reshape(x, (*(1,) * (rank - x.rank), *x.shape))
    y = F.reshape(y, (*(1,) * (rank - y.rank), *y.shape))
    sizes = [m * n for m, n in zip(x.shape, y.shape, strict=True)]
    spread = F.reshape(x, [each for size in x.shape for each in (size, 1)])
    beside = F.reshape(y, [each for size in y.shape for each in (1, size)])
    return F.reshape(F.multiply(spread, beside), sizes)


@implements(np.linalg.multi_dot)
def multi_dot(arrays: Sequence[Any]) -> Value:
    """The product of several matrices, from the left."""
    product: Value = reduce(dot, arrays)
    return product


@implements(np.linalg.matmul)
def matmul(x1: Any, x2: Any) -> Value:
    """Matrix products."""
    return F.matmul(value_of(x1), value_of(x2))


@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Value:
    """The length of vectors, or of all elements, or a norm of matrices."""
    value = as_inexact(x)
    is_vector = isinstance(axis, int) or (axis is None and value.rank == 1)
    if not is_vector and ord not in (None, "fro"):
        return _matrix_norm(value, ord, (-2, -1) if axis is None else axis, keepdims)
    size = F.abs(value)
    if ord == 0:
        return F.sum(cast_to(F.not_equal(value, 0), size.dtype), axis, keepdims)
    if ord in (None, 2, "fro"):
        return F.sqrt(F.sum(F.square(size), axis, keepdims))
    if ord == 1:
        return F.sum(size, axis, keepdims)
    if ord == np.inf:
        return F.max(size, axis, keepdims)
    if ord == -np.inf:
        return F.min(size, axis, keepdims)
    return F.power(F.sum(F.power(size, ord), axis, keepdims), 1.0 / ord)


def _matrix_norm(x: Value, ord: Any, axes: Sequence[int], keepdims: bool) -> Value:
    """The largest (or smallest) sum of a column or row, or of the singular values."""
    matrices = F.moveaxis(x, tuple(axes), (-2, -1))
    if ord in (1, -1):
        sizes = F.sum(F.abs(matrices), -2)
    elif ord in (np.inf, -np.inf):
        sizes = F.sum(F.abs(matrices), -1)
    elif ord in (2, -2, "nuc"):
        sizes = F.singular_values(matrices)
    else:
        raise UnsupportedError(f"numpy.linalg.norm of matrices cannot be traced with {ord!r}")
    total = F.sum if ord == "nuc" else F.max if ord > 0 else F.min
    found = total(sizes, -1)
    return F.unsqueeze(found, tuple(axis % x.rank for axis in axes)) if keepdims else found


@implements(np.linalg.inv)
def inverse(a: Any) -> Value:
    """The inverse of matrices."""
    return F.inverse(as_inexact(a))


@implements(np.linalg.pinv)
def pseudo_inverse(a: Any) -> Value:
    """The pseudo-inverse of matrices."""
    return F.pseudo_inverse(as_inexact(a))


@implements(np.linalg.solve)
def solve(a: Any, b: Any) -> Value:
    """The x of a x = b."""
    matrix, right = promote_operands(as_inexact(a), as_inexact(b))
    if right.rank == 1:
        return F.squeeze(F.solve(matrix, F.unsqueeze(right, 1)), -1)
    return F.solve(matrix, right)


@implements(np.linalg.det)
def determinant(a: Any) -> Value:
    """The determinant of matrices."""
    return F.determinant(as_inexact(a))


@implements(np.linalg.slogdet)
def slogdet(a: Any) -> tuple[Value, Value]:
    """The determinant's sign, and the logarithm of its size."""
    return F.slogdet(as_inexact(a))


@implements(np.linalg.cholesky)
def cholesky(a: Any, upper: bool = False) -> Value:
    """The Cholesky factor of matrices."""
    return F.cholesky(as_inexact(a), upper)


@implements(np.linalg.qr)
def qr(a: Any, mode: str = "reduced") -> tuple[Value, Value]:
    """An orthonormal factor and a triangular one."""
    if mode not in ("reduced", "complete"):
        raise UnsupportedError(f"numpy.linalg.qr cannot be traced with mode {mode!r}")
    return F.qr(as_inexact(a), mode)  # type: ignore[arg-type]  # one of the two


@implements(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Singular vectors and values."""
    x = as_inexact(a)
    return F.svd(x, full_matrices) if compute_uv else F.singular_values(x)


@implements(np.linalg.eigh)
def eigh(a: Any, UPLO: str = "L") -> tuple[Value, Value]:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    return F.eigh(as_inexact(a), UPLO.upper() == "U")


@implements(np.linalg.eigvalsh)
def eigh_values(a: Any, UPLO: str = "L") -> Value:
    """Eigenvalues of Hermitian matrices."""
    return F.eigh_values(as_inexact(a), UPLO.upper() == "U")


@implements(np.linalg.matrix_power)
def matrix_power(a: Any, n: int) -> Value:
    """A product of the same matrix, n times."""
    return F.matrix_power(value_of(a), n)


Norm = Any


@implements(np.fft.fft)
def fft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Value:
    """The discrete Fourier transform."""
    return F.fft(as_inexact(a), n, axis, norm or "backward")


@implements(np.fft.ifft)
def ifft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Value:
    """Its inverse."""
    return F.ifft(as_inexact(a), n, axis, norm or "backward")


@implements(np.fft.rfft)
def rfft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Value:
    """That of real numbers."""
    return F.rfft(as_inexact(a), n, axis, norm or "backward")


@implements(np.fft.irfft)
def irfft(a: Any, n: int | None = None, axis: int = -1, norm: Norm = None) -> Value:
    """Its inverse."""
    return F.irfft(as_inexact(a), n, axis, norm or "backward")


@implements(np.fft.fft2)
def fft2(
    a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: Norm = None
) -> Value:
    """The transform over two axes."""
    return F.fftn(as_inexact(a), s, axes, norm or "backward")


@implements(np.fft.ifft2)
def ifft2(
    a: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: Norm = None
) -> Value:
    """Its inverse."""
    return F.ifftn(as_inexact(a), s, axes, norm or "backward")


@implements(np.fft.fftn)
def fftn(
    a: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = None
) -> Value:
    """The transform over several axes, all of them if none are named."""
    x = as_inexact(a)
    return F.fftn(x, s, tuple(range(x.rank)) if axes is None else axes, norm or "backward")


@implements(np.fft.ifftn)
def ifftn(
    a: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: Norm = None
) -> Value:
    """Its inverse."""
    x = as_inexact(a)
    return F.ifftn(x, s, tuple(range(x.rank)) if axes is None else axes, norm or "backward")


@implements(np.fft.fftshift)
def fftshift(x: Any, axes: Any = None) -> Value:
    """Frequencies with zero in the middle."""
    return _shift(value_of(x), axes, 1)


@implements(np.fft.ifftshift)
def ifftshift(x: Any, axes: Any = None) -> Value:
    """Its inverse."""
    return _shift(value_of(x), axes, -1)


def _shift(x: Value, axes: Any, sign: int) -> Value:
    chosen = range(x.rank) if axes is None else (axes,) if isinstance(axes, int) else axes
    halves = [sign * (x.shape[axis] // 2) for axis in chosen]
    return F.roll(x, halves, list(chosen))
