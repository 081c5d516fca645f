"""Graphs as StableHLO text, which XLA, IREE and others compile: ``to_stablehlo``.

An op that StableHLO has no word for is decomposed; what is left over is an error that names it.
Free sizes stay free (``tensor<?x4xf32>``), as in the modules that JAX exports with symbolic shapes;
``to_stablehlo(graph, sizes={"batch": 8})`` fixes them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from monograph.exporters.stablehlo import converters
from monograph.exporters.stablehlo.emitter import TABLE, Emitter
from monograph.ir.graph import Graph
from monograph.ir.specialize import specialize_sizes

__all__ = ["TABLE", "to_stablehlo"]

for _module in pkgutil.iter_modules(converters.__path__):
    importlib.import_module(f"{converters.__name__}.{_module.name}")


def to_stablehlo(
    graph: Graph, sizes: Mapping[str, int] | None = None, *, locations: bool = False
) -> str:
    """A module with the graph as its function main, as MLIR's text.

    With ``locations`` each operation says which line of the user's it comes from.
    """
    chosen = specialize_sizes(graph, sizes) if sizes else graph
    return Emitter(TABLE.lower(chosen), locations).module()
