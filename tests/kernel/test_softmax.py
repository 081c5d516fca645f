"""Which exponentials are decays, and which maxima need not look out for NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.kernel.expr import Apply, Reduce
from monograph.kernel.kernel import Kernel
from monograph.kernel.softmax import LARGEST_NUMBER, with_decays
from tests.kernel.build import flat

LOGITS = "f32[64, 128]"


def functions(kernel: Kernel) -> set[str]:
    """The functions that a kernel applies."""
    return {expr.function for expr in kernel.expressions() if isinstance(expr, Apply)}


def maxima(kernel: Kernel) -> set[str]:
    """The kinds of its reductions that are not sums."""
    kinds = {expr.kind for expr in kernel.expressions() if isinstance(expr, Reduce)}
    return kinds - {"sum"}


def softmax_or_zeros(x: Any, axis: int) -> Any:
    """A softmax that gives zeros for a row of -inf."""
    return F.softmax(x, axis, "zeros")


@pytest.mark.parametrize("function", (F.softmax, softmax_or_zeros))
@pytest.mark.parametrize("axis", (0, 1))
def test_a_softmax_is_made_of_decays(axis: int, function: Callable[..., Any]) -> None:
    kernel = with_decays(flat(lambda x: function(x, axis), LOGITS))
    assert "decay" in functions(kernel)
    assert "exp" not in functions(kernel)
    assert maxima(kernel) == {LARGEST_NUMBER}


def test_so_is_its_logarithm() -> None:
    kernel = with_decays(flat(lambda x: F.log_softmax(x, 1), LOGITS))
    assert "exp" not in functions(kernel)
    assert maxima(kernel) == {LARGEST_NUMBER}


def test_a_maximum_that_shows_itself_is_careful() -> None:
    def largest_over_sum(x: Any) -> Any:
        largest = F.max(x, axis=1, keepdims=True)
        total = F.sum(F.exp(x - largest), axis=1, keepdims=True)
        return F.where(total > 3.0, largest, total)

    kernel = with_decays(flat(largest_over_sum, LOGITS))
    assert "decay" in functions(kernel)
    assert maxima(kernel) == {"max"}


def test_other_exponentials_stay() -> None:
    kernel = flat(lambda x: F.exp(x - F.max(x * 2.0, axis=1, keepdims=True)), LOGITS)
    assert with_decays(kernel) is kernel
    plain = flat(F.exp, LOGITS)
    assert with_decays(plain) is plain


def spoilt(value: float, places: slice) -> np.ndarray[Any, Any]:
    x = np.random.default_rng(0).normal(size=(6, 40)).astype(np.float32)
    x[2, places] = value
    return x


@pytest.mark.parametrize("function", (F.softmax, F.log_softmax, softmax_or_zeros))
@pytest.mark.parametrize(
    "x",
    (
        spoilt(np.nan, slice(3, 4)),
        spoilt(np.nan, slice(None)),
        spoilt(-np.inf, slice(0, 30)),
        spoilt(-np.inf, slice(None)),
        spoilt(np.inf, slice(7, 8)),
        spoilt(1e30, slice(7, 9)),
    ),
    ids=("a NaN", "only NaN", "a mask", "all masked", "an infinity", "huge"),
)
def test_special_values_are_the_interpreters(
    function: Callable[..., Any], x: np.ndarray[Any, Any]
) -> None:
    graph = monograph.trace(lambda x: function(x, 1), x)
    (expected,) = monograph.interpret(graph, [x])
    found = monograph.compile(lambda x: function(x, 1), x, strict=True)(x)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(found == 0, expected == 0)


@pytest.mark.parametrize("bound", (1.0, 1e-38))
def test_what_is_less_than_a_maximum_by_much_has_no_reciprocal(bound: float) -> None:
    """Sums of what is left of it may be 0 or subnormal: 0 / 1e-40 is 0, 0 * (1 / 1e-40) is NaN."""

    def program(x: Any) -> Any:
        largest = F.max(x, axis=1, keepdims=True)
        weights = F.exp(x - F.where(largest < 5.0, 5.0, largest))
        total = F.sum(weights, axis=1, keepdims=True)
        return weights / F.where(total < bound, bound, total), weights / total

    x = np.full((3, 40), -82.0, np.float32)
    x[:, 1::2] = -np.inf
    (bounded, plain) = monograph.compile(program, x, strict=True)(x)
    (known, exact) = monograph.interpret(monograph.trace(program, x), [x])
    np.testing.assert_allclose(bounded, known, rtol=1e-5)
    np.testing.assert_array_equal(plain == 0, exact == 0)
