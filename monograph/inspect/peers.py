"""Other ways to run a model, to hold a compiled one against: each a function of the inputs.

``interpreter`` runs the graph as it was given, one NumPy call a node, and ``numpy`` the graph after
the passes. ``onnxruntime`` runs the ONNX file, or the graph exported. ``torch`` and ``inductor``
(``torch.compile``) run a model that is torch's own.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from monograph.api import optimize
from monograph.errors import InputError
from monograph.inspect.models import Model
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.types import Array
from monograph.runtime.compiled import Executable
from monograph.runtime.cpu.thread_pool import thread_count

Call: TypeAlias = Callable[[], list[Array]]
PEERS = ("interpreter", "numpy", "onnxruntime", "torch", "inductor")


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
    if name == "onnxruntime":
        return _onnxruntime(model, executable.graph, inputs, threads)
    graph = executable.graph if name == "interpreter" else optimize(executable.graph)
    return lambda: interpret(graph, inputs)


def _onnxruntime(model: Model, graph: Graph, inputs: Sequence[Array], threads: int | None) -> Call:
    _need("onnxruntime", "pip install onnxruntime")
    import onnxruntime  # type: ignore[import-untyped]  # has no stubs

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or thread_count()
    options.log_severity_level = 3
    source = str(model.path) if model.path.suffix == ".onnx" else _exported(graph)
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    feed = dict(zip(names, inputs, strict=True))

    def call() -> list[Array]:
        results: list[Array] = session.run(None, feed)
        return results

    return call


def _exported(graph: Graph) -> bytes:
    from monograph.exporters.onnx import to_onnx

    data: bytes = to_onnx(graph).SerializeToString()
    return data


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


def _need(package: str, hint: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise InputError(f"{package} is not installed", hint=hint)
