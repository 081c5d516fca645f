"""Sums that pick one of their terms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.kernel.expr import Reduce
from monograph.kernel.kernel import Kernel
from monograph.kernel.one_hot_sums import with_picks
from tests.kernel.build import flat


def picked(x: Any, labels: Any, axis: int = 1) -> Any:
    """Of each row (or column) the element at a label, as a sum."""
    places = F.iota((x.shape[axis],))
    hit = F.equal(F.unsqueeze(places, 1 - axis), F.unsqueeze(labels, axis))
    return F.sum(F.where(hit, x * 2.0, 0.0), axis)


def sums(kernel: Kernel) -> int:
    """How many reductions it has."""
    return sum(isinstance(x, Reduce) for x in kernel.expressions())


@pytest.mark.parametrize("axis", (0, 1))
def test_the_term_is_read_and_nothing_is_summed(axis: int) -> None:
    def function(x: Any, labels: Any) -> Any:
        return picked(x, labels, axis)

    kernel = flat(function, "f32[8, 8]", "i64[8]")
    assert sums(kernel) == 1
    assert sums(with_picks(kernel)) == 0
    x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    labels = np.array([3, 0, 7, 7, -1, 8, 2**40, -(2**63)])
    got = np.asarray(monograph.compile(function, x, labels)(x, labels))
    inside = (labels >= 0) & (labels < 8)
    safe = np.where(inside, labels, 0)
    terms = x[np.arange(8), safe] if axis == 1 else x[safe, np.arange(8)]
    np.testing.assert_array_equal(got, np.where(inside, terms * 2, 0))


def test_other_elements_do_not_matter_even_if_they_are_nan() -> None:
    x = np.full((4, 64), np.nan, np.float32)
    labels = np.array([0, 5, 63, 31])
    x[np.arange(4), labels] = [1.0, 2.0, 3.0, 4.0]
    np.testing.assert_array_equal(
        np.asarray(monograph.compile(picked, x, labels)(x, labels)), [2.0, 4.0, 6.0, 8.0]
    )


def test_a_negative_zero_is_summed_to_zero() -> None:
    x, labels = np.full((4, 16), -0.0, np.float32), np.array([0, 3, 15, 7])
    found = np.asarray(monograph.compile(picked, x, labels)(x, labels))
    assert not np.signbit(found).any()


def test_a_sum_of_more_than_one_term_stays() -> None:
    def function(x: Any, labels: Any) -> Any:
        places = F.unsqueeze(F.iota((8,)), 0)
        return F.sum(F.where(F.less_equal(places, F.unsqueeze(labels, 1)), x, 0.0), 1)

    kernel = flat(function, "f32[8, 8]", "i64[8]")
    assert with_picks(kernel) is kernel


def test_a_sum_that_is_not_of_zeros_stays() -> None:
    def function(x: Any, labels: Any) -> Any:
        places = F.unsqueeze(F.iota((8,)), 0)
        return F.sum(F.where(F.equal(places, F.unsqueeze(labels, 1)), x, 1.0), 1)

    kernel = flat(function, "f32[8, 8]", "i64[8]")
    assert with_picks(kernel) is kernel


def test_a_row_that_is_empty_has_no_term_to_read() -> None:
    kernel = flat(picked, "f32[8, 0]", "i64[8]")
    assert with_picks(kernel) is kernel


def test_a_loss_visits_a_row_twice_and_shows_its_nan() -> None:
    logits = np.random.default_rng(0).normal(size=(6, 1000)).astype(np.float32)
    labels = np.array([0, 999, 5, -100, 17, 500])
    compiled = monograph.compile(
        lambda x, y: F.cross_entropy(x, y, reduction="none"), logits, labels
    )
    wide = logits.astype(np.float64)
    logs = wide - np.log(np.exp(wide).sum(1, keepdims=True))
    expected = np.where(labels >= 0, -logs[np.arange(6), np.maximum(labels, 0)], 0)
    np.testing.assert_allclose(np.asarray(compiled(logits, labels)), expected, rtol=1e-6)
    logits[2:4, 700] = np.nan
    got = np.asarray(compiled(logits, labels))
    assert np.isnan(got[2])
    assert got[3] == 0
