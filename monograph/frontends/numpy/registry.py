"""Which of NumPy's functions can be traced: each is registered beside what it becomes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

FunctionType = TypeVar("FunctionType", bound=Callable[..., Any])

_IMPLEMENTATIONS: dict[Any, Callable[..., Any]] = {}


def implements(*functions: Any) -> Callable[[FunctionType], FunctionType]:
    """Register what functions of NumPy become; its parameters are those that can be traced."""

    def register(definition: FunctionType) -> FunctionType:
        _IMPLEMENTATIONS.update(dict.fromkeys(functions, definition))
        return definition

    return register


@cache
def implementations() -> Mapping[Any, Callable[..., Any]]:
    """Every function that can be traced."""
    families = (
        *("arrangements", "data_dependent_shapes", "functions", "linalg", "shapes", "signals"),
        "statistics",
    )
    for name in families:
        importlib.import_module(f"monograph.frontends.numpy.{name}")
    return _IMPLEMENTATIONS
