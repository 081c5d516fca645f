"""Recurrent layers of ONNX files with free sizes: any batch and time, beside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import monograph

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FEATURES = 12


def layer(kind: str, size: int, directions: int, dims: tuple[Any, Any], **options: Any) -> bytes:
    """A file with one layer, whose weights are constants as an exporter writes them."""
    draw = np.random.default_rng(5)
    rows = GATES[kind] * size
    shapes = {"W": (rows, FEATURES), "R": (rows, size), "B": (2 * rows,)}
    weights = [
        numpy_helper.from_array(
            draw.uniform(-0.3, 0.3, (directions, *shape)).astype(np.float32), name
        )
        for name, shape in shapes.items()
    ]
    outputs = ["Y", "Y_h", *(["Y_c"] if kind == "LSTM" else [])]
    direction = "bidirectional" if directions == 2 else "forward"
    node = helper.make_node(
        kind, ["X", "W", "R", "B"], outputs, hidden_size=size, direction=direction, **options
    )
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, [*dims, FEATURES])
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([node], "layer", [x], results, weights)
    opset = [helper.make_opsetid("", 17)]
    written: bytes = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    return written


def agree(file: bytes, program: Any, time: int, batch: int) -> None:
    x = np.random.default_rng(time).standard_normal((time, batch, FEATURES)).astype(np.float32)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for got, want in zip(program(x), session.run(None, {"X": x}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("LSTM", {}), ("GRU", {"linear_before_reset": 1}), ("GRU", {}), ("RNN", {})],
    ids=["lstm", "gru", "gru-resetting-before", "rnn"],
)
def test_any_batch_and_time(kind: str, options: dict[str, Any]) -> None:
    file = layer(kind, 40, 2, ("time", "batch"), **options)
    program = monograph.compile(monograph.from_onnx(onnx.load_from_string(file)), variants=0)
    for time, batch in ((1, 1), (6, 1), (5, 3), (3, 4), (2, 17), (9, 31)):
        agree(file, program, time, batch)


def test_states_whose_size_no_vector_divides() -> None:
    file = layer("LSTM", 37, 1, ("time", "batch"))
    program = monograph.compile(monograph.from_onnx(onnx.load_from_string(file)), variants=0)
    for time, batch in ((4, 1), (3, 15)):
        agree(file, program, time, batch)


@pytest.mark.parametrize("batch", [1, 20])
def test_known_sizes_of_a_large_state(batch: int) -> None:
    file = layer("LSTM", 200, 2, (3, batch))
    program = monograph.compile(monograph.from_onnx(onnx.load_from_string(file)), threads=2)
    agree(file, program, 3, batch)
