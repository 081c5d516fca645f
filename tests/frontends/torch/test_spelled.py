"""Functions that look at values in torch, captured without any."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from monograph.frontends.torch import import_torch
from monograph.frontends.torch.runner import TorchModel

WEIGHTS = torch.tensor([1, 2, 1, 3, 1])


@pytest.mark.parametrize(
    "function",
    [
        torch.cov,
        lambda x: x.cov(correction=0),
        lambda x: torch.cov(x, fweights=WEIGHTS),
        lambda x: torch.cov(x, fweights=WEIGHTS, aweights=WEIGHTS / 2),
        lambda x: torch.cov(x[0]),
        torch.corrcoef,
        lambda x: torch.corrcoef(x[0]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_covariances_agree_with_torch(function: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5, dtype=dtype)
    torch.testing.assert_close(TorchModel(import_torch(function, x))(x), function(x))
