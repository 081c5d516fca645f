"""Reads at positions from data: what is out of range is an error, whatever is read there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import EvaluationError


@pytest.mark.parametrize("level", ["O0", "O2"])
@pytest.mark.parametrize("made", [lambda: F.zeros((4,), "f32"), lambda: np.zeros(4)])
def test_elements_that_are_all_the_same_have_an_end_too(made: Any, level: str) -> None:
    compiled = monograph.compile(
        lambda i, s: F.cast(F.take(made(), i, 0), "f32") + s, "i64[3]", "f32[3]", level=level
    )
    s = np.ones(3, np.float32)
    np.testing.assert_array_equal(compiled(np.array([0, 1, 3]), s), s)
    with pytest.raises(EvaluationError, match="out of range"):
        compiled(np.array([0, 1, 7]), s)


def test_an_operand_made_of_weights_and_a_free_size_is_made_in_every_call() -> None:
    weight = np.random.default_rng(0).normal(size=(1, 40)).astype(np.float32)

    def function(x: Any) -> Any:
        rows = x.shape[1]
        return x @ (weight * F.reshape(F.cast(F.arange(rows), "f32"), (rows, 1)))

    compiled = monograph.compile(function, "f32[b, m]")
    for b, m in ((3, 7), (2, 5)):
        x = np.random.default_rng(1).normal(size=(b, m)).astype(np.float32)
        scaled = weight * np.arange(m, dtype=np.float32)[:, None]
        np.testing.assert_allclose(compiled(x), x @ scaled, rtol=1e-5, atol=1e-5)
