"""Matrix products: squares, and the weights of transformers with few and with many rows.

A linear layer's weight is a constant, which may be packed when it is compiled, as in a model that
answers; the ``dynamic`` ones are given in each call, as in training. Names are rows × inner ×
columns.
"""

from __future__ import annotations

from typing import Any

from benchmarks.spelling import Spelling
from benchmarks.workloads.case import workload
from benchmarks.workloads.makers import Make, product, weighted

SQUARES = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
ROWS = (1, 4, 16, 64, 128, 512)
WEIGHTS = {
    "bert": ((768, 768), (768, 3072), (3072, 768)),
    "gpt2": ((768, 2304), (768, 50257)),
    "llama": ((4096, 4096), (4096, 11008), (11008, 4096)),
}
"""Columns of the input and of the result of each family's layers that no earlier one has."""

LAYERS = {
    f"{model}-{rows}x{inner}x{columns}": (rows, inner, columns)
    for model, shapes in WEIGHTS.items()
    for inner, columns in shapes
    for rows in ROWS
}
DYNAMIC = ((768, 3072), (4096, 4096))


@workload(
    "matmul",
    {f"square-{side}": product(side, side, side) for side in SQUARES},
    telling=("square-256", "square-1024", "square-2048"),
)
def matmul(xp: Spelling, left: Any, right: Any) -> Any:
    """The product of two arguments."""
    return left @ right


def _cases() -> dict[str, Make]:
    packed = {name: weighted(*shape, constant=True) for name, shape in LAYERS.items()}
    dynamic = {
        f"dynamic-{rows}x{inner}x{columns}": weighted(rows, inner, columns, constant=False)
        for inner, columns in DYNAMIC
        for rows in ROWS
    }
    return packed | dynamic


@workload(
    "matmul",
    _cases(),
    telling=(
        *("bert-1x768x3072", "bert-128x768x768", "bert-128x768x3072", "bert-512x3072x768"),
        *("gpt2-128x768x2304", "gpt2-1x768x50257"),
        *("llama-1x4096x4096", "llama-16x4096x11008", "llama-128x4096x4096"),
        *("dynamic-128x768x3072", "dynamic-16x4096x4096"),
    ),
)
def linear(xp: Spelling, x: Any, weight: Any) -> Any:
    """A linear layer without a bias."""
    return xp.linear(x, weight)
