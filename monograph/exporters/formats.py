"""The formats that a graph can be written in: name, suffix, what writes it, what runs it.

written = FORMATS["stablehlo"].export(graph, {})
written.files        # {".mlir": b"module { …"}
written.run(arrays)  # by jaxlib; None where nothing on this machine runs it
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.exporters import runtimes
from monograph.ir.graph import Graph
from monograph.ir.types import Array

Run = Callable[[Sequence[Array]], list[Array]]


@dataclass(frozen=True)
class Written:
    """A graph in a format: the files by suffix, the main one first, and how to run it."""

    files: dict[str, bytes]
    run: Run | None = None
    not_run: str = ""
    """Why it is not run."""

    @property
    def text(self) -> str:
        """The main file as text."""
        return next(iter(self.files.values())).decode()


@dataclass(frozen=True)
class Format:
    """One of them. ``is_static`` ones know no free sizes."""

    name: str
    title: str
    suffix: str
    export: Callable[[Graph], Written]
    is_static: bool = False


def _needs(package: str, run: Run) -> tuple[Run | None, str]:
    """A runtime, where its package is installed."""
    found = importlib.util.find_spec(package) is not None
    return (run, "") if found else (None, f"{package} is not installed")


def _onnx(graph: Graph) -> Written:
    from monograph.exporters.onnx import to_onnx

    content: bytes = to_onnx(graph, external_data=False).SerializeToString()
    run = _needs("onnxruntime", lambda arrays: runtimes.run_onnx(content, arrays))
    return Written({".onnx": content}, *run)


def _stablehlo(graph: Graph) -> Written:
    from monograph.exporters.stablehlo import to_stablehlo

    text = to_stablehlo(graph)
    run = _needs("jaxlib", lambda arrays: runtimes.run_stablehlo(text, arrays))
    return Written({".mlir": text.encode()}, *run)


def _hlo(graph: Graph) -> Written:
    from monograph.exporters.hlo import to_hlo

    text = to_hlo(graph)
    return Written({".hlo": text.encode()}, lambda arrays: runtimes.run_hlo(text, arrays))


def _torchscript(graph: Graph) -> Written:
    _need_torch()
    import torch

    from monograph.exporters.fx import to_torchscript

    stream = io.BytesIO()
    torch.jit.save(to_torchscript(graph), stream)
    loaded: Any = torch.jit.load(io.BytesIO(stream.getvalue()))  # type: ignore[no-untyped-call]
    run: Run = lambda arrays: runtimes.run_torch(loaded, arrays)  # noqa: E731
    return Written({".pt": stream.getvalue()}, run)


def _fx(graph: Graph) -> Written:
    _need_torch()
    from safetensors.torch import save

    from monograph.exporters.fx.source import run_python, to_python

    module = to_python(graph)
    files = {".py": module.text.encode()}
    if module.weights:
        files[".safetensors"] = save(module.weights)
    run: Run = lambda arrays: runtimes.run_torch(  # noqa: E731
        lambda *tensors: run_python(module, tensors), arrays
    )
    return Written(files, run)


def _need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise InputError("writing programs of torch needs torch", hint="pip install torch")


def _relay(graph: Graph) -> Written:
    from monograph.exporters.relay import to_relay

    module = to_relay(graph)
    files = {".relay": module.text.encode()}
    if module.parameters:
        stream = io.BytesIO()
        np.savez(stream, **module.parameters)  # type: ignore[arg-type]  # names, not options
        files[".npz"] = stream.getvalue()
    return Written(files, None, "TVM has no Relay any more since its version 0.19")


def _dot(graph: Graph) -> Written:
    from monograph.exporters.dot import to_dot

    return Written({".dot": to_dot(graph).encode()}, None, "it is a drawing")


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format("fx", "FX", ".py", _fx),
        Format("torchscript", "TorchScript", ".pt", _torchscript),
        Format("onnx", "ONNX", ".onnx", _onnx),
        Format("stablehlo", "StableHLO", ".mlir", _stablehlo),
        Format("hlo", "HLO", ".hlo", _hlo, is_static=True),
        Format("relay", "Relay", ".relay", _relay),
        Format("dot", "Graphviz", ".dot", _dot),
    )
}
"""By name; a drawing as SVG and the text of our own graphs are written by their own rooms."""
