"""Layers of one input that become one layer: the same results, and fewer kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.passes.horizontal import HorizontalFusion


def attention_and_gate(rows: int) -> Graph:
    """Projections for an attention, and a gated network behind them."""
    rng = np.random.default_rng(3)

    def weights(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    def program(x: Any) -> Any:
        q, k, v = (F.linear(x, weights(16, 24), weights(16)) for _ in range(3))
        y = F.softmax(q @ F.transpose(k, (1, 0)), axis=-1) @ v
        return F.silu(F.linear(y, weights(40, 16))) * F.linear(y, weights(40, 16))

    return monograph.trace(program, f"f32[{rows}, 24]")


def test_joined_layers_give_the_same_results() -> None:
    graph = attention_and_gate(5)
    x = np.random.default_rng(4).normal(size=(5, 24)).astype(np.float32)
    before = interpret(graph, [x])
    result = HorizontalFusion().run(graph)
    assert result.counters == {"joined": 2, "layers": 5}
    np.testing.assert_allclose(interpret(graph, [x])[0], before[0], rtol=1e-5, atol=1e-5)


def test_a_second_run_finds_nothing_to_join() -> None:
    graph = attention_and_gate(5)
    HorizontalFusion().run(graph)
    assert not HorizontalFusion().run(graph).changed


def test_the_default_level_joins_them_and_the_program_is_right() -> None:
    graph = attention_and_gate(5)
    x = np.random.default_rng(4).normal(size=(5, 24)).astype(np.float32)
    before = interpret(graph, [x])
    executable = compile_graph(graph, Options(cache=False))
    assert sum(node.op.name == "dot_general" for node in executable.lowered.nodes) == 4
    np.testing.assert_allclose(executable(x)[0], before[0], rtol=1e-5, atol=1e-5)


def test_unknown_and_many_rows_stay_apart() -> None:
    for rows in ("n", 1000):
        graph = monograph.trace(
            lambda x: (
                F.linear(x, np.ones((4, 3), np.float32)),
                F.linear(x, np.full((4, 3), 2.0, np.float32)),
            ),
            f"f32[{rows}, 3]",
        )
        assert not HorizontalFusion().run(graph).changed


def test_layers_may_share_a_bias() -> None:
    bias = np.ones(4, np.float32)

    def program(x: Any) -> Any:
        first = F.linear(x, np.ones((4, 3), np.float32), bias)
        return first, F.linear(x, np.full((4, 3), 2.0, np.float32), bias)

    executable = compile_graph(monograph.trace(program, "f32[2, 3]"), Options(cache=False))
    assert sum(node.op.name == "dot_general" for node in executable.lowered.nodes) == 1
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    first, second = executable(x)
    np.testing.assert_array_equal(first, np.repeat(x.sum(1, keepdims=True), 4, 1) + 1)
    np.testing.assert_array_equal(second, 2 * np.repeat(x.sum(1, keepdims=True), 4, 1) + 1)
