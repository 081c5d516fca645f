"""Which converter an op has: by domain, name and the opset version that the model uses.

@converter("Relu")
def relu(node: OnnxNode) -> Value:
    return F.relu(node.input(0))

@converter("Squeeze", since=13)         # replaces the one above it from opset 13 on
def squeeze(node: OnnxNode) -> Value: ...
"""

from __future__ import annotations

import importlib
import pkgutil
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.graph import Value
from monograph.ir.op import op_called, registry

if TYPE_CHECKING:
    from monograph.frontends.onnx.node import OnnxNode

Results: TypeAlias = "Value | Sequence[Value | None]"
Convert: TypeAlias = "Callable[[OnnxNode], Results]"


@dataclass(frozen=True)
class Converter:
    """What turns nodes of an op into graph, from opset version ``since`` on.

    ``any_types`` says that it takes operands of unknown rank, sequences and optionals; other
    converters see ranked tensors only, and their nodes are deferred where there are none.
    """

    convert: Convert
    since: int
    any_types: bool


_CONVERTERS: dict[tuple[str, str], list[Converter]] = {}
_PACKAGE = __name__.rpartition(".")[0]
_ON_DEMAND = {"com.microsoft": ("microsoft",), "ai.onnx.ml": ("ml",)}
"""Folders, beside ``converters``, for the ops of a domain that are not found there."""
_OTHERWISE = ("uncommon", "microsoft")


def converter(
    *ops: str, domain: str = "", since: int = 1, any_types: bool = False
) -> Callable[[Convert], Convert]:
    """Register a function as the converter of these ops, from opset version ``since`` on."""

    def register(convert: Convert) -> Convert:
        made = Converter(convert, since, any_types)
        for op in ops:
            versions = _CONVERTERS.setdefault((domain, op), [])
            if any(other.since == since for other in versions):
                raise ValueError(f"two converters for {op} since {since} in domain {domain!r}")
            versions.append(made)
            versions.sort(key=lambda each: each.since)
        return convert

    return register


def find_converter(domain: str, op: str, version: int) -> Converter | None:
    """The converter with the largest ``since`` that is not beyond ``version``.

    Without any, that of an op of ours that says it is called so. What few models hold is looked for
    last, in folders that are imported then.
    """
    _load("converters")
    found = _look_up(domain, op, version)
    if found is None and domain not in _ON_DEMAND:
        found = _of_op(domain, op)
    if found is None:
        for folder in _ON_DEMAND.get(domain, _OTHERWISE):
            _load(folder)
        found = _look_up(domain, op, version) or _of_op(domain, op)
    return found


@cache
def _load(folder: str) -> None:
    """Import the files of a folder, each of which registers its converters."""
    package = importlib.import_module(f"{_PACKAGE}.{folder}")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    _look_up.cache_clear()


@lru_cache(4096)
def _look_up(domain: str, op: str, version: int) -> Converter | None:
    versions = _CONVERTERS.get((domain, op), [])
    position = bisect_right([each.since for each in versions], version)
    return versions[position - 1] if position else None


def _of_op(domain: str, op: str) -> Converter | None:
    """The converter of an op that one of ours names as its own."""
    from monograph.frontends.onnx.converters.elementwise import same

    known = op_called(f"{domain}::{op}" if domain else op) if op else None
    return None if known is None else Converter(same(known), 1, False)


def converter_names() -> set[str]:
    """The names of all ops, of any domain, that have a converter."""
    derived = {each.onnx_name.rpartition("::")[2] for each in registry().values()}
    return {name for _, name in converters()} | derived - {""}


def converters() -> Mapping[tuple[str, str], Sequence[Converter]]:
    """Every converter by domain and op, those loaded on demand among them."""
    for folder in ("converters", "microsoft", "ml", "uncommon"):
        _load(folder)
    return _CONVERTERS
