"""Random graphs, with symbols, special values, control flow and every dtype, through ONNX Runtime.

Every value of a graph is an output of its model. Each node is then held against the interpreter on
the very operands that ONNX Runtime had, so that what is compared is one op's rounding and no more;
``rounding`` tells how much that is. (f16 operands are left out: ONNX Runtime computes on with the
f32 numbers that it rounded them from.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings

from monograph.errors import MonographError, UnsupportedError
from monograph.exporters.onnx import to_onnx
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.interpret import bind_inputs, check_results, evaluate_node, interpret
from monograph.ir.types import TensorType, f16
from tests.exporters.rounding import is_close, scatter
from tests.exporters.running import check, run_in_onnx_runtime
from tests.properties.graphs import programs

WITHOUT = ("MatMulScaleFusion",)
"""Optimizations of ONNX Runtime that are wrong: this one rounds the factors of f64 to f32."""
REFUSED = ("Could not find an implementation", "Failed to construct locale")
"""What ONNX Runtime says of nodes that it has no kernel for."""


@given(programs())
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_node_of_a_random_graph(program: tuple[Graph, list[Any]]) -> None:
    graph, inputs = program
    values = [value for node in graph.nodes for value in node.results if _is_real(value)]
    try:
        interpret(graph, inputs)
    except MonographError:
        return  # an error here is one there, or an undefined result
    if not values:
        return
    graph.set_outputs(values)
    graph.updates = {}
    try:
        model = to_onnx(graph)
    except UnsupportedError:
        return
    check(model)
    try:
        got = run_in_onnx_runtime(model, [np.asarray(array) for array in inputs], WITHOUT)
    except Exception as error:
        if any(words in str(error) for words in REFUSED):
            return
        raise
    known = dict(zip(graph.inputs, map(np.asarray, inputs), strict=True))
    known.update(zip(values, got, strict=True))
    _, bindings = bind_inputs(graph, inputs)
    for node in graph.nodes:
        if not all(value in known for value in (*node.operands, *node.results)):
            continue
        # Sizes that depend on data are those of ONNX Runtime from here on.
        check_results(node, tuple(known[value] for value in node.results), bindings)
        if not any(value.dtype is f16 for value in node.operands):
            _assert_computes(node, known, bindings)


def _is_real(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.dtype.is_complex


def _assert_computes(node: Node, known: dict[Value, np.ndarray], bindings: Any) -> None:
    operands = [known[value] for value in node.operands]
    with np.errstate(all="ignore"):
        results = evaluate_node(node, operands, dict(bindings))
    got = [known[value] for value in node.results]
    if all(map(is_close, got, results)):
        return
    widths = scatter(node, operands, results, bindings)
    for ours, expected, width in zip(got, results, widths, strict=True):
        assert is_close(ours, expected, width), (
            f"{node!r} of {operands}\ngives {ours}\nnot {expected}\nwithin {width}"
        )
