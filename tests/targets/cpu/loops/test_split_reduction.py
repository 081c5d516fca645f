"""Long reductions among threads: pieces that depend on the size alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monograph import functional as F
from monograph.kernel.evaluate import evaluate_kernel
from monograph.targets.cpu.costs import GENERIC
from monograph.targets.cpu.loops.split_reduction import (
    ELEMENTS_PER_PARTIAL,
    SplitKernel,
    split_reductions,
)
from tests.kernel.build import flat

LONG = 4 * ELEMENTS_PER_PARTIAL


def split(function: Any, *types: str) -> SplitKernel:
    found = split_reductions(flat(function, *types), GENERIC.fusion)
    assert found is not None
    return found


def run(both: SplitKernel, *arrays: Any) -> Any:
    """Both kernels in NumPy, one after the other."""
    given = [array.reshape(-1) for array in arrays]
    partial = evaluate_kernel(both.pieces, given)
    (result,) = evaluate_kernel(both.rest, [*(given[k] for k in both.rest_inputs), *partial])
    return result


def test_one_long_row_becomes_pieces() -> None:
    both = split(lambda x: F.sum(x), f"f32[{LONG}]")
    assert both.pieces.outputs[0].shape == (4,)
    assert both.rest_inputs == ()


def test_the_last_piece_may_be_shorter() -> None:
    both = split(lambda x: F.sum(x), f"f32[{LONG + 5}]")
    assert both.pieces.outputs[0].shape == (5,)
    assert "min(" in str(both.pieces)


def test_pieces_of_a_symbolic_size_are_counted_when_it_is_known() -> None:
    both = split(lambda x: F.sum(x), "f32[n]")
    assert (
        str(both.pieces.outputs[0].shape[0])
        == f"(n+{ELEMENTS_PER_PARTIAL - 1})//{ELEMENTS_PER_PARTIAL}"
    )


def test_the_epilogue_is_computed_with_the_rest() -> None:
    both = split(lambda x: F.sqrt(F.sum(F.exp(x))), f"f32[{LONG}]")
    assert "exp" in str(both.pieces) and "sqrt(" not in str(both.pieces).split(":\n", 1)[1]
    assert "sqrt(" in str(both.rest).split(":\n", 1)[1]


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (lambda x: F.sum(x), ["f32[4096]"]),
        (lambda x: F.sum(x, axis=1), [f"f32[16, {LONG}]"]),
        (lambda x: F.sum(x, axis=1), [f"f32[n, {LONG}]"]),
        (lambda x: F.exp(x), [f"f32[{LONG}]"]),
        (lambda x: F.sum(x - F.max(x)), [f"f32[4, {ELEMENTS_PER_PARTIAL // 16}]"]),
    ],
    ids=["short", "many rows", "unknown rows", "no reduction", "one in another"],
)
def test_what_is_not_worth_splitting_is_left_whole(function: Any, types: list[str]) -> None:
    assert split_reductions(flat(function, *types), GENERIC.fusion) is None


@pytest.mark.parametrize(
    "where",
    [0, ELEMENTS_PER_PARTIAL - 1, ELEMENTS_PER_PARTIAL, 2 * ELEMENTS_PER_PARTIAL + 7, LONG - 1],
)
def test_the_position_of_the_largest_is_found_in_any_piece(where: int) -> None:
    x = np.zeros((3, LONG), np.float32)
    x[1, where] = 2
    x[2, where] = -1
    expected = np.argmax(x, 1)
    np.testing.assert_array_equal(
        run(split(lambda x: F.argmax(x, 1), f"f32[3, {LONG}]"), x), expected
    )


def test_the_first_of_equal_elements_counts_across_pieces() -> None:
    x = np.zeros((1, LONG), np.float32)
    x[0, [100, ELEMENTS_PER_PARTIAL + 3, 3 * ELEMENTS_PER_PARTIAL]] = 5
    assert run(split(lambda x: F.argmax(x, 1), f"f32[1, {LONG}]"), x) == [100]


def test_nan_is_the_largest_in_whatever_piece_it_is() -> None:
    x = np.zeros((1, LONG), np.float32)
    x[0, 5] = np.inf
    x[0, 3 * ELEMENTS_PER_PARTIAL + 1] = np.nan
    assert run(split(lambda x: F.argmax(x, 1), f"f32[1, {LONG}]"), x) == [
        3 * ELEMENTS_PER_PARTIAL + 1
    ]


def test_a_position_counts_over_all_reduced_axes() -> None:
    x = np.zeros((4, ELEMENTS_PER_PARTIAL), np.float32)
    x[2, 9] = 1
    both = split(
        lambda x: F.argmax(F.reshape(x, (4 * ELEMENTS_PER_PARTIAL,)), 0),
        f"f32[4, {ELEMENTS_PER_PARTIAL}]",
    )
    assert run(both, x) == [2 * ELEMENTS_PER_PARTIAL + 9]


def test_a_sum_in_pieces_is_the_sum() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, LONG)).astype(np.float32)
    got = run(split(lambda x: F.sum(x * x, axis=1), f"f32[3, {LONG}]"), x)
    np.testing.assert_allclose(got, (x.astype(np.float64) ** 2).sum(1), rtol=1e-5)
