"""Habits of exporters: scalars for vectors, int32 for int64, kinds of attributes, ways to store.

Where ONNX Runtime runs a model, both must agree; where it refuses one (most of int32, scalars and
kinds of attributes), the result must be that of the model as it was meant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper

from monograph.errors import InputError
from monograph.frontends.onnx import from_onnx
from monograph.ir.interpret import interpret
from tests.frontends.onnx.ort import agree, compare, one_node, run_ort


def draw(*shape: int) -> Any:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


X = draw(2, 3)
EMPTY = np.array([], np.float32)
Operand = tuple[str, list[Any], int]


def meant(habit: ModelProto, proper: ModelProto, feeds: dict[str, Any]) -> None:
    """The habit gives what ONNX Runtime makes of the model as it should be."""
    found = interpret(from_onnx(habit), feeds)
    for got, want in zip(found, run_ort(proper, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


VECTORS: dict[str, Operand] = {  # what is a vector of one element, of int64
    "Squeeze": ("Squeeze", [draw(1, 3), [0]], 1),
    "Unsqueeze": ("Unsqueeze", [X, [0]], 1),
    "ReduceSum": ("ReduceSum", [X, [0]], 1),
    "TopK": ("TopK", [X, [2]], 2),
    "Tile": ("Tile", [draw(3), [2]], 1),
    "Split": ("Split", [draw(2), [2]], 1),
    "Expand": ("Expand", [draw(1), [2]], 1),
    "Reshape": ("Reshape", [X, [-1]], 1),
    "Slice": ("Slice", [X, [0], [1], [1]], 1),
}


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("rank", [0, 1])
def test_scalars_and_int32_for_vectors_of_int64(name: str, dtype: str, rank: int) -> None:
    op, (x, *parameters), outputs = VECTORS[name]
    options: dict[str, Any] = {"onnx": 17, "constant": range(1, 1 + len(parameters))}
    odd = [np.array(each if rank else each[0], dtype) for each in parameters]
    habit, feeds = one_node(op, [x, *odd], outputs, **options)
    right = [np.array(each, np.int64) for each in parameters]
    proper, _ = one_node(op, [x, *right], outputs, **options)
    meant(habit, proper, feeds)


INDICES: dict[str, list[Any]] = {
    "Gather": [X, np.array([0, -1])],
    "GatherND": [X, np.array([[0, 1]])],
    "GatherElements": [X, np.array([[0, 1, 0]])],
    "ScatterND": [X, np.array([[0]]), draw(1, 3)],
    "Pad": [X, np.array([0, 1, 0, 1])],
    "CumSum": [X, np.array(1)],
    "Trilu": [draw(3, 3), np.array(0)],
}


@pytest.mark.parametrize("op", INDICES)
@pytest.mark.parametrize("constant", [False, True])
def test_int32_for_indices_of_int64(op: str, constant: bool) -> None:
    x, indices, *others = INDICES[op]
    options: dict[str, Any] = {"onnx": 17, "constant": [1] * constant}
    habit, feeds = one_node(op, [x, indices.astype(np.int32), *others], **options)
    proper, _ = one_node(op, [x, indices, *others], onnx=17, constant=[1])
    found = interpret(from_onnx(habit), feeds)
    given = {name: each for name, each in feeds.items() if name != "x1"}
    np.testing.assert_array_equal(found[0], run_ort(proper, given)[0])


def test_int32_sizes_of_resize() -> None:
    sizes = np.array([1, 1, 4, 4])
    options: dict[str, Any] = {"onnx": 17, "constant": [3], "mode": "linear"}
    image = draw(1, 1, 2, 2)
    habit, feeds = one_node("Resize", [image, None, None, sizes.astype(np.int32)], **options)
    proper, _ = one_node("Resize", [image, None, None, sizes], **options)
    meant(habit, proper, feeds)


ACCEPTED: dict[str, tuple[str, list[Any], dict[str, Any]]] = {  # by ONNX Runtime too
    "bounds as vectors": ("Clip", [X, np.float32([-0.5]), np.float32([0.5])], {}),
    "an axis as a vector": ("CumSum", [X, np.array([1])], {}),
    "a depth as a vector": ("OneHot", [np.array([1, 2]), np.array([4]), np.float32([0, 1])], {}),
    "a depth as a scalar": ("OneHot", [np.array([1, 2]), np.array(4), np.float32([0, 1])], {}),
    "a depth and indices of floats": (
        "OneHot", [np.float32([1, 2]), np.float32(4), np.float32([0, 1])], {},
    ),
    "a range of vectors": ("Range", [np.array([0]), np.array([4]), np.array([1])], {}),
    "a diagonal as a vector": ("Trilu", [draw(3, 3), np.array([1])], {}),
    "a fill as a vector": ("Pad", [X, np.array([0, 1, 0, 1]), np.float32([2])], {}),
    "a scale as a vector": ("QuantizeLinear", [X, np.float32([0.1]), np.uint8([3])], {}),
    "a scale alone as a vector": ("QuantizeLinear", [X, np.float32([0.1]), np.uint8(3)], {}),
    "a zero point alone as a vector": (
        "DequantizeLinear", [np.ones((2, 3), np.uint8), np.float32(0.1), np.uint8([3])], {},
    ),
    "a step as a vector": ("STFT", [draw(1, 32, 1), np.array([4]), draw(8)], {}),
    "a signal without its last axis": ("STFT", [draw(2, 32), np.array(4), draw(8)], {}),
    "a signal without axis or window": ("STFT", [draw(2, 32), np.array(4), None, np.array(8)], {}),
    "bounds beyond everything": ("Slice", [X, np.array([0]), np.array([2**63 - 1])], {}),
    "backwards beyond everything": (
        "Slice", [X, np.array([-1]), np.array([-(2**63)]), np.array([1]), np.array([-1])], {},
    ),
    "no region, as an empty tensor": (
        "Resize", [draw(1, 1, 2, 2), EMPTY, np.float32([1, 1, 2, 2])], {"mode": "nearest"},
    ),
    "no scales, as an empty tensor": (
        "Resize", [draw(1, 1, 2, 2), EMPTY, EMPTY, np.array([1, 1, 4, 4])], {"mode": "linear"},
    ),
    "no region or scales, by empty names": (
        "Resize", [draw(1, 1, 2, 2), None, None, np.array([1, 1, 4, 4])], {"mode": "linear"},
    ),
    "a bias omitted by name": ("Conv", [draw(1, 1, 4, 4), draw(1, 1, 3, 3), None], {}),
    "bounds omitted by name": ("Clip", [X, None, None], {}),
    "the lower bound omitted": ("Clip", [X, None, np.float32(0.1)], {}),
    "a power of another dtype": ("Pow", [X, np.array(2)], {}),
    "an integer to a float power": ("Pow", [np.array([2, 3], np.int32), np.float32(2)], {}),
    "the remainder of floats": ("Mod", [X, np.float32(0.7)], {"fmod": 1}),
    "the remainder of negative integers": ("Mod", [np.array([-5, 5]), np.array([3, -3])], {}),
    "a choice of a scalar": ("Where", [np.array([True, False]), np.float32(1), draw(2)], {}),
    "a shape with 0 and -1": ("Reshape", [draw(2, 3, 4), np.array([0, -1])], {}),
    "a shape with a 0 that is 0": ("Reshape", [draw(0, 3), np.array([3, 0])], {"allowzero": 1}),
    "a shape that is smaller": ("Expand", [draw(3, 1), np.array([2])], {}),
    "an equation with spaces": ("Einsum", [X, draw(3, 4)], {"equation": " i j , j k -> i k "}),
    "a scale for each row of an axis": (
        "QuantizeLinear", [X, np.float32([0.1, 0.2, 0.3]), np.int8([1, 2, 3])], {"axis": -1},
    ),
    "int32 without a zero point": (
        "DequantizeLinear", [np.arange(8, dtype=np.int32), np.float32(0.1)], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_forms_of_operands_that_onnx_runtime_takes(name: str) -> None:
    op, (x, *parameters), attributes = ACCEPTED[name]
    fixed = [position + 1 for position, each in enumerate(parameters) if each is not None]
    compare(op, [x, *parameters], onnx=17, constant=fixed, **attributes)


def test_a_signal_of_symbolic_sizes_without_its_last_axis() -> None:
    model, feeds = one_node("STFT", [draw(2, 32), np.array(4), draw(8)], onnx=17, constant=[1, 2])
    for dim, name in zip(model.graph.input[0].type.tensor_type.shape.dim, "bn", strict=True):
        dim.dim_param = name
    graph = agree(model, feeds)
    assert "onnx.deferred" not in [node.op.name for node in graph.nodes]


def test_blocks_of_scales() -> None:
    stored = np.arange(8, dtype=np.int8).reshape(2, 4)
    compare("DequantizeLinear", [stored, np.abs(draw(2, 2))], onnx=21, axis=1, block_size=2)


# Attributes.


@pytest.mark.parametrize(
    ("op", "x", "opset", "odd", "proper"),
    [
        ("LeakyRelu", X, 17, {"alpha": 1}, {"alpha": 1.0}),
        ("Softmax", X, 17, {"axis": 1.0}, {"axis": 1}),
        ("Softmax", X, 17, {"axis": [0]}, {"axis": 0}),
        ("Transpose", X, 17, {"perm": [1.0, 0.0]}, {"perm": [1, 0]}),
        ("Squeeze", draw(1, 3), 11, {"axes": 0}, {"axes": [0]}),
        ("Upsample", draw(1, 2), 7, {"scales": [1, 2]}, {"scales": [1.0, 2.0]}),
    ],
)  # fmt: skip
def test_numbers_of_another_kind_in_attributes(
    op: str, x: Any, opset: int, odd: dict[str, Any], proper: dict[str, Any]
) -> None:
    habit, feeds = one_node(op, [x], onnx=opset, **odd)
    meant(habit, one_node(op, [x], onnx=opset, **proper)[0], feeds)


def test_a_number_that_is_no_integer_stays_an_error() -> None:
    model, _ = one_node("Softmax", [X], axis=0.5)
    with pytest.raises(InputError, match="attribute 'axis' is of the wrong kind"):
        from_onnx(model)


@pytest.mark.parametrize(
    ("op", "attributes"), [("LeakyRelu", {"alpha": 0.2}), ("Transpose", {"perm": [1, 0]})]
)
def test_attributes_that_do_not_say_their_type(op: str, attributes: dict[str, Any]) -> None:
    proper, feeds = one_node(op, [X], onnx=9, **attributes)
    habit = ModelProto()
    habit.CopyFrom(proper)
    habit.graph.node[0].attribute[0].ClearField("type")
    meant(habit, proper, feeds)


@pytest.mark.parametrize(
    "attributes",
    [
        {"value_float": 1.5}, {"value_floats": [1.0, 2.0]}, {"value_int": 3},
        {"value_ints": [1, 2]}, {"value_string": "a"}, {"value_strings": ["a", "b"]},
        {"value": helper.make_tensor("v", TensorProto.FLOAT, [2], [1.0, 2.0])},
    ],
)  # fmt: skip
def test_constants_in_every_form(attributes: dict[str, Any]) -> None:
    agree(*one_node("Constant", [], onnx=17, **attributes))


def test_a_constant_of_no_integers() -> None:
    model, feeds = one_node("Constant", [], onnx=17)
    none = helper.make_attribute("value_ints", [], attr_type=AttributeProto.INTS)
    model.graph.node[0].attribute.append(none)
    agree(model, feeds)


def test_a_sparse_constant() -> None:
    """ONNX Runtime does not run it without its optimizer."""
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [1.0, 2.0])
    places = helper.make_tensor("i", TensorProto.INT64, [2], [0, 3])
    sparse = helper.make_sparse_tensor(values, places, [5])
    model, _ = one_node("Constant", [], onnx=17, sparse_value=sparse)
    np.testing.assert_array_equal(interpret(from_onnx(model), {})[0], [1, 0, 0, 2, 0])


def test_constant_of_shape_without_a_value() -> None:
    compare("ConstantOfShape", [np.array([2, 3])], onnx=17)
    compare("ConstantOfShape", [np.array([2, 3])], onnx=17, constant=[0])


def test_cast_to_and_from_strings() -> None:
    compare("Cast", [np.array(["1.5", "-2"], object)], onnx=17, constant=[0], to=TensorProto.FLOAT)
    compare("Cast", [np.array([3, -4])], onnx=17, to=TensorProto.STRING)


# Storage.


def stored(dtype: int, dims: list[int], **data: Any) -> ModelProto:
    """A model that gives out an initializer."""
    tensor = TensorProto(name="w", data_type=dtype, dims=dims)
    for field, items in data.items():
        if field == "raw_data":
            tensor.raw_data = items
        else:
            getattr(tensor, field).extend(items)
    node = helper.make_node("Identity", ["w"], ["y"])
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("y")], [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    "model",
    [
        stored(TensorProto.FLOAT16, [2], int32_data=[0x3C00, 0x4000]),
        stored(TensorProto.BOOL, [2], int32_data=[1, 0]),
        stored(TensorProto.BOOL, [2], raw_data=b"\x01\x00"),
        stored(TensorProto.INT8, [2], int32_data=[-3, 4]),
        stored(TensorProto.UINT8, [2], int32_data=[200, 4]),
        stored(TensorProto.UINT32, [1], uint64_data=[7]),
        stored(TensorProto.FLOAT, [], raw_data=np.float32(2).tobytes()),
        stored(TensorProto.FLOAT, [], float_data=[2.0]),
        stored(TensorProto.FLOAT, [0]),
        stored(TensorProto.FLOAT, [0], raw_data=b""),
        stored(TensorProto.FLOAT, [2, 0, 3]),
    ],
)
def test_ways_to_store_a_tensor(model: ModelProto) -> None:
    agree(model, {})
