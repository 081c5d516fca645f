"""Explanations: the figures are those of the program, and the reasons those of its groups."""

from __future__ import annotations

import json

import pytest

import monograph
from monograph import functional as F
from monograph.compiler import Options, compile_graph
from monograph.errors import InputError
from monograph.inspect.explain import explain
from monograph.ir.graph import Value


def chain(x: Value) -> Value:
    return F.tanh(F.exp(x) * 2.0 + x)


def test_a_fused_chain_reads_once_and_writes_once() -> None:
    graph = monograph.trace(chain, "f32[100, 100]")
    explained = explain(compile_graph(graph, Options(cache=False)))
    once = 4 * 100 * 100
    constant = 4
    assert explained.launches == len(explained.kernels) == explained.groups == 1
    assert explained.bytes_moved == 2 * once + constant
    assert explained.bytes_apart == (2 + 2 + 3 + 2) * once + constant
    (kernel,) = explained.kernels
    assert kernel.bytes_read == once + constant
    assert [reason for reason in kernel.together if reason.startswith("%exp stays inside")]


def test_without_fusion_nothing_is_saved() -> None:
    graph = monograph.trace(chain, "f32[100, 100]")
    explained = explain(compile_graph(graph, Options(cache=False, fusion=False)))
    assert explained.bytes_moved == explained.bytes_apart
    assert explained.launches == 4


def layers(x: Value) -> Value:
    for number in range(4):
        x = F.softmax(x, axis=number % 2)
    return x


def test_equal_layers_share_kernels() -> None:
    graph = monograph.trace(layers, "f32[32, 32]")
    explained = explain(compile_graph(graph, Options(cache=False)))
    assert explained.launches == 4
    assert len(explained.kernels) == 2
    assert "4 launches (2 distinct)" in str(explained)


def test_memory_is_that_of_the_plan() -> None:
    graph = monograph.trace(layers, "f32[32, 32]")
    memory = explain(compile_graph(graph, Options(cache=False))).memory
    assert memory is not None
    assert memory.requested == 3 * 4096
    assert memory.peak == memory.lower_bound == 2 * 4096
    assert memory.distance == 0.0


def test_a_gather_reads_what_it_takes_and_not_the_table() -> None:
    graph = monograph.trace(lambda t, k: F.take(t, k), "f32[1000, 64]", "i64[3]")
    explained = explain(compile_graph(graph, Options(cache=False)))
    assert explained.bytes_moved == 3 * 64 * 4 * 2 + 3 * 8


def test_what_the_interpreter_runs_is_named_and_counted() -> None:
    graph = monograph.trace(lambda x: F.bincount(x), "i64[4]")
    explained = explain(compile_graph(graph, Options(cache=False)))
    assert explained.fallbacks == {"bincount": 1}
    assert explained.memory is None
    assert "completed by its calls, since bincount decides" in str(explained)


def test_an_explanation_is_json_too() -> None:
    graph = monograph.trace(chain, "f32[4]")
    told = json.loads(json.dumps(explain(compile_graph(graph, Options(cache=False))).as_json()))
    assert told["kernels"][0]["kind"] == "pointwise"
    assert set(told["stages"]) >= {"passes", "fusion", "kernels", "llvm"}


def test_it_is_public() -> None:
    assert monograph.explain is explain


def test_only_what_is_compiled_is_explained() -> None:
    with pytest.raises(InputError, match="not a compiled model"):
        explain(3)  # type: ignore[arg-type]  # on purpose
