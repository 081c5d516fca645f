"""What torch says of factorizations, transforms, statistics, vision and special functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _cholesky(op: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.cholesky(x, upper=op.upper)


def _triangular_solve(op: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.linalg.solve_triangular(a, b, upper=op.upper, unitriangular=op.unit_diagonal)


def _ldl_factor(op: Any, x: torch.Tensor) -> Any:
    packed, pivots = torch.linalg.ldl_factor_ex(x)[:2]
    return packed.tril(), pivots


def _lu_factor(op: Any, x: torch.Tensor) -> Any:
    if op.pivot:
        return torch.linalg.lu_factor_ex(x)[:2]
    # The CPU has no factorization without exchanges: rebuild x from ours instead.
    return ()


FORWARDS = {"none": "backward", "root": "ortho", "count": "forward"}
BACKWARDS = {"none": "forward", "root": "ortho", "count": "backward"}


def _by_one(reference: Callable[..., Any]) -> Callable[..., Any]:
    """A reference for what torch refuses: no transforms at all. Take one and drop it."""

    def call(op: Any, x: torch.Tensor) -> torch.Tensor:
        if x.numel():
            return reference(op, x)
        return reference(op, x.new_zeros([max(size, 1) for size in x.shape]))[:0]

    return call


def _fft(op: Any, x: torch.Tensor) -> torch.Tensor:
    transform = torch.fft.ifftn if op.inverse else torch.fft.fftn
    norm = (BACKWARDS if op.inverse else FORWARDS)[op.scale]
    return transform(x, dim=op.axes, norm=norm) if op.axes else x


def _rfft(op: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.fft.rfftn(x, dim=op.axes, norm=FORWARDS[op.scale])


def _irfft(op: Any, x: torch.Tensor) -> torch.Tensor:
    sizes = [*(x.shape[axis] for axis in op.axes[:-1]), op.length]
    return torch.fft.irfftn(x, sizes, op.axes, norm=BACKWARDS[op.scale])


def _bincount(op: Any, *xs: torch.Tensor) -> torch.Tensor:
    return torch.bincount(xs[0].long(), *xs[1:], minlength=op.length)


def _searchsorted(op: Any, table: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.searchsorted(table, values, right=op.right)


def _unique(op: Any, x: torch.Tensor) -> Any:
    """Values alone: torch has no first positions, and sorts whatever it is asked."""
    if not op.sorted or op.equal_nan:
        return ()
    return torch.unique(x, dim=op.axis) if x.numel() else ()


def _unique_consecutive(op: Any, x: torch.Tensor) -> Any:
    values, inverse, counts = torch.unique_consecutive(
        x, return_inverse=True, return_counts=True, dim=op.axis
    )
    return values, inverse.reshape(-1), counts


def _grid_sample(op: Any, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    mode = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[op.mode]
    return torch.nn.functional.grid_sample(x, grid, mode, op.outside, op.align_corners)


def _with_limits(reference: Callable[..., Any], right: float, left: float) -> Callable[..., Any]:
    """A function whose values at the infinities torch does not know (it says NaN)."""

    def call(op: Any, x: torch.Tensor) -> torch.Tensor:
        found = torch.where(x == torch.inf, right, reference(x))
        return torch.where(x == -torch.inf, left, found)

    return call


def _polynomial(op: Any, x: torch.Tensor, degree: torch.Tensor) -> torch.Tensor:
    family, letter = op.kind.split("_")
    prefix = "shifted_" if op.shifted else ""
    compute = getattr(torch.special, f"{prefix}{family}_polynomial_{letter}")
    return compute(x.double(), degree.double()).to(x.dtype)  # in f32 torch loses digits


special = torch.special
INF = torch.inf

TORCH: dict[str, Callable[..., Any]] = {
    "airy_ai": _with_limits(special.airy_ai, 0.0, 0.0),
    "bessel_i0": _with_limits(special.i0, INF, INF),
    "bessel_i0e": lambda op, x: special.i0e(x),
    "bessel_i1": _with_limits(special.i1, INF, -INF),
    "bessel_i1e": lambda op, x: special.i1e(x),
    "bincount": _bincount,
    "cholesky": _cholesky,
    "determinant": lambda op, x: torch.linalg.det(x),
    "digamma": lambda op, x: special.digamma(x),
    "eigh_values": lambda op, x: torch.linalg.eigvalsh(x, UPLO="U" if op.upper else "L"),
    "erfcx": lambda op, x: special.erfcx(x),
    "fft": _by_one(_fft),
    "grid_sample": _grid_sample,
    "householder_qr": lambda op, x: torch.geqrf(x),
    "igamma": lambda op, a, b: special.gammainc(a, b),
    "igammac": lambda op, a, b: special.gammaincc(a, b),
    "inverse": lambda op, x: torch.linalg.inv(x),
    "irfft": _by_one(_irfft),
    "ldl_factor": _ldl_factor,
    "ldl_solve": lambda op, packed, pivots, b: torch.linalg.ldl_solve(packed, pivots, b),
    "lgamma": lambda op, x: special.gammaln(x),
    "log_ndtr": lambda op, x: special.log_ndtr(x),
    "lu_factor": _lu_factor,
    "matrix_exp": lambda op, x: torch.linalg.matrix_exp(x),
    "ndtr": lambda op, x: special.ndtr(x),
    "ndtri": lambda op, x: special.ndtri(x),
    "polygamma": lambda op, x: special.polygamma(op.order, x),
    "polynomial": _polynomial,
    "qr": lambda op, x: torch.linalg.qr(x, "complete" if op.complete else "reduced"),
    "rfft": _by_one(_rfft),
    "searchsorted": _searchsorted,
    "singular_values": lambda op, x: torch.linalg.svdvals(x),
    "slogdet": lambda op, x: torch.linalg.slogdet(x),
    "solve": lambda op, a, b: torch.linalg.solve(a, b),
    "triangular_solve": _triangular_solve,
    "unique": _unique,
    "unique_consecutive": _unique_consecutive,
    "zeta": lambda op, a, b: special.zeta(a, b),
}
