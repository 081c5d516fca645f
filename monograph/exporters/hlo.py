"""Graphs as HLO text, XLA's own form: StableHLO that jaxlib has converted."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from monograph.errors import InputError, UnsupportedError
from monograph.exporters.stablehlo import to_stablehlo
from monograph.ir.graph import Graph
from monograph.ir.specialize import specialize_sizes
from monograph.ir.types import symbols_of


def to_hlo(
    graph: Graph,
    sizes: Mapping[str, int] | None = None,
    *,
    locations: bool = False,
    large_constants: bool = True,
) -> str:
    """An HLO module, before XLA has optimised anything; large constants can be left out."""
    static = specialize_sizes(graph, sizes) if sizes else graph
    free = sorted({each.name for value in static.inputs for each in symbols_of(value.type)})
    if free:
        raise UnsupportedError(
            f"HLO is written for known sizes, and {', '.join(free)} is free",
            hint=f"fix it: --size {free[0]}=8, or to_hlo(graph, sizes={{{free[0]!r}: 8}})",
        )
    text = to_stablehlo(static, locations=locations)
    if importlib.util.find_spec("jaxlib") is None:
        raise InputError("writing HLO needs jaxlib", hint="pip install 'monograph[jax]'")
    from jax._src.lib import xla_client
    from jaxlib import _hlo

    computation = xla_client._xla.mlir.mlir_module_to_xla_computation(
        text, use_tuple_args=False, return_tuple=False
    )
    options = _hlo.HloPrintOptions()
    options.print_metadata = locations
    options.print_large_constants = large_constants
    options.print_percent = False
    written: str = computation.as_hlo_module().to_string(options)
    return written
