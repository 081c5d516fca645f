"""Monograph: one graph, every chip, and a compiler you can read like a book.

    import monograph
    from monograph import functional as F

    graph = monograph.trace(lambda x, w: F.relu(x @ w), "f32[batch, 4]", "f32[4, 3]")
    print(monograph.optimize(graph))

Names load when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import gc
import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Graph": "monograph.ir.graph",
    "MonographError": "monograph.errors",
    "Node": "monograph.ir.graph",
    "Symbol": "monograph.ir.dims",
    "TensorType": "monograph.ir.types",
    "Value": "monograph.ir.graph",
    "bisect": "monograph.inspect.bisect",
    "compile": "monograph.api",
    "explain": "monograph.inspect.explain",
    "from_jax": "monograph.api",
    "from_onnx": "monograph.api",
    "from_torch": "monograph.api",
    "functional": "monograph.functional",
    "fx": "monograph.fx",
    "grad": "monograph.autodiff.vjp",
    "interpret": "monograph.ir.interpret",
    "jit": "monograph.bindings.jax_jit",
    "load": "monograph.bindings.loading",
    "load_graph": "monograph.ir.text.files",
    "optimize": "monograph.api",
    "optimize_with_report": "monograph.api",
    "parse": "monograph.ir.text.parser",
    "quantize": "monograph.quantization.interface",
    "save_graph": "monograph.ir.text.files",
    "time_limit": "monograph.deadline",
    "trace": "monograph.frontends.trace",
    "validate": "monograph.inspect.validate",
    "value_and_grad": "monograph.autodiff.vjp",
    "verify": "monograph.ir.verify",
}

_NEEDED = {"compile": ("monograph.bindings.models",)}
"""What a function loads when it is called is loaded with it, and all of that in one go."""

if TYPE_CHECKING:
    import monograph.functional as functional
    import monograph.fx as fx
    from monograph.api import (
        compile,
        from_jax,
        from_onnx,
        from_torch,
        optimize,
        optimize_with_report,
    )
    from monograph.autodiff.vjp import grad, value_and_grad
    from monograph.bindings.jax_jit import jit
    from monograph.bindings.loading import load
    from monograph.deadline import time_limit
    from monograph.errors import MonographError
    from monograph.frontends.trace import trace
    from monograph.inspect.bisect import bisect
    from monograph.inspect.explain import explain
    from monograph.inspect.validate import validate
    from monograph.ir.dims import Symbol
    from monograph.ir.graph import Graph, Node, Value
    from monograph.ir.interpret import interpret
    from monograph.ir.text.files import load_graph, save_graph
    from monograph.ir.text.parser import parse
    from monograph.ir.types import TensorType
    from monograph.ir.verify import verify
    from monograph.quantization.interface import quantize

__all__ = [
    "Graph",
    "MonographError",
    "Node",
    "Symbol",
    "TensorType",
    "Value",
    "__version__",
    "bisect",
    "compile",
    "explain",
    "from_jax",
    "from_onnx",
    "from_torch",
    "functional",
    "fx",
    "grad",
    "interpret",
    "jit",
    "load",
    "load_graph",
    "optimize",
    "optimize_with_report",
    "parse",
    "quantize",
    "save_graph",
    "time_limit",
    "trace",
    "validate",
    "value_and_grad",
    "verify",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'monograph' has no attribute {name!r}")
    module = _load_lazily(home, *_NEEDED.get(name, ()))
    found = module if home == f"monograph.{name}" else getattr(module, name)
    globals()[name] = found
    return found


def _load_lazily(home: str, *needed: str) -> Any:
    """A module. There is no garbage to collect in what hundreds of modules define.

    Looking for it takes a fifth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for each in needed:
            importlib.import_module(each)
        return importlib.import_module(home)
    finally:
        if was_enabled:
            gc.enable()


def __dir__() -> list[str]:
    return sorted(__all__)
