"""What torch says of contractions."""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_letters
from typing import Any

import torch


def _dot_general(op: Any, lhs: torch.Tensor, rhs: torch.Tensor) -> torch.Tensor:
    letters = iter(ascii_letters)
    left = [next(letters) for _ in range(lhs.dim())]
    right = [next(letters) for _ in range(rhs.dim())]
    for a, b in zip(
        (*op.lhs_batch, *op.lhs_contracting), (*op.rhs_batch, *op.rhs_contracting), strict=True
    ):
        right[b] = left[a]
    batch = [left[axis] for axis in op.lhs_batch]
    free = [letter for letter in (*left, *right) if (letter in left) != (letter in right)]
    return torch.einsum(f"{''.join(left)},{''.join(right)}->{''.join(batch + free)}", lhs, rhs)


TORCH: dict[str, Callable[..., Any]] = {
    "dot_general": _dot_general,
    "einsum": lambda op, *xs: torch.einsum(op.equation, *xs),
    "erf_inv": lambda op, x: torch.erfinv(x),
    "linear": lambda op, *xs: torch.nn.functional.linear(*xs),
    "matmul": lambda op, a, b: torch.matmul(a, b),
}
