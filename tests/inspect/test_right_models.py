"""Right models are not called wrong, however they magnify rounding; and faults in them are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.inspect.bisect import bisect
from monograph.inspect.evaluate import Evaluator
from monograph.inspect.precise import judge
from monograph.inspect.reference import Reference
from monograph.inspect.selections import choices_of
from monograph.inspect.validate import validate
from monograph.ir.graph import Graph, Value
from monograph.passes import recognize
from monograph.rewrite.rule import Rule

NEARLY_EQUAL = 1e-7


def _shares(x: Value) -> Value:
    """Numbers that differ by a few units in the last place, as computed."""
    return F.softmax(F.sin(x) * NEARLY_EQUAL, axis=-1)


def _total(x: Value) -> Value:
    """1, but for rounding."""
    return F.sum(F.softmax(x, axis=-1), axis=-1)


def _narrow_difference(x: Value) -> Value:
    """Zero, but for where narrow floats are rounded: they are too large for the rest."""
    x = x * 400.0
    return F.sum(F.cast(x, "bf16"), axis=-1) - F.cast(F.sum(x, axis=-1), "bf16")


def _distances(x: Value) -> Value:
    squares = F.sum(x * x, axis=-1, keepdims=True)
    return F.sqrt(squares - 2.0 * (x @ F.transpose(x, (1, 0))) + F.transpose(squares, (1, 0)))


def _angle(x: Value) -> Value:
    unit = x / F.sqrt(F.sum(x * x, axis=-1, keepdims=True))
    return F.acos(F.sum(unit * unit, axis=-1))


def _chaos(x: Value) -> Any:
    def step(state: Value, each: Value) -> Any:
        new = 3.9 * state * (1.0 - state) + each
        return new, new

    return F.scan(step, F.sigmoid(F.exp(x)), F.zeros((30, *x.shape), x.dtype))[0]


def _entropy(x: Value) -> Value:
    shares = F.softmax(x * 50.0, axis=-1)
    return -F.sum(shares * F.log(shares), axis=-1)


RIGHT: dict[str, Callable[[Value], Any]] = {
    "large numbers that cancel": _narrow_difference,
    "the root of what should be zero": lambda x: F.sqrt(1.0 - _total(x)),
    "the logarithm of what should be zero": lambda x: F.log(1.0 - _total(x)),
    "one over what should be zero": lambda x: 1.0 / (1.0 - _total(x)),
    "the arc cosine of one": _angle,
    "distances to itself": _distances,
    "the logarithm of what a sigmoid leaves": lambda x: F.log(1.0 - F.sigmoid(x * 10.0)),
    "a loop that magnifies rounding": _chaos,
    "the order of equal numbers": lambda x: F.argsort(_shares(x), axis=-1),
    "the greatest of equal numbers": lambda x: F.argmax(_shares(x), axis=-1),
    "the best of equal numbers": lambda x: F.top_k(_shares(x), 5),
    "the median of equal numbers": lambda x: F.median(_shares(x)),
    "an order that was sliced and cast": lambda x: F.cast(
        F.transpose(F.argsort(-_shares(x), axis=-1)[:, 2:5], (1, 0)), "f32"
    ),
    "where equal numbers are pooled": lambda x: F.max_pool_with_indices(_shares(x)[:, None], 2),
    "singular vectors": lambda x: F.svd(x[:6, :4]),
    "silu, spelled out": lambda x: x * F.sigmoid(x),
    "softplus, spelled out": lambda x: F.log(1.0 + F.exp(x)),
    "softmax, spelled out": lambda x: F.exp(x) / F.sum(F.exp(x), axis=-1, keepdims=True),
    "the logarithm of a softmax": lambda x: F.log(F.softmax(x, axis=-1)),
    "the entropy of a softmax": _entropy,
    "eigenvectors of a matrix of lower rank": lambda x: F.eigh(
        F.matmul(x[:, :4], F.transpose(x[:, :4], (1, 0)))
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_model_is_not_called_wrong(name: str) -> None:
    found = validate(monograph.trace(RIGHT[name], "f32[8, 40]"))
    assert found.is_right, str(found)


@pytest.mark.parametrize(
    "name",
    ["the logarithm of what should be zero", "the order of equal numbers", "singular vectors"],
)
def test_no_kernel_of_a_right_model_is_blamed(name: str) -> None:
    found = bisect(monograph.trace(RIGHT[name], "f32[8, 40]"))
    assert not found.is_found, str(found)


def _divergence(p: Any, q: Any) -> Any:
    return (p * (p / q).log()).sum(-1)


TORCH: dict[str, Callable[[Any, Any], Any]] = {
    "angles of what has no imaginary part": lambda torch, x: torch.fft.rfft(x).angle(),
    "magnitudes of transforms with infinities": lambda torch, x: torch.stft(
        x, 16, 8, window=torch.hann_window(16), return_complex=True
    ).abs(),
    "products of complex infinities": lambda torch, x: (
        torch.complex(x, -x) @ torch.complex(x, x).mH
    ).abs(),
    "shares that nearly vanish": lambda torch, x: _divergence(
        torch.softmax(x * 95, -1), torch.softmax(x, -1)
    ),
    "what LAPACK does not look for": lambda torch, x: torch.linalg.cholesky(
        torch.cov(x) + torch.eye(4)
    ),
    "random numbers": lambda torch, x: x + torch.rand_like(x) * torch.randn(x.shape),
    "a mask drawn by chance": lambda torch, x: x * torch.bernoulli(torch.sigmoid(x)),
    "what torch refuses of odd inputs": lambda torch, x: torch.nn.functional.binary_cross_entropy(
        torch.sigmoid(x), (x > 0).float()
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_a_right_torch_model_is_not_called_wrong(name: str) -> None:
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return TORCH[name](torch, x)

    found = monograph.validate(Model(), torch.linspace(-2, 2, 160).reshape(4, 40))
    assert found.is_right, str(found)


def test_what_overflows_in_torch_alone_is_not_wrong() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([[1e30, -2e30, 5.0, 7.0]])
    found = monograph.validate(torch.nn.LayerNorm(4), x)
    assert found.is_right, str(found)


def test_torch_is_asked_about_numbers_without_a_shape() -> None:
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return x == y

    found = monograph.validate(Model(), torch.tensor(True), torch.tensor(False))
    assert found.word == "exact", str(found)


def _word(graph: Graph, x: np.ndarray, got: np.ndarray) -> str:
    expected = np.asarray(monograph.interpret(graph, [x])[0])
    return Reference(graph, [x]).judge(0, got.astype(expected.dtype), expected).word


def test_what_cancels_inside_an_op_is_no_fault() -> None:
    """A norm of two numbers is 1 and -1, of which a bias near the scale leaves little."""
    graph = monograph.trace(lambda x, s, b: F.layer_norm(x, s, b), "f32[1, 2]", "f32[2]", "f32[2]")
    inputs = [np.float32([[3.1, 5.3]]), np.float32([1.3, -1.3]), np.float32([1.31, 1.31])]
    reference = Reference(graph, inputs)
    assert reference.answers is not None
    exact = np.asarray(reference.answers[0], np.float32)
    ulp = np.spacing(np.float32(1.3))
    near, far = exact + np.float32([[ulp, 0]]), exact + np.float32([[100 * ulp, 0]])
    assert exact[0, 0] < 0.02
    assert reference.judge(0, near, exact).word == "within rounding"
    assert reference.judge(0, far, exact).word == "wrong"


SCORES = np.array([[0.3, 0.1, 0.9, 0.5], [4.0, 1.0, 3.0, 2.0]], np.float32)


def _order(x: Value) -> Value:
    return F.argsort(F.exp(x), axis=-1)


@pytest.mark.parametrize(
    ("got", "word"),
    [
        ([[1, 0, 3, 2], [1, 3, 2, 0]], "exact"),
        ([[1, 0, 2, 3], [1, 3, 2, 0]], "wrong"),
        ([[1, 0, 3, 3], [1, 3, 2, 0]], "wrong"),
        ([[1, 0, 3, 4], [1, 3, 2, 0]], "wrong"),
        ([[1, 0, 3, -1], [1, 3, 2, 0]], "wrong"),
    ],
)
def test_an_order_is_judged_by_what_it_puts_in_order(got: list[list[int]], word: str) -> None:
    assert _word(monograph.trace(_order, "f32[2, 4]"), SCORES, np.array(got)) == word


def test_an_order_of_equal_numbers_names_each_of_them_once() -> None:
    graph = monograph.trace(lambda x: F.argsort(F.softmax(x * 1e-9, axis=-1), axis=-1), "f32[2, 4]")
    turned = np.array([[3, 2, 1, 0], [0, 2, 1, 3]])
    assert _word(graph, SCORES, turned) == "within rounding"
    assert _word(graph, SCORES, np.array([[3, 2, 2, 0], [0, 2, 1, 3]])) == "wrong"


def test_inputs_are_ordered_exactly() -> None:
    x = np.array([[1.0, 1.0 + 2e-7]], np.float32)
    graph = monograph.trace(lambda x: F.argsort(x, axis=-1), "f32[1, 2]")
    assert _word(graph, x, np.array([[1, 0]])) == "wrong"


def test_only_indices_are_judged_by_what_they_choose() -> None:
    graph = monograph.trace(lambda x: (F.argmax(x, 0), F.top_k(x, 2)[0]), "f32[3, 4]")
    inputs = [np.ones((3, 4), "f4")]
    assert choices_of(Evaluator(), graph, inputs, 0) is not None
    assert choices_of(Evaluator(), graph, inputs, 1) is None


def _edge(got: float, *draws: float) -> str:
    """The word for a number beside NaN, where draws are these."""
    arrays = [np.array([each]) for each in draws]
    nan = np.array([math.nan])
    return judge(np.float32([got]), nan.astype("f4"), nan, lambda count: arrays).word


def test_a_number_may_stand_for_nan_where_draws_like_it_do() -> None:
    assert _edge(3e-4, math.nan, 2e-4, 5e-4, math.nan) == "within rounding"
    assert _edge(0.0, math.nan, 2e-4, 5e-4, math.nan) == "within rounding"
    assert _edge(0.3, math.nan, 2e-4, 5e-4, math.nan) == "wrong"
    assert _edge(3e-4, math.nan, math.nan) == "wrong"


def test_draws_that_are_nan_do_not_hide_what_the_others_say() -> None:
    draws = [np.array([math.nan]), np.array([3.0]), np.array([-3.0])]
    got, other, exact = np.float32([2.0]), np.float32([0.0]), np.array([0.0])
    assert judge(got, other, exact, lambda count: draws).word == "within rounding"
    assert judge(got * 9, other, exact, lambda count: draws).word == "wrong"


def test_a_number_is_held_against_double_precision_where_the_other_overflowed() -> None:
    exact = np.full(3, 1e20)
    other = np.full(3, np.inf, np.float32)
    assert judge(np.full(3, 1e20, "f4"), other, exact).word != "wrong"
    assert judge(np.full(3, 2e20, "f4"), other, exact).word == "wrong"


def test_a_rule_may_change_specials_as_it_says_and_no_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = Rule(
        "planted",
        pattern=lambda x: F.exp(x) * 0.5,
        replacement=lambda x: F.exp(F.minimum(x, 9.0)) / 2.0 + 0.01,
        floats="",
        changes_specials=True,
    )
    monkeypatch.setattr(recognize, "RULES", (rule, *recognize.RULES))
    found = validate(monograph.trace(lambda x: F.exp(x) * 0.5, "f32[40]"))
    assert found.first_wrong == "recognize", "numbers count as ever"
