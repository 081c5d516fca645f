"""What torch says of ops that move elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def _pad(op: Any, x: torch.Tensor) -> torch.Tensor:
    """Dilate, pad what grows, then crop."""
    interior = op.interior or (0,) * x.dim()
    sizes = [n + max(n - 1, 0) * gap for n, gap in zip(x.shape, interior, strict=True)]
    dilated = torch.full(sizes, op.value, dtype=x.dtype)
    dilated[tuple(slice(None, None, gap + 1) for gap in interior)] = x
    amounts = [
        max(amount, 0)
        for pair in reversed(list(zip(op.low, op.high, strict=True)))
        for amount in pair
    ]
    grown = torch.nn.functional.pad(dilated, amounts, value=op.value)
    for axis, (low, high) in enumerate(zip(op.low, op.high, strict=True)):
        size = grown.shape[axis]
        grown = grown.narrow(axis, max(-low, 0), size - max(-low, 0) - max(-high, 0))
    return grown


def _pad_border(op: Any, x: torch.Tensor) -> torch.Tensor:
    for axis, (low, high) in enumerate(zip(op.low, op.high, strict=True)):
        index = np.arange(x.shape[axis])
        if max(low, high) > 0:
            index = np.pad(index, (max(low, 0), max(high, 0)), mode=op.mode)
        index = index[max(-low, 0) : index.size - max(-high, 0)]
        x = x.index_select(axis, torch.tensor(index))
    return x


def _slice(op: Any, x: torch.Tensor) -> torch.Tensor:
    return x[tuple(map(slice, op.starts, op.limits, op.steps))]


TORCH: dict[str, Callable[..., Any]] = {
    "concat": lambda op, *xs: torch.cat(xs, op.axis),
    "expand": lambda op, x: x.expand(op.shape),
    "flip": lambda op, x: torch.flip(x, op.axes),
    "pad": _pad,
    "pad_border": _pad_border,
    "reshape": lambda op, x: x.reshape(op.shape),
    "roll": lambda op, x: torch.roll(x, op.shifts, op.axes) if op.axes else x,
    "slice": _slice,
    "split": lambda op, x: torch.split(x, op.sizes, op.axis),
    "squeeze": lambda op, x: torch.squeeze(x, op.axes),
    "stack": lambda op, *xs: torch.stack(xs, op.axis),
    "tile": lambda op, x: torch.tile(x, op.repeats),
    "transpose": lambda op, x: x.permute(op.permutation),
    "tril": lambda op, x: torch.tril(x, op.diagonal),
    "triu": lambda op, x: torch.triu(x, op.diagonal),
    "unsqueeze": lambda op, x: x[
        tuple(
            None if axis in {a % (x.dim() + len(op.axes)) for a in op.axes} else slice(None)
            for axis in range(x.dim() + len(op.axes))
        )
    ],
}
