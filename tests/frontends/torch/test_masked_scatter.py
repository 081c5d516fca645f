"""``masked_scatter`` from a source that may be empty, and reads of empty tensors."""

from __future__ import annotations

import pytest
import torch

import monograph
from monograph.errors import EvaluationError

X = torch.arange(12.0).reshape(3, 4)
NONE = torch.zeros(3, 4, dtype=torch.bool)
ONE = NONE.clone()
ONE[1, 2] = True
EMPTY = torch.empty(0)


def scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return x.masked_scatter(mask, source)


@pytest.mark.parametrize("level", ["O0", "O2"])
def test_nothing_is_taken_from_an_empty_source_where_nothing_is_masked(level: str) -> None:
    compiled = monograph.compile(scatter, X, NONE, EMPTY, level=level)
    assert torch.equal(compiled(X, NONE, EMPTY), X)
    with pytest.raises(EvaluationError, match="out of range"):
        compiled(X, ONE, EMPTY)


def test_a_source_of_any_size_may_be_empty() -> None:
    size = torch.export.Dim("size", min=0)
    compiled = monograph.compile(
        scatter, X, ONE, torch.ones(5), dynamic_shapes=(None, None, {0: size})
    )
    assert torch.equal(compiled(X, NONE, EMPTY), X)
    source = torch.tensor([-1.0, -2.0])
    assert torch.equal(compiled(X, ONE, source), scatter(X, ONE, source))
    with pytest.raises(EvaluationError, match="out of range"):
        compiled(X, ONE, EMPTY)


def test_an_index_into_an_empty_tensor_is_out_of_range() -> None:
    places = torch.tensor([0, 3])
    compiled = monograph.compile(lambda x, i: x[i] * 2, EMPTY, places)
    with pytest.raises(EvaluationError, match="out of range"):
        compiled(EMPTY, places)
