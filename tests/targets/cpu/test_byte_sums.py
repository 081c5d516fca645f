"""Sums of products of bytes, for results that are too few for tiles: one row of lanes each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F


@pytest.mark.parametrize("rows, depth, outputs", [(4, 64, 2), (64, 64, 2), (3, 32, 1), (5, 128, 3)])
@pytest.mark.parametrize("left, right", [("u1", "i1"), ("i1", "u1"), ("u1", "u1"), ("i1", "i1")])
def test_few_results_are_exact(rows: int, depth: int, outputs: int, left: str, right: str) -> None:
    generator = np.random.default_rng(0)

    def draw(dtype: str, *shape: int) -> Any:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max + 1, shape).astype(dtype)

    x, weight = draw(left, rows, depth), draw(right, outputs, depth)
    compiled = monograph.compile(lambda x: F.linear(F.cast(x, "i32"), F.cast(weight, "i32")), x)
    expected = x.astype(np.int64) @ weight.T.astype(np.int64)
    np.testing.assert_array_equal(compiled(x), expected)
