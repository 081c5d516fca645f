"""How much long sums along columns lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph


@pytest.mark.parametrize("rows", (3000, 50_000))
@pytest.mark.parametrize(
    ("function", "reference"),
    ((F.sum, np.sum), (F.mean, np.mean), (F.variance, np.var)),
    ids=("sum", "mean", "variance"),
)
def test_long_columns_lose_hardly_more_than_the_last_rounding(
    function: Callable[..., Any], reference: Callable[..., Any], rows: int
) -> None:
    """One rounding loses 2.2e-8 of a number on average."""
    x = np.random.default_rng(0).uniform(0.5, 2, (rows, 64)).astype(np.float32)
    graph = monograph.trace(lambda x: function(x, 0), f"f32[{rows}, 64]")
    (found,) = compile_graph(graph, Options(cache=False))(x)
    exact = reference(x.astype(np.float64), 0)
    assert np.mean(np.abs(found - exact) / exact) < 5e-8


@pytest.mark.parametrize("rows", ("3000", "n"))
def test_columns_lose_as_little_with_any_number_of_rows_and_what_is_fused(rows: str) -> None:
    x = np.random.default_rng(0).uniform(0.5, 2, (3000, 64)).astype(np.float32)
    compiled = monograph.compile(lambda x: F.sum(x, 0, keepdims=True) + x * 0.0, f"f32[{rows}, 64]")
    exact = x.astype(np.float64).sum(0)
    assert np.mean(np.abs(compiled(x)[0] - exact) / exact) < 5e-8


@pytest.mark.parametrize("rows", (48, 96, 128))
def test_columns_of_a_batch_lose_no_more_than_eager(rows: int) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).uniform(0.5, 2, (rows, 256)).astype(np.float32)
    compiled = monograph.compile(lambda x: F.sum(x, 0), f"f32[{rows}, 256]")
    exact = x.astype(np.float64).sum(0)
    eager = torch.from_numpy(x).sum(0).numpy()
    assert np.linalg.norm(compiled(x) - exact) < 1.3 * np.linalg.norm(eager - exact)
