"""Which functions are computed with fewer digits, and how good what is stored then is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.types import bf16, f16, f32
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply
from monograph.kernel.mathlib import expand
from monograph.kernel.mathlib.shortened import RELATIVE_BOUNDS, SHORTENED
from monograph.kernel.scalar import COST
from monograph.kernel.shortening import with_short_formulas
from monograph.kernel.softmax import with_decays
from tests.kernel.build import flat
from tests.kernel.evaluate_expr import evaluate

Array = np.ndarray[Any, Any]
KINDS = {bf16: np.dtype(ml_dtypes.bfloat16), f16: np.dtype(np.float16)}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": F.exp,
    "gelu_erf": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": F.sigmoid,
    "silu": F.silu,
    "tanh": F.tanh,
}


def applied(function: Callable[..., Any], *types: str) -> set[str]:
    """The functions that a kernel applies once formulas are short."""
    kernel = with_short_formulas(with_decays(flat(function, *types)))
    return {x.function for x in kernel.expressions() if isinstance(x, Apply)}


def test_a_function_that_is_stored_in_few_digits_is_short() -> None:
    assert "sigmoid_bf16" in applied(lambda x: F.sigmoid(F.relu(x) * 2.0), "bf16[64]")
    assert "exp_f16" in applied(lambda x: F.cast(F.exp(x), "f16"), "f32[64]")


def test_one_whose_digits_are_all_stored_is_not() -> None:
    assert "sigmoid" in applied(lambda x: F.sigmoid(F.cast(x, "f32")), "bf16[64]")


def test_one_that_is_stored_both_ways_is_not() -> None:
    def both(x: Any) -> Any:
        grown = F.exp(x)
        return grown, F.cast(grown, "bf16")

    assert "exp" in applied(both, "f32[64]")


def test_a_difference_would_show_it() -> None:
    found = applied(lambda x: F.cast(F.exp(x) - 1.0, "bf16"), "f32[64]")
    assert "exp" in found
    assert "exp_bf16" not in found


def test_what_another_function_is_given_is_not_short() -> None:
    found = applied(lambda x: F.cast(F.tanh(F.exp(x)), "f16"), "f32[64]")
    assert {"exp", "tanh_f16"} <= found


@pytest.mark.parametrize("function", (F.softmax, F.log_softmax))
def test_a_softmax_is_short_throughout(function: Callable[..., Any]) -> None:
    found = applied(lambda x: function(x, axis=1), "bf16[64, 128]")
    assert "decay_bf16" in found
    assert not {"exp", "decay"} & found


def test_every_short_formula_has_a_cost() -> None:
    assert set(SHORTENED) <= COST.keys()


@pytest.mark.parametrize("name", sorted(SHORTENED))
def test_short_formulas_keep_their_bounds(name: str) -> None:
    function, kept = SHORTENED[name]
    x = -np.geomspace(1e-6, 80, 20_001)
    x = x if function == "decay" else np.concatenate([x[::-1], -x])
    if function.startswith("gelu"):
        x = x[np.abs(x) < 5.5]  # beyond this an f16 is 0
    given = x.astype(np.float32)
    variable = e.variable("x", f32)
    root = e.apply(name, variable)
    assert isinstance(root, Apply)
    got = evaluate(expand(root), {variable: given}).astype(np.float64)
    exact = REFERENCES[function](given.astype(np.float64))
    assert np.abs(got / exact - 1).max() <= RELATIVE_BOUNDS[kept]


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_number_is_rounded_as_if_from_all_digits(name: str, dtype: Any) -> None:
    kind = KINDS[dtype]
    x = np.arange(1 << 16, dtype=np.uint16).view(kind)
    got = np.asarray(monograph.compile(FUNCTIONS[name], x)(x)).astype(np.float64)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        exact = REFERENCES[name](wide)
        exact = np.where(np.isneginf(wide) & np.isnan(exact), 0.0, exact)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wide))
        facts: Any = ml_dtypes.finfo(kind)
        known = np.isfinite(exact) & (np.abs(exact) <= float(facts.max)) & np.isfinite(got)
        size = np.maximum(np.abs(exact), float(facts.tiny))
        unit = 2.0 ** np.floor(np.log2(size)) * float(facts.eps)
    assert (np.abs(got[known] - exact[known]) / unit[known]).max() <= 0.53
    over = np.abs(exact) > 1.01 * float(facts.max)
    assert np.isinf(got[over]).all()


def _error_function(x: Array) -> Array:
    return np.array([math.erfc(each) if not np.isnan(each) else each for each in x])


def _sigmoid(x: Array) -> Array:
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1.0) / (1.0 + np.exp(-np.abs(x)))


REFERENCES: dict[str, Callable[[Array], Array]] = {
    "decay": np.exp,
    "exp": np.exp,
    "gelu_erf": lambda x: x * 0.5 * _error_function(-x / np.sqrt(2.0)),
    "gelu_tanh": lambda x: x * _sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
}
