"""Programs whose kernels are printed as Triton, and what running them needs.

Run as a program, it compares each with the interpreter: on the processor with
``TRITON_INTERPRET=1``, or on a GPU with ``--device cuda``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import monograph
from monograph import functional as F
from monograph.fusion.fuse import fuse
from monograph.ir.dims import evaluate_dim
from monograph.ir.graph import Graph
from monograph.kernel.lower import is_lowerable
from monograph.passes.lower_composites import LowerComposites
from monograph.targets.gpu import products
from monograph.targets.gpu.joint_products import join_products
from monograph.targets.gpu.source import TritonKernel
from tests.targets.gpu.running import run_graph, sequence_of

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
    "long_row": (lambda x: F.sum(x * x, axis=1) + 1.0, ("f32[2, 65536]",)),
    "long_softmax": (lambda x: F.softmax(x, -1), ("f32[2, 16384]",)),
    "tall_sum": (lambda x: F.sum(x, axis=0), ("f32[4096, 40]",)),
    "split_matmul": (
        lambda x, w, b: F.relu(x @ w + b),
        ("f32[20, 1024]", "f32[1024, 33]", "f32[33]"),
    ),
    "staying": (
        lambda x, w, b: F.relu(x @ w + b),
        ("f16[150, 64]", "f16[64, 280]", "f16[280]"),
    ),
    "staying_transposed": (
        lambda x, w: x @ F.transpose(w, (1, 0)),
        ("f16[130, 72]", "f16[264, 72]"),
    ),
    "gated": (
        lambda x, w, v: F.silu(x @ w) * (x @ v),
        ("f16[20, 64]", "f16[64, 48]", "f16[64, 48]"),
    ),
    "gated_row": (
        lambda x, w, v: F.silu(x @ w) * (x @ F.transpose(v, (1, 0))),
        ("f16[1, 64]", "f16[64, 48]", "f16[48, 64]"),
    ),
    "few_rows": (lambda x, w: x @ w, ("f16[5, 128]", "f16[128, 72]")),
    "attention": (lambda q, k, v: F.attention(q, k, v), ("f16[2, 3, 70, 40]",) * 3),
    "causal": (lambda q, k, v: F.attention(q, k, v, causal=True), ("f16[3, 200, 64]",) * 3),
    "grouped": (
        lambda q, k, v: F.attention(q, k, v, causal=True),
        ("f16[4, 64, 80]", "f16[2, 150, 80]", "f16[2, 150, 80]"),
    ),
    "decode": (
        lambda q, k, v: F.attention(q, k, v),
        ("f16[8, 1, 32]", "f16[2, 600, 32]", "f16[2, 600, 24]"),
    ),
    "masked_decode": (
        lambda q, k, v, m: F.attention(q, k, v, m > 0.0),
        ("f16[2, 4, 1, 32]", "f16[2, 2, 513, 32]", "f16[2, 2, 513, 32]", "f16[2, 1, 1, 513]"),
    ),
    "masked": (
        lambda q, k, v, m: F.attention(q, k, v, m > 0.0),
        ("f32[2, 40, 16]", "f32[2, 50, 16]", "f32[2, 50, 8]", "f32[40, 50]"),
    ),
    "symbolic_attention": (
        lambda q, k, v: F.attention(q, k, v),
        ("f16[2, n, 32]", "f16[2, m, 32]", "f16[2, m, 32]"),
    ),
    "half_conv": (
        lambda x, w: F.conv(F.transpose(x, (0, 3, 1, 2)), w, padding=((1, 1), (1, 1))),
        ("f16[2, 9, 10, 64]", "f16[16, 64, 3, 3]"),
    ),
    "symbolic": (lambda x: F.softmax(x, -1) * 2.0, ("f32[n, m]",)),
}

ALL_CANDIDATES = 12
"""More than any program has."""


def lowered(name: str) -> Graph:
    """The graph of a program, its composites lowered as the target wants them."""
    function, types = PROGRAMS[name]
    graph = monograph.trace(function, *types)
    keep = ("gelu", "sigmoid", "attention")
    LowerComposites(keep=keep).run(graph)
    return graph


def sources(graph: Graph) -> list[tuple[TritonKernel, tuple[Any, ...], tuple[Any, ...]]]:
    """Each kernel of a graph with the values that its group reads and writes."""
    fusion = fuse(graph, {node: is_lowerable(node) for node in graph.nodes})
    groups = join_products(fusion).groups
    found = []
    for number, group in enumerate(groups):
        sequence, inputs, outputs = sequence_of(group, f"kernel{number}_{group.name}")
        found += [(kernel, inputs, outputs) for kernel in sequence.kernels]
    return found


def run(
    name: str, folder: Path, device: str = "cpu", candidate: int = 0
) -> tuple[list[np.ndarray], list[np.ndarray], tuple[object, ...]]:
    """The results of a program's Triton kernels, the interpreter's, and how these were made."""
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
    found = run_graph(graph, arrays, folder, device, candidate)
    assert not found.on_host, found.on_host
    made = tuple((x.family, *x.blocks.items(), x.warps, x.stages) for x in found.kernels)
    return found.results, monograph.interpret(graph, arrays), made


def main(arguments: list[str]) -> None:
    """Compare programs; print what differs and fail if anything does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--candidates", action="store_true", help="all of them, not the best")
    options = parser.parse_args(arguments)
    if options.candidates:
        products.MIN_TILES_TO_STAY = 0
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or list(PROGRAMS):
            done = set[tuple[object, ...]]()
            for candidate in range(ALL_CANDIDATES if options.candidates else 1):
                got, expected, made = run(name, Path(folder), options.device, candidate)
                if made not in done:
                    bad += [f"{name} {made}: {x}" for x in _differences(got, expected)]
                done.add(made)
    print("\n".join(bad) or "all agree")
    sys.exit(bool(bad))


def _differences(got: list[np.ndarray], expected: list[np.ndarray]) -> Iterator[str]:
    for found, reference in zip(got, expected, strict=True):
        exact = reference.astype(np.float64)
        tolerance = 3e-3 if reference.dtype == np.float16 else 2e-5
        close = np.isclose(
            found.astype(np.float64), exact, rtol=tolerance, atol=tolerance, equal_nan=True
        )
        if not close.all():
            off = np.abs(found - exact)[~close].max()
            yield f"{(~close).sum()} of {close.size} wrong, off by {off}"


if __name__ == "__main__":
    main(sys.argv[1:])
