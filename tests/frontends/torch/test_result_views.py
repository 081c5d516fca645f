"""Results that are arguments, or views of arguments and results, are not computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from monograph.bindings.dynamo import monograph
from monograph.frontends.torch.result_views import Results, split_results, view_results


def traced(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    return make_fx(function, tracing_mode="fake")(*inputs)


def split(function: Callable[..., Any], *inputs: torch.Tensor) -> Results:
    return split_results(traced(function, *inputs))


X = torch.arange(12.0).reshape(3, 4)
CASES: list[tuple[Callable[..., Any], int]] = [
    (lambda x: (x * 2, x, x.t()), 1),
    (lambda x: (x * 2, x[1:, ::2]), 1),
    (lambda x: (x * 2).split(2, dim=1), 1),
    (lambda x: ((y := x * 2), y, y.t(), y[1]), 1),
    (lambda x: ((x * 2).t(), x + 1), 2),
    (lambda x: ((x * 2)[:1], x + 1), 2),  # a part alone does not keep the whole
    (lambda x: (None, x * 2, x), 2),
]


@pytest.mark.parametrize(("function", "computed"), CASES)
@pytest.mark.parametrize("x", [X, torch.arange(40.0).reshape(5, 8)[1:4, 2:6]])
def test_results_are_those_of_torch(
    function: Callable[..., Any], computed: int, x: torch.Tensor
) -> None:
    parts = split(function, x)
    made = parts.module(x)
    assert len(made) == computed
    results = view_results(parts, [x], made) if parts.views else made
    for result, expected in zip(results, function(x), strict=True):
        if expected is None:
            assert result is None
            continue
        torch.testing.assert_close(result, expected)
        assert result.stride() == expected.stride()


def test_a_graph_that_writes_stays_as_it_is() -> None:
    given = traced(lambda x: (x.add_(1), x.t()), X.clone())
    assert split_results(given) == Results(given, ())


def test_a_result_that_nothing_is_computed_for_stays() -> None:
    given = traced(lambda x: (x.t(), x), X)
    assert split_results(given) == Results(given, ())


def test_what_a_program_returns_shares_memory_as_in_eager() -> None:
    def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return y, y[0], y.t()

    whole, row, turned = torch.compile(parts, backend=monograph)(X)
    row.zero_()
    assert not whole[0].any() and not turned[:, 0].any()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.flatten(), x + 1),
        lambda x: (x.flatten(),),
        lambda x: (x.mT.chunk(2)[-1], x + 1),
        lambda x: (x.mH.chunk(2)[-1], x * 2),
        lambda x: ((y := x * 2), y.mT.chunk(2)[-1], y.flatten()[3:], x.sum(), x.flatten()),
        lambda x: (x.split(3)[1], x.diagonal(), x.unfold(0, 3, 2), x.sum()),
        lambda x: (x.unbind(0)[2], x[1:, 2], x.mT),
    ],
)
def test_views_of_any_sizes_and_places_are_those_of_torch(
    function: Callable[..., Any], dynamic: bool
) -> None:
    """Torch reads what is returned as a view by the sizes, strides and offset that it has."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=monograph, dynamic=dynamic)
    for size in (8, 10):
        x = torch.randn(size * size + 5, dtype=torch.complex64)[5:].view(size, size)
        for result, expected in zip(compiled(x), function(x), strict=True):
            torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-5)
