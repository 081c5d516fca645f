"""Ops that decide how long their results are: found natively, as the interpreter finds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.frontends.trace import trace
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.types import type_of_array
from monograph.ops.statistics import unique, unique_consecutive
from monograph.specialize.padded_results import is_told

STRICT = Options(cache=False, strict=True)
ROWS = np.array([[2, 1, 2], [3, 1, 2], [2, 1, 2]], np.float32)
SPECIAL = np.array([np.nan, -0.0, np.nan, 0.0, np.inf, np.nan], np.float32)


def assert_native(function: Callable[..., Any], *arrays: Any, types: Any = None) -> None:
    graph = trace(function, *(types or map(type_of_array, arrays)))
    executable = compile_graph(graph, STRICT)
    expected = interpret(graph, arrays)
    for got, wanted in zip(executable.run(list(arrays)), expected, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
    assert not executable.report.fallbacks


@pytest.mark.parametrize(
    "x",
    [
        ROWS - 1,
        ROWS > 2,
        np.array(7),
        np.array(0.0, np.float32),
        np.zeros((0, 3), np.int32),
        np.zeros((2, 3), np.int8),
        SPECIAL,
    ],
    ids=["rank 2", "bool", "scalar", "zero", "empty", "all zero", "special"],
)
def test_positions_of_what_is_not_zero(x: Any) -> None:
    assert_native(F.nonzero, x)


def test_symbolic_sizes_are_bounds_too() -> None:
    graph = trace(lambda x: F.nonzero(x), "f32[n, 3]")
    executable = compile_graph(graph, STRICT)
    for rows in (ROWS - 2, ROWS[:1] - 1):
        np.testing.assert_array_equal(executable.run([rows])[0], np.argwhere(rows))


@pytest.mark.parametrize("sorted_", [True, False])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_distinct_elements_and_slices(axis: int | None, sorted_: bool) -> None:
    assert_native(lambda x: unique(x, axis, sorted_), ROWS)


@pytest.mark.parametrize("equal_nan", [True, False])
def test_distinct_elements_with_nan(equal_nan: bool) -> None:
    assert_native(lambda x: unique(x, equal_nan=equal_nan), SPECIAL)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_runs_of_equal_slices(axis: int | None) -> None:
    assert_native(lambda x: unique_consecutive(x, axis), np.sort(ROWS, axis=0))


def test_results_that_nothing_uses_are_not_computed() -> None:
    graph = trace(lambda x: unique_consecutive(x)[0], "i64[6]")
    x = np.array([1, 1, 2, 2, 2, 1])
    (node,) = graph.nodes
    assert [is_told(value) for value in node.results] == [True, False, False]
    np.testing.assert_array_equal(compile_graph(graph, STRICT).run([x])[0], [1, 2, 1])


def test_a_length_that_no_used_result_has_is_told_all_the_same() -> None:
    graph = trace(lambda x: unique_consecutive(x)[1], "i64[6]")
    x = np.array([1, 1, 2, 2, 2, 1])
    np.testing.assert_array_equal(compile_graph(graph, STRICT).run([x])[0], [0, 0, 1, 1, 1, 2])


@pytest.mark.parametrize("density", [0.02, 0.5, 1.0])
def test_many_and_few_places_are_found(density: float) -> None:
    assert_native(F.nonzero, np.random.default_rng(0).random((7, 90)) < density)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("most", [0, 2, 100])
def test_boxes_that_overlap_no_better_one(most: int, centered: bool) -> None:
    random = np.random.default_rng(0)
    boxes = random.random((2, 12, 4), np.float32)
    scores = np.round(random.random((2, 3, 12), np.float32), 1)

    def function(boxes: Any, scores: Any) -> Any:
        limit, least = np.array(0.3, np.float32), np.array(0.2, np.float32)
        return F.non_max_suppression(boxes, scores, np.array(most), limit, least, centered)

    assert_native(function, boxes, scores)


def test_slices_that_are_long_are_interpreted_and_reported() -> None:
    x = np.zeros((2, 40), np.float32)
    graph: Graph = trace(lambda x: unique(x, 0), type_of_array(x))
    executable = compile_graph(graph, Options(cache=False))
    np.testing.assert_array_equal(executable.run([x])[0], x[:1])
    assert "unique" in executable.report.fallbacks[0]
