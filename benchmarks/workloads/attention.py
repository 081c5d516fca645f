"""Attention: whole sequences with and without a causal mask, padded ones, and one new token.

Names are query heads × queries × head size, after the keys where there are more of them than
queries. The longest sequence has fewer heads: peers that write the matrix of scores need a
gibibyte for it as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workloads.case import Inputs, module_workload

SIZE = 64
HEADS = {128: 12, 256: 12, 512: 12, 1024: 12, 2048: 12, 4096: 12, 8192: 4}
CACHED = (128, 512, 2048, 8192)


class Attention(nn.Module):
    """Scaled products of queries and keys, softmax, and values weighted by it."""

    def __init__(self, causal: bool, grouped: bool) -> None:
        super().__init__()
        self.causal = causal
        self.grouped = grouped

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """The attention of each query."""
        return functional.scaled_dot_product_attention(
            q, k, v, mask, is_causal=self.causal, enable_gqa=self.grouped
        )


def _cases() -> dict[str, dict[str, Any]]:
    cases: dict[str, dict[str, Any]] = {}
    for length, heads in HEADS.items():
        whole = {"heads": heads, "queries": length, "keys": length}
        cases[f"whole-{heads}x{length}x{SIZE}"] = whole
        cases[f"causal-{heads}x{length}x{SIZE}"] = whole | {"causal": True}
    for keys in CACHED:
        cases[f"decode-{keys}-12x1x{SIZE}"] = {"heads": 12, "queries": 1, "keys": keys}
    square = {"queries": 512, "keys": 512}
    cases["masked-12x512x64"] = square | {"heads": 12, "masked": True}
    cases["batch8-12x128x64"] = {"heads": 12, "queries": 128, "keys": 128, "batch": 8}
    grouped = {"heads": 32, "shared": 4, "size": 128}
    cases["grouped-causal-32x512x128"] = square | grouped | {"causal": True}
    cases["grouped-decode-2048-32x1x128"] = grouped | {"queries": 1, "keys": 2048}
    return cases


def _share(queries: int = 1, causal: bool = False, **_: Any) -> float:
    """The share of scores that a causal mask leaves."""
    return (queries + 1) / (2 * queries) if causal else 1.0


@module_workload(
    "attention",
    _cases(),
    telling=(
        *("whole-12x128x64", "whole-12x512x64", "causal-12x512x64"),
        *("causal-12x2048x64", "whole-12x2048x64", "decode-2048-12x1x64"),
    ),
    flop_share=_share,
)
def attention(
    heads: int,
    queries: int,
    keys: int,
    causal: bool = False,
    masked: bool = False,
    batch: int = 1,
    shared: int = 1,
    size: int = SIZE,
) -> tuple[nn.Module, Inputs]:
    """Attention of heads of which every ``shared`` ones have the same keys and values."""
    q = torch.randn(batch, heads, queries, size)
    k, v = (torch.randn(batch, heads // shared, keys, size) for _ in range(2))
    inputs: Inputs = (q, k, v)
    if masked:
        padded = torch.arange(keys) >= keys - keys // 8
        mask = torch.zeros(batch, 1, 1, keys).masked_fill(padded, torch.finfo(q.dtype).min)
        inputs = (*inputs, mask)
    return Attention(causal, shared > 1), inputs
