"""Graphs, names, initializers, functions and locations of imported models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import numpy_helper

from monograph.errors import MonographError, UnsupportedError
from monograph.frontends.onnx import find_unsupported, from_onnx
from monograph.ir.interpret import interpret
from tests.frontends.onnx.models import assert_equal, floats, graph_of, model, op_names, run

RELU = "m (float[n] x) => (float[n] y) { y = Relu(x) }"


def test_a_model_comes_from_a_path_bytes_or_a_proto(tmp_path: Path) -> None:
    proto = model(RELU)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    texts = {str(from_onnx(each)) for each in (proto, proto.SerializeToString(), path, str(path))}
    assert len(texts) == 1


def test_names_and_symbols_are_those_of_the_model() -> None:
    graph = graph_of("m (float[batch, 3] x) => (float[batch, 3] y) { h = Abs(x) y = Neg(h) }")
    assert [value.name for value in graph.inputs] == ["x"]
    assert [node.result.name for node in graph.nodes] == ["h", "y"]
    assert str(graph.outputs[0].type) == "f32[batch, 3]"


def test_an_output_keeps_its_name_beside_a_value_that_has_it() -> None:
    # The converter of Sum makes a value called `add` before the output of that name exists.
    graph = graph_of("m (float[2] x) => (float[2] add) { h = Sum(x, x, x) add = Neg(h) }")
    assert graph.outputs[0].name == "add"


def test_nodes_know_where_they_come_from(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model("m (float[2] x) => (float[2] y) { [first] h = Abs(x) y = Neg(h) }"), path)
    locations = [str(node.location) for node in from_onnx(path).nodes]
    assert locations == [f"{path}:1 (Abs 'first')", f"{path}:2 (Neg that makes 'y')"]


def test_errors_name_the_node() -> None:
    with pytest.raises(MonographError) as caught:
        graph_of("m (float[2] x, float[3] w) => (float[2] y) { [sum] y = Add(x, w) }")
    assert "Add 'sum'" in str(caught.value)


def test_unsorted_nodes_are_sorted() -> None:
    text = "m (float[2] x) => (float[2] y) { y = Neg(h) h = Abs(x) }"
    assert op_names(graph_of(text)) == ["abs", "negate"]


def test_initializers_are_weights_or_small_constants() -> None:
    proto = model("m (float[20] x) => (float[20] y) { h = Add(x, w) y = Mul(h, s) }")
    weight = np.arange(20, dtype=np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(2), "s"))
    proto.graph.initializer.append(numpy_helper.from_array(weight, "unused"))
    graph = from_onnx(proto)
    assert op_names(graph) == ["weight", "constant", "add", "multiply"]
    assert_equal(interpret(graph, [weight]), weight * 4)


def test_an_initializer_that_is_also_an_input_is_a_weight() -> None:
    proto = model("m (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(floats(1, 2), "w"))
    graph = from_onnx(proto)
    assert [value.name for value in graph.inputs] == ["x"]


def test_outputs_may_be_inputs_initializers_and_repeated() -> None:
    proto = model(
        "m (float[2] x) => (float[2] x, float[2] w, float[2] y, float[2] y) { y = Abs(x) }"
    )
    proto.graph.initializer.append(numpy_helper.from_array(floats(1, 2), "w"))
    x = floats(-3, 3)
    assert_equal(interpret(from_onnx(proto), [x]), x, floats(1, 2), abs(x), abs(x))


def test_a_sparse_initializer_is_made_dense() -> None:
    proto = model("m (float[2, 3] x) => (float[2, 3] y) { y = Add(x, w) }")
    sparse = proto.graph.sparse_initializer.add(dims=[2, 3])
    sparse.values.CopyFrom(numpy_helper.from_array(floats(5, 7), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([[0, 1], [1, 2]]), "i"))
    found = interpret(from_onnx(proto), [np.zeros((2, 3), np.float32)])
    assert_equal(found, [[0, 5, 0], [0, 0, 7]])


FUNCTIONS = """
<opset_import: ["" : 21, "own" : 1], domain: "own">
scaled <by: int = 3, to> (x, shift) => (y) {
    factor = Constant <value_int: int = @by> ()
    cast = CastLike (factor, x)
    product = Mul (x, cast)
    y = Add (product, shift)
}
"""


def test_functions_are_expanded_with_their_attributes() -> None:
    options = {"functions": FUNCTIONS, "domains": ', "own" : 1'}
    text = "m (float[2] x) => (float[2] y) { h = own.scaled(x, x) y = own.scaled <by=5> (h, x) }"
    assert_equal(run(text, floats(1, 2), **options), floats(21, 42))
    names = [value.name for node in graph_of(text, **options).nodes for value in node.results]
    assert "h/product" in names


def test_an_op_without_a_converter_is_expanded_from_its_own_body() -> None:
    # MeanVarianceNormalization is ONNX's own function; whoever converts it, the meaning is this.
    text = "m (float[1, 1, 2, 2] x) => (float[1, 1, 2, 2] y) { y = MeanVarianceNormalization(x) }"
    (found,) = run(text, np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2))
    np.testing.assert_allclose(found.mean(), 0, atol=1e-6)
    np.testing.assert_allclose(found.std(), 1, rtol=1e-4)


def test_every_unsupported_op_is_reported_at_once() -> None:
    proto = model(
        "m (float[2] x) => (float[2] y) { a = Frob(x) b = Frob(a) c = other.Op(b) y = Reluu(c) }",
        domains=', "other" : 1',
    )
    problems = find_unsupported(proto)
    assert [(each.op, each.count, each.nearest) for each in problems] == [
        ("ai.onnx.Frob", 2, None),
        ("other.Op", 1, None),
        ("ai.onnx.Reluu", 1, "Relu"),
    ]
    assert problems[0].where == "Frob that makes 'a'"
    with pytest.raises(UnsupportedError, match="3 ops that are not supported") as caught:
        from_onnx(proto)
    assert list(caught.value.problems) == problems


def test_old_broadcasting_aligns_at_an_axis() -> None:
    text = """m (float[2, 3, 1] x, float[3] w) => (float[2, 3, 1] y) {
        y = Add <broadcast=1, axis=1> (x, w)
    }"""
    x = np.zeros((2, 3, 1), np.float32)
    (found,) = run(text, x, floats(1, 2, 3), opset=6)
    assert_equal([found[:, :, 0]], [[1, 2, 3], [1, 2, 3]])
