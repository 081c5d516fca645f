"""Tensors of every dtype, however they are stored; and files beside the model."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper, numpy_helper

from monograph.errors import InputError
from monograph.frontends.onnx import from_onnx
from monograph.frontends.onnx.external import Files, MappedData
from monograph.frontends.onnx.tensors import data_of, tensor_of
from monograph.frontends.onnx.types import CODE_BY_DTYPE, Symbols, TypeWriter, value_type
from monograph.ir.data import ArrayData
from monograph.ir.dims import Symbol
from monograph.ir.interpret import interpret
from monograph.ir.types import (
    DTYPES,
    DType,
    OptionalType,
    SequenceType,
    TensorType,
    UnrankedType,
    f32,
    string,
)
from tests.frontends.onnx.models import assert_equal, model

NUMBERS = [dtype for dtype in DTYPES.values() if dtype is not string]


def contents(dtype: DType) -> np.ndarray:
    """Seven elements, so that packed types do not fill their last byte."""
    if dtype.name == "f8e8m0fnu":
        return np.array([1, 2, 4, 8, 0.5, 0.25, 64]).astype(dtype.numpy)
    return np.array([0, 1, 1, 0, 1, 1, 1]).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_raw_data_round_trips(dtype: DType) -> None:
    array = contents(dtype)
    tensor = tensor_of(ArrayData(array, dtype), "t")
    assert_equal([data_of(tensor).array()], array)
    assert_equal([numpy_helper.to_array(tensor)], array)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_typed_fields_are_read(dtype: DType) -> None:
    array = contents(dtype)
    tensor = helper.make_tensor("t", CODE_BY_DTYPE[dtype], array.shape, array)
    assert not tensor.HasField("raw_data")
    found = data_of(tensor)
    assert found.dtype is dtype
    assert_equal([found.array()], array)


def test_strings_round_trip() -> None:
    array = np.array([["a", "é"], ["", "日本"]], object)
    assert_equal([data_of(tensor_of(ArrayData(array), "t")).array()], array)


@pytest.mark.parametrize("kind", ["raw", "typed"])
@pytest.mark.parametrize("dtype", ["f32", "i4", "bool", "bf16", "c64", "u64"])
def test_a_wrong_length_is_refused(kind: str, dtype: str) -> None:
    array = contents(DTYPES[dtype])
    made = helper.make_tensor("t", CODE_BY_DTYPE[DTYPES[dtype]], array.shape, array)
    tensor = made if kind == "typed" else tensor_of(ArrayData(array, DTYPES[dtype]), "t")
    tensor.dims[0] = 2**40
    with pytest.raises(InputError, match="tensor 't' has the wrong length"):
        data_of(tensor)


def test_data_in_two_places_is_refused() -> None:
    tensor = numpy_helper.from_array(np.ones(1, np.float32), "t")
    tensor.float_data.append(1.0)
    with pytest.raises(InputError, match="is given twice"):
        data_of(tensor)


# Files beside the model.


def save_external(folder: Path, location: str = "w.bin", **entries: str) -> Path:
    """A model whose weight lies in another file."""
    proto = model("m (float[64] x) => (float[64] y) { y = Add(x, w) }")
    weight = np.arange(64, dtype=np.float32)
    (folder / "w.bin").write_bytes(bytes(8) + weight.tobytes())
    tensor = proto.graph.initializer.add(name="w", dims=[64], data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    given = {"location": location, "offset": "8", **entries}
    for key, value in given.items():
        tensor.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return path


def test_external_data_is_mapped(tmp_path: Path) -> None:
    graph = from_onnx(save_external(tmp_path))
    (weight,) = [node for node in graph.nodes if node.op.name == "weight"]
    assert isinstance(weight.op.attributes()["data"], MappedData)
    assert_equal(interpret(graph, [np.zeros(64, np.float32)]), np.arange(64))


def test_mapped_pages_that_were_given_back_are_read_again(tmp_path: Path) -> None:
    content = np.arange(20_000, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(bytes(8) + content.tobytes())
    data = Files(tmp_path).read("w.bin", 8, None, f32, (20_000,), "w")
    held = data.array()
    data.unload()
    np.testing.assert_array_equal(held, content)
    np.testing.assert_array_equal(data.array(), content)


def test_a_folder_for_weights_can_be_named(tmp_path: Path) -> None:
    content = save_external(tmp_path).read_bytes()
    with pytest.raises(InputError, match="no folder is known"):
        from_onnx(content)
    graph = from_onnx(content, weights_folder=tmp_path)
    assert_equal(interpret(graph, [np.zeros(64, np.float32)]), np.arange(64))


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/passwd", "a/../../w.bin", "", "..", "a//b", "C:/w.bin"]
)
def test_a_path_that_leaves_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(InputError, match="outside the model's folder"):
        from_onnx(save_external(inner, location))


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_links_are_refused(tmp_path: Path, link: object) -> None:
    path = save_external(tmp_path, "link.bin")
    link(tmp_path / "w.bin", tmp_path / "link.bin")  # type: ignore[operator]
    with pytest.raises(InputError, match="cannot be read"):
        from_onnx(path)


def test_a_link_on_the_way_is_refused(tmp_path: Path) -> None:
    path = save_external(tmp_path, "there/w.bin")
    os.symlink(tmp_path, tmp_path / "there")
    with pytest.raises(InputError, match="cannot be read"):
        from_onnx(path)


def test_bytes_beyond_the_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lies outside its file"):
        from_onnx(save_external(tmp_path, offset="16"))


def test_packed_elements_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"\x21\x43")
    data = Files(tmp_path).read("w", 0, None, DTYPES["i4"], (4,), "w")
    assert_equal([data.array()], [1, 2, 3, 4])


# Types.


@pytest.mark.parametrize(
    "type_",
    [
        TensorType(f32, (Symbol("n"), 3)),
        TensorType(DTYPES["i2"], ()),
        UnrankedType(string),
        SequenceType(UnrankedType(f32)),
        OptionalType(SequenceType(TensorType(f32, (2,)))),
    ],
    ids=str,
)
def test_types_round_trip(type_: object) -> None:
    writer, symbols = TypeWriter(), Symbols()
    assert writer.read(writer.write(type_), symbols, "it") == type_  # type: ignore[arg-type]


def test_dimensions_get_symbols() -> None:
    symbols = Symbols()
    proto = helper.make_tensor_type_proto(TensorProto.FLOAT, ["batch size", None, "2x", 0, -1])
    found = value_type(proto, symbols, "it")
    assert isinstance(found, TensorType)
    assert [str(dim) for dim in found.shape] == ["batch_size", "d1", "d2x", "0", "d2"]
    assert found.shape[0] is symbols.named("batch size")


def test_expressions_of_named_dimensions_are_understood() -> None:
    proto = model("m (float[a, b] x, float[n] z) => (float[n] y) { y = Relu(z) }")
    proto.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "a + 2*b"
    graph = from_onnx(proto)
    assert str(graph.inputs[1].type) == "f32[a+2*b]"
