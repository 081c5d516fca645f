"""Single kernels that benchmarks on a GPU time: as our graph, in torch, and by its libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as T
from torch.nn.attention import SDPBackend, sdpa_kernel

from monograph import functional as F

Function = Callable[..., Any]


@dataclass(frozen=True)
class Workload:
    """What is computed, of which operands, and what moves or multiplies at least."""

    ours: Function
    types: tuple[str, ...]
    torch: Function
    """The same in eager torch; of float64 operands, the reference."""
    nbytes: int = 0
    """Bytes that are read or written at least, for what memory limits."""
    operations: float = 0
    """Multiplications and additions, for what tensor cores limit."""
    libraries: Mapping[str, Function] = field(default_factory=dict)
    scale: float = 1.0
    """The standard deviation of matrices."""


def _attention(causal: bool, backend: SDPBackend) -> Function:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return T.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return run


def _plain_attention(causal: bool) -> Function:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return T.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

    return run


def _attention_work(heads: int, queries: int, keys: int, depth: int) -> float:
    return 4.0 * heads * queries * keys * depth


def _conv(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    weight = w.contiguous(memory_format=torch.channels_last)
    return torch.relu(T.conv2d(x.permute(0, 3, 1, 2), weight, padding=1)).permute(0, 2, 3, 1)


def _our_conv(x: Any, w: Any) -> Any:
    y = F.conv(F.transpose(x, (0, 3, 1, 2)), w, padding=((1, 1), (1, 1)))
    return F.transpose(F.relu(y), (0, 2, 3, 1))


def _our_gated(x: Any, w: Any, v: Any) -> Any:
    return F.silu(x @ w) * (x @ v)


def _our_gated_rows(x: Any, w: Any, v: Any) -> Any:
    return F.silu(x @ F.transpose(w, (1, 0))) * (x @ F.transpose(v, (1, 0)))


MIB = 1 << 20
SQUARE = "bf16[8192, 8192]"
HEADS = "bf16[4, 16, 2048, 64]"
WORKLOADS: dict[str, Workload] = {
    "chain of 5, 4096² f32": Workload(
        lambda x: F.relu(F.tanh(x * 2.0 + 1.0) * x - 0.5), ("f32[4096, 4096]",),
        lambda x: torch.relu(torch.tanh(x * 2.0 + 1.0) * x - 0.5), 128 * MIB,
    ),
    "gelu tanh, 8192² bf16": Workload(
        lambda x: F.gelu(x, approximate="tanh"), (SQUARE,),
        lambda x: T.gelu(x, approximate="tanh"), 256 * MIB,
    ),
    "softmax, 8192² f32": Workload(
        lambda x: F.softmax(x, -1), ("f32[8192, 8192]",), lambda x: torch.softmax(x, -1), 512 * MIB
    ),
    "rms norm, 8192² bf16": Workload(
        lambda x, w: F.rms_norm(x, w), (SQUARE, "bf16[8192]"),
        lambda x, w: T.rms_norm(x, (8192,), w, 1e-6), 256 * MIB,
    ),
    "add + layer norm, 16384×4096 bf16": Workload(
        lambda x, y, w, b: F.layer_norm(x + y, w, b),
        ("bf16[16384, 4096]", "bf16[16384, 4096]", "bf16[4096]", "bf16[4096]"),
        lambda x, y, w, b: T.layer_norm(x + y, (4096,), w, b, 1e-5), 384 * MIB,
    ),
    "softmax of short rows, 65536×197 bf16": Workload(
        lambda x: F.softmax(x, -1), ("bf16[65536, 197]",),
        lambda x: torch.softmax(x, -1), 2 * 65536 * 197 * 2,
    ),
    "transpose, 8192² bf16": Workload(
        lambda x: F.transpose(x, (1, 0)), (SQUARE,), lambda x: x.T.contiguous(), 256 * MIB
    ),
    "column sums, 16384×4096 f32": Workload(
        lambda x: F.sum(x, axis=0), ("f32[16384, 4096]",), lambda x: x.sum(0), 256 * MIB
    ),
    "sum of one row of 64 Mi f32": Workload(
        lambda x: F.sum(x, axis=1), ("f32[1, 67108864]",), lambda x: x.sum(1), 256 * MIB
    ),
    "softmax of 4 rows of 4 Mi f32": Workload(
        lambda x: F.softmax(x, -1), ("f32[4, 4194304]",), lambda x: torch.softmax(x, -1), 128 * MIB
    ),
    "matmul + gelu, 4096×4096×16384 bf16": Workload(
        lambda x, w, b: F.gelu(x @ w + b, approximate="tanh"),
        ("bf16[4096, 4096]", "bf16[4096, 16384]", "bf16[16384]"),
        lambda x, w, b: T.gelu(x @ w + b, approximate="tanh"),
        operations=2.0 * 4096 * 4096 * 16384, scale=0.125,
        libraries={
            "cuBLAS, product alone": lambda x, w, b: x @ w,
            "cuBLASLt": lambda x, w, b: torch._addmm_activation(b, x, w, use_gelu=True),
        },
    ),
    "matmul, 4096³ bf16, weight (N, K)": Workload(
        lambda x, w: x @ F.transpose(w, (1, 0)), ("bf16[4096, 4096]", "bf16[4096, 4096]"),
        lambda x, w: x @ w.T, operations=2.0 * 4096**3, scale=0.125,
    ),
    "matmul, 512×768×3072 bf16": Workload(
        lambda x, w, b: F.relu(x @ w + b), ("bf16[512, 768]", "bf16[768, 3072]", "bf16[3072]"),
        lambda x, w, b: torch.relu(x @ w + b), operations=2.0 * 512 * 768 * 3072, scale=0.125,
        libraries={"cuBLASLt": lambda x, w, b: torch._addmm_activation(b, x, w)},
    ),
    "matmul + gelu, 4096×768×3072 bf16 (N, K)": Workload(
        lambda x, w, b: F.gelu(x @ F.transpose(w, (1, 0)) + b, approximate="tanh"),
        ("bf16[4096, 768]", "bf16[3072, 768]", "bf16[3072]"),
        lambda x, w, b: T.gelu(T.linear(x, w, b), approximate="tanh"),
        operations=2.0 * 4096 * 768 * 3072, scale=0.125,
        libraries={
            "cuBLAS, product alone": lambda x, w, b: x @ w.T,
            "cuBLASLt": lambda x, w, b: torch._addmm_activation(b, x, w.T, use_gelu=True),
        },
    ),
    "matmul + add, 4096×3072×768 bf16 (N, K)": Workload(
        lambda x, w, b, y: x @ F.transpose(w, (1, 0)) + b + y,
        ("bf16[4096, 3072]", "bf16[768, 3072]", "bf16[768]", "bf16[4096, 768]"),
        lambda x, w, b, y: T.linear(x, w, b) + y,
        operations=2.0 * 4096 * 768 * 3072, scale=0.125,
        libraries={"cuBLAS, product alone": lambda x, w, b, y: x @ w.T},
    ),
    "matmul of long k, 256×32768×256 bf16": Workload(
        lambda x, w: x @ w, ("bf16[256, 32768]", "bf16[32768, 256]"), lambda x, w: x @ w,
        operations=2.0 * 256 * 256 * 32768, scale=0.125,
    ),
    "gated MLP, 4096×4096×11008 bf16": Workload(
        _our_gated, ("bf16[4096, 4096]", "bf16[4096, 11008]", "bf16[4096, 11008]"),
        lambda x, w, v: T.silu(x @ w) * (x @ v),
        operations=4.0 * 4096 * 4096 * 11008, scale=0.125,
    ),
    "gated GEMV, 2 × 4096×11008 bf16 (N, K)": Workload(
        _our_gated_rows, ("bf16[1, 4096]", "bf16[11008, 4096]", "bf16[11008, 4096]"),
        lambda x, w, v: T.silu(x @ w.T) * (x @ v.T), 2 * 2 * 4096 * 11008, scale=0.125,
    ),
    "gated GEMV, 2 × 4096×11008 bf16 (K, N)": Workload(
        _our_gated, ("bf16[1, 4096]", "bf16[4096, 11008]", "bf16[4096, 11008]"),
        lambda x, w, v: T.silu(x @ w) * (x @ v), 2 * 2 * 4096 * 11008, scale=0.125,
    ),
    "product of 8 rows, 8×4096×11008 bf16": Workload(
        lambda x, w: x @ w, ("bf16[8, 4096]", "bf16[4096, 11008]"),
        lambda x, w: x @ w, 2 * 4096 * 11008, scale=0.125,
    ),
    "attention, 4×16×2048×64 bf16": Workload(
        lambda q, k, v: F.attention(q, k, v), (HEADS,) * 3, _plain_attention(False),
        operations=_attention_work(64, 2048, 2048, 64),
        libraries={
            "flash": _attention(False, SDPBackend.FLASH_ATTENTION),
            "cuDNN": _attention(False, SDPBackend.CUDNN_ATTENTION),
        },
    ),
    "causal attention, 4×16×2048×64 bf16": Workload(
        lambda q, k, v: F.attention(q, k, v, causal=True), (HEADS,) * 3, _plain_attention(True),
        operations=_attention_work(64, 2048, 2048, 64) / 2,
        libraries={
            "flash": _attention(True, SDPBackend.FLASH_ATTENTION),
            "cuDNN": _attention(True, SDPBackend.CUDNN_ATTENTION),
        },
    ),
    "causal attention, grouped, 1×32/8×2048×128 bf16": Workload(
        lambda q, k, v: F.attention(q, k, v, causal=True),
        ("bf16[1, 32, 2048, 128]", "bf16[1, 8, 2048, 128]", "bf16[1, 8, 2048, 128]"),
        _plain_attention(True), operations=_attention_work(32, 2048, 2048, 128) / 2,
    ),
    "decode, 32/8 heads of 128, 1 query, 16384 keys": Workload(
        lambda q, k, v: F.attention(q, k, v),
        ("bf16[1, 32, 1, 128]", "bf16[1, 8, 16384, 128]", "bf16[1, 8, 16384, 128]"),
        _plain_attention(False), 2 * 8 * 16384 * 128 * 2,
    ),
    "conv 3×3 + relu, 32×56×56×64 bf16 NHWC": Workload(
        _our_conv, ("bf16[32, 56, 56, 64]", "bf16[64, 64, 3, 3]"), _conv,
        operations=2.0 * 32 * 56 * 56 * 64 * 64 * 9, scale=0.125,
    ),
}  # fmt: skip
