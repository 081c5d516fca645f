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
from functools import lru_cache
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
_loaded = False


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

    Without any, that of an op of ours that says it is called so.
    """
    return _listed(domain, op, version) or _of_op(domain, op)


@lru_cache(4096)
def _listed(domain: str, op: str, version: int) -> Converter | None:
    versions = converters().get((domain, op), [])
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
    """Every converter by domain and op; the first call imports all files of ``converters/``."""
    global _loaded
    if not _loaded:
        _loaded = True
        from monograph.frontends.onnx import converters as folder

        for module in pkgutil.iter_modules(folder.__path__):
            importlib.import_module(f"{folder.__name__}.{module.name}")
    return _CONVERTERS
