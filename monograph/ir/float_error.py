"""The relative error of floats, as every comparison of this project means it."""

from __future__ import annotations

import math

import numpy as np

from monograph.ir.types import Array


def relative_norm_error(got: Array, reference: Array) -> float:
    """‖got − reference‖ / ‖reference‖ in double precision, over the finite elements.

    Infinite where NaN and infinities are not the same, or where the reference is zero alone.
    """
    kind = np.complex128 if got.dtype.kind == "c" else np.float64
    found, exact = got.astype(kind), np.asarray(reference).astype(kind)
    finite = np.isfinite(exact)
    if not np.array_equal(found[~finite], exact[~finite], equal_nan=True):
        return math.inf
    if not np.isfinite(found[finite]).all():
        return math.inf
    with np.errstate(over="ignore"):
        size = float(np.linalg.norm(exact[finite]))
        distance = float(np.linalg.norm(found[finite] - exact[finite]))
    return distance / size if size else (math.inf if distance else 0.0)
