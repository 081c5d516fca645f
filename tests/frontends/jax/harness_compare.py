"""What counts as agreement with JAX.

Integers and bools must be the same. Floats may differ by rounding: a few units in the last place of
the result's dtype, of the largest element where many are summed. Factorizations are not unique:
their factors must have JAX's shapes and multiply to the same matrix, and what is unique (singular
values, eigenvalues) must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

PRECISION = {
    "float64": 1e-13,
    "complex128": 1e-13,
    "float32": 1e-6,
    "complex64": 1e-6,
    "float16": 1e-3,
    "bfloat16": 8e-3,
}
"""A few units in the last place."""

LOOSE = 8.0
"""How many times that is allowed for."""

SUMMED = frozenset(
    {
        "dot_general", "conv_general_dilated", "reduce_sum", "reduce_prod", "cumsum", "cumprod",
        "cumlogsumexp", "fft", "reduce_window_add", "reduce_window_mul", "scatter_add",
        "scatter_mul", "cholesky", "triangular_solve", "lu", "custom_linear_solve",
        "tridiagonal_solve", "select_and_scatter_add", "reduce",
    }
)  # fmt: skip
"""Groups whose results are sums: the error is measured against the largest element."""

ROOTS = frozenset({"lgamma", "digamma"})
"""Groups whose functions have roots: the error is measured against 1 beside them."""

LOOSER = {
    "cholesky": 64.0, "triangular_solve": 512.0, "custom_linear_solve": 256.0, "lu": 64.0,
    "igamma": 64.0, "igammac": 64.0, "lgamma": 8.0, "digamma": 64.0, "erf_inv": 4.0,
    "regularized_incomplete_beta": 64.0, "random_gamma": 64.0, "bessel_i0e": 4.0,
    "bessel_i1e": 4.0, "conv_general_dilated": 4.0, "dot_general": 4.0, "fft": 8.0,
    "tridiagonal_solve": 64.0, "cumlogsumexp": 8.0, "cumprod": 8.0, "tan": 4.0,
    "pow": 8.0, "integer_pow": 8.0, "svd": 64.0, "eigh": 64.0, "eig": 512.0, "qr": 64.0,
}  # fmt: skip
"""Groups whose functions magnify rounding (series, solutions), by how much more is allowed."""


def compare(
    harness: Any, operands: Sequence[Any], found: Sequence[Any], expected: Sequence[Any]
) -> str:
    """Why results do not agree; nothing if they do."""
    if len(found) != len(expected):
        return f"{len(found)} results for {len(expected)}"
    for mine, theirs in zip(found, expected, strict=True):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return f"{mine.dtype}{mine.shape} for {theirs.dtype}{theirs.shape}"
    own = FACTORS.get(harness.group_name)
    if own is not None:
        return own(harness, operands, found, expected)
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        problem = difference(harness.group_name, mine, theirs)
        if problem:
            return f"result {number}: {problem}"
    return ""


def difference(group: str, mine: Any, theirs: Any) -> str:
    """Why two arrays are not the same up to rounding."""
    name = mine.dtype.name
    if name not in PRECISION:
        wrong = np.asarray(mine != theirs)
        return f"{int(wrong.sum())} of {wrong.size} differ" if wrong.any() else ""
    allowed = PRECISION[name] * LOOSE * LOOSER.get(group, 1.0)
    a, b = _wide(mine), _wide(theirs)
    if np.iscomplexobj(a):
        parts = [(a.real, b.real), (a.imag, b.imag)]
        size = np.abs(b)
        scale = np.where(np.isfinite(size), size, 0)
        return _first(
            _off(x, y, allowed, np.maximum(scale, _largest(group, scale))) for x, y in parts
        )
    scale = np.where(np.isfinite(b), np.abs(b), 0)
    if group in ROOTS:
        scale = np.maximum(scale, 1.0)
    return _off(a, b, allowed, np.maximum(scale, _largest(group, scale)))


def _largest(group: str, scale: Any) -> Any:
    return scale.max(initial=0.0) if group in SUMMED else 0.0


def _first(problems: Any) -> str:
    return next((each for each in problems if each), "")


def _wide(x: Any) -> Any:
    if x.dtype in (np.float16, ml_dtypes.bfloat16):
        return x.astype(np.float32)
    return x


def _off(a: Any, b: Any, allowed: float, scale: Any) -> str:
    tiny = np.finfo(a.dtype).tiny
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= allowed * scale + tiny
    wrong = ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} differ: {a[place]} for {b[place]}"


# Factorizations -----------------------------------------------------------------------------------


def _near(a: Any, b: Any, group: str) -> bool:
    allowed = PRECISION[b.dtype.name] * LOOSE * LOOSER.get(group, 1.0)
    with np.errstate(all="ignore"):
        scale = np.nan_to_num(np.abs(b)).max(initial=0.0) + 1e-30
        good = np.abs(a - b) <= allowed * scale * max((*b.shape[-2:], 1))
    return bool((good | (np.isnan(a) & np.isnan(b)) | (a == b)).all())


def _transposed(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def _compare_svd(harness: Any, operands: Any, found: Any, expected: Any) -> str:
    values = found if len(found) == 1 else [x for x in found if x.ndim == operands[0].ndim - 1][:1]
    theirs = (
        expected if len(found) == 1 else [x for x in expected if x.ndim == operands[0].ndim - 1][:1]
    )
    if not _near(values[0], theirs[0], "svd"):
        return "singular values differ"
    if len(found) == 1:
        return ""
    s = values[0]
    u, vh = (x for x in found if x is not s)
    rank = s.shape[-1]
    product = (u[..., :, :rank] * s[..., None, :].astype(u.dtype)) @ vh[..., :rank, :]
    return "" if _near(product, operands[0].astype(product.dtype), "svd") else "u s vh is not x"


def _compare_eigh(harness: Any, operands: Any, found: Any, expected: Any) -> str:
    values = next(x for x in found if x.dtype.kind == "f" and x.ndim == operands[0].ndim - 1)
    theirs = next(x for x in expected if x.dtype.kind == "f" and x.ndim == operands[0].ndim - 1)
    if not _near(values, theirs, "eigh"):
        return "eigenvalues differ"
    vectors = [x for x in found if x is not values]
    own = [x for x in expected if x is not theirs]
    if not vectors:
        return ""
    mine, other = (
        (v[0] * w[..., None, :].astype(v[0].dtype)) @ _transposed(v[0])
        for v, w in ((vectors, values), (own, theirs))
    )
    return "" if _near(mine, other, "eigh") else "v w vᴴ differs"


def _compare_eig(harness: Any, operands: Any, found: Any, expected: Any) -> str:
    x = operands[0].astype(found[0].dtype)
    mine, theirs = found[0], expected[0]
    order, other = (np.argsort(np.round(w.real, 3) * 1e4 + w.imag, axis=-1) for w in (mine, theirs))
    a, b = np.take_along_axis(mine, order, -1), np.take_along_axis(theirs, other, -1)
    if not _near(a, b, "eig"):
        return "eigenvalues differ"
    params = harness.params
    vectors = list(found[1:])
    if params.get("compute_left_eigenvectors"):
        left = vectors.pop(0)
        if not _near(_transposed(left) @ x, mine[..., :, None] * _transposed(left), "eig"):
            return "left eigenvectors differ"
    if params.get("compute_right_eigenvectors"):
        right = vectors.pop(0)
        if not _near(x @ right, right * mine[..., None, :], "eig"):
            return "right eigenvectors differ"
    return ""


def _compare_qr(harness: Any, operands: Any, found: Any, expected: Any) -> str:
    q, r = found[:2]
    x = operands[0].astype(q.dtype)
    if len(found) == 3:
        x = np.take_along_axis(
            x, found[2][..., None, :].astype(np.int64) * np.ones((x.shape[-2], 1), np.int64), -1
        )
    if not _near(q @ r, x, "qr"):
        return "q r is not x"
    eye = np.broadcast_to(np.eye(q.shape[-1], dtype=q.dtype), (*q.shape[:-2],) + (q.shape[-1],) * 2)
    return "" if _near(_transposed(q) @ q, eye, "qr") else "q is not orthonormal"


def _compare_cholesky(harness: Any, operands: Any, found: Any, expected: Any) -> str:
    """The lower triangle; what the primitive leaves in the other one is not defined."""
    return difference("cholesky", np.tril(found[0]), np.tril(expected[0]))


def _compare_sort(harness: Any, operands: Any, found: Any, expected: Any) -> str:
    """Keys in order; where the order of equal ones is left open, the same rows in any order."""
    if harness.params.get("is_stable", True) or len(found) == 1:
        pairs = zip(found, expected, strict=True)
        return _first(difference("sort", mine, theirs) for mine, theirs in pairs)
    axis = harness.params["dimension"]
    keys = harness.params["num_keys"]
    for mine, theirs in zip(found[:keys], expected[:keys], strict=True):
        if not np.array_equal(mine, theirs):
            return "keys differ"
    lanes = [np.moveaxis(np.stack(each), axis + 1, -1) for each in (found, expected)]
    rows, other = (each.reshape(len(found), -1, each.shape[-1]) for each in lanes)
    for lane in range(rows.shape[1]):
        pair = [each[:, lane][:, np.lexsort(each[:, lane])] for each in (rows, other)]
        if not np.array_equal(*pair):
            return "other rows"
    return ""


def _compare_top(harness: Any, operands: Any, found: Any, expected: Any) -> str:
    """The values; and places that hold them, which may be others where values are equal."""
    problem = difference("approx_top_k", found[0], expected[0])
    held = np.take_along_axis(operands[0], found[1], -1)
    return problem or difference("approx_top_k", held, found[0])


FACTORS: dict[str, Callable[..., str]] = {
    "approx_top_k": _compare_top,
    "cholesky": _compare_cholesky,
    "sort": _compare_sort,
    "svd": _compare_svd,
    "eigh": _compare_eigh,
    "eig": _compare_eig,
    "qr": _compare_qr,
}
