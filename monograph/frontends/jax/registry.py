"""Converters: what each primitive of JAX is in our graph, registered under its own name.

    @converter("neg")
    def convert_negate(equation: Equation) -> Value:
        return F.negate(equation.operands[0])

Converters live in ``lax/``, one file a family; every file there is found and loaded by itself. A
primitive that JAX itself defines by others is traced instead (``Equation.trace``).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from monograph.frontends.jax.equation import Equation

Converter: TypeAlias = "Callable[[Equation], Any]"
"""From an equation to its result: a Value, or a sequence of them if it has several."""

ConverterType = TypeVar("ConverterType", bound="Converter")

_CONVERTERS: dict[str, Converter] = {}
_loaded = False


def converter(*names: str) -> Callable[[ConverterType], ConverterType]:
    """Register a function as the converter of these primitives (``"dot_general"``)."""

    def register(function: ConverterType) -> ConverterType:
        for name in names:
            if name in _CONVERTERS:
                raise ValueError(f"two converters are registered for {name}")
            _CONVERTERS[name] = function
        return function

    return register


def find_converter(name: str) -> Converter | None:
    """The converter of a primitive, or None."""
    return converters().get(name)


def converters() -> dict[str, Converter]:
    """Every converter by the name of its primitive; the files of ``lax`` are read once."""
    global _loaded
    if not _loaded:
        from monograph.frontends.jax import lax

        for module in pkgutil.iter_modules(lax.__path__, lax.__name__ + "."):
            importlib.import_module(module.name)
        _loaded = True
    return _CONVERTERS
