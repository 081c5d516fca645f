"""Habits of exporters: names, order, initializers, outputs and bodies of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import monograph
from monograph.errors import InputError
from monograph.frontends.onnx import from_onnx
from monograph.frontends.onnx.habits import ModelWarning
from monograph.ir.interpret import interpret
from tests.frontends.onnx import models
from tests.frontends.onnx.ort import agree

X = np.array([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]], np.float32)
W = np.array([2.0, 3.0, 4.0], np.float32)
LARGE = np.arange(60, dtype=np.float32)


def made(
    nodes: Sequence[NodeProto],
    outputs: Sequence[str] = ("y",),
    weights: Sequence[tuple[str, Any]] = (),
    inputs: Sequence[tuple[str, Sequence[int]]] = (("x", (2, 3)),),
    ir_version: int = 8,
) -> ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir_version
    )


def node(op: str, inputs: str, outputs: str, **options: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **options)


# Nodes.


def test_nodes_in_any_order() -> None:
    nodes = [node("Exp", "b", "y"), node("Neg", "a", "b"), node("Relu", "x", "a")]
    agree(made(nodes), {"x": X})


def test_nodes_of_one_name() -> None:
    """ONNX Runtime refuses them."""
    nodes = [node("Relu", "x", "t", name="same"), node("Neg", "t", "y", name="same")]
    (found,) = interpret(from_onnx(made(nodes)), [X])
    np.testing.assert_array_equal(found, -np.maximum(X, 0))


def test_nodes_without_names() -> None:
    agree(made([node("Relu", "x", "t", name=""), node("Neg", "t", "y", name="")]), {"x": X})


def test_a_node_called_like_a_value() -> None:
    agree(made([node("Relu", "x", "t", name="y"), node("Neg", "t", "y", name="x")]), {"x": X})


def test_omitted_operands_at_the_end() -> None:
    agree(made([helper.make_node("Clip", ["x", "", ""], ["y"])]), {"x": X})
    relu = from_onnx(made([helper.make_node("Relu", ["x", ""], ["y"])]))
    np.testing.assert_array_equal(interpret(relu, [X])[0], np.maximum(X, 0))


def test_omitted_outputs() -> None:
    agree(made([helper.make_node("Dropout", ["x"], ["y", ""])]), {"x": X})


# Initializers.


@pytest.mark.parametrize("ir_version", [3, 4, 8, 10])
def test_initializers_that_are_inputs_too(ir_version: int) -> None:
    inputs = [("x", (2, 3)), ("w", (3,))]
    model = made([node("Add", "x w", "y")], ("y",), [("w", W)], inputs, ir_version)
    graph = agree(model, {"x": X})
    assert [value.name for value in graph.inputs] == ["x"]


def test_an_initializer_declared_with_another_shape_as_input() -> None:
    """ONNX Runtime refuses it; what is stored is what counts."""
    inputs = [("x", (2, 3)), ("w", (5,))]
    graph = from_onnx(made([node("Add", "x w", "y")], ("y",), [("w", W)], inputs))
    np.testing.assert_array_equal(interpret(graph, [X])[0], X + W)


def test_an_initializer_that_nothing_reads() -> None:
    graph = agree(made([node("Relu", "x", "y")], ("y",), [("w", W)]), {"x": X})
    assert len(graph.nodes) == 1


def test_an_initializer_stored_twice() -> None:
    with pytest.warns(ModelWarning, match="'w' is stored twice"):
        agree(made([node("Add", "x w", "y")], ("y",), [("w", W), ("w", W)]), {"x": X})


def test_two_initializers_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="two initializers are called 'w'"):
        from_onnx(made([node("Add", "x w", "y")], ("y",), [("w", W), ("w", W + 1)]))


# Outputs.


def test_chains_of_identities() -> None:
    nodes = [node("Identity", "x", "a"), node("Identity", "a", "b"), node("Identity", "b", "y")]
    agree(made(nodes), {"x": X})


@pytest.mark.parametrize(
    ("nodes", "outputs", "weights"),
    [
        ([("Relu", "x", "y")], ["x", "y"], []),
        ([("Relu", "x", "y")], ["w", "y"], [("w", W)]),
        ([("Relu", "x", "y")], ["w", "y"], [("w", LARGE)]),
        ([("Relu", "x", "y")], ["y", "y"], []),
        ([("Relu", "x", "t"), ("Identity", "t", "y"), ("Identity", "t", "z")], ["y", "z", "t"], []),
        ([], ["x"], []),
        ([("Identity", "x", "y")], ["y", "x"], []),
    ],
)
def test_outputs_that_are_inputs_weights_or_named_twice(
    nodes: list[tuple[str, str, str]], outputs: list[str], weights: list[tuple[str, Any]]
) -> None:
    graph = agree(made([node(*each) for each in nodes], outputs, weights), {"x": X})
    for got, want in zip(monograph.compile(graph)(X), interpret(graph, [X]), strict=True):
        np.testing.assert_array_equal(got, want)


# Bodies.


def branches(then: str, otherwise: str, y: str = "float[2,3] y", c: str = "bool c") -> ModelProto:
    """y = c ? then : otherwise, where t is relu(x)."""
    return models.model(
        f"""g ({c}, float[2,3] x) => ({y}) {{
            t = Relu(x)
            y = If(c) <then_branch = a () => {then}, else_branch = b () => {otherwise}>
        }}""",
        opset=17,
    )


ELSE = "(float[2,3] v) { v = Exp(x) }"


@pytest.mark.parametrize("condition", [np.array(True), np.array(False)])
@pytest.mark.parametrize(
    ("then", "otherwise", "y"),
    [
        ("(float[2,3] u) { u = Neg(t) }", ELSE, "float[2,3] y"),
        ("(float[2,3] u) { u = Identity(x) }", ELSE, "float[2,3] y"),
        ("(u) { u = Neg(t) }", "(v) { v = Exp(x) }", "float[2,3] y"),
        ("(float[2,3] u) { u = Neg(t) }", "(float[3,2] v) { v = Transpose(x) }", "float[n,m] y"),
    ],
)
def test_branches_capture_and_differ_in_shape(
    then: str, otherwise: str, y: str, condition: Any
) -> None:
    agree(branches(then, otherwise, y), {"c": condition, "x": X})


@pytest.mark.parametrize("condition", [np.array(True), np.array(False)])
def test_branches_that_differ_in_rank(condition: Any) -> None:
    flat = "(float[6] v) { s = Constant<value = int64[1] {-1}>() v = Reshape(x, s) }"
    agree(branches("(float[2,3] u) { u = Neg(t) }", flat, "float y"), {"c": condition, "x": X})


def test_a_condition_that_is_a_vector() -> None:
    model = branches("(float[2,3] u) { u = Neg(t) }", ELSE, c="bool[1] c")
    agree(model, {"c": np.array([True]), "x": X})


def test_a_body_that_makes_a_name_of_the_graph_around_it() -> None:
    """ONNX Runtime refuses it."""
    graph = from_onnx(branches("(float[2,3] t) { t = Neg(x) }", "(float[2,3] v) { v = Exp(t) }"))
    np.testing.assert_array_equal(interpret(graph, [np.array(True), X])[0], -X)
    relu = np.maximum(X, 0)
    np.testing.assert_allclose(interpret(graph, [np.array(False), X])[0], np.exp(relu), rtol=1e-6)


def test_a_body_that_gives_out_a_value_of_the_graph_around_it() -> None:
    """ONNX Runtime refuses it."""
    graph = from_onnx(branches("(float[2,3] x) { }", ELSE))
    np.testing.assert_array_equal(interpret(graph, [np.array(True), X])[0], X)


BODY = """body = b (int64 i, bool k, float[2,3] s) => (bool k2, float[2,3] s2, float[2,3] o) {
    k2 = Identity(k)
    s2 = Add(s, x)
    o = Neg(s2)
}"""


@pytest.mark.parametrize("condition", ["true", '""'])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_loops_without_a_condition(condition: str, count: int) -> None:
    text = f"""g (float[2,3] x) => (float[2,3] y, float[n,2,3] z) {{
        m = Constant<value = int64 {{{count}}}>()
        true = Constant<value = bool {{1}}>()
        y, z = Loop(m, {condition}, x) <{BODY}>
    }}"""
    agree(models.model(text, opset=17), {"x": X})


def test_a_loop_without_a_count() -> None:
    text = """g (float[2,3] x) => (float[2,3] y) {
        true = Constant<value = bool {1}>()
        y = Loop("", true, x) <body = b (int64 i, bool k, float[2,3] s) => (bool k2, s2) {
            s2 = Add(s, x)
            largest = ReduceMax<keepdims = 0>(s2)
            end = Constant<value = float {20.0}>()
            k2 = Less(largest, end)
        }>
    }"""
    agree(models.model(text, opset=17), {"x": X})


def test_a_loop_whose_count_is_an_input_and_whose_state_grows() -> None:
    text = """g (int64 m, float[2,3] x) => (float[n,3] y) {
        y = Loop(m, "", x) <body = b (int64 i, bool k, float[p,3] s) => (bool k2, float[q,3] s2) {
            k2 = Identity(k)
            s2 = Concat<axis = 0>(s, x)
        }>
    }"""
    agree(models.model(text, opset=17), {"m": np.array(3), "x": X})


def test_a_loop_whose_count_is_a_vector() -> None:
    """ONNX Runtime wants scalars in this loop; its count is the same."""
    text = """g (float[2,3] x) => (float[2,3] y, float[n,2,3] z) {{
        m = Constant<value = int64{0} {{3}}>()
        true = Constant<value = bool{0} {{1}}>()
        y, z = Loop(m, true, x) <{1}>
    }}"""
    (first, second), (want, wanted) = (
        interpret(from_onnx(models.model(text.format(kind, BODY), opset=17)), [X])
        for kind in ("[1]", "")
    )
    np.testing.assert_array_equal(first, want)
    np.testing.assert_array_equal(second, wanted)


def test_a_scan_with_its_defaults() -> None:
    text = """g (float[3] a, float[2,3] x) => (float[3] y, float[2,3] z) {
        y, z = Scan<num_scan_inputs = 1, body = b (float[3] s, float[3] e) => (float[3] s2, float[3] o) {
            s2 = Add(s, e)
            o = Identity(s2)
        }>(a, x)
    }"""  # noqa: E501
    agree(models.model(text, opset=17), {"a": W, "x": X})


def test_sequences() -> None:
    text = """g (float[2,3] x) => (float[n,3] y, float[1,3] z) {
        one = Constant<value = int64 {1}>()
        s = SequenceConstruct(x, x)
        y = ConcatFromSequence<axis = 0>(s)
        parts = SplitToSequence(x)
        z = SequenceAt(parts, one)
    }"""
    agree(models.model(text, opset=17), {"x": X})


# Models.


FUNCTION = """<domain: "own", opset_import: ["" : 17]>
times <factor> (x) => (y) {
    c = Constant<value_float: float = @factor>()
    y = Mul(x, c)
}"""


def test_functions_of_the_model() -> None:
    text = "g (float[2,3] x) => (float[2,3] y) { y = own.times<factor = 2.0>(x) }"
    model = models.model(text, opset=17, functions=FUNCTION, domains=', "own" : 1')
    model.ir_version = 8
    agree(model, {"x": X})
    del model.opset_import[1:]  # ONNX Runtime refuses a domain that is not imported
    np.testing.assert_array_equal(interpret(from_onnx(model), [X])[0], X * 2)
    del model.functions[0].opset_import[:]
    np.testing.assert_array_equal(interpret(from_onnx(model), [X])[0], X * 2)


def test_what_a_model_says_of_itself_is_no_part_of_it() -> None:
    model = made([node("Relu", "x", "y")])
    helper.set_model_props(model, {"author": "somebody"})
    model.training_info.add()
    model.doc_string, model.producer_name = "text", "converter"
    agree(model, {"x": X})


@pytest.mark.parametrize("ir_version", [0, 99])
def test_an_ir_version_that_is_missing_or_of_the_future(ir_version: int) -> None:
    """ONNX Runtime refuses both."""
    graph = from_onnx(made([node("Relu", "x", "y")], ir_version=ir_version))
    np.testing.assert_array_equal(interpret(graph, [X])[0], np.maximum(X, 0))


def test_a_graph_without_a_name() -> None:
    model = made([node("Relu", "x", "y")])
    model.graph.ClearField("name")
    (found,) = interpret(from_onnx(model), [X])
    np.testing.assert_array_equal(found, np.maximum(X, 0))


def test_external_data_in_a_folder_with_length_and_offset_omitted(tmp_path: Path) -> None:
    model = made([node("Mul", "x w", "y")], ("y",), [("w", W)])
    (tmp_path / "weights").mkdir()
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights/all.bin",
              size_threshold=0)  # fmt: skip
    stored = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    tensor = stored.graph.initializer[0]
    place = [entry for entry in tensor.external_data if entry.key == "location"]
    del tensor.external_data[:]
    tensor.external_data.extend(place)
    onnx.save(stored, tmp_path / "bare.onnx")
    for name in ("m.onnx", "bare.onnx"):
        (found,) = interpret(from_onnx(tmp_path / name), [X])
        np.testing.assert_array_equal(found, X * W)
