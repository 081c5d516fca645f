"""NumPy's functions that arrange elements anew: grids, diagonals, orders, and parts left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.numpy.functions import argsort, as_inexact, sort, value_of
from monograph.frontends.numpy.linalg import diagonal
from monograph.frontends.numpy.registry import implements
from monograph.frontends.numpy.shapes import ravel
from monograph.ir.build import cast_to, promote_operands
from monograph.ir.graph import Value


@implements(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Each row along an axis of its own, repeated along those of the others."""
    rows = [F.flatten(value_of(each)) for each in xi]
    order = list(range(len(rows)))
    if indexing == "xy" and len(rows) > 1:
        order[:2] = [1, 0]
    shape = [rows[each].shape[0] for each in order]
    grids = []
    for number, row in enumerate(rows):
        axis = order.index(number)
        thin = F.reshape(row, [row.shape[0] if each == axis else 1 for each in range(len(rows))])
        grids.append(thin if sparse else F.broadcast_to(thin, shape))
    return tuple(grids)


@implements(np.diag)
def diag(v: Any, k: int = 0) -> Value:
    """The diagonal of a matrix, or a matrix with that diagonal."""
    x = value_of(v)
    if x.rank != 1:
        return diagonal(x, k)
    count = x.shape[0]
    if not isinstance(count, int):
        raise UnsupportedError("numpy.diag cannot be traced along symbolic sizes")
    rows = F.unsqueeze(F.pad(x, [max(-k, 0)], [max(k, 0)]), 1)
    size = count + abs(k)
    return F.where(np.eye(size, k=k, dtype=bool), rows, F.zeros((size, size), x.dtype))


@implements(np.partition)
def partition(a: Any, kth: Any, axis: int | None = -1) -> Value:
    """What is less before an element, and what is greater after it: in full order."""
    return sort(a, axis)


@implements(np.argpartition)
def argpartition(a: Any, kth: Any, axis: int | None = -1) -> Value:
    """Where those come from."""
    return argsort(a, axis)


@implements(np.lexsort)
def lexsort(keys: Any, axis: int = -1) -> Value:
    """The order by several keys, of which the last counts first."""
    first, *others = [value_of(each) for each in keys]
    order = F.argsort(first, axis)
    for key in others:
        again = F.argsort(F.take_along_axis(key, order, axis), axis)
        order = F.take_along_axis(order, again, axis)
    return order


def _size(name: str, x: Value, axis: int) -> int:
    size = x.shape[axis]
    if not isinstance(size, int):
        raise UnsupportedError(f"numpy.{name} cannot be traced along a symbolic size")
    return size


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: int | None = None) -> Value:
    """All but the elements at some places."""
    x = ravel(arr) if axis is None else value_of(arr)
    along = 0 if axis is None else axis
    return F.take(x, np.delete(np.arange(_size("delete", x, along)), obj), along)


@implements(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Value:
    """Other elements put in before some places of a row."""
    if axis is not None and value_of(arr).rank > 1:
        raise UnsupportedError("numpy.insert can be traced along all elements in a row")
    x = ravel(arr)
    more = cast_to(F.flatten(value_of(values)), x.dtype)
    size, count = _size("insert", x, 0), _size("insert", more, 0)
    order = np.insert(np.arange(size), obj, size + np.arange(count))
    return F.take(F.concat([x, more]), order, 0)


@implements(np.piecewise)
def piecewise(x: Any, condlist: Sequence[Any], funclist: Sequence[Any]) -> Value:
    """What one of several functions gives, as conditions say; the last that holds counts."""
    value = value_of(x)
    parts = [cast_to(value_of(f(value) if callable(f) else f), value.dtype) for f in funclist]
    rest = parts.pop() if len(parts) > len(condlist) else F.zeros_like(value)
    for condition, part in zip(condlist, parts, strict=True):
        rest = F.where(condition, part, rest)
    return F.broadcast_to(rest, value.shape)


@implements(np.array_equal)
def array_equal(a1: Any, a2: Any) -> Value:
    """Whether shapes and elements are equal: a value of the graph."""
    x, y = promote_operands(value_of(a1), value_of(a2))
    if x.rank != y.rank:
        return value_of(np.bool_(False))
    if any(
        isinstance(m, int) and isinstance(n, int) and m != n
        for m, n in zip(x.shape, y.shape, strict=True)
    ):
        return value_of(np.bool_(False))
    return F.all(F.equal(x, y))


@implements(np.fix)
def fix(x: Any) -> Value:
    """The whole number next to an element, towards zero."""
    value = value_of(x)
    return F.trunc(value) if value.dtype.is_float else value


@implements(np.i0)
def bessel(x: Any) -> Value:
    """The modified Bessel function of order 0."""
    return F.bessel_i0(as_inexact(x))
