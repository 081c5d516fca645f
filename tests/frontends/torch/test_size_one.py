"""Sizes that ``torch.export`` finds out (``Dim.AUTO``, ``Dim.DYNAMIC``) may be 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import monograph
from monograph.errors import InputError

AUTO, DYNAMIC = torch.export.Dim.AUTO, torch.export.Dim.DYNAMIC


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 6)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.layer(x)).reshape(x.shape[0], -1, 3)
        return torch.softmax(y, -1).sum(1), x.mean(0)


@pytest.mark.parametrize("hint", [AUTO, DYNAMIC], ids=["auto", "dynamic"])
@pytest.mark.parametrize("example", [1, 3])
def test_any_size_from_one_on_is_taken(hint: Any, example: int) -> None:
    model = Network().requires_grad_(False)
    compiled = monograph.compile(model, torch.randn(example, 4), dynamic_shapes=({0: hint},))
    for size in (1, 2, 7):
        x = torch.randn(size, 4)
        torch.testing.assert_close(compiled(x), model(x))


def test_several_sizes_may_be_one_together() -> None:
    def attend(x: Any, mask: Any) -> Any:
        scores = x @ x.transpose(-1, -2) + mask[:, None, :]
        return torch.softmax(scores, -1) @ x

    def examples(batch: int, length: int) -> Any:
        return torch.randn(batch, length, 4), torch.randn(batch, length)

    shapes = {"x": {0: AUTO, 1: AUTO}, "mask": {0: AUTO, 1: AUTO}}
    compiled = monograph.compile(attend, *examples(1, 5), dynamic_shapes=shapes)
    for sizes in ((1, 1), (1, 3), (3, 1), (2, 6)):
        given = examples(*sizes)
        torch.testing.assert_close(compiled(*given), attend(*given))


def squeezed(x: Any) -> Any:
    return x.squeeze(0)


def chosen(x: Any) -> Any:
    return x * 0 if x.shape[0] == 1 else x * 2


def by_layout(x: Any) -> Any:
    return x.t() * 1 if x.t().is_contiguous() else x * 3


@pytest.mark.parametrize("function", [squeezed, chosen, by_layout])
def test_size_one_is_refused_where_it_is_another_program(function: Callable[..., Any]) -> None:
    compiled = monograph.compile(function, torch.randn(3, 4), dynamic_shapes=({0: AUTO},))
    x = torch.randn(2, 4)
    torch.testing.assert_close(compiled(x), function(x))
    with pytest.raises(InputError, match="outside its declared range"):
        compiled(torch.randn(1, 4))


@pytest.mark.parametrize("function", [squeezed, chosen, by_layout])
def test_an_example_of_size_one_is_right_where_it_is_another_program(
    function: Callable[..., Any],
) -> None:
    x = torch.randn(1, 4)
    compiled = monograph.compile(function, x, dynamic_shapes=({0: AUTO},))
    torch.testing.assert_close(compiled(x), function(x))
    with pytest.raises(InputError, match="wrong size"):
        compiled(torch.randn(3, 4))
