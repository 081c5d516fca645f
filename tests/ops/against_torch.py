"""A function of ours beside one of torch's: values and gradients, static or symbolic shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from monograph.autodiff.vjp import value_and_grad
from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ops import reduce


def agree(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    *arrays: np.ndarray,
    types: Sequence[str] | None = None,
    tolerance: float = 1e-9,
) -> None:
    """Results, and gradients by every float operand, are equal within ``tolerance``.

    ``types`` gives the operands symbolic shapes (``f64[batch, 3, height, width]``).
    """
    leaves = [torch.tensor(array, requires_grad=array.dtype.kind == "f") for array in arrays]
    expected = theirs(*leaves)
    weights = np.random.default_rng(5).normal(size=tuple(expected.shape))

    def loss(*values: Any) -> Any:
        result = ours(*values)
        return reduce.sum(result * values_like(weights, result)), result

    graph = trace(loss, *(arrays if types is None else types), name="test")
    _, value, *gradients = interpret(value_and_grad(graph), list(arrays))
    np.testing.assert_allclose(
        value, expected.detach().numpy(), rtol=tolerance, atol=tolerance, equal_nan=True
    )
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    total = (expected * torch.tensor(weights, dtype=expected.dtype)).sum()
    theirs_by = torch.autograd.grad(total, wanted)
    for got, want in zip(gradients, theirs_by, strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=tolerance, atol=tolerance)


def values_like(weights: np.ndarray, result: Any) -> np.ndarray:
    """The weights in the result's dtype."""
    return weights.astype(result.dtype.numpy)


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal f64 numbers."""
    return np.random.default_rng(seed).normal(size=shape)
