"""A graph as a Python file: a ``torch.nn.Module`` with its code, its weights in a file beside it.

import model                    # model.py, model.safetensors
net = model.Model()
"""

from __future__ import annotations

import textwrap
from typing import Any

import torch

from monograph.dataclass import dataclass
from monograph.errors import UnsupportedError
from monograph.exporters.fx import to_fx
from monograph.ir.graph import Graph

KNOWN_GLOBALS = frozenset({"torch", "device", "inf", "nan", "NoneType", "fx_pytree", "pytree"})
"""What the code may name: the first four are imported, the others FX always offers."""
_HEAD = '''"""{name}: a torch module that Monograph wrote; its weights are in the file beside it."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import device, inf, nan


class Model(torch.nn.Module):
    def __init__(self, weights=None):
        super().__init__()
        if weights is None:
            weights = load_file(Path(__file__).with_suffix(".safetensors"))
        for name, tensor in weights.items():
            *path, last = name.split(".")
            module = self
            for part in path:
                if not hasattr(module, part):
                    module.add_module(part, torch.nn.Module())
                module = getattr(module, part)
            module.register_buffer(last, tensor)

'''


@dataclass(frozen=True)
class PythonModule:
    """The text of a file, and the tensors that belong beside it."""

    text: str
    weights: dict[str, Any]


def to_python(graph: Graph) -> PythonModule:
    """The source of a module that computes what the graph does."""
    module = to_fx(graph)
    if any(node.op == "call_module" for node in module.graph.nodes):
        raise UnsupportedError(
            "control flow is made of modules, which have no source of their own here",
            hint="TorchScript (.pt) holds control flow, too",
        )
    code = module.graph.python_code("self")
    foreign = sorted(set(code.globals) - KNOWN_GLOBALS)
    if foreign:
        raise UnsupportedError(f"the code of this module needs {', '.join(foreign)} of elsewhere")
    body = textwrap.indent(code.src.strip("\n"), "    ")
    weights = {name: tensor.contiguous().clone() for name, tensor in module.state_dict().items()}
    return PythonModule(_HEAD.format(name=graph.name) + body + "\n", weights)


def run_python(module: PythonModule, tensors: Any) -> Any:
    """What the class in the text, which was written here, makes of tensors."""
    namespace: dict[str, Any] = {"__file__": "model.py", "__name__": "model"}
    exec(compile(module.text, "model.py", "exec"), namespace)
    with torch.no_grad():
        return namespace["Model"](module.weights)(*tensors)
