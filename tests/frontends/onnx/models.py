"""Short spellings for models in tests: ONNX's own text syntax, and what importing it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, parser

from monograph.frontends.onnx import from_onnx
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.verify import verify


def model(text: str, opset: int = 21, functions: str = "", domains: str = "") -> ModelProto:
    """A model from ``name (inputs) => (outputs) { nodes }``."""
    imports = f'["" : {opset}{domains}]'
    return parser.parse_model(f"<ir_version: 10, opset_import: {imports}>\n{text}\n{functions}")


def graph_of(text: str, **options: Any) -> Graph:
    """The imported graph of a model, verified."""
    graph = from_onnx(model(text, **options))
    verify(graph)
    return graph


def run(text: str, *inputs: Any, **options: Any) -> list[Any]:
    """What a model computes."""
    return interpret(graph_of(text, **options), [np.asarray(item) for item in inputs])


def op_names(graph: Graph) -> list[str]:
    """The ops of a graph, in order, those in regions included."""
    return [node.op.name for node in graph.walk()]


def floats(*items: float) -> np.ndarray:
    """A vector of f32."""
    return np.array(items, np.float32)


def assert_equal(found: Sequence[Any], *expected: Any) -> None:
    """Outputs that are exactly these arrays."""
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, want)
