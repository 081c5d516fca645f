"""Random graphs, with symbols, special values, control flow and every dtype, through ONNX Runtime.

Every value of a graph is an output of its model. Each node is then held against the interpreter on
the very operands that ONNX Runtime had, so that what is compared is one op's rounding and no more.
(Not so f16 operands: ONNX Runtime computes on with the f32 numbers that it rounded them from.)
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from monograph.errors import MonographError, UnsupportedError
from monograph.exporters.onnx import to_onnx
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.interpret import bind_inputs, evaluate_node, interpret
from monograph.ir.types import TensorType, dtype_of, f16
from tests.exporters.running import check, run_in_onnx_runtime
from tests.properties.graphs import programs

ROUNDINGS = {"f64": 1e-7, "f32": 2e-5, "f16": 4e-3, "bf16": 2e-2}
REFUSED = ("Could not find an implementation", "Failed to construct locale", "alpha_attr")
"""What ONNX Runtime says of nodes that it has no kernel for, and of an f64 product whose factor its
own fusion rounds to an infinite f32."""


@pytest.mark.slow  # a product that cancels is not yet held to a fair bound
@given(programs())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
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
        got = run_in_onnx_runtime(model, [np.asarray(array) for array in inputs])
    except Exception as error:
        if any(words in str(error) for words in REFUSED):
            return
        raise
    known = dict(zip(graph.inputs, map(np.asarray, inputs), strict=True))
    known.update(zip(values, got, strict=True))
    _, bindings = bind_inputs(graph, inputs)
    for node in graph.nodes:
        known_ends = all(value in known for value in (*node.operands, *node.results))
        if known_ends and not any(value.dtype is f16 for value in node.operands):
            _assert_computes(node, known, dict(bindings))


def _is_real(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.dtype.is_complex


def _assert_computes(node: Node, known: dict[Value, np.ndarray], bindings: Any) -> None:
    operands = [known[value] for value in node.operands]
    with np.errstate(all="ignore"):
        results = evaluate_node(node, operands, bindings)
    scale = _largest([*operands, *results])
    for value, expected in zip(node.results, results, strict=True):
        _assert_close(known[value], expected, scale, node)


def _largest(arrays: list[np.ndarray]) -> float:
    numbers = [a.astype(np.float64) for a in arrays if a.dtype.kind not in "bO" and a.size]
    return max(1.0, *(float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) for a in numbers), 1.0)


def _assert_close(got: np.ndarray, expected: np.ndarray, scale: float, node: Node) -> None:
    assert got.shape == expected.shape, node
    if expected.dtype.kind in "biuO":
        np.testing.assert_array_equal(got, expected, err_msg=repr(node))
        return
    dtype = dtype_of(expected.dtype)
    rounding = ROUNDINGS.get(dtype.name, 0.3)
    ours, exact = got.astype(np.float64), expected.astype(np.float64)
    limit = float(ml_dtypes.finfo(dtype.numpy).max)  # what rounds up to infinity lies near it
    ours, exact = (np.clip(array, -limit, limit) for array in (ours, exact))
    np.testing.assert_allclose(
        ours, exact, rtol=max(rounding, 1e-3 if scale > limit / 2 else 0.0), atol=rounding * scale,
        err_msg=repr(node),
    )  # fmt: skip
