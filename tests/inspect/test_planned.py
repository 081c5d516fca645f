"""Planned graphs: they parse, verify, compute the same, and give back what they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.inspect.planned import PlannedGraph, plan_graph
from monograph.ir.graph import Value
from monograph.ir.interpret import interpret


def chain(x: Value) -> Value:
    for number in range(4):
        x = F.softmax(x, axis=number % 2)
    return x


def views(x: Value) -> Any:
    return x, F.reshape(F.exp(x) @ x, (16,)), F.exp(x)


def loop(x: Value) -> Value:
    result: Value = F.while_loop(
        lambda y: F.sum(y) < 9.0, lambda y: F.exp(y) @ y, F.abs(x), limit=9
    )
    return result


def split(x: Value) -> Value:
    return F.sum(F.exp(F.expand(F.reshape(x, (16, 1)), (16, 65536))))


PROGRAMS: list[Callable[[Value], Any]] = [chain, views, loop, split]


def planned(function: Callable[[Value], Any]) -> tuple[monograph.Graph, PlannedGraph]:
    graph = monograph.trace(function, "f32[4, 4]")
    return graph, plan_graph(compile_graph(graph, Options(cache=False)))


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_it_is_a_graph_that_computes_the_same(function: Callable[[Value], Any]) -> None:
    graph, shown = planned(function)
    again = monograph.parse(str(shown))
    monograph.verify(again)
    inputs = [np.random.default_rng(0).uniform(size=(4, 4)).astype(np.float32)]
    for expected, got in zip(interpret(graph, inputs), interpret(again, inputs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_what_is_taken_is_given_back_once(function: Callable[[Value], Any]) -> None:
    _, shown = planned(function)
    taken = [node.result for node in shown.graph.nodes if node.op.name == "alloc"]
    freed = [node.operands[0] for node in shown.graph.nodes if node.op.name == "free"]
    assert len(set(freed)) == len(freed)
    assert set(taken) == set(freed)


def test_memory_is_taken_before_a_kernel_and_given_back_after_its_last_reader() -> None:
    _, shown = planned(chain)
    names = [node.op.name for node in shown.graph.nodes]
    assert names[:2] == ["alloc", "max"]
    assert names.count("alloc") == names.count("free") == 3  # the last result is an output
    second = names.index("divide", names.index("divide") + 1)
    assert names.index("free") == second + 1


def test_copies_are_shown_where_an_output_is_an_input_or_a_loop_begins() -> None:
    for function, count in ((views, 1), (loop, 1)):
        _, shown = planned(function)
        assert [node.op.name for node in shown.graph.nodes].count("copy") == count


def test_places_are_told() -> None:
    _, shown = planned(chain)
    assert "# 64 B at 0" in str(shown)
    assert "in %softmax_memory" in str(shown)
