"""Weights that were turned for the passes' sake, and are read as they were given."""

from __future__ import annotations

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.graph import Graph
from monograph.ir.lazy_data import LazyData
from monograph.ir.types import TensorType, f32
from monograph.ops.data import Weight

LAYERS = "recognize,fold_constants,lower_composites"


def layer(inputs: int, outputs: int) -> Graph:
    """``x @ weight + bias`` as ONNX spells it."""
    generator = np.random.default_rng(inputs)
    graph = Graph("layer")
    x = graph.add_input("x", TensorType(f32, (3, inputs)))
    with graph.as_current():
        weight = graph.add_weight("w", generator.normal(size=(inputs, outputs)).astype(np.float32))
        bias = graph.add_weight("b", generator.normal(size=outputs).astype(np.float32))
        graph.set_outputs([F.matmul(x, weight) + bias])
    return graph


def computed_weights(graph: Graph) -> int:
    """How many weights are made of others when they are read."""
    ops = [node.op for node in graph.nodes]
    return sum(isinstance(op, Weight) and isinstance(op.data, LazyData) for op in ops)


@pytest.mark.parametrize("inputs, outputs", [(128, 128), (96, 256)])
def test_nothing_is_turned_to_be_packed(inputs: int, outputs: int) -> None:
    graph = layer(inputs, outputs)
    turned = monograph.optimize(graph, passes=LAYERS)
    back = monograph.optimize(turned, passes="fold_transpose_into_dot,dce")
    assert computed_weights(turned) == 1
    assert computed_weights(back) == 0
    x = np.random.default_rng(0).normal(size=(3, inputs)).astype(np.float32)
    (expected,) = monograph.interpret(graph, [x])
    (found,) = monograph.interpret(back, [x])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert not computed_weights(monograph.compile(graph, cache=False).lowered)
