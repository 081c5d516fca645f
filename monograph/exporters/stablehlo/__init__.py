"""Graphs as StableHLO text, which XLA, IREE and others compile: ``to_stablehlo``.

An op that StableHLO has no word for is decomposed; what is left over is an error that names it.
Sizes must be known: ``to_stablehlo(graph, sizes={"batch": 8})`` fixes symbolic ones.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from monograph.errors import UnsupportedError
from monograph.exporters.stablehlo import converters
from monograph.exporters.stablehlo.emitter import TABLE, Emitter
from monograph.ir.graph import Graph
from monograph.ir.specialize import specialize_sizes
from monograph.ir.types import symbols_of

__all__ = ["TABLE", "to_stablehlo"]

for _module in pkgutil.iter_modules(converters.__path__):
    importlib.import_module(f"{converters.__name__}.{_module.name}")


def to_stablehlo(
    graph: Graph, sizes: Mapping[str, int] | None = None, *, locations: bool = False
) -> str:
    """A module with the graph as its function main, as MLIR's text.

    With ``locations`` each operation says which line of the user's it comes from.
    """
    static = specialize_sizes(graph, sizes) if sizes else graph
    free = sorted({each.name for value in static.inputs for each in symbols_of(value.type)})
    if free:
        raise UnsupportedError(
            f"StableHLO is written for known sizes, and {', '.join(free)} is free",
            hint=f"fix it: --size {free[0]}=8, or to_stablehlo(graph, sizes={{{free[0]!r}: 8}})",
        )
    return Emitter(TABLE.lower(static), locations).module()
