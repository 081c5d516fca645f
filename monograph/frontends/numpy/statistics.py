"""NumPy's functions that leave NaN out, and others of statistics and choice."""

from __future__ import annotations

from typing import Any

import numpy as np

from monograph import functional as F
from monograph.frontends.numpy.functions import (
    Axis,
    as_inexact,
    isclose,
    largest,
    prod,
    real,
    smallest,
    sum_,
    value_of,
    where,
)
from monograph.frontends.numpy.linalg import diagonal
from monograph.frontends.numpy.registry import implements
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import bool_, c128, f64, promote


def _present(a: Any, instead: float) -> tuple[Value, Value]:
    """A value with a number in the place of NaN, and where it has numbers of its own."""
    x = value_of(a)
    if not x.dtype.is_float:
        return x, F.full_like(x, 1, bool_)
    missing = F.is_nan(x)
    return F.where(missing, cast_to(value_of(instead), x.dtype), x), F.logical_not(missing)


@implements(np.nansum)
def nansum(a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Value:
    """The sum of what is not NaN."""
    return sum_(_present(a, 0.0)[0], axis, dtype, keepdims)


@implements(np.nanprod)
def nanprod(a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Value:
    """The product of what is not NaN."""
    return prod(_present(a, 1.0)[0], axis, dtype, keepdims)


@implements(np.nanmean)
def nanmean(a: Any, axis: Axis = None, keepdims: bool = False) -> Value:
    """The mean of what is not NaN."""
    x, present = _present(as_inexact(a), 0.0)
    return F.divide(F.sum(x, axis, keepdims), F.sum(cast_to(present, x.dtype), axis, keepdims))


@implements(np.nanvar)
def nanvar(a: Any, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Value:
    """The variance of what is not NaN."""
    x, present = _present(as_inexact(a), 0.0)
    count = cast_to(present, x.dtype)
    mean = F.divide(F.sum(x, axis, True), F.sum(count, axis, True))
    squares = F.multiply(F.square(F.subtract(x, mean)), count)
    return F.divide(F.sum(squares, axis, keepdims), F.subtract(F.sum(count, axis, keepdims), ddof))


@implements(np.nanstd)
def nanstd(a: Any, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Value:
    """The standard deviation of what is not NaN."""
    return F.sqrt(nanvar(a, axis, ddof, keepdims))


def _or_nan(found: Value, present: Value, axis: Axis, keepdims: bool) -> Value:
    """NaN where there was nothing else."""
    if not found.dtype.is_float:
        return found
    return F.where(F.any(present, axis, keepdims), found, cast_to(value_of(np.nan), found.dtype))


@implements(np.nanmax)
def nanmax(a: Any, axis: Axis = None, keepdims: bool = False) -> Value:
    """The maximum of what is not NaN."""
    x, present = _present(a, -np.inf)
    return _or_nan(largest(x, axis, keepdims), present, axis, keepdims)


@implements(np.nanmin)
def nanmin(a: Any, axis: Axis = None, keepdims: bool = False) -> Value:
    """The minimum of what is not NaN."""
    x, present = _present(a, np.inf)
    return _or_nan(smallest(x, axis, keepdims), present, axis, keepdims)


@implements(np.cov)
def cov(m: Any, rowvar: bool = True, bias: bool = False, ddof: int | None = None) -> Value:
    """The covariances of rows, or of columns, in f64 as in NumPy."""
    x = value_of(m)
    x = cast_to(x, c128 if x.dtype.is_complex else f64)
    x = F.reshape(x, (1, -1)) if x.rank < 2 else x
    x = x if rowvar or x.shape[0] == 1 else F.transpose(x)
    centred = F.subtract(x, F.mean(x, 1, True))
    lost = (0 if bias else 1) if ddof is None else ddof
    other = F.transpose(F.conj(centred) if x.dtype.is_complex else centred)
    count = cast_to(F.subtract(F.dim(x.shape[1]), lost), x.dtype)
    return F.squeeze(F.divide(F.matmul(centred, other), count))


@implements(np.corrcoef)
def corrcoef(x: Any, rowvar: bool = True) -> Value:
    """The correlations of rows, or of columns, in f64 as in NumPy."""
    shared = cov(x, rowvar)
    if not shared.rank:
        return F.divide(shared, shared)
    own = F.sqrt(real(diagonal(shared)))
    found = F.divide(F.divide(shared, F.unsqueeze(own, 1)), own)
    return found if found.dtype.is_complex else F.clip(found, -1.0, 1.0)


@implements(np.polyval)
def polyval(p: Any, x: Any) -> Value:
    """A polynomial, whose first coefficient is that of the highest power."""
    coefficients, at = value_of(p), value_of(x)
    dtype = promote(coefficients.dtype, at.dtype)
    total, at = F.zeros_like(cast_to(at, dtype)), cast_to(at, dtype)
    for place in range(len(coefficients)):
        total = F.add(F.multiply(total, at), cast_to(coefficients[place], dtype))
    return total


@implements(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Value:
    """The bin that each element lies in; the edges are in ascending order."""
    return F.searchsorted(value_of(bins), value_of(x), not right)


@implements(np.isin)
def isin(element: Any, test_elements: Any, invert: bool = False) -> Value:
    """Whether each element is one of others."""
    x, others = value_of(element), F.flatten(value_of(test_elements))
    found = F.any(F.equal(F.unsqueeze(x, -1), others), -1)
    return F.logical_not(found) if invert else found


@implements(np.allclose)
def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Value:
    """Whether all elements are equal up to a tolerance: a value of the graph."""
    return F.all(isclose(a, b, rtol, atol))


@implements(np.select)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Value:
    """Of several choices, the first whose condition holds."""
    chosen = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        chosen = where(condition, choice, chosen)
    return value_of(chosen)
