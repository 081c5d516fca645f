"""Programs that differentiate inside of themselves, beside state that they update."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import pytest
import torch

import monograph
from monograph.frontends.torch.mutation_guard import HeldTensors


class Step(torch.nn.Module):
    """The gradients of a layer and its batch norm."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, features)
        self.norm = torch.nn.BatchNorm1d(features)

    def forward(self, x: torch.Tensor) -> Any:
        with torch.enable_grad():
            loss = self.norm(self.layer(x)).pow(3).sum()
            return torch.autograd.grad(loss, list(self.parameters()))


def same_state(found: Iterable[torch.Tensor], expected: Step) -> None:
    for buffer, other in zip(found, expected.buffers(), strict=True):
        torch.testing.assert_close(buffer, other)


@pytest.mark.parametrize("features", [1, 3])
def test_gradients_and_updates_of_state_agree_with_eager(features: int) -> None:
    torch.manual_seed(0)
    step = Step(features)
    before, expected = copy.deepcopy(step), copy.deepcopy(step)
    x = torch.randn(6, 4)
    compiled: Any = monograph.compile(lambda x: step(x), x)
    for _ in range(2):
        torch.testing.assert_close(tuple(compiled(x)), tuple(expected(x)), rtol=1e-4, atol=1e-5)
        count, mean, variance = compiled.state.values()  # in the order in which they are written
        same_state((mean, variance, count), expected)
    same_state(step.buffers(), before)


def test_what_is_written_is_put_back() -> None:
    number, vector, table = torch.ones(1), torch.ones(2), torch.ones(2, 2)
    with HeldTensors():
        number.add_(1)
        vector += 1
        table[0] = 5
    assert number.item() == 1
    assert vector.tolist() == [1, 1]
    assert table.tolist() == [[1, 1], [1, 1]]
