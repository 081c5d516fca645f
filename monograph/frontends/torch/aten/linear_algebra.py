"""Factorizations, linear systems, eigenvalues, determinants and distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.torch.node import TorchNode, static
from monograph.frontends.torch.ops import check
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value
from monograph.ir.types import i32
from monograph.ops.factorize import apply_reflectors
from monograph.ops.matrices import adjoint, diagonal
from monograph.ops.solve import Transposition


def _empty(node: TorchNode, index: int) -> Value:
    """A result that torch leaves empty (or unused), in its recorded type."""
    type_ = node.result_type(index)
    return F.zeros(type_.shape, type_.dtype)


def _first(failed: Value) -> Value:
    """LAPACK's info: where along the last axis something failed first, from 1, or 0."""
    found = F.cast(failed, i32)
    if failed.shape[-1] == 0:
        return F.zeros(failed.shape[:-1], i32)
    place = F.cast(F.argmax(found, -1), i32) + 1
    return F.where(F.any(failed, -1), place, 0)


def _singular(packed: Value) -> Value:
    """The info of an LU factorization: its first pivot that is zero."""
    return _first(F.equal(diagonal(packed), 0))


def _factor_as_torch(node: TorchNode) -> tuple[Value, Value]:
    """The factors that torch keeps of a determinant: of the transpose where A is real and
    contiguous.
    """
    a: Value = node["A"]
    recorded = node.fx_node.args[0].meta["val"]
    if recorded.is_contiguous() and not a.dtype.is_complex:
        a = F.swapaxes(a, -1, -2)
    packed, pivots = F.lu_factor(a)
    return packed, pivots


# Factorizations.


@converter("aten.linalg_cholesky_ex.default")
def _cholesky_ex(node: TorchNode) -> tuple[Value, Value]:
    x, upper = node["self"], bool(node["upper"])
    half = F.triu(x) if upper else F.tril(x)
    other = adjoint(F.triu(x, 1) if upper else F.tril(x, -1))
    packed, _ = F.lu_factor(half + other, pivot=False)
    minors = F.real(diagonal(packed)) if x.dtype.is_complex else diagonal(packed)
    return F.cholesky(x, upper), _first(F.logical_not(F.greater(minors, 0)))


@converter("aten.cholesky.default", "aten.linalg_cholesky.default")
def _cholesky(node: TorchNode) -> Value:
    return F.cholesky(node["self"], bool(node["upper"]))


@converter("aten.cholesky_inverse.default")
def _cholesky_inverse(node: TorchNode) -> Value:
    x, upper = node["self"], bool(node["upper"])
    identity = F.expand(F.eye(x.shape[-1], dtype=x.dtype), x.shape)
    return F.cholesky_solve(identity, F.triu(x) if upper else F.tril(x), upper)


@converter("aten._cholesky_solve_helper.default")
def _cholesky_solve_helper(node: TorchNode) -> Value:
    return F.cholesky_solve(node["self"], node["A"], bool(node["upper"]))


@converter("aten.cholesky_solve.default")
def _cholesky_solve(node: TorchNode) -> Value:
    return F.cholesky_solve(node["self"], node["input2"], bool(node["upper"]))


@converter("aten.linalg_qr.default")
def _qr(node: TorchNode) -> tuple[Value, Value]:
    q, r = F.qr(node["A"], "complete" if node["mode"] == "complete" else "reduced")
    return (_empty(node, 0), r) if node["mode"] == "r" else (q, r)


@converter("aten.geqrf.default")
def _householder_qr(node: TorchNode) -> tuple[Value, Value]:
    packed, tau = F.householder_qr(node["self"])
    return packed, tau


@converter("aten.linalg_householder_product.default")
def _householder_product(node: TorchNode) -> Value:
    return F.householder_product(node["input"], node["tau"])


@converter("aten.orgqr.default")
def _orgqr(node: TorchNode) -> Value:
    return F.householder_product(node["self"], node["input2"])


@converter("aten.ormqr.default")
def _ormqr(node: TorchNode) -> Value:
    return apply_reflectors(
        node["self"],
        node["input2"],
        node["input3"],
        transpose=bool(node["transpose"]),
        left=bool(node["left"]),
    )


@converter("aten.linalg_lu_factor_ex.default")
def _lu_factor_ex(node: TorchNode) -> tuple[Value, Value, Value]:
    packed, pivots = F.lu_factor(node["A"], bool(node["pivot"]))
    return packed, pivots, _singular(packed)


@converter("aten.linalg_lu.default")
def _lu(node: TorchNode) -> tuple[Value, Value, Value]:
    p, lower, upper = F.lu(node["A"], bool(node["pivot"]))
    return p if node["pivot"] else _empty(node, 0), lower, upper


