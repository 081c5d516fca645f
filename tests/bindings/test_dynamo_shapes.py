"""``torch.compile`` with free sizes: sizes that no shape tells, overlapping results, searches."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _afresh() -> None:
    torch._dynamo.reset()


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="monograph", dynamic=True, options=options or None)


@pytest.mark.parametrize("size", [5, 7])
def test_a_size_that_only_an_argument_tells_reaches_the_backward_pass(size: int) -> None:
    """The gradient has the shape [n*n], of which n does not follow."""
    x = torch.randn(size, size, requires_grad=True)
    compiled(lambda x: x.flatten() * 2)(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((size, size), 2.0))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.expand(3, *x.shape),
        lambda x: x[:, None].expand(-1, 4, -1),
        lambda x: (x * 2).expand(3, *x.shape),
    ],
)
def test_expanded_results_have_torch_s_strides(function: Any) -> None:
    x = torch.randn(2, 7)
    got, want = compiled(function)(x), function(x)
    torch.testing.assert_close(got, want)
    assert got.stride() == want.stride()


def test_positions_in_nothing_are_no_division_by_zero() -> None:
    x = torch.zeros(1, 0, 0, 1, requires_grad=True)
    function = torch.compile(lambda x: x.topk(1, 0).values, backend="monograph")
    function(x).sum().backward()
    assert x.grad.shape == x.shape


def test_a_search_at_free_sizes_measures_small_arrays() -> None:
    x, i = torch.randn(2, 2, 2, 2), torch.tensor([1])
    got = compiled(lambda x, i: x[i][:, 0] * 2, level="O3", budget=0.1)(x, i)
    torch.testing.assert_close(got, x[i][:, 0] * 2)
