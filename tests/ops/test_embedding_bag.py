"""Sums of rows, bag by bag: one loop, without the rows in memory."""

from __future__ import annotations

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.errors import EvaluationError
from tests.targets.cpu.stepping import draw, steps_of


def test_the_rows_of_bags_are_not_brought_together() -> None:
    builder = steps_of(F.bag_sums, "f32[50, 64]", "i64[n]", "i64[bags]")
    (kernel,) = builder.kernels.values()
    assert kernel.name.endswith("bag_sums")


def test_offsets_that_fall_are_refused() -> None:
    graph = monograph.trace(F.bag_sums, "f32[5, 2]", "i64[4]", "i64[2]")
    with pytest.raises(EvaluationError, match="do not rise from 0"):
        monograph.interpret(graph, [draw(5, 2), np.zeros(4, np.int64), np.array([3, 0])])


def test_an_index_that_is_no_row_is_refused() -> None:
    graph = monograph.trace(F.bag_sums, "f32[5, 2]", "i64[2]", "i64[1]")
    executable = monograph.compile(graph, cache=False)
    with pytest.raises(EvaluationError):
        executable(draw(5, 2), np.array([1, 5]), np.array([0]))


def test_each_index_knows_its_bag() -> None:
    graph = monograph.trace(F.bag_numbers, "i64[6]", "i64[4]")
    (numbers,) = monograph.interpret(graph, [np.zeros(6, np.int64), np.array([0, 2, 2, 5])])
    np.testing.assert_array_equal(numbers, [0, 0, 2, 2, 2, 3])
