"""Graphs as programs of torch: an FX ``GraphModule``, or TorchScript.

    module = to_fx(graph)            # an nn.Module; module.code is Python
    script = to_torchscript(graph)   # torch.jit.ScriptModule; script.save("model.pt")

Weights become parameters under their own names. Inputs and results are tensors, one result as it is
and several as a tuple.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

import torch

from monograph.exporters.fx import converters
from monograph.exporters.fx.emitter import TABLE, FxEmitter
from monograph.exporters.fx.script import script
from monograph.ir.graph import Graph

__all__ = ["TABLE", "to_fx", "to_torchscript"]

for _module in pkgutil.iter_modules(converters.__path__):
    importlib.import_module(f"{converters.__name__}.{_module.name}")


def to_fx(
    graph: Graph, parameters: Mapping[str, torch.Tensor] | None = None
) -> torch.fx.GraphModule:
    """A GraphModule that computes what the graph does.

    ``parameters`` are tensors to use as the weights of these names, instead of copies.
    """
    return FxEmitter(TABLE.lower(graph), parameters).module()


def to_torchscript(graph: Graph) -> Any:
    """The same as a ``ScriptModule``, compiled from the code of ``to_fx``."""
    return script(to_fx(graph), graph.name)
