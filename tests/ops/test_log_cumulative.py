"""Running sums of exponentials: nothing overflows, and long rows lose nothing."""

from __future__ import annotations

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import TypeRuleError
from monograph.ir.types import Array, type_of_array


def running(x: Array, axis: int, reverse: bool = False) -> Array:
    graph = monograph.trace(lambda x: F.logcumsumexp(x, axis, reverse), type_of_array(x))
    executable = monograph.compile(graph, cache=False)
    return np.asarray(executable(x)[0])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_elements_far_apart_neither_overflow_nor_vanish(axis: int, reverse: bool) -> None:
    x = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32) * 200
    ordered = np.flip(x, axis) if reverse else x
    wanted = np.logaddexp.accumulate(ordered.astype(np.float64), axis=axis)
    wanted = np.flip(wanted, axis) if reverse else wanted
    np.testing.assert_allclose(running(x, axis, reverse), wanted, rtol=3e-7)


@pytest.mark.parametrize("shape", [(100_000, 1), (1, 100_000), (30_000, 4)])
def test_long_rows_are_as_right_as_short_ones(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).random(shape, np.float32)
    axis = int(shape[1] > shape[0])
    wanted = np.logaddexp.accumulate(x.astype(np.float64), axis=axis)
    np.testing.assert_allclose(running(x, axis), wanted, rtol=3e-7)


def test_integers_have_no_such_sum() -> None:
    with pytest.raises(TypeRuleError, match="logcumsumexp"):
        monograph.trace(lambda x: F.logcumsumexp(x, 0), "i32[4]")
