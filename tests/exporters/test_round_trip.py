"""from_onnx(to_onnx(graph)) computes what the graph computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph.functional as F
from monograph.exporters.onnx import to_onnx
from monograph.exporters.onnx.registry import is_exported
from monograph.frontends.trace import trace
from monograph.ir.interpret import interpret
from monograph.ir.op import Sample, registry
from tests.exporters import running, tables
from tests.exporters.test_networks import draw, transformer_block
from tests.ops import harness

frontend = pytest.importorskip("monograph.frontends.onnx")

SAMPLES = [
    (name, sample)
    for name, sample in harness.all_samples()
    if is_exported(registry()[name.split("-")[0]]) and name not in tables.UNSUPPORTED_SAMPLES
]


@pytest.mark.parametrize("sample", [s for _, s in SAMPLES], ids=[n for n, _ in SAMPLES])
def test_a_sample_comes_back(sample: Sample) -> None:
    graph = harness.sample_graph(sample)
    arrays = [np.asarray(array) for array in sample.operands]
    again = frontend.from_onnx(to_onnx(graph))
    assert [value.name for value in again.inputs] == [value.name for value in graph.inputs]
    passed = [running.as_pairs(array) for array in arrays]
    running.assert_equal(interpret(again, passed), interpret(graph, arrays))


def test_a_transformer_block_comes_back_with_its_symbols() -> None:
    graph = trace(transformer_block(), "f32[batch, seq, 16]")
    again = frontend.from_onnx(to_onnx(graph))
    assert set(graph.symbols()) <= set(again.symbols())
    for shape in ((1, 2, 16), (3, 5, 16)):
        x = draw(*shape)
        running.assert_equal(interpret(again, [x]), interpret(graph, [x]))


def test_control_flow_comes_back() -> None:
    def program(p: Any, xs: Any) -> Any:
        last, ys = F.scan(lambda c, x: (c * 0.5 + x, F.silu(c)), xs[0], xs)
        return F.cond(p, lambda: ys, lambda: ys * last)

    graph = trace(program, "bool[]", "f32[n, 3]")
    again = frontend.from_onnx(to_onnx(graph))
    for truth in (True, False):
        inputs = [np.array(truth), draw(4, 3)]
        running.assert_equal(interpret(again, inputs), interpret(graph, inputs))


@pytest.mark.parametrize("opset", [13, 21, 25])
def test_a_node_that_was_deferred_goes_back_as_it_came(opset: int) -> None:
    from onnx import helper

    from monograph.errors import UnsupportedError
    from monograph.exporters.fx import to_fx

    shape = helper.make_tensor_value_info("s", 7, [2])
    x = helper.make_tensor_value_info("x", 1, [2, 6])
    y = helper.make_tensor_value_info("y", 1, [None, None])
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    proto = helper.make_graph(nodes, "g", [x, shape], [y])
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)
    graph = frontend.from_onnx(model)
    with pytest.raises(UnsupportedError, match="contents that only a call brings"):
        to_fx(graph)
    again = to_onnx(graph)
    assert [node.op_type for node in again.graph.node] == ["Reshape"]
    inputs = [draw(2, 6), np.array([3, -1])]
    (got,) = running.run_in_onnx_runtime(again, inputs)
    np.testing.assert_array_equal(got, inputs[0].reshape(3, 4))
