"""Ops whose shapes torch does not know without data, captured without any."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from monograph.frontends.torch import import_torch
from monograph.frontends.torch.runner import TorchModel


def check(function: Any, *inputs: torch.Tensor) -> None:
    torch.testing.assert_close(
        TorchModel(import_torch(function, *inputs))(*inputs), function(*inputs)
    )


@pytest.mark.parametrize("driver", [None, "gels", "gelsd", "gelss"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((6, 3), (6, 2)),
        ((3, 6), (3, 2)),
        ((2, 6, 3), (2, 6, 2)),
        ((6, 3), (6,)),
        ((2, 6, 3), (2, 6)),
    ],
)
def test_least_squares_tell_what_their_driver_tells(
    driver: str | None, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(shape, dtype=torch.float64) for shape in (left, right))
    check(lambda a, b: tuple(torch.linalg.lstsq(a, b, driver=driver)), a, b)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("joined", [False, True])
def test_a_ctc_loss_takes_lengths_that_are_data(reduction: str, joined: bool) -> None:
    torch.manual_seed(0)
    scores = torch.randn(7, 2, 4).log_softmax(-1)
    targets = torch.tensor([1, 2, 2, 3, 1] if joined else [[1, 2, 2], [3, 1, 0]])

    def loss(scores: Any, targets: Any, times: Any, labels: Any) -> Any:
        return torch.nn.functional.ctc_loss(scores, targets, times, labels, reduction=reduction)

    check(loss, scores, targets, torch.tensor([7, 5]), torch.tensor([3, 2]))


def test_a_ctc_loss_takes_lengths_that_are_numbers_and_one_target_alone() -> None:
    scores, targets = torch.randn(7, 2, 4).log_softmax(-1), torch.tensor([[1, 2, 2], [3, 1, 0]])
    loss = torch.nn.functional.ctc_loss
    check(lambda scores, targets: loss(scores, targets, (7, 5), (3, 2)), scores, targets)
    times, labels = torch.tensor(7), torch.tensor(3)
    check(lambda scores, row: loss(scores, row, times, labels), scores[:, 0], targets[0])
