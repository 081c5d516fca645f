"""Arithmetic of positions that comes as data is index arithmetic, unless it could wrap around."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.dims import Symbol
from monograph.ir.types import i64
from monograph.kernel import expr as e
from monograph.kernel import whole_numbers
from tests.targets.cpu.stepping import kernel_of

PLACE = e.index(Symbol("i", 0, 9))


def test_sums_and_products_of_positions_are_positions() -> None:
    four = e.literal(4, i64)
    assert whole_numbers.apply_to_positions("multiply", (PLACE, four)) is PLACE * 4
    assert whole_numbers.apply_to_positions("subtract", (four, PLACE)) is 4 - PLACE
    assert whole_numbers.apply_to_positions("add", (e.variable("x", i64), PLACE)) is None
    assert whole_numbers.apply_to_positions("divide", (PLACE, four)) is None


def test_what_could_wrap_around_stays_data() -> None:
    assert whole_numbers.apply_to_positions("multiply", (PLACE, e.literal(1 << 60, i64))) is None
    unbounded = e.index(Symbol("n", 0, None))
    assert (
        whole_numbers.apply_to_positions("multiply", (unbounded, e.literal(1 << 40, i64))) is None
    )
    assert (
        whole_numbers.apply_to_positions("multiply", (unbounded, e.literal(8, i64)))
        is unbounded * 8
    )


@pytest.mark.parametrize(
    ("function", "bound", "holds"),
    [
        ("less", 10, True),
        ("less", 0, False),
        ("less", 5, None),
        ("less_equal", 9, True),
        ("less_equal", -1, False),
        ("greater", -1, True),
        ("greater", 9, False),
        ("greater_equal", 0, True),
        ("greater_equal", 10, False),
        ("greater_equal", 9, None),
    ],
)
def test_bounds_decide_a_comparison(function: str, bound: int, holds: bool | None) -> None:
    found = whole_numbers.apply_to_positions(function, (PLACE, e.literal(bound, i64)))
    assert found is None if holds is None else getattr(found, "value", None) is holds


@pytest.mark.parametrize(
    ("function", "bound", "chosen"),
    [
        ("minimum", 9, "place"),
        ("minimum", 0, "bound"),
        ("minimum", 5, None),
        ("maximum", 0, "place"),
        ("maximum", 9, "bound"),
        ("maximum", 1, None),
    ],
)
def test_bounds_decide_which_is_larger(function: str, bound: int, chosen: str | None) -> None:
    limit = e.literal(bound, i64)
    expected = {"place": PLACE, "bound": limit, None: None}[chosen]
    assert whole_numbers.apply_to_positions(function, (PLACE, limit)) is expected


def _windows(x: Any) -> Any:
    return F.take(x, F.iota((20, 5), 0) * 3 + F.iota((20, 5), 1))


def test_a_computed_index_that_is_in_range_is_a_subscript() -> None:
    kernel = kernel_of(_windows, "f32[62]")
    assert "checked" not in str(kernel.nest) and "gather" not in kernel.text
    x = np.arange(62, dtype=np.float32)
    places = 3 * np.arange(20)[:, None] + np.arange(5)
    np.testing.assert_array_equal(monograph.compile(_windows, x)(x), x[places])


def test_a_computed_index_that_may_be_out_of_range_is_checked() -> None:
    assert "checked" in str(kernel_of(_windows, "f32[61]").nest)


def test_a_clamp_that_does_nothing_is_no_part_of_a_subscript() -> None:
    kernel = kernel_of(lambda x: F.take(x, F.minimum(F.iota((20,)) + 3, 30)), "f32[31]")
    assert "o0[i0] = b0[i0+3]" in str(kernel.nest)
