"""The CTC loss, with targets as rows or one after the other, long, short and impossible."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from monograph.frontends.torch.program import import_graph_module
from monograph.frontends.torch.runner import TorchModel

TIME, CLASSES = 6, 4


def loss(log_probs: Any, targets: Any, inputs: list[int], labels: list[int]) -> Any:
    return torch.nn.functional.ctc_loss(log_probs, targets, inputs, labels, reduction="none")


@pytest.mark.parametrize(
    ("labels", "inputs"),
    [
        ([3, 2], [6, 6]),
        ([0, 2], [6, 5]),
        ([3, 3], [3, 2]),  # a target that is longer than its input has no alignment
        ([1, 0], [1, 1]),
    ],
)
@pytest.mark.parametrize("joined", [False, True])
def test_ctc_loss_agrees_with_torch(labels: list[int], inputs: list[int], joined: bool) -> None:
    torch.manual_seed(0)
    log_probs = torch.randn(TIME, 2, CLASSES).log_softmax(-1)
    rows = torch.tensor([[1, 2, 2], [3, 3, 1]])
    pieces = [row[:count] for row, count in zip(rows, labels, strict=True)]
    targets = torch.cat(pieces) if joined else rows
    expected = loss(log_probs, targets, inputs, labels)

    def function(log_probs: Any, targets: Any) -> Any:
        return loss(log_probs, targets, inputs, labels)

    module = make_fx(function, tracing_mode="real", _error_on_data_dependent_ops=False)(
        log_probs, targets
    )
    got = TorchModel(import_graph_module(module))(log_probs, targets)
    torch.testing.assert_close(got, expected)
