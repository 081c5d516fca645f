"""Habits of exporters: functions, branches and loops, of which the shapes are told or are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from monograph.frontends.onnx import from_onnx
from monograph.ir.interpret import interpret
from tests.frontends.onnx.ort import agree

X = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4)
FLOAT = TensorProto.FLOAT


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **options: Any) -> NodeProto:
    return helper.make_node(op, inputs, outputs, **options)


def value(name: str, dtype: int = FLOAT, dims: Sequence[int] | None = None) -> Any:
    return helper.make_tensor_value_info(name, dtype, dims)


def body(nodes: Sequence[NodeProto], inputs: Any, outputs: Any, **weights: Any) -> GraphProto:
    tensors = [numpy_helper.from_array(np.asarray(each), name) for name, each in weights.items()]
    return helper.make_graph(list(nodes), "body", list(inputs), list(outputs), tensors)


def made(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Any],
    outputs: Sequence[str] = ("y",),
    weights: Mapping[str, Any] | None = None,
    functions: Sequence[FunctionProto] = (),
    *,
    ranked: bool = True,
) -> ModelProto:
    declared = [
        value(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            list(array.shape) if ranked else None,
        )
        for name, array in inputs.items()
    ]
    tensors = [numpy_helper.from_array(np.asarray(w), name) for name, w in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", declared, list(map(value, outputs)), tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions))


NEGATED = body([node("Neg", ["x"], ["q"])], (), [value("q")])
RAISED = body([node("Exp", ["x"], ["q"])], (), [value("q")])
CHOICE = node("If", ["c"], ["y"], then_branch=NEGATED, else_branch=RAISED)
DOUBLING = body(
    [node("Mul", ["s", "k"], ["t"]), node("Identity", ["go"], ["on"])],
    [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("s")],
    [value("on", TensorProto.BOOL), value("t")],
    k=np.float32(2),
)


# What is not said of shapes.


@pytest.mark.parametrize("condition", [True, [False], [[True]]])
def test_a_condition_without_a_rank(condition: Any) -> None:
    inputs = {"x": X, "c": np.array(condition)}
    agree(made([CHOICE], inputs, ranked=False), inputs)


def test_a_condition_that_is_computed_of_what_has_no_rank() -> None:
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["c"]),
        CHOICE,
    ]
    agree(made(nodes, {"x": X}, weights={"zero": np.float32(0)}, ranked=False), {"x": X})


@pytest.mark.parametrize("count", [3, [3], 0])
@pytest.mark.parametrize("condition", ["", "c"])
def test_a_count_without_a_rank(count: Any, condition: str) -> None:
    inputs = {"x": X, "n": np.array(count, np.int64), "c": np.array(True)}
    given = {name: array for name, array in inputs.items() if name != "c" or condition}
    loop = node("Loop", ["n", condition, "x"], ["y"], body=DOUBLING)
    agree(made([loop], given, ranked=False), given)


# Bodies.


def test_branches_that_only_hold_weights() -> None:
    choice = node(
        "If",
        ["c"],
        ["y"],
        then_branch=body((), (), [value("a", FLOAT, [2])], a=np.ones(2, np.float32)),
        else_branch=body((), (), [value("b", FLOAT, [2])], b=np.zeros(2, np.float32)),
    )
    for condition in (True, False):
        inputs = {"c": np.array(condition)}
        agree(made([choice], inputs), inputs)


def test_loops_in_loops_that_read_what_is_carried_outside() -> None:
    inner = body(
        [node("Add", ["t", "s"], ["u"]), node("Identity", ["go"], ["on"])],
        [value("j", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("t")],
        [value("on", TensorProto.BOOL, []), value("u")],
    )
    outer = body(
        [
            node("Loop", ["twice", "going", "s"], ["r"], body=inner),
            node("Identity", ["going"], ["ongoing"]),
        ],
        [value("i", TensorProto.INT64, []), value("going", TensorProto.BOOL, []), value("s")],
        [value("ongoing", TensorProto.BOOL, []), value("r")],
        twice=np.array(2, np.int64),
    )
    loop = node("Loop", ["n", "", "x"], ["y"], body=outer)
    agree(made([loop], {"x": X}, weights={"n": np.array(3, np.int64)}), {"x": X})


@pytest.mark.parametrize("made_by", ["SequenceConstruct", "SplitToSequence"])
def test_a_body_for_each_element_reads_what_is_around_it(made_by: str) -> None:
    inputs = ["x", "x"] if made_by == "SequenceConstruct" else ["x"]
    scaled = body([node("Mul", ["e", "k"], ["f"])], [value("e")], [value("f")])
    nodes = [
        node("Exp", ["one"], ["k"]),
        node(made_by, inputs, ["parts"]),
        node("SequenceMap", ["parts"], ["mapped"], body=scaled),
        node("ConcatFromSequence", ["mapped"], ["y"], axis=0),
    ]
    agree(made(nodes, {"x": X}, weights={"one": np.float32(1)}), {"x": X})


def test_a_body_for_each_element_that_does_not_say_what_it_makes() -> None:
    e, f = onnx.ValueInfoProto(name="e"), onnx.ValueInfoProto(name="f")
    raised = body([node("Exp", ["e"], ["f"])], [e], [f])
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["parts"]),
        node("SequenceMap", ["parts"], ["mapped"], body=raised),
        node("SequenceAt", ["mapped", "last"], ["y"]),
    ]
    graph = from_onnx(made(nodes, {"x": X}, weights={"last": np.array(1)}))
    (result,) = interpret(graph, {"x": X})
    np.testing.assert_allclose(result, np.exp(X), rtol=1e-6)


# Functions.


def function(name: str, nodes: Sequence[NodeProto], inputs: Sequence[str], **parts: Any) -> Any:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    return helper.make_function("mine", name, inputs, ["b"], nodes, opsets, **parts)


def leaky() -> NodeProto:
    made_node = node("LeakyRelu", ["a"], ["b"])
    kind = onnx.AttributeProto.FLOAT
    made_node.attribute.add(name="alpha", ref_attr_name="slope", type=kind)
    return made_node


@pytest.mark.parametrize("given", [{}, {"slope": 0.5}])
def test_attributes_of_functions_are_given_or_have_defaults(given: dict[str, float]) -> None:
    plain = function("Plain", [leaky()], ["a"], attributes=["slope"])
    default = helper.make_attribute("slope", 0.25)
    other = function("Other", [leaky()], ["a"], attribute_protos=[default])
    nodes = [
        node("Plain", ["x"], ["t"], domain="mine", **given),
        node("Other", ["t"], ["y"], domain="mine", **given),
    ]
    agree(made(nodes, {"x": X}, functions=[other, plain]), {"x": X})


@pytest.mark.parametrize("inputs", [["x"], ["x", ""], ["x", "high"]])
def test_operands_of_functions_may_be_omitted(inputs: list[str]) -> None:
    capped = function("Capped", [node("Clip", ["a", "", "limit"], ["b"])], ["a", "limit"])
    call = node("Capped", inputs, ["y"], domain="mine")
    agree(made([call], {"x": X}, weights={"high": np.float32(0.5)}, functions=[capped]), {"x": X})


def test_functions_that_branches_call() -> None:
    default = helper.make_attribute("slope", 0.25)
    other = function("Other", [leaky()], ["a"], attribute_protos=[default])
    called = body([node("Other", ["x"], ["q"], domain="mine")], (), [value("q")])
    choice = node("If", ["c"], ["y"], then_branch=called, else_branch=RAISED)
    inputs = {"x": X, "c": np.array(True)}
    agree(made([choice], inputs, functions=[other]), inputs)


# Weights.


@pytest.mark.parametrize("places", [[1, 9], [[0, 1], [2, 1]]])
def test_sparse_weights_by_place_or_by_position(places: Any) -> None:
    model = made([node("Mul", ["x", "w"], ["y"])], {"x": X})
    sparse = model.graph.sparse_initializer.add(dims=[3, 4])
    sparse.values.CopyFrom(numpy_helper.from_array(np.array([2, 3], np.float32), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array(places, np.int64), "places"))
    agree(model, {"x": X})


def test_names_may_hold_spaces_and_line_ends() -> None:
    nodes = [node("Relu", ["x"], ["a b/c:0\n"]), node("Neg", ["a b/c:0\n"], ["y"])]
    agree(made(nodes, {"x": X}), {"x": X})