@converter("aten.lu_unpack.default")
def _lu_unpack(node: TorchNode) -> tuple[Value, Value, Value]:
    p, lower, upper = F.lu_unpack(node["LU_data"], node["LU_pivots"])
    if not node["unpack_data"]:
        lower, upper = _empty(node, 1), _empty(node, 2)
    return p if node["unpack_pivots"] else _empty(node, 0), lower, upper


@converter("aten.linalg_lu_solve.default")
def _lu_solve(node: TorchNode) -> Value:
    transpose: Transposition = "adjoint" if node["adjoint"] else "none"
    return F.lu_solve(node["LU"], node["pivots"], node["B"], bool(node["left"]), transpose)


# Eigenvalues and singular values.


@converter("aten._linalg_eigh.default")
def _eigh(node: TorchNode) -> tuple[Value, Value]:
    upper = str(node["UPLO"]).upper() == "U"
    if not node["compute_v"]:
        return F.eigh_values(node["A"], upper), _empty(node, 1)
    values, vectors = F.eigh(node["A"], upper)
    return values, vectors


@converter("aten.linalg_eig.default")
def _eig(node: TorchNode) -> tuple[Value, Value]:
    values, vectors = F.eig(node["self"])
    return values, vectors


@converter("aten._linalg_eigvals.default", "aten.linalg_eigvals.default")
def _eigvals(node: TorchNode) -> Value:
    return F.eig_values(node["self"])


@converter("aten._linalg_svd.default")
def _svd(node: TorchNode) -> tuple[Value, Value, Value]:
    if not node["compute_uv"]:
        return _empty(node, 0), F.singular_values(node["A"]), _empty(node, 2)
    u, s, vh = F.svd(node["A"], bool(node["full_matrices"]))
    return u, s, vh


# Linear systems.


@converter("aten.linalg_inv_ex.default")
def _inv_ex(node: TorchNode) -> tuple[Value, Value]:
    return F.inverse(node["A"]), _singular(F.lu_factor(node["A"])[0])


@converter("aten.linalg_inv.default", "aten.inverse.default")
def _inv(node: TorchNode) -> Value:
    return F.inverse(node.get("A", node.get("self")))


def _solve(node: TorchNode) -> Value:
    a, b, left = node["A"], node["B"], bool(node["left"])
    result = node.result_type()
    if result.rank >= a.rank and b.rank > 1 and result.rank == max(a.rank, b.rank):
        return F.solve(a, b, left)
    if not left:
        raise UnsupportedError("a vector on the right of X A = B")
    return F.squeeze(F.solve(a, F.unsqueeze(b, -1)), (-1,))


@converter("aten._linalg_solve_ex.default")
def _solve_ex(node: TorchNode) -> tuple[Value, Value, Value, Value]:
    packed, pivots = F.lu_factor(node["A"])
    return _solve(node), packed, pivots, _singular(packed)


@converter("aten.linalg_solve_triangular.default")
def _solve_triangular(node: TorchNode) -> Value:
    return F.triangular_solve(
        node["self"],
        node["B"],
        upper=bool(node["upper"]),
        left=bool(node["left"]),
        unit_diagonal=bool(node["unitriangular"]),
    )


@converter("aten.triangular_solve.default")
def _triangular_solve(node: TorchNode) -> tuple[Value, Value]:
    solution = F.triangular_solve(
        node["A"],
        node["self"],
        upper=bool(node["upper"]),
        transpose="transpose" if node["transpose"] else "none",
        unit_diagonal=bool(node["unitriangular"]),
    )
    return solution, F.expand(node["A"], node.result_type(1).shape)


def _require_symmetric(node: TorchNode, x: Value) -> None:
    if node["hermitian"] and x.dtype.is_complex:
        raise UnsupportedError(f"{node.op_name} of complex hermitian matrices")


@converter("aten.linalg_ldl_factor_ex.default")
def _ldl_factor_ex(node: TorchNode) -> tuple[Value, Value, Value]:
    _require_symmetric(node, node["self"])
    packed, pivots = F.ldl_factor(node["self"])
    # A block of two, which has negative pivots, may well have zeros on its diagonal.
    zero = F.logical_and(F.equal(diagonal(packed), 0), F.greater(pivots, 0))
    return packed, pivots, _first(zero)


@converter("aten.linalg_ldl_solve.default")
def _ldl_solve(node: TorchNode) -> Value:
    _require_symmetric(node, node["LD"])
    return F.ldl_solve(node["LD"], node["pivots"], node["B"])


