"""Contractions, convolutions, Fourier transforms and matrix factorizations."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.jax.equation import Equation
from monograph.frontends.jax.registry import converter
from monograph.frontends.xla.arithmetic import convert
from monograph.frontends.xla.contraction import dot_general
from monograph.frontends.xla.convolution import ConvDims, ConvWindow, convolve
from monograph.ir.build import cast_to
from monograph.ir.graph import Value


@converter("dot_general")
def convert_dot(equation: Equation) -> Value:
    """Products summed over contracting axes."""
    lhs, rhs = equation.operands
    contracting, batch = equation["dimension_numbers"]
    pairs = [(tuple(map(int, a)), tuple(map(int, b))) for a, b in (contracting, batch)]
    return dot_general(lhs, rhs, pairs[0], pairs[1], equation.type.dtype)


@converter("conv_general_dilated")
def convert_convolution(equation: Equation) -> Value:
    """A convolution of any layout, dilation and kind of group."""
    lhs, rhs = equation.operands
    numbers = equation["dimension_numbers"]
    return convolve(
        lhs,
        rhs,
        ConvDims(tuple(numbers.lhs_spec), tuple(numbers.rhs_spec), tuple(numbers.out_spec)),
        ConvWindow(
            tuple(map(int, equation["window_strides"])),
            tuple((int(low), int(high)) for low, high in equation["padding"]),
            tuple(map(int, equation["lhs_dilation"])),
            tuple(map(int, equation["rhs_dilation"])),
        ),
        int(equation["feature_group_count"]),
        int(equation["batch_group_count"]),
        equation.type.dtype,
    )


@converter("fft")
def convert_fft(equation: Equation) -> Value:
    """Fourier transforms of the last axes."""
    x = equation.operand
    lengths = equation.shape(equation["fft_lengths"])
    axes = tuple(range(x.rank - len(lengths), x.rank))
    kind = str(equation["fft_type"]).rsplit(".", 1)[-1].upper()
    if not lengths:
        return x
    if any(dim == 0 for dim in (*x.shape, *lengths)):
        return F.full(equation.type.shape, 0, equation.type.dtype)
    if kind in ("FFT", "0"):
        return F.fftn(x, axes=axes)
    if kind in ("IFFT", "1"):
        return F.ifftn(x, axes=axes)
    if kind in ("RFFT", "2"):
        return F.rfftn(x, axes=axes)
    return F.irfftn(x, list(lengths), axes=axes)


@converter("cholesky")
def convert_cholesky(equation: Equation) -> Value:
    """The lower triangle L with x = L Lᴴ."""
    return F.cholesky(equation.operand)


@converter("triangular_solve")
def convert_triangular_solve(equation: Equation) -> Value:
    """op(a) x = b, or x op(a) = b, for a triangle a."""
    a, b = equation.operands
    upper = not equation["lower"]
    unit = bool(equation["unit_diagonal"])
    if equation["conjugate_a"]:
        a = F.conj(a)
    is_transposed = bool(equation["transpose_a"])
    if not equation["left_side"]:  # x op(a) = b is op(a)ᵀ xᵀ = bᵀ
        is_transposed = not is_transposed
        b = F.swapaxes(b, -1, -2)
    if is_transposed:
        a, upper = F.swapaxes(a, -1, -2), not upper
    x = F.triangular_solve(a, b, upper=upper, unit_diagonal=unit)
    return x if equation["left_side"] else F.swapaxes(x, -1, -2)


@converter("lu")
def convert_lu(equation: Equation) -> Sequence[Value]:
    """The packed factors, the pivots (from 0) and the permutation that they make."""
    packed, pivots = F.lu_factor(equation.operand)
    rows = equation.types[2].shape[-1]
    permutation = F.pivots_to_permutation(pivots, rows)
    dtype = equation.types[1].dtype
    return packed, cast_to(F.subtract(pivots, 1), dtype), cast_to(permutation, dtype)


@converter("lu_pivots_to_permutation")
def convert_pivots(equation: Equation) -> Value:
    """The permutation that exchanges of rows make."""
    size = equation.type.shape[-1]
    return cast_to(F.pivots_to_permutation(F.add(equation.operand, 1), size), equation.type.dtype)


@converter("qr")
def convert_qr(equation: Equation) -> Sequence[Value]:
    """x = q r."""
    if equation.params.get("pivoting"):
        raise UnsupportedError("qr: there are no column exchanges here", hint="pivoting=False")
    q, r = F.qr(equation.operand, "complete" if equation["full_matrices"] else "reduced")
    return q, r


@converter("geqrf")
def convert_geqrf(equation: Equation) -> Sequence[Value]:
    """QR as reflectors, packed as LAPACK does."""
    packed, taus = F.householder_qr(equation.operand)
    return packed, taus


@converter("householder_product")
def convert_householder_product(equation: Equation) -> Value:
    """The product of reflectors."""
    packed, taus = equation.operands
    return F.householder_product(packed, taus)


@converter("eigh")
def convert_eigh(equation: Equation) -> Sequence[Value]:
    """Eigenvectors and eigenvalues of a Hermitian matrix, in ascending order."""
    subset = equation.params.get("subset_by_index")
    x = equation.operand
    values, vectors = F.eigh(x, upper=not equation["lower"])
    if subset is not None:
        first, limit = map(int, subset)
        values = _columns(values, first, limit)
        vectors = _columns(vectors, first, limit)
    return vectors, values


def _columns(x: Value, first: int, limit: int) -> Value:
    """A part of the last axis."""
    leading = x.rank - 1
    return F.slice(x, (*(0,) * leading, first), (*x.shape[:-1], limit))


@converter("eig")
def convert_eig(equation: Equation) -> Sequence[Value]:
    """Eigenvalues, then left and right eigenvectors if they are asked for."""
    x = equation.operand
    left, right = equation["compute_left_eigenvectors"], equation["compute_right_eigenvectors"]
    if not left and not right:
        return [F.eig_values(x)]
    values, vectors = F.eig(x)
    results = [values]
    if left:
        # Rows of the inverse of the right ones are left ones, but for their length.
        inverse = F.conj(F.swapaxes(F.inverse(vectors), -1, -2))
        squares = F.sum(F.square(F.abs(inverse)), inverse.rank - 2, keepdims=True)
        length = convert(F.sqrt(squares), inverse.dtype)
        results.append(F.divide(inverse, length))
    if right:
        results.append(vectors)
    return results


@converter("svd")
def convert_svd(equation: Equation) -> Sequence[Value]:
    """Singular values, then the vectors of both sides if they are asked for."""
    x = equation.operand
    subset = equation.params.get("subset_by_index")
    if not equation["compute_uv"]:
        values = F.singular_values(x)
        return [values if subset is None else _columns(values, int(subset[0]), int(subset[1]))]
    u, s, vh = F.svd(x, full_matrices=bool(equation["full_matrices"]))
    if subset is not None:
        first, limit = map(int, subset)
        u, s = _columns(u, first, limit), _columns(s, first, limit)
        vh = F.swapaxes(_columns(F.swapaxes(vh, -1, -2), first, limit), -1, -2)
    return s, u, vh


@converter("symmetric_product")
def convert_symmetric_product(equation: Equation) -> Value:
    """alpha a aᵀ + beta c, of which both triangles are given."""
    a, c = equation.operands
    alpha, beta = equation["alpha"], equation["beta"]
    product = F.matmul(a, F.swapaxes(a, -1, -2))
    return F.add(F.multiply(product, float(alpha)), F.multiply(c, float(beta)))


@converter("tridiagonal_solve")
def convert_tridiagonal_solve(equation: Equation) -> Sequence[Value]:
    """Thomas' algorithm, as JAX writes it."""
    from jax._src.lax import linalg

    def solve(*operands: jax.Array) -> jax.Array:
        return linalg._tridiagonal_solve_jax(*operands, **equation.params)

    return equation.trace(solve)


@converter("custom_linear_solve")
def convert_linear_solve(equation: Equation) -> Sequence[Value]:
    """The solver that the user gives; the rules for derivatives have done their work."""
    lengths, jaxprs = equation["const_lengths"], equation["jaxprs"]
    before = lengths.matvec + lengths.vecmat
    consts = equation.operands[before : before + lengths.solve]
    values = equation.operands[sum(lengths) :]
    return equation.inline(jaxprs.solve, [*consts, *values])
