"""NumPy's functions with data-dependent result shapes: ``nonzero``, ``unique``, ``bincount``.

Each such size is a new symbol, whose value is known when the program is called.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.numpy.functions import value_of, where
from monograph.frontends.numpy.registry import implements
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import dtype_of, f64


@implements(np.nonzero)
def nonzero(a: Any) -> tuple[Value, ...]:
    """The places of what is not zero, along each axis."""
    x = value_of(a)
    places = F.nonzero(x)
    return tuple(F.squeeze(places[:, axis : axis + 1], 1) for axis in range(x.rank))


@implements(np.where)
def choose(condition: Any, *choices: Any) -> Any:
    """One element or the other, as a condition says; without them, the places where it holds."""
    if not choices:
        return nonzero(condition)
    x, y = choices
    return where(condition, x, y)


@implements(np.argwhere)
def argwhere(a: Any) -> Value:
    """The same, a row for each place."""
    return F.nonzero(value_of(a))


@implements(np.flatnonzero)
def flatnonzero(a: Any) -> Value:
    """The places of what is not zero, counted through all elements."""
    return nonzero(F.flatten(value_of(a)))[0]


@implements(np.unique)
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    equal_nan: bool = True,
) -> Any:
    """The distinct elements in order, and where they are."""
    x = value_of(ar)
    values, first, inverse, counts = F.unique(x, axis, True, equal_nan)
    if axis is None:
        values, inverse = F.flatten(values), F.reshape(inverse, x.shape)
    wanted = ((return_index, first), (return_inverse, inverse), (return_counts, counts))
    extra = [each for is_wanted, each in wanted if is_wanted]
    return (values, *extra) if extra else values


@implements(np.bincount)
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Value:
    """How often 0, 1, 2… occur, or the weights of each."""
    weight = None if weights is None else cast_to(value_of(weights), f64)
    return F.bincount(value_of(x), weight, minlength)


@implements(np.histogram)
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None
) -> tuple[Value, Value]:
    """How many elements lie in each bin, and the edges of the bins."""
    x = F.flatten(value_of(a))
    if not isinstance(bins, int):
        edges = value_of(bins)
    elif range is not None:
        dtype = np.result_type(*range, x.dtype.numpy)
        dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
        low, high = range
        edges = value_of(np.linspace(low, high, bins + 1, dtype=dtype))
    else:
        raise UnsupportedError("numpy.histogram can be traced with a range, or with edges")
    kind = f64 if weights is not None or density else dtype_of(np.dtype(np.int64))
    weight = None if weights is None else F.flatten(value_of(weights))
    held = cast_to(x, edges.dtype)
    return cast_to(F.histogram(held, edges, weight, density), kind), edges
