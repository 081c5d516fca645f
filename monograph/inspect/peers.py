"""Other ways to run a model, to hold a compiled one against: each a function of the inputs.

``interpreter`` runs the graph as it was given, one NumPy call a node, and ``numpy`` the graph after
the passes. ``onnxruntime`` and ``openvino`` run the ONNX file, or the graph exported; ``xla`` and
``iree`` the graph as StableHLO. ``torch`` and ``inductor`` (``torch.compile``) run a model that is
torch's own. What is not installed, or cannot take a model, says so with an ``InputError``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from monograph.api import optimize
from monograph.errors import InputError
from monograph.inspect.models import Model
from monograph.inspect.runtimes import RUNTIMES, Call
from monograph.ir.interpret import interpret
from monograph.ir.types import Array
from monograph.runtime.compiled import Executable
from monograph.runtime.thread_count import thread_count

PEERS = ("interpreter", "numpy", "torch", "inductor", *RUNTIMES)


def peer(
    name: str, model: Model, executable: Executable, inputs: Sequence[Array], threads: int | None
) -> Call:
    """Something to call that runs the model on these inputs another way."""
    if name not in PEERS:
        raise InputError(f"{name!r} is nothing to compare with", expected=", ".join(PEERS))
    if name in ("torch", "inductor"):
        return _torch(model, inputs, threads, compiled=name == "inductor")
    if model.is_compiled:
        raise InputError(
            f"{model.name} holds code, and no graph that {name} could run",
            hint="give the model that it was compiled from",
        )
    if name in RUNTIMES:
        source = model.path if model.path.suffix == ".onnx" else None
        return RUNTIMES[name](executable.graph, source, inputs, threads or thread_count())
    graph = executable.graph if name == "interpreter" else optimize(executable.graph)
    return lambda: interpret(graph, inputs)


def _torch(model: Model, inputs: Sequence[Array], threads: int | None, *, compiled: bool) -> Call:
    if not model.is_torch:
        raise InputError(
            f"torch does not run {model.name}", expected="a torch module: file.py:module"
        )
    import torch

    if compiled:
        need_compiler()
    torch.set_num_threads(threads or thread_count())
    subject = model.subject.eval() if isinstance(model.subject, torch.nn.Module) else model.subject
    called = torch.compile(subject) if compiled else subject
    tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in inputs]
    leaves: Callable[[Any], list[Any]] = torch.utils._pytree.tree_leaves

    def call() -> list[Array]:
        with torch.no_grad():
            results = leaves(called(*tensors))
        return [result.numpy() for result in results if isinstance(result, torch.Tensor)]

    return call


def need_compiler() -> None:
    """Inductor writes C++ and needs a compiler for it, where Monograph needs none."""
    if not any(map(shutil.which, filter(None, (os.environ.get("CXX"), "g++", "clang++", "c++")))):
        raise InputError("torch.compile needs a C++ compiler", found="neither g++ nor clang++")
