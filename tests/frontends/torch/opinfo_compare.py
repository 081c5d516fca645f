"""Whether two results of an op agree: by value, by type alone, or as decompositions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

SINGULAR_VECTORS = {
    "svd": False,
    "linalg.svd": True,
    "svd_lowrank": False,
    "pca_lowrank": False,
}
"""Ops that return (U, S, V), or V's adjoint where True: their columns are unique up to a phase."""


def compare(
    got: Any, expected: Any, reference: Callable[[], Any] | None, values: bool = True
) -> str | None:
    """None if the results agree, else what differs.

    Values agree by ``torch.testing.assert_close`` (NaN is equal to NaN), or if their error against
    ``reference``, the same op in float64, is no more than twice that of ``expected``.
    """
    got_leaves, expected_leaves = pytree.tree_leaves(got), pytree.tree_leaves(expected)
    if len(got_leaves) != len(expected_leaves):
        return f"{len(got_leaves)} results instead of {len(expected_leaves)}"
    for index, (a, b) in enumerate(zip(got_leaves, expected_leaves, strict=True)):
        problem = _compare_leaf(a, b, index, reference, values)
        if problem is not None:
            return f"result {index} {problem}"
    return None


def _compare_leaf(
    a: Any, b: Any, index: int, reference: Callable[[], Any] | None, values: bool
) -> str | None:
    if b is None or isinstance(b, str):
        return None if a == b else f"is {a!r}, not {b!r}"
    if not isinstance(b, torch.Tensor):
        if isinstance(a, torch.Tensor) and (a.ndim or a.dtype != torch.as_tensor(b).dtype):
            return f"is {a.dtype}{list(a.shape)}, not a {type(b).__name__}"
        return _difference_of(torch.as_tensor(a), torch.as_tensor(b), False) if values else None
    if not isinstance(a, torch.Tensor):
        return f"is a {type(a).__name__}, not a tensor"
    if a.shape != b.shape:
        return f"has shape {tuple(a.shape)}, not {tuple(b.shape)}"
    if a.dtype != b.dtype:
        return f"has dtype {a.dtype}, not {b.dtype}"
    if not values:
        return None
    problem = _difference_of(a, b, True)
    if problem is not None and _is_as_good(a, b, index, reference):
        return None
    return problem


def _difference_of(a: torch.Tensor, b: torch.Tensor, check_dtype: bool) -> str | None:
    try:
        torch.testing.assert_close(a, b, equal_nan=True, check_dtype=check_dtype)
    except AssertionError as error:
        lines = str(error).split("\n")
        found = [line.strip() for line in lines if "difference" in line or "Mismatch" in line]
        return f"differs: {'; '.join(found) or lines[0]}"[:160]
    return None


def _is_as_good(a: Any, eager: Any, index: int, reference: Callable[[], Any] | None) -> bool:
    """Whether an error against float64 is no more than twice eager's own."""
    if reference is None or a.dtype not in (torch.float32, torch.complex64):
        return False
    try:
        exact = pytree.tree_leaves(reference())[index]
    except Exception:  # the op has no float64 form: there is nothing to excuse the difference
        return False
    if not isinstance(exact, torch.Tensor) or exact.shape != a.shape:
        return False
    if not torch.equal(a.isfinite(), eager.isfinite()):
        return False
    finite = eager.isfinite() & exact.isfinite()
    wide = torch.complex128 if a.is_complex() else torch.float64
    mine = (a[finite].to(wide) - exact[finite]).abs()
    theirs = (eager[finite].to(wide) - exact[finite]).abs()
    floor = 1e-6 * exact[finite].abs() + 1e-6
    return bool(mine.norm() <= 2 * theirs.norm() + floor.norm())


def compare_singular_vectors(got: Any, expected: Any, adjoint: bool) -> str | None:
    """None if both are singular value decompositions of one matrix, else what differs.

    Types and singular values must agree, the columns of U and of V be orthonormal, and the products
    U S Vᴴ be equal: what a decomposition is, and all that is unique of it.
    """
    problem = compare(got, expected, None, values=False)
    if problem is not None:
        return problem
    problem = compare(got[1], expected[1], None)
    if problem is not None:
        return f"the singular values differ: {problem}"
    for vectors in _columns(got, adjoint):
        product = vectors.mH @ vectors
        identity = torch.eye(product.shape[-1], dtype=product.dtype).expand_as(product)
        if not torch.allclose(product, identity, atol=1e-4):
            return "singular vectors are not orthonormal"
    if not torch.allclose(_product(got, adjoint), _product(expected, adjoint), 1e-4, 1e-4):
        return "the product of the factors differs"
    return None


def _columns(factors: Sequence[Any], adjoint: bool) -> tuple[Any, Any]:
    u, _, v = factors
    return u, v.mH if adjoint else v


def _product(factors: Sequence[Any], adjoint: bool) -> Any:
    u, v = _columns(factors, adjoint)
    singular = factors[1]
    count = singular.shape[-1]
    return (u[..., :count] * singular.unsqueeze(-2)) @ v[..., :count].mH
