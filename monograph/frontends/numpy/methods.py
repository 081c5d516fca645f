"""Methods and attributes of NumPy's arrays, on traced values: ``x.sum(axis=1)``, ``x.T``.

Most methods are the function of their name. Those that write the array, or that need its numbers,
cannot be traced, and say what to call instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from monograph import functional as F
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import dtype_of

SAME_AS_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    name: getattr(np, name)
    for name in (
        "all", "any", "argmax", "argmin", "argpartition", "argsort", "clip", "conj", "conjugate",
        "copy", "cumprod", "cumsum", "diagonal", "dot", "max", "mean", "min", "nonzero", "prod",
        "ravel", "repeat", "round", "searchsorted", "squeeze", "std", "sum", "swapaxes", "take",
        "trace", "var",
    )
}  # fmt: skip
"""Methods that are NumPy's functions of the same names, with the array as the first argument."""


def _flatten(x: Value, order: Any = "C") -> Any:
    return np.ravel(x, order)


def _reshape(x: Value, *shape: Any, order: Any = "C") -> Any:
    return np.reshape(x, shape[0] if len(shape) == 1 else shape, order=order)


def _transpose(x: Value, *axes: Any) -> Any:
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
    return np.transpose(x, order)


def _astype(x: Value, dtype: Any, copy: bool = True) -> Value:
    return cast_to(x, dtype_of(np.dtype(dtype)))


def _view(x: Value, dtype: Any) -> Value:
    return F.bitcast(x, dtype_of(np.dtype(dtype)))


METHODS: Mapping[str, Callable[..., Any]] = {
    "astype": _astype,
    "flatten": _flatten,
    "reshape": _reshape,
    "transpose": _transpose,
    "view": _view,
}
"""Methods that are called otherwise than the function, or that have none."""

ATTRIBUTES: Mapping[str, Callable[[Value], Any]] = {
    "T": _transpose,
    "mT": lambda x: np.swapaxes(x, -1, -2),
    "imag": np.imag,
    "itemsize": lambda x: x.dtype.numpy.itemsize,
    "nbytes": lambda x: np.size(x) * x.dtype.numpy.itemsize,
    "ndim": lambda x: x.rank,
    "real": np.real,
    "size": np.size,
}
"""What an array has that is no method."""

WRITES: Mapping[str, str] = {
    "fill": "numpy.full_like(x, number)",
    "put": "numpy.where",
    "resize": "numpy.reshape(x, shape)",
    "sort": "numpy.sort(x)",
}
"""Methods that write the array, and the functions that return another one."""

NUMBERS = frozenset({"dump", "dumps", "flat", "item", "tobytes", "tofile", "tolist"})
"""What gives the numbers of an array to Python."""


def find_attribute(value: Value, name: str) -> Any:
    """A method or an attribute of arrays; an AttributeError if it makes no sense in a graph."""
    if name in ATTRIBUTES:
        return ATTRIBUTES[name](value)
    if name in METHODS:
        return functools.partial(METHODS[name], value)
    if name in SAME_AS_FUNCTIONS:
        return functools.partial(SAME_AS_FUNCTIONS[name], value)
    message = f"{type(value).__name__!r} object has no attribute {name!r}"
    if name in WRITES:
        message += f": a traced value never changes; {WRITES[name]} makes another one"
    elif name in NUMBERS:
        message += ": a traced value has no numbers while the graph is built"
    elif not name.startswith("_") and hasattr(np.ndarray, name):
        message += ": this part of NumPy's arrays cannot be traced"
    raise AttributeError(message)
