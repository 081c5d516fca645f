"""Large tensors of a model's own file: found without protobuf, read when asked for."""

from __future__ import annotations

import weakref
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

import monograph
from monograph.errors import EvaluationError, InputError
from monograph.frontends.onnx import from_onnx
from monograph.frontends.onnx.blobs import BlobData
from monograph.frontends.onnx.wire import without_large_tensors
from monograph.ir.data import Data
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.types import DTYPES
from monograph.runtime.weight_ownership import Held
from tests.frontends.onnx.models import assert_equal, model

COUNT = 40_000


def large_model(dtype: str = "f32") -> ModelProto:
    """A model with a small weight before and after a large one."""
    code = {"f32": "float", "bf16": "bfloat16", "i4": "int4", "bool": "bool"}[dtype]
    proto = model(f"m (float[1] x) => ({code}[{COUNT}] y) {{ y = Identity(w) z = Add(a, b) }}")
    content = (np.arange(COUNT) % 2).astype(DTYPES[dtype].numpy)
    for name, array in (("a", np.float32(1)), ("w", content), ("b", np.float32(2))):
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return proto


def weight_of(graph: Graph) -> Data:
    (node,) = [node for node in graph.nodes if node.op.name == "weight"]
    data = node.op.attributes()["data"]
    assert isinstance(data, Data)
    return data


def save(folder: Path, proto: ModelProto) -> Path:
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_large_tensor_is_read_when_asked_for(tmp_path: Path, dtype: str) -> None:
    path = save(tmp_path, large_model(dtype))
    for source in (path, path.read_bytes()):
        graph = from_onnx(source)
        data = weight_of(graph)
        assert isinstance(data, BlobData)
        assert data.array() is data.array()
        assert data.array().flags.aligned
        assert not data.array().flags.writeable
        expected = (np.arange(COUNT) % 2).astype(DTYPES[dtype].numpy)
        assert_equal(interpret(graph, [np.zeros(1, np.float32)]), expected)


def test_what_is_left_of_the_model_is_the_model() -> None:
    proto = large_model()
    content = proto.SerializeToString()
    small, spans = without_large_tensors(content)
    assert list(spans) == [1]
    assert len(small) < 1000
    ((start, end),) = spans.values()
    assert content[start:end] == proto.graph.initializer[1].raw_data
    rest = ModelProto.FromString(small)
    assert not rest.graph.initializer[1].HasField("raw_data")
    rest.graph.initializer[1].raw_data = content[start:end]
    assert rest == proto


def test_unusual_files_are_left_to_protobuf() -> None:
    content = large_model().SerializeToString()
    twice = content + content  # protobuf merges the graphs
    for odd in (twice, content[:-1], bytes(100_000), b"\xff" * 100_000, content + b"\x0b"):
        assert without_large_tensors(odd) == (odd, {})


def test_a_wrong_length_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    proto = large_model()
    proto.graph.initializer[1].dims[0] = 2**40
    with pytest.raises(InputError, match="tensor 'w' has the wrong length"):
        from_onnx(save(tmp_path, proto))


def test_a_file_that_changed_is_noticed(tmp_path: Path) -> None:
    path = save(tmp_path, large_model())
    graph = from_onnx(path)
    path.write_bytes(b"something else")
    with pytest.raises(EvaluationError, match="has changed since it was imported"):
        interpret(graph, [np.zeros(1, np.float32)])


def test_a_file_that_was_replaced_stays_readable(tmp_path: Path) -> None:
    path = save(tmp_path, large_model())
    graph = from_onnx(path)
    (tmp_path / "new").write_bytes(b"something else")
    (tmp_path / "new").rename(path)
    assert interpret(graph, [np.zeros(1, np.float32)])[0].sum() == COUNT / 2


def test_what_was_unloaded_is_read_again_unless_somebody_holds_it(tmp_path: Path) -> None:
    graph = from_onnx(save(tmp_path, large_model()))
    data = weight_of(graph)
    assert isinstance(data, BlobData)
    held = data.array()
    data.unload()
    assert data.array() is held
    data.unload()
    gone = weakref.ref(held)
    del held
    assert gone() is None
    assert data.array().sum() == COUNT / 2


def test_a_program_whose_variants_may_come_keeps_no_weights_that_it_has_packed(
    tmp_path: Path,
) -> None:
    weight = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 256])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 256])]
    graph = helper.make_graph([node], "g", inputs, outputs, [numpy_helper.from_array(weight, "w")])
    path = save(tmp_path, helper.make_model(graph))
    program = monograph.compile(path, variants=2, cache=False)
    data = weight_of(program.graph)
    source = data.source if isinstance(data, Held) else data
    assert isinstance(source, BlobData) and not source.is_read
    program.add_variant({"n": 3})
    assert not source.is_read
    x = np.random.default_rng(1).normal(size=(3, 256)).astype(np.float32)
    np.testing.assert_allclose(program(x)[0], x @ weight, rtol=1e-4, atol=1e-4)
