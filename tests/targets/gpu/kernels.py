"""Programs whose kernels are printed as Triton, and what running them needs.

Run as a program, it compares each with the interpreter: on the processor with
``TRITON_INTERPRET=1``, or on a GPU with ``--device cuda``.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import monograph
from monograph import functional as F
from monograph.fusion.group import fuse
from monograph.ir.dims import evaluate_dim
from monograph.ir.graph import Graph
from monograph.kernel.flatten import flatten
from monograph.kernel.lower import is_lowerable, lower_group
from monograph.passes.lower_composites import LowerComposites
from monograph.targets.gpu.triton import TritonKernel, triton_kernel

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "chain": (lambda x: F.relu(x * 2.0 + 1.0) * x, ("f32[33, 65]",)),
    "broadcast": (lambda x, b: F.exp(x + b) - b, ("f32[9, 130]", "f32[130]")),
    "transpose": (lambda x: F.transpose(x, (1, 0)) * 3.0, ("f32[17, 40]",)),
    "gelu": (lambda x: F.gelu(x), ("f32[700]",)),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), ("f32[700]",)),
    "tanh": (lambda x: F.tanh(x) + F.sigmoid(x), ("f32[700]",)),
    "compare": (lambda x, y: F.where(x > y, x, y * 2.0), ("f32[5, 50]", "f32[5, 50]")),
    "integers": (lambda x, y: (x * 3 + y) - (x // 2), ("i32[100]", "i32[100]")),
    "half": (lambda x: x * 2.0 + 1.0, ("f16[300]",)),
    "softmax": (lambda x: F.softmax(x, -1), ("f32[19, 100]",)),
    "log_softmax": (lambda x: F.log_softmax(x, -1), ("f32[19, 100]",)),
    "layer_norm": (
        lambda x, y, w, b: F.layer_norm(x + y, w, b),
        ("f32[12, 96]", "f32[12, 96]", "f32[96]", "f32[96]"),
    ),
    "rms_norm": (lambda x, w: F.rms_norm(x, w), ("f32[12, 96]", "f32[96]")),
    "row_sum": (lambda x: F.sum(x * x, axis=1), ("f32[13, 77]",)),
    "column_sum": (lambda x: F.sum(x, axis=0), ("f32[13, 77]",)),
    "argmax": (lambda x: F.argmax(x, axis=1), ("f32[13, 77]",)),
    "sliced": (lambda x: x[1:8, ::2] + 1.0, ("f32[10, 30]",)),
    "take": (lambda x, i: F.take(x, i, axis=0) * 2.0, ("f32[10, 8]", "i64[20]")),
    "symbolic": (lambda x: F.softmax(x, -1) * 2.0, ("f32[n, m]",)),
}


def lowered(name: str) -> Graph:
    """The graph of a program, its composites lowered as the target wants them."""
    function, types = PROGRAMS[name]
    graph = monograph.trace(function, *types)
    keep = ("gelu", "sigmoid")
    LowerComposites(keep=keep).run(graph)
    return graph


def sources(graph: Graph) -> list[tuple[TritonKernel, tuple[Any, ...], tuple[Any, ...]]]:
    """Each kernel of a graph with the values that it reads and writes."""
    found = []
    groups = fuse(graph, {node: is_lowerable(node) for node in graph.nodes}).groups
    for number, group in enumerate(groups):
        outputs = {value: group.places[value] for value in group.outputs()}
        name = f"kernel{number}_{group.name}"
        kernel, inputs = lower_group(name, group.nodes, group.space, outputs)  # type: ignore[arg-type]
        found.append((triton_kernel(flatten(kernel)), inputs, tuple(outputs)))
    return found


def load(kernel: TritonKernel, folder: Path) -> Any:
    """The kernel as a Triton function; Triton reads its source from the file."""
    path = folder / f"{kernel.name}.py"
    path.write_text(kernel.source)
    spec = importlib.util.spec_from_file_location(kernel.name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kernel.name)


def run(name: str, folder: Path, device: str = "cpu") -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The results of a program's Triton kernels, and the interpreter's."""
    import torch

    graph = lowered(name)
    rng = np.random.default_rng(0)
    arrays = []
    sizes = {symbol: 21 + k for k, symbol in enumerate(graph.symbols().values())}
    for value in graph.inputs:
        shape = tuple(evaluate_dim(dim, sizes) for dim in value.shape)
        if value.dtype.is_float:
            arrays.append(rng.normal(size=shape).astype(value.dtype.numpy))
        else:
            arrays.append(rng.integers(0, 10, shape).astype(value.dtype.numpy))
    pairs = zip(graph.inputs, arrays, strict=True)
    tensors = {value: torch.from_numpy(array).to(device) for value, array in pairs}
    for kernel, inputs, outputs in sources(graph):
        for value in outputs:
            shape = tuple(evaluate_dim(dim, sizes) for dim in value.shape)
            tensors[value] = torch.from_numpy(np.empty(shape, value.dtype.numpy)).to(device)
        block = 1 << max(0, evaluate_dim(kernel.block, sizes) - 1).bit_length()
        arguments = [tensors[value] for value in (*inputs, *outputs)]
        numbers = [sizes[symbol] for symbol in kernel.sizes]
        grid = (evaluate_dim(kernel.programs, sizes),)
        load(kernel, folder)[grid](*arguments, *numbers, BLOCK=block)
    results = [tensors[value].cpu().numpy() for value in graph.outputs]
    return results, monograph.interpret(graph, arrays)


def main(arguments: list[str]) -> None:
    """Compare programs; print what differs and fail if anything does."""
    device = "cuda" if arguments[:2] == ["--device", "cuda"] else "cpu"
    names = arguments[2:] if device == "cuda" else arguments
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names or list(PROGRAMS):
            for got, expected in zip(*run(name, Path(folder), device), strict=True):
                exact = expected.astype(np.float64)
                tolerance = 2e-3 if expected.dtype == np.float16 else 2e-5
                if not np.allclose(got.astype(np.float64), exact, rtol=tolerance, atol=tolerance):
                    bad.append(f"{name}: off by {np.abs(got - exact).max()}")
    print("\n".join(bad) or "all agree")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main(sys.argv[1:])
