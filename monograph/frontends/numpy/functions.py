"""NumPy's reductions, searches, sorts and other functions of contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from monograph import functional as F
from monograph.errors import InputError
from monograph.frontends.numpy.registry import implements
from monograph.ir.build import as_operands, cast_to, graph_of, promote_operands
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import DType, bool_, dtype_of, f64, i64, u64

Axis = int | Sequence[int] | None


def value_of(x: Any) -> Value:
    """A traced value, or a constant of numbers; a list may have traced values in it."""
    if isinstance(x, list | tuple) and any(isinstance(each, Value) for each in x):
        return F.stack(list(map(value_of, x)))
    return as_operands(graph_of([x]), [x])[0]


def as_dtype(x: Value, dtype: Any) -> Value:
    """In another dtype, if one is asked for."""
    return x if dtype is None else cast_to(x, dtype_of(np.dtype(dtype)))


def _sum_dtype(dtype: DType) -> DType:
    """What NumPy adds small integers up in."""
    if dtype is bool_ or (dtype.is_integer and dtype.bits < 64 and dtype.numpy.kind == "i"):
        return i64
    return u64 if dtype.is_integer and dtype.numpy.kind == "u" else dtype


def _mean_dtype(dtype: DType) -> DType:
    return f64 if dtype is bool_ or dtype.is_integer else dtype


def as_inexact(a: Any) -> Value:
    """A float or complex value: integers become f64, as in NumPy."""
    x = value_of(a)
    return cast_to(x, _mean_dtype(x.dtype))


@implements(np.sum)
def sum_(a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Value:
    """The sum over axes."""
    x = as_dtype(value_of(a), dtype)
    return F.sum(cast_to(x, _sum_dtype(x.dtype)) if dtype is None else x, axis, keepdims)


@implements(np.prod)
def prod(a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Value:
    """The product over axes."""
    x = as_dtype(value_of(a), dtype)
    return F.prod(cast_to(x, _sum_dtype(x.dtype)) if dtype is None else x, axis, keepdims)


@implements(np.mean)
def mean(a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Value:
    """The mean over axes."""
    return F.mean(as_inexact(as_dtype(value_of(a), dtype)), axis, keepdims)


@implements(np.average)
def average(a: Any, axis: Axis = None, weights: Any = None) -> Value:
    """The mean, of weighted elements if there are weights: of the same shape, or for one axis."""
    x = as_inexact(a)
    if weights is None:
        return F.mean(x, axis)
    weight = value_of(weights)
    if weight.rank == 1 and isinstance(axis, int):
        shape: list[Dim] = [1] * x.rank
        shape[axis] = weight.shape[0]
        weight = F.broadcast_to(F.reshape(weight, shape), x.shape)
    if weight.rank != x.rank:
        raise InputError(
            "numpy.average: weights have the shape of what they weigh, or are for one axis",
            expected=str(x.type),
            found=str(weight.type),
        )
    x, weight = promote_operands(x, weight)
    return F.divide(F.sum(F.multiply(x, weight), axis), F.sum(weight, axis))


@implements(np.var)
def variance(
    a: Any, axis: Axis = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False
) -> Value:
    """The variance over axes."""
    return F.variance(as_inexact(as_dtype(value_of(a), dtype)), axis, keepdims, ddof)


@implements(np.std)
def deviation(
    a: Any, axis: Axis = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False
) -> Value:
    """The standard deviation over axes."""
    return F.std(as_inexact(as_dtype(value_of(a), dtype)), axis, keepdims, ddof)


@implements(np.max, np.amax)
def largest(a: Any, axis: Axis = None, keepdims: bool = False) -> Value:
    """The maximum over axes."""
    return F.max(value_of(a), axis, keepdims)


@implements(np.min, np.amin)
def smallest(a: Any, axis: Axis = None, keepdims: bool = False) -> Value:
    """The minimum over axes."""
    return F.min(value_of(a), axis, keepdims)


@implements(np.ptp)
def spread(a: Any, axis: Axis = None, keepdims: bool = False) -> Value:
    """The maximum less the minimum."""
    return F.subtract(largest(a, axis, keepdims), smallest(a, axis, keepdims))


@implements(np.any)
def any_(a: Any, axis: Axis = None, keepdims: bool = False) -> Value:
    """Whether any element is true."""
    return F.any(_truth(a), axis, keepdims)


@implements(np.all)
def all_(a: Any, axis: Axis = None, keepdims: bool = False) -> Value:
    """Whether all elements are true."""
    return F.all(_truth(a), axis, keepdims)


def _truth(a: Any) -> Value:
    x = value_of(a)
    return x if x.dtype is bool_ else F.not_equal(x, 0)


@implements(np.count_nonzero)
def count_nonzero(a: Any, axis: Axis = None, keepdims: bool = False) -> Value:
    """How many elements are not zero."""
    return F.count_nonzero(value_of(a), axis, keepdims)


@implements(np.argmax)
def argmax(a: Any, axis: int | None = None, keepdims: bool = False) -> Value:
    """Where the maximum is."""
    return F.argmax(value_of(a), axis, keepdims)


@implements(np.argmin)
def argmin(a: Any, axis: int | None = None, keepdims: bool = False) -> Value:
    """Where the minimum is."""
    return F.argmin(value_of(a), axis, keepdims)


def _along(a: Any, axis: int | None) -> tuple[Value, int]:
    """A value and an axis of it: all elements in a row, if there is no axis."""
    x = value_of(a)
    return (F.flatten(x), 0) if axis is None else (x, axis)


@implements(np.cumsum)
def cumulative_sum(a: Any, axis: int | None = None, dtype: Any = None) -> Value:
    """Sums of all elements up to each."""
    x, along = _along(as_dtype(value_of(a), dtype), axis)
    return F.cumsum(cast_to(x, _sum_dtype(x.dtype)) if dtype is None else x, along)


@implements(np.cumprod)
def cumulative_product(a: Any, axis: int | None = None, dtype: Any = None) -> Value:
    """Products of all elements up to each."""
    x, along = _along(as_dtype(value_of(a), dtype), axis)
    return F.cumprod(cast_to(x, _sum_dtype(x.dtype)) if dtype is None else x, along)


REDUCED_BY: dict[tuple[str, str], Callable[..., Any]] = {
    ("add", "reduce"): lambda a, axis=0, keepdims=False: sum_(a, axis, keepdims=keepdims),
    ("multiply", "reduce"): lambda a, axis=0, keepdims=False: prod(a, axis, keepdims=keepdims),
    ("maximum", "reduce"): lambda a, axis=0, keepdims=False: largest(a, axis, keepdims),
    ("minimum", "reduce"): lambda a, axis=0, keepdims=False: smallest(a, axis, keepdims),
    ("logical_and", "reduce"): lambda a, axis=0, keepdims=False: all_(a, axis, keepdims),
    ("logical_or", "reduce"): lambda a, axis=0, keepdims=False: any_(a, axis, keepdims),
    ("add", "accumulate"): lambda a, axis=0: cumulative_sum(a, axis),
    ("multiply", "accumulate"): lambda a, axis=0: cumulative_product(a, axis),
}
"""Methods of ufuncs: ``np.add.reduce`` is a sum."""


@implements(np.diff)
def difference(a: Any, n: int = 1, axis: int = -1) -> Value:
    """Each element less the one before it, n times."""
    x = value_of(a)
    for _ in range(n):
        size = x.shape[axis]
        ahead, behind = (F.moveaxis(x, axis, 0)[1:], F.moveaxis(x, axis, 0)[: size - 1])
        x = F.moveaxis(F.subtract(ahead, behind), 0, axis)
    return x


@implements(np.ediff1d)
def neighbour_difference(ary: Any) -> Value:
    """Each element less the one before it, of all elements in a row."""
    return difference(F.flatten(value_of(ary)))


@implements(np.median)
def median(a: Any, axis: int | None = None, keepdims: bool = False) -> Value:
    """The middle element, or the mean of the two in the middle."""
    return F.quantile(as_inexact(a), 0.5, axis, keepdims)


def _with_share(a: Any, q: Any) -> Value:
    """What a quantile is taken of: a share that is no plain number widens it, as in NumPy."""
    x = as_inexact(a)
    if type(q) in (int, float) or not x.dtype.numpy.isbuiltin:
        return x
    return cast_to(x, dtype_of(np.result_type(x.dtype.numpy, np.asarray(q).dtype)))


@implements(np.quantile)
def quantile(a: Any, q: Any, axis: int | None = None, keepdims: bool = False) -> Value:
    """The number below which a share of the elements lies."""
    return F.quantile(_with_share(a, q), q, axis, keepdims)


@implements(np.percentile)
def percentile(a: Any, q: Any, axis: int | None = None, keepdims: bool = False) -> Value:
    """The number below which so many percent of the elements lie."""
    return F.quantile(_with_share(a, q), np.asarray(q) / 100, axis, keepdims)


@implements(np.sort)
def sort(a: Any, axis: int | None = -1) -> Value:
    """The elements in order."""
    x, along = _along(a, axis)
    return F.sort(x, along)


@implements(np.argsort)
def argsort(a: Any, axis: int | None = -1) -> Value:
    """Where the elements in order come from; of equal ones, the first comes first."""
    x, along = _along(a, axis)
    return F.argsort(x, along)


@implements(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left") -> Value:
    """Where elements would be inserted to keep the order."""
    return F.searchsorted(value_of(a), value_of(v), side == "right")


def where(condition: Any, x: Any, y: Any) -> Value:
    """One element or the other, as a condition says."""
    return F.where(_truth(condition), x, y)


@implements(np.clip)
def clip(a: Any, a_min: Any = None, a_max: Any = None, min: Any = None, max: Any = None) -> Value:
    """Held between two bounds."""
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    x = value_of(a)
    x = x if low is None else F.maximum(x, low)
    return x if high is None else F.minimum(x, high)


@implements(np.round, np.around)
def round_(a: Any, decimals: int = 0) -> Value:
    """The nearest number with so many decimals, halves to the even one."""
    x = value_of(a)
    is_whole = not (x.dtype.is_float or x.dtype.is_complex)
    if not decimals or (is_whole and decimals > 0):
        return F.round(x) if x.dtype.is_float else x
    if is_whole:
        return F.cast(round_(F.cast(x, "f64"), decimals), x.dtype)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return F.divide(F.round(F.multiply(x, scale)), scale)
    return F.multiply(F.round(F.divide(x, scale)), scale)


@implements(np.nan_to_num)
def nan_to_num(
    x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Value:
    """Numbers in the place of NaN and infinities."""
    value = value_of(x)
    if not value.dtype.is_float:
        return value
    limits = np.finfo(value.dtype.numpy)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    finite = F.where(F.is_nan(value), nan, value)
    finite = F.where(F.equal(value, np.inf), high, finite)
    return F.where(F.equal(value, -np.inf), low, finite)


@implements(np.isclose)
def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Value:
    """Whether elements are equal up to a tolerance; infinities are equal to themselves."""
    x, y = as_inexact(a), as_inexact(b)
    allowed = F.add(F.multiply(F.abs(y), rtol), atol)
    near = F.logical_and(F.less_equal(F.abs(F.subtract(x, y)), allowed), F.is_finite(y))
    return F.logical_or(near, F.equal(x, y))


@implements(np.real)
def real(val: Any) -> Value:
    """The real part."""
    x = value_of(val)
    return F.real(x) if x.dtype.is_complex else x


@implements(np.imag)
def imaginary(val: Any) -> Value:
    """The imaginary part."""
    x = value_of(val)
    return F.imag(x) if x.dtype.is_complex else F.zeros_like(x)


@implements(np.angle)
def angle(z: Any) -> Value:
    """The angle of a complex number."""
    x = value_of(z)
    return F.atan2(imaginary(x), real(x))


@implements(np.sinc)
def sinc(x: Any) -> Value:
    """sin(πx) / πx."""
    return F.sinc(as_inexact(x))
