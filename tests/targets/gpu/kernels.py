"""Programs whose kernels are printed as Triton, and what running them needs.

Run as a program, it compares each with the interpreter: on the processor with
``TRITON_INTERPRET=1``, or on a GPU with ``--device cuda``.
"""

from __future__ import annotations

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
from monograph.kernel.lower import is_lowerable
from monograph.passes.lower_composites import LowerComposites
from monograph.targets.gpu.source import TritonKernel
from tests.targets.gpu.running import kernel_of, run_graph

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
    "floor": (lambda x: F.roll(x, 3, 0) + x[2:-1][0], ("f32[50, 7]",)),
    "long_rows": (lambda x: F.softmax(x, -1), ("f32[3, 9001]",)),
    "tall_columns": (lambda x: F.max(x * 2.0, axis=0), ("f32[9001, 40]",)),
    "nan_max": (lambda x: F.max(F.where(x > 2.0, float("nan"), x), axis=1), ("f32[40, 60]",)),
    "pool": (lambda x: F.max_pool(x, (3, 3), stride=(2, 2)), ("f32[1, 3, 17, 19]",)),
    "matmul": (lambda x, w, b: F.relu(x @ w + b), ("f32[40, 33]", "f32[33, 50]", "f32[50]")),
    "batched": (lambda x, y: x @ y, ("f32[3, 20, 33]", "f32[3, 33, 24]")),
    "half_matmul": (lambda x, w: F.gelu(x @ w), ("f16[32, 64]", "f16[64, 48]")),
    "prologue": (lambda x, w: F.exp(x) @ w, ("f32[32, 40]", "f32[40, 32]")),
    "conv": (
        lambda x, w: F.relu(F.conv(x, w, padding=((1, 1), (1, 1)))),
        ("f32[2, 8, 9, 10]", "f32[16, 8, 3, 3]"),
    ),
    "symbolic_matmul": (lambda x, w: x @ w, ("f32[n, 32]", "f32[32, 48]")),
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
    groups = fuse(graph, {node: is_lowerable(node) for node in graph.nodes}).groups
    return [kernel_of(group, f"kernel{k}_{group.name}") for k, group in enumerate(groups)]


def run(name: str, folder: Path, device: str = "cpu") -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The results of a program's Triton kernels, and the interpreter's."""
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
    found = run_graph(graph, arrays, folder, device)
    assert not found.on_host, found.on_host
    return found.results, monograph.interpret(graph, arrays)


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
                if not np.allclose(
                    got.astype(np.float64), exact, rtol=tolerance, atol=tolerance, equal_nan=True
                ):
                    bad.append(f"{name}: off by {np.abs(got - exact).max()}")
    print("\n".join(bad) or "all agree")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main(sys.argv[1:])
