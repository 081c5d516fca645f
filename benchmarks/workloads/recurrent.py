"""Recurrent layers over fifty steps: short steps of small states, and weights read at each of many.

A step can only begin when the one before is done, so that what is measured is how little a step
takes beside the product with its state: from states that fit the first cache to weights that come
from the third one in every step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.workloads.case import Inputs, module_workload

STEPS = 50


class Outputs(nn.Module):
    """The outputs of a recurrent layer at each step."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """[steps, batch, features] to [steps, batch, directions * size]."""
        outputs: Tensor = self.layer(x)[0]
        return outputs


def _cases(kind: str, both: bool = False) -> dict[str, dict[str, Any]]:
    """A small, a usual and a large size, with few and with many sequences."""
    name = f"{kind}-both" if both else kind
    return {
        f"{name}-{batch}x{STEPS}x{size}": {"size": size, "batch": batch, "both": both}
        for size in (64, 256, 1024)
        for batch in (1, 4, 32)
    }


@module_workload("recurrent", {**_cases("lstm"), **_cases("lstm", both=True)}, ("lstm-4x50x256",))
def lstm_layer(size: int, batch: int, both: bool) -> tuple[nn.Module, Inputs]:
    """One layer of an LSTM, in one direction or both."""
    return Outputs(nn.LSTM(size, size, bidirectional=both)), (torch.randn(STEPS, batch, size),)


@module_workload("recurrent", {**_cases("gru"), **_cases("gru", both=True)}, ("gru-both-1x50x256",))
def gru_layer(size: int, batch: int, both: bool) -> tuple[nn.Module, Inputs]:
    """One layer of gated recurrent units, in one direction or both."""
    return Outputs(nn.GRU(size, size, bidirectional=both)), (torch.randn(STEPS, batch, size),)
