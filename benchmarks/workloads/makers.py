"""Makers of arrays: each gives a function, so that nothing is allocated before it is needed.

Inputs are normally distributed unless a case says otherwise; ``strided`` and ``transposed`` ones
are views, which a peer that takes contiguous arrays only has to copy in every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.workloads.case import Data

Make = Callable[[], Data]


def normal(*shape: int, dtype: torch.dtype = torch.float32, count: int = 1) -> Make:
    """``count`` arrays of normally distributed numbers."""
    return lambda: Data(tuple(torch.randn(shape).to(dtype) for _ in range(count)))


def uniform(*shape: int, dtype: torch.dtype = torch.float32) -> Make:
    """One array of numbers in [0, 1): sums of them are well conditioned."""
    return lambda: Data((torch.rand(shape).to(dtype),))


def normed(
    *shape: int,
    axis: int = -1,
    arrays: int = 2,
    constants: int = 2,
    dtype: torch.dtype = torch.float32,
) -> Make:
    """Arrays, and as constants a scale (and a shift) along an axis of theirs."""

    def make() -> Data:
        inputs = tuple(torch.randn(shape).to(dtype) for _ in range(arrays))
        scale = (torch.rand(shape[axis]) + 0.5).to(dtype)
        shift = torch.randn(shape[axis]).to(dtype)
        return Data(inputs, (scale, shift)[:constants])

    return make


def labelled(rows: int, classes: int) -> Make:
    """Logits, and a label for each row."""
    return lambda: Data((torch.randn(rows, classes), torch.randint(0, classes, (rows,))))


def transposed(rows: int, columns: int) -> Make:
    """A transposed view and a contiguous array of the same shape."""
    return lambda: Data((torch.randn(columns, rows).T, torch.randn(rows, columns)))


def strided(rows: int, columns: int) -> Make:
    """Every other column of an array twice as wide."""
    return lambda: Data((torch.randn(rows, 2 * columns)[:, ::2],))


def product(*shape: int) -> Make:
    """The factors of a product of (rows, inner, columns), both given in each call."""
    rows, inner, columns = shape
    return lambda: Data((torch.randn(rows, inner), torch.randn(inner, columns)))


def weighted(rows: int, inner: int, columns: int, *, constant: bool) -> Make:
    """Rows and the weight of a linear layer, scaled so that results stay near one."""

    def make() -> Data:
        rows_given = torch.randn(rows, inner)
        weight = torch.randn(columns, inner) / inner**0.5
        return Data((rows_given,), (weight,)) if constant else Data((rows_given, weight))

    return make


HALVES = {"bf16": torch.bfloat16, "f16": torch.float16}
SIDE = 4096
ROWS = tuple((16 * 2**20 // columns, columns) for columns in (1024, 4096, 16384, 65536))


def in_halves(name: str, make: Callable[..., Make], *shape: int, **options: Any) -> dict[str, Make]:
    """The same case in each type of 16 bits."""
    return {
        f"{name}-{suffix}": make(*shape, dtype=dtype, **options) for suffix, dtype in HALVES.items()
    }
