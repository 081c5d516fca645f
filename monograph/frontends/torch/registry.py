"""Converters: what each ATen op is in our graph, registered under the op's own name.

    @converter("aten.mul.Tensor", "aten.mul.Scalar")
    def convert_multiply(node: TorchNode) -> Value:
        return F.multiply(*node.promote(node["self"], node["other"]))

Names are strings, so that registration needs no torch. Converters live in ``aten/``, one file a
family; every file there is found and loaded by itself. An in-place op (``aten.add_.Tensor``) uses
the converter of its functional form. An op without a converter is taken apart (``decompose``).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from monograph.ir.build import apply
from monograph.ir.graph import Value
from monograph.ir.op import op_called, registry
from monograph.ir.types import bool_

if TYPE_CHECKING:
    from monograph.frontends.torch.node import TorchNode

Converter: TypeAlias = "Callable[[TorchNode], Any]"
"""From a node to its result: a Value, a number or Dim, or the tuple of them if it has several."""

ConverterType = TypeVar("ConverterType", bound="Converter")

_CONVERTERS: dict[str, Converter] = {}
_loaded = False


def converter(*names: str) -> Callable[[ConverterType], ConverterType]:
    """Register a function as the converter of these overloads (``"aten.add.Tensor"``)."""

    def register(function: ConverterType) -> ConverterType:
        for name in names:
            if name.count(".") < 2:
                raise ValueError(f"{name!r} names no overload; did you mean {name}.default?")
            if name in _CONVERTERS:
                raise ValueError(f"two converters are registered for {name}")
            _CONVERTERS[name] = function
        return function

    return register


def find_converter(name: str) -> Converter | None:
    """The converter of an overload, or None."""
    load_converters()
    return _CONVERTERS.get(name) or _of_op(name)


def _of_op(name: str) -> Converter | None:
    """The converter of an overload that one of our ops names as its own."""
    space, op, overload = name.split(".") if name.count(".") == 2 else ("", "", "")
    known = op_called(op if space == "aten" else f"{space}::{op}", torch=True) if op else None
    if known is None or overload not in ("default", "Tensor"):
        return None

    def convert(node: TorchNode) -> Value:
        operands = list(node.arguments.values())[: len(known.operand_names)]
        is_test = node.result_dtype is bool_
        return apply(known(), *(node.promote if is_test else node.as_result)(*operands))

    return convert


def converters() -> dict[str, Converter]:
    """Every converter by the name of its overload."""
    load_converters()
    names = (each.torch_name for each in registry().values())
    derived = {f"aten.{name}.default": _of_op(f"aten.{name}.default") for name in names if name}
    return {**{name: each for name, each in derived.items() if each is not None}, **_CONVERTERS}


def load_converters() -> None:
    """Import every file of the ``aten`` folder, the first time."""
    global _loaded
    if _loaded:
        return
    from monograph.frontends.torch import aten

    for module in pkgutil.iter_modules(aten.__path__, aten.__name__ + "."):
        importlib.import_module(module.name)
    _loaded = True