def _cutoff(x: Value, largest: Value, absolute: Any, relative: Any) -> Value:
    """Below which singular values count as zero, given torch's atol and rtol."""
    rows, columns = (static(size, "a matrix's size") for size in x.shape[-2:])
    bits = np.float64 if x.dtype.name in ("f64", "c128") else np.float32
    default = float(np.finfo(bits).eps) * max(rows, columns)
    if relative is None:
        relative = default
        if isinstance(absolute, Value):
            relative = F.where(F.greater(absolute, 0), 0.0, default)
        elif absolute is not None and absolute > 0:
            relative = 0.0
    if isinstance(relative, Value):
        relative = F.cast(relative, largest.dtype)
    scaled = F.multiply(largest, relative)
    if absolute is None:
        return scaled
    if isinstance(absolute, Value):
        absolute = F.cast(absolute, largest.dtype)
    return F.maximum(scaled, absolute)


@converter("aten.linalg_pinv.atol_rtol_tensor")
def _pinv(node: TorchNode) -> Value:
    x = node["self"]
    if 0 in x.shape:
        return _empty(node, 0)
    if node["hermitian"]:
        signed, u = F.eigh(x)
        s, vh = F.abs(signed), adjoint(u)
    else:
        u, s, vh = F.svd(x)
        signed = s
    largest = F.max(s, -1)
    kept = F.greater(s, F.unsqueeze(_cutoff(x, largest, node["atol"], node["rtol"]), -1))
    scale = F.where(kept, F.reciprocal(F.where(kept, signed, 1)), 0)
    scaled = adjoint(vh) * F.cast(F.unsqueeze(scale, -2), x.dtype)
    return F.matmul(scaled, adjoint(u))


@converter("aten.linalg_lstsq.default")
def _lstsq(node: TorchNode) -> tuple[Value, ...]:
    a, b = node["self"], node["b"]
    if 0 in a.shape or 0 in b.shape:
        raise UnsupportedError("linalg_lstsq of no elements")
    relative = node["rcond"]
    types = node.result_types()
    is_vector = types[0] is not None and types[0].rank < max(a.rank, b.rank)
    b = F.unsqueeze(b, -1) if is_vector else b
    solution = F.least_squares(a, b, None if relative is None else float(relative))
    residuals, rank, singular = (_empty(node, index) for index in (1, 2, 3))
    if types[1] is not None and 0 not in types[1].shape:
        error = F.matmul(a, solution) - b
        residuals = F.sum(F.square(F.abs(error)), -2)
    if types[2] is not None and 0 not in types[2].shape and types[2].shape == a.shape[:-2]:
        given = None if relative is None else float(relative)
        rank = F.matrix_rank(a, given)
    if types[3] is not None and 0 not in types[3].shape:
        singular = F.singular_values(a)
    return F.squeeze(solution, (-1,)) if is_vector else solution, residuals, rank, singular


# Determinants and powers.


@converter("aten._linalg_det.default")
def _det(node: TorchNode) -> tuple[Value, Value, Value]:
    return F.determinant(node["A"]), *_factor_as_torch(node)


@converter("aten._linalg_slogdet.default")
def _slogdet(node: TorchNode) -> tuple[Value, Value, Value, Value]:
    sign, logarithm = F.slogdet(node["A"])
    return sign, logarithm, *_factor_as_torch(node)


@converter("aten.linalg_matrix_exp.default")
def _matrix_exp(node: TorchNode) -> Value:
    return F.matrix_exp(node["self"])


# Products and distances.


def _roll_components(x: Value, axis: int) -> tuple[Value, Value]:
    """A vector's components moved on by one and by two."""
    return F.roll(x, -1, axis), F.roll(x, -2, axis)


@converter("aten.linalg_cross.default")
def _cross(node: TorchNode) -> Value:
    shape: Sequence[Any] = node.result_type().shape
    a, b = (F.broadcast_to(x, shape) for x in node.as_result(node["self"], node["other"]))
    axis = int(node["dim"]) % a.rank
    (a1, a2), (b1, b2) = _roll_components(a, axis), _roll_components(b, axis)
    return a1 * b2 - a2 * b1


@converter("aten.trace.default")
def _trace(node: TorchNode) -> Value:
    (x,) = node.as_result(node["self"])
    return F.sum(diagonal(x), -1)


@converter("aten._cdist_forward.default", "aten.cdist.default", "aten._euclidean_dist.default")
def _cdist(node: TorchNode) -> Value:
    return F.pairwise_distance(node["x1"], node["x2"], float(node.get("p", 2.0)))


@converter("aten._pdist_forward.default", "aten.pdist.default")
def _pdist(node: TorchNode) -> Value:
    return F.self_distance(node["self"], float(node["p"]))


@converter("aten.renorm.default")
def _renorm(node: TorchNode) -> Value:
    x = node["self"]
    return F.renormalize(x, float(node["p"]), int(node["dim"]) % x.rank, float(node["maxnorm"]))


@converter("aten._linalg_check_errors.default")
def _check_errors(node: TorchNode) -> None:
    is_right = F.all(F.equal(node["info"], 0))
    check(is_right, f"{node['api_name']}: a matrix is singular, or nothing converged")
