"""Functions that look at values in torch, captured without any."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from monograph.errors import MonographError
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


@pytest.mark.parametrize("shape", [(4, 3), (4,), (4, 1)])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_gaussian_loss_agrees_with_torch(shape: tuple[int, ...], reduction: str) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(4, 3), torch.randn(4, 3), torch.rand(shape))

    def loss(x: Any, y: Any, variance: Any) -> Any:
        formula = torch.nn.functional.gaussian_nll_loss
        return formula(x, y, variance, full=True, eps=0.3, reduction=reduction)

    def gradient(x: Any, y: Any, variance: Any) -> Any:
        with torch.enable_grad():
            leaf = variance.detach().requires_grad_(True)
            return torch.autograd.grad(loss(x, y, leaf).sum(), leaf)[0]

    for function in (loss, gradient):
        got = TorchModel(import_torch(function, *inputs))(*inputs)
        torch.testing.assert_close(got, function(*inputs))


def test_a_gaussian_loss_refuses_negative_variances_when_it_runs() -> None:
    x = torch.ones(3)
    model = TorchModel(import_torch(torch.nn.functional.gaussian_nll_loss, x, x, x))
    with pytest.raises(MonographError, match="negative"):
        model(x, x, -x)


@pytest.mark.parametrize("places", [[2, 5], [5, 2], [-1, 40], [0, 0, 3]])
def test_a_split_at_places_that_a_tensor_names(places: list[int]) -> None:
    x, at = torch.arange(14.0).reshape(7, 2), torch.tensor(places)
    model = TorchModel(import_torch(lambda x, at: torch.tensor_split(x, at), x, at))
    for part, expected in zip(model(x, at), torch.tensor_split(x, at), strict=True):
        torch.testing.assert_close(part, expected)


@pytest.mark.parametrize("repeats", [False, True])
def test_combinations_agree_with_torch(repeats: bool) -> None:
    x = torch.arange(5.0)

    def pairs(x: Any) -> Any:
        return torch.combinations(x, 2, repeats)

    torch.testing.assert_close(TorchModel(import_torch(pairs, x))(x), pairs(x))


@pytest.mark.parametrize(("size", "step"), [(2, 2), (3, 3), (2, 3), (7, 9)])
def test_writing_windows_leaves_what_lies_in_none_of_them(size: int, step: int) -> None:
    def program(x: Any) -> Any:
        y = x.clone()
        y.unfold(0, size, step).mul_(3.0)
        return y, y.unfold(-1, 2, 3) + 1.0

    x = torch.arange(1.0, 36.0).reshape(7, 5)
    torch.testing.assert_close(TorchModel(import_torch(program, x))(x), program(x))
