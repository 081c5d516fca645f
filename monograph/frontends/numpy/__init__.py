"""NumPy's functions on traced values: ``np.tanh(x)`` while a function is traced adds a node.

    graph = monograph.trace(lambda x: np.tanh(x) @ np.ones((4, 2), "f4"), "f32[batch, 4]")

A value tells NumPy, by ``__array_ufunc__`` and ``__array_function__``, that its functions are to
be called here. Each has its counterpart (``ufuncs``, ``functions``, ``linalg``); one that has none,
or an argument that makes no sense in a graph (``out=``), is named in the error. Results have the
dtypes that NumPy gives them; operands of mixed dtypes meet as everywhere in this package.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from monograph.errors import InputError, UnsupportedError

__all__ = ["call_function", "call_ufunc"]


def call_ufunc(ufunc: Any, method: str, inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """What a ufunc makes of operands, at least one of which is traced."""
    from monograph.frontends.numpy import functions, ufuncs

    name = f"numpy.{ufunc.__name__}"
    if method != "__call__":
        reduction = functions.REDUCED_BY.get((ufunc.__name__, method))
        if reduction is None:
            raise UnsupportedError(f"{name}.{method} cannot be traced")
        return _call(f"{name}.{method}", reduction, inputs, named)
    if named:
        raise InputError(
            f"{name} cannot be traced with {', '.join(named)}",
            hint="nothing is written to a traced value: use the result, or numpy.where",
        )
    return ufuncs.apply(ufunc, inputs)


def call_function(function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """What a function of NumPy makes of arguments, somewhere in which are traced values."""
    from monograph.frontends.numpy.registry import implementations

    known = implementations()
    name = f"{function.__module__}.{function.__name__}"
    found = known.get(function)
    if found is None:
        names = sorted({f"{each.__module__}.{each.__name__}" for each in known})
        near = difflib.get_close_matches(name, names, 3, 0.7)
        raise UnsupportedError(
            f"{name} cannot be traced",
            hint=f"there are {', '.join(near)}"
            if near
            else "monograph.functional has what there is",
        )
    return _call(name, found, arguments, named)


def _call(
    name: str,
    implementation: Callable[..., Any],
    arguments: Sequence[Any],
    named: Mapping[str, Any],
) -> Any:
    signature = inspect.signature(implementation)
    try:
        signature.bind(*arguments, **named)
    except TypeError as problem:
        raise InputError(
            f"{name} cannot be traced in this way: {problem}",
            expected=f"the arguments {signature}",
            hint="monograph.functional may have another function for it",
        ) from None
    return implementation(*arguments, **named)
