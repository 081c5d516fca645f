"""Habits of exporters: opsets that are mixed, missing, repeated or of the future.

ONNX Runtime refuses most nodes of another opset; they are compared with the same node in a model of
the opset that it is written for.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from monograph.errors import InputError, MonographError
from monograph.frontends.onnx import find_unsupported, from_onnx
from monograph.frontends.onnx.habits import ModelWarning
from monograph.ir.interpret import interpret
from tests.frontends.onnx.ort import agree, one_node, run_ort


def draw(*shape: int) -> Any:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def numbers(*items: int) -> Any:
    return np.array(items, np.int64)


def read_as(
    written: int, imported: int, op: str, operands: list[Any], outputs: int, **attributes: Any
) -> None:
    """A node of opset ``written`` means the same in a model that imports ``imported``."""
    model, feeds = one_node(
        op, operands, outputs, onnx=written, constant=range(1, len(operands)), **attributes
    )
    expected = run_ort(model, feeds)
    model.opset_import[0].version = imported
    with pytest.warns(ModelWarning, match=f"no node of opset {imported}.*which it fits"):
        graph = from_onnx(model)
    for got, want in zip(interpret(graph, feeds), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


X = draw(2, 3)
OLD: dict[str, tuple[int, list[Any], int, dict[str, Any]]] = {
    "Squeeze": (11, [draw(1, 3, 1)], 1, {"axes": [0]}),
    "Unsqueeze": (11, [X], 1, {"axes": [0]}),
    "ReduceSum": (11, [X], 1, {"axes": [1]}),
    "ReduceMean": (13, [X], 1, {"axes": [1], "keepdims": 0}),
    "ReduceMax": (13, [X], 1, {"axes": [-1]}),
    "ReduceL2": (13, [X], 1, {"axes": [0]}),
    "Clip": (6, [X], 1, {"min": -0.5, "max": 0.5}),
    "Dropout": (10, [X], 1, {"ratio": 0.3}),
    "Slice": (9, [X], 1, {"starts": [1], "ends": [3], "axes": [1]}),
    "Pad": (10, [X], 1, {"pads": [0, 1, 0, 1], "value": 2.0}),
    "Split": (11, [draw(4, 3)], 2, {"axis": 0, "split": [1, 3]}),
    "Upsample": (8, [draw(1, 1, 2, 2)], 1, {"scales": [1.0, 1.0, 2.0, 2.0]}),
    "TopK": (9, [X], 2, {"k": 2}),
    "BatchNormalization": (
        8, [draw(1, 3, 2), draw(3), draw(3), draw(3), np.abs(draw(3))], 1, {"spatial": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", OLD)
@pytest.mark.parametrize("imported", [18, 21])
def test_attributes_of_an_old_opset(op: str, imported: int) -> None:
    written, operands, outputs, attributes = OLD[op]
    read_as(written, imported, op, operands, outputs, **attributes)


NEW: dict[str, tuple[int, int, list[Any], int, dict[str, Any]]] = {
    "Squeeze": (13, 11, [draw(1, 3, 1), numbers(0)], 1, {}),
    "Unsqueeze": (13, 11, [X, numbers(0)], 1, {}),
    "ReduceSum": (13, 11, [X, numbers(1)], 1, {}),
    "ReduceMean": (18, 13, [X, numbers(1)], 1, {}),
    "Clip": (11, 6, [X, np.float32(-0.5), np.float32(0.5)], 1, {}),
    "Slice": (10, 9, [X, numbers(1), numbers(3), numbers(1)], 1, {}),
    "Pad": (11, 10, [X, numbers(0, 1, 0, 1)], 1, {}),
    "Split": (18, 13, [draw(4, 3)], 2, {"num_outputs": 2}),
    "Dropout": (12, 11, [X, np.float32(0.3)], 1, {}),
    "TopK": (10, 9, [X, numbers(2)], 2, {}),
    "Upsample": (9, 8, [draw(1, 1, 2, 2), np.array([1, 1, 2, 2], np.float32)], 1, {}),
    "Reshape": (14, 11, [X, numbers(3, 2)], 1, {"allowzero": 0}),
    "GatherND": (12, 11, [draw(2, 3), numbers(0, 1).reshape(2, 1)], 1, {"batch_dims": 1}),
    "Gelu": (20, 17, [X], 1, {}),
    "Mish": (18, 14, [X], 1, {}),
    "HardSwish": (14, 11, [X], 1, {}),
    "GroupNormalization": (21, 17, [draw(1, 4, 3), draw(4), draw(4)], 1, {"num_groups": 2}),
}


@pytest.mark.parametrize("op", NEW)
def test_operands_and_ops_of_a_new_opset(op: str) -> None:
    written, imported, operands, outputs, attributes = NEW[op]
    read_as(written, imported, op, operands, outputs, **attributes)


def test_a_node_that_waits_for_its_operands_keeps_its_opset() -> None:
    """It is converted when it runs, and nobody is warned a second time."""
    scales = np.array([1, 1, 2, 2], np.float32)
    model, feeds = one_node("Upsample", [draw(1, 1, 2, 2), scales], onnx=9)
    expected = run_ort(model, feeds)
    model.opset_import[0].version = 17
    with pytest.warns(ModelWarning, match="opset 9"):
        graph = from_onnx(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelWarning)
        (found,) = interpret(graph, feeds)
    np.testing.assert_array_equal(found, expected[0])


def test_layer_normalization_before_opset_17_as_onnx_runtime_has_it() -> None:
    model, feeds = one_node("LayerNormalization", [draw(2, 8), draw(8), draw(8)], onnx=14)
    with pytest.warns(ModelWarning):
        agree(model, feeds)


def test_binary_ops_with_a_broadcast_axis() -> None:
    """ONNX Runtime does not run opset 6."""
    model, feeds = one_node("Add", [draw(2, 3, 4), draw(3)], onnx=17, broadcast=1, axis=1)
    with pytest.warns(ModelWarning, match="opset 6"):
        (found,) = interpret(from_onnx(model), feeds)
    np.testing.assert_array_equal(found, feeds["x0"] + feeds["x1"][:, None])


def test_cast_to_a_dtype_by_name() -> None:
    model, feeds = one_node("Cast", [X], onnx=17, to="INT32")
    with pytest.warns(ModelWarning, match="opset 1"):
        (found,) = interpret(from_onnx(model), feeds)
    np.testing.assert_array_equal(found, X.astype(np.int32))


def test_resize_with_scales_as_second_operand() -> None:
    scales = np.array([1, 1, 2, 2], np.float32)
    model, feeds = one_node("Resize", [draw(1, 1, 2, 2), scales], onnx=10, constant=[1])
    expected = run_ort(model, feeds)
    model.opset_import[0].version = 13
    np.testing.assert_array_equal(interpret(from_onnx(model), feeds)[0], expected[0])


def test_an_attribute_that_no_opset_has_is_refused() -> None:
    model, _ = one_node("Relu", [X], alpha=1.0)
    with pytest.raises(InputError, match="attribute 'alpha' is not known"):
        from_onnx(model)


def test_a_missing_attribute_is_not_guessed_from_an_old_opset() -> None:
    """Concat had an axis of 1 by default in opset 1."""
    model, _ = one_node("Concat", [X, X])
    with pytest.raises(MonographError, match="attribute 'axis' is missing"):
        from_onnx(model)


# Imports.


def softmax(*imports: tuple[str, int], domain: str = "", ir_version: int = 8) -> ModelProto:
    """A softmax, which means another function before opset 13."""
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1, domain=domain)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [y])
    opsets = [helper.make_opsetid(*each) for each in imports]
    model = helper.make_model(graph, opset_imports=opsets or None, ir_version=ir_version)
    if not opsets:
        del model.opset_import[:]
    return model


FEEDS = {"x": draw(2, 3, 4)}


def test_the_standard_domain_by_its_long_name() -> None:
    agree(softmax(("ai.onnx", 17), domain="ai.onnx"), FEEDS)
    agree(softmax(("ai.onnx", 11), domain=""), FEEDS)
    agree(softmax(("", 11), domain="ai.onnx"), FEEDS)


def test_an_opset_imported_twice_alike() -> None:
    agree(softmax(("", 17), ("ai.onnx", 17)), FEEDS)


@pytest.mark.parametrize("versions", [(11, 17), (17, 11)])
@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_of_an_opset_imported_twice_the_last_counts(versions: tuple[int, int], domain: str) -> None:
    with pytest.warns(ModelWarning, match="the last one counts"):
        agree(softmax(("", versions[0]), (domain, versions[1])), FEEDS)


@pytest.mark.parametrize(("ir_version", "opset"), [(3, 8), (6, 11), (8, 18)])
def test_without_an_opset_the_ir_version_tells_the_time(ir_version: int, opset: int) -> None:
    (expected,) = run_ort(softmax(("", opset)), FEEDS)
    with pytest.warns(ModelWarning, match=f"read as one of opset {opset}"):
        graph = from_onnx(softmax(ir_version=ir_version))
    np.testing.assert_allclose(interpret(graph, FEEDS)[0], expected, rtol=1e-6)


def test_an_opset_of_the_future_is_read_as_the_newest() -> None:
    (expected,) = run_ort(softmax(("", 17)), FEEDS)
    with pytest.warns(ModelWarning, match="needs version 99"):
        graph = from_onnx(softmax(("", 99)))
    np.testing.assert_allclose(interpret(graph, FEEDS)[0], expected, rtol=1e-6)


@pytest.mark.parametrize(("domain", "op"), [("com.microsoft", "Gelu"), ("ai.onnx.ml", "Binarizer")])
def test_domains_that_are_used_without_an_import(domain: str, op: str) -> None:
    model, feeds = one_node(op, [X], domain=domain)
    del model.opset_import[1:]
    agree(model, feeds)


def test_an_unknown_domain_is_still_unsupported() -> None:
    model, _ = one_node("Gelu", [X], domain="own")
    (problem,) = find_unsupported(model)
    assert problem.op == "own.Gelu"


# Ops that ONNX dropped.


@pytest.mark.parametrize(
    ("op", "operands", "attributes"),
    [
        ("Affine", [X], {"alpha": 2.0, "beta": 0.5}),
        ("Scale", [X], {"scale": 3.0}),
        ("ScaledTanh", [X], {"alpha": 2.0, "beta": 0.5}),
        ("ParametricSoftplus", [X], {"alpha": 2.0, "beta": 0.5}),
        ("ImageScaler", [draw(1, 3, 2, 2)], {"scale": 2.0, "bias": [0.1, 0.2, 0.3]}),
        ("Crop", [draw(1, 2, 6, 5)], {"border": [1, 2, 1, 0]}),
        ("Crop", [draw(1, 2, 6, 5)], {"border": [1, 2, 1, 0], "scale": [3, 2]}),
        ("DynamicSlice", [X, numbers(0), numbers(2), numbers(1)], {}),
    ],
)
def test_ops_that_onnx_dropped(op: str, operands: list[Any], attributes: dict[str, Any]) -> None:
    model, feeds = one_node(op, operands, onnx=9, constant=[1, 2, 3], **attributes)
    agree(model, feeds)


def test_the_norm_that_onnx_runtime_puts_among_the_standard_ops() -> None:
    model, feeds = one_node("SimplifiedLayerNormalization", [draw(2, 8), draw(8)], onnx=17, axis=-1)
    agree(model, feeds)
