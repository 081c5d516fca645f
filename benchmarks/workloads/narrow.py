"""Layers in few bits: floats of 16 bits, and weights that are bytes with scales.

Names are rows × inner × columns. A weight of bytes is what its scales make of it: one for each
column, or one for each group of 128 steps of a column (``groups``), as models for one user's
answers are stored.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workloads.case import Inputs, module_workload
from benchmarks.workloads.makers import HALVES

SHAPES = ((768, 3072), (4096, 4096))
ROWS = (1, 16, 128)
GROUP = 128

LAYERS = {
    f"linear-{name}-{rows}x{inner}x{columns}": {
        "shape": (rows, inner, columns),
        "dtype": dtype,
    }
    for name, dtype in HALVES.items()
    for inner, columns in SHAPES
    for rows in ROWS
}
STORED = {
    f"bytes-{name}-{rows}x{inner}x{columns}{'-groups' if group else ''}": {
        "shape": (rows, inner, columns),
        "dtype": dtype,
        "group": group,
    }
    for name, dtype in {"f32": torch.float32, "bf16": torch.bfloat16}.items()
    for inner, columns in SHAPES
    for rows in ROWS
    for group in (0, GROUP)
}


@module_workload("narrow", LAYERS, telling=("linear-bf16-1x4096x4096", "linear-bf16-128x768x3072"))
def narrow_linear(shape: tuple[int, int, int], dtype: torch.dtype) -> tuple[nn.Module, Inputs]:
    """A linear layer in 16 bits."""
    rows, inner, columns = shape
    return nn.Linear(inner, columns, bias=False).to(dtype), (torch.randn(rows, inner).to(dtype),)


class BytesLinear(nn.Module):
    """A linear layer whose weight is bytes and scales."""

    def __init__(self, inner: int, columns: int, dtype: torch.dtype, group: int) -> None:
        super().__init__()
        self.stored = nn.Buffer(torch.randint(-127, 128, (columns, inner)).to(torch.int8))
        self.scales = nn.Buffer((torch.rand(columns, inner // (group or inner)) / inner).to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        """The layer; what the weight is, is computed as users write it."""
        columns, inner = self.stored.shape
        groups = self.stored.to(self.scales.dtype).view(columns, self.scales.shape[1], -1)
        weight = groups * self.scales[:, :, None]
        return functional.linear(x, weight.view(columns, inner))


@module_workload(
    "narrow", STORED, telling=("bytes-f32-1x4096x4096", "bytes-bf16-1x4096x4096-groups")
)
def bytes_linear(
    shape: tuple[int, int, int], dtype: torch.dtype, group: int
) -> tuple[nn.Module, Inputs]:
    """A linear layer whose weight is bytes."""
    rows, inner, columns = shape
    return BytesLinear(inner, columns, dtype, group), (torch.randn(rows, inner).to(dtype),)
