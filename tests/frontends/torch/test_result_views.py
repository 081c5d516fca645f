"""Results that are arguments, or views of arguments and results, are not computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from monograph.bindings.dynamo import monograph
from monograph.frontends.torch.result_views import View, split_results, viewed


def traced(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    return make_fx(function, tracing_mode="fake")(*inputs)


def split(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[Any, tuple[View, ...]]:
    module, views = split_results(traced(function, *inputs))
    return module, views


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
    module, views = split(function, x)
    made = module(x)
    assert len(made) == computed
    results = viewed(views, [x], made) if views else made
    for result, expected in zip(results, function(x), strict=True):
        if expected is None:
            assert result is None
            continue
        torch.testing.assert_close(result, expected)
        assert result.stride() == expected.stride()


def test_a_graph_that_writes_stays_as_it_is() -> None:
    given = traced(lambda x: (x.add_(1), x.t()), X.clone())
    assert split_results(given) == (given, ())


def test_a_result_that_nothing_is_computed_for_stays() -> None:
    given = traced(lambda x: (x.t(), x), X)
    assert split_results(given) == (given, ())


def test_what_a_program_returns_shares_memory_as_in_eager() -> None:
    def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return y, y[0], y.t()

    whole, row, turned = torch.compile(parts, backend=monograph)(X)
    row.zero_()
    assert not whole[0].any() and not turned[:, 0].any()
