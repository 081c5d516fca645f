"""Habits of exporters: what models declare of their values, and what is true of them.

Declared types are not needed, so one that is wrong is warned of and inference decides. ONNX Runtime
does so for shapes (not for dtypes, which it refuses), and where it runs a model, both must agree.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

import monograph
from monograph.errors import InputError
from monograph.frontends.onnx import from_onnx
from monograph.frontends.onnx.habits import ModelWarning
from monograph.ir.interpret import interpret
from tests.frontends.onnx.ort import agree

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
X = np.array([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]], np.float32)
Dims = Sequence[int | str | None] | None


def declared(name: str, dims: Dims, dtype: int = FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)


def two_nodes(
    y: ValueInfoProto, inner: Sequence[ValueInfoProto] = (), x: Dims = (2, 3)
) -> ModelProto:
    """y = -relu(x), with its values declared as given."""
    nodes = [helper.make_node("Relu", ["x"], ["t"]), helper.make_node("Neg", ["t"], ["y"])]
    graph = helper.make_graph(nodes, "g", [declared("x", x)], [y], value_info=list(inner))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("dims", [[2, 3, 1], [6], [2, 4], [], ["n", 4]])
def test_an_output_declared_with_a_wrong_shape(dims: list[int | str]) -> None:
    with pytest.warns(ModelWarning, match="the output 'y' is declared to be another type"):
        agree(two_nodes(declared("y", dims)), {"x": X})


def test_an_output_declared_with_a_wrong_dtype_or_kind() -> None:
    sequence = helper.make_tensor_sequence_value_info("y", FLOAT, None)
    for wrong in (declared("y", (2, 3), INT64), sequence):
        with pytest.warns(ModelWarning, match="the output 'y' is declared to be another type"):
            graph = from_onnx(two_nodes(wrong))
        np.testing.assert_array_equal(interpret(graph, [X])[0], -np.maximum(X, 0))


def test_an_output_declared_without_element_type() -> None:
    graph = from_onnx(two_nodes(declared("y", (2, 3), TensorProto.UNDEFINED)))
    np.testing.assert_array_equal(interpret(graph, [X])[0], -np.maximum(X, 0))


@pytest.mark.parametrize("dims", [[7, 7], [7], [2, 3, 1]])
def test_value_info_with_a_wrong_shape(dims: list[int]) -> None:
    with pytest.warns(ModelWarning, match="'t' is declared to be another type"):
        agree(two_nodes(declared("y", None), [declared("t", dims)]), {"x": X})


def test_value_info_with_a_wrong_dtype() -> None:
    with pytest.warns(ModelWarning, match="'t' is declared to be another type.*i64"):
        graph = from_onnx(two_nodes(declared("y", None), [declared("t", (2, 3), INT64)]))
    np.testing.assert_array_equal(interpret(graph, [X])[0], -np.maximum(X, 0))


def test_value_info_of_what_is_not_there() -> None:
    agree(two_nodes(declared("y", None), [declared("gone", (9,))]), {"x": X})


def test_the_warning_names_the_line_that_imports_the_model() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_onnx(two_nodes(declared("y", (6,))))
    assert [each.filename for each in caught] == [__file__]


def test_many_wrong_declarations_are_one_warning() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_onnx(two_nodes(declared("y", (6,)), [declared("t", (9,))]))
    (only,) = caught
    assert str(only.message).startswith("'t' is declared to be another type than it is: [9]")
    assert str(only.message).endswith("(and 1 more like it)")


def test_a_model_without_habits_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelWarning)
        agree(two_nodes(declared("y", (2, 3)), [declared("t", (2, 3))]), {"x": X})


def test_a_model_with_wrong_declarations_compiles() -> None:
    with pytest.warns(ModelWarning):
        graph = from_onnx(two_nodes(declared("y", (6,)), [declared("t", (9,))], ("n", 3)))
    (found,) = monograph.compile(graph)(X)
    np.testing.assert_array_equal(found, -np.maximum(X, 0))


def test_missing_shapes_of_inputs_and_outputs() -> None:
    empty = helper.make_empty_tensor_value_info("y")
    agree(two_nodes(empty, x=None), {"x": X})
    agree(two_nodes(empty, x=(None, None)), {"x": X})


# Names and numbers of dimensions.


def added(x: Dims, z: Dims) -> ModelProto:
    node = helper.make_node("Add", ["x", "z"], ["y"])
    inputs = [declared("x", x), declared("z", z)]
    graph = helper.make_graph([node], "g", inputs, [declared("y", None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("name", ["?", "-1", "None", "none", "unk", "unknown", "*", "null"])
def test_names_that_mean_an_unknown_size_may_mean_different_sizes(name: str) -> None:
    agree(added((name, name), (name, name)), {"x": X, "z": X})


@pytest.mark.parametrize(
    "name",
    ["batch size", "floor(seq/2)+1", "unk__1", "größe", "for", "2", "a.b", "d 1/2", "N+", "x" * 99],
)
def test_names_of_dimensions_may_hold_anything(name: str) -> None:
    agree(added((name, 3), (name, 3)), {"x": X, "z": X})


@pytest.mark.parametrize("size", [-1, -2, -(2**62)])
def test_a_negative_size_is_an_unknown_one(size: int) -> None:
    agree(added((size, 3), (size, 3)), {"x": X, "z": X})


def test_a_size_without_value_or_name_is_an_unknown_one() -> None:
    agree(added((None, ""), ("", None)), {"x": X, "z": X})


def test_a_name_whose_sizes_disagree_is_an_error_that_names_it() -> None:
    """ONNX Runtime ignores names; here one name is one size, which whole programs rely on."""
    graph = from_onnx(added(("n", 3), ("n", 3)))
    with pytest.raises(InputError, match="n is 1 here, but 2 elsewhere"):
        interpret(graph, {"x": X, "z": X[:1]})


def test_outputs_named_after_another_size_are_accepted() -> None:
    model = added(("n", 3), ("m", 3))
    model.graph.output[0].CopyFrom(declared("y", ("m", 3)))
    feeds: dict[str, Any] = {"x": X, "z": X[:1]}
    agree(model, feeds)
