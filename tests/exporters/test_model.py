"""The model around the nodes: names, outputs, weights, functions, metadata, errors, files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import monograph.functional as F
from monograph.errors import InputError, UnsupportedError
from monograph.exporters.onnx import external, to_onnx
from monograph.frontends.trace import trace
from monograph.ir.data import ArrayData, MissingData
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.types import TensorType, dtype_of, f32
from monograph.ops import memory
from tests.exporters.running import assert_exports, check, new_session, run_in_onnx_runtime

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def names(values: object) -> list[str]:
    return [value.name for value in values]  # type: ignore[attr-defined]


def kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def metadata(proto: object) -> dict[str, str]:
    return {entry.key: entry.value for entry in proto.metadata_props}  # type: ignore[attr-defined]


# Names and outputs --------------------------------------------------------------------------------


def test_inputs_outputs_and_values_keep_their_names() -> None:
    graph = Graph("net")
    x = graph.add_input("the input", "f32[n, 3]")
    hidden = graph.add("exp", x, name="hidden")
    graph.set_outputs([graph.add("negate", hidden, name="result.0")])
    model = assert_exports(graph, [X])
    assert model.graph.name == "net"
    assert names(model.graph.input) == ["the input"]
    assert names(model.graph.output) == ["result.0"]
    assert [list(node.output) for node in model.graph.node] == [["hidden"], ["result.0"]]


def test_an_output_may_be_given_twice() -> None:
    graph = Graph()
    x = graph.add_input("x", "f32[2, 3]")
    y = graph.add("exp", x, name="y")
    graph.set_outputs([y, y])
    model = assert_exports(graph, [X])
    first, second = names(model.graph.output)
    assert first == "y" and second != "y"


def test_an_output_may_be_an_input() -> None:
    graph = Graph()
    x = graph.add_input("x", "f32[2, 3]")
    graph.set_outputs([x, graph.add("exp", x), x])
    model = assert_exports(graph, [X])
    assert len(set(names(model.graph.output)) | {"x"}) == 4


def test_an_output_may_be_a_weight_or_a_constant() -> None:
    graph = Graph()
    graph.add_input("x", "f32[2, 3]")
    weight = graph.add_weight("w", np.ones((2, 2), np.float32))
    graph.set_outputs([weight, graph.add_constant(3.5)])
    assert_exports(graph, [X])


def test_an_op_that_is_its_operand_still_has_its_output_name() -> None:
    graph = Graph()
    x = graph.add_input("x", "f32[2, 3]")
    graph.set_outputs([graph.add("stop_gradient", x, name="same")])
    model = assert_exports(graph, [X])
    assert names(model.graph.output) == ["same"]


def test_nodes_that_nothing_needs_are_left_out() -> None:
    graph = Graph()
    x = graph.add_input("x", "f32[2, 3]")
    graph.add("exp", x)
    graph.set_outputs([graph.add("negate", x)])
    assert kinds(to_onnx(graph)) == ["Neg"]


def test_several_results() -> None:
    graph = trace(lambda x: F.split(x, (1, 2), 1), "f32[2, 3]")
    model = assert_exports(graph, [X])
    assert kinds(model) == ["Split"]


# Metadata -----------------------------------------------------------------------------------------


def test_each_node_has_its_source_line() -> None:
    graph = trace(lambda x: F.exp(x), "f32[3]")
    (node,) = to_onnx(graph).graph.node
    assert metadata(node)["monograph.source"].startswith(__file__)


def test_updates_and_donations_are_named_in_the_metadata() -> None:
    graph = Graph()
    x = graph.add_input("x", "f32[3]")
    state = graph.add_input("state", "f32[3]", donate=True)
    graph.set_outputs([graph.add("exp", x, name="y"), graph.add("add", x, state, name="next")])
    graph.updates = {1: 1}
    model = assert_exports(graph, [X[0], X[1]])
    assert json.loads(metadata(model)["monograph.updates"]) == {"next": "state"}
    assert json.loads(metadata(model)["monograph.donated"]) == ["state"]


def test_symbols_and_their_ranges_are_in_the_metadata() -> None:
    graph = trace(lambda x: F.concat([x, x]), "f32[batch, 3]")
    model = to_onnx(graph)
    assert json.loads(metadata(model)["monograph.symbols"]) == {"batch": [1, None]}
    (output,) = model.graph.output
    assert output.type.tensor_type.shape.dim[0].dim_param == "2*batch"


# Which ops come out -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: F.softmax(x), ["Softmax"]),
        (lambda x: F.relu(x), ["Relu"]),
        (lambda x: F.gelu(x), ["Max", "Gelu"]),
        (lambda x: F.layer_norm(x, np.ones(3, np.float32)), ["LayerNormalization"]),
        (lambda x: F.rms_norm(x, np.ones(3, np.float32)), ["RMSNormalization"]),
        (lambda x: x @ F.transpose(x), ["Transpose", "MatMul"]),
        (
            lambda x: F.linear(x, np.ones((4, 3), np.float32), np.ones(4, np.float32)),
            ["Gemm"],
        ),
        (lambda x: F.silu(x), ["silu"]),
        (lambda x: F.max(x, 1), ["max"]),
    ],
)
def test_composites_become_onnx_ops_or_functions(function: object, expected: list[str]) -> None:
    model = assert_exports(trace(function, "f32[2, 3]"), [X])  # type: ignore[arg-type]
    assert kinds(model) == expected


def test_equal_functions_are_defined_once() -> None:
    graph = trace(lambda x, y: (F.mish(F.silu(x)), F.silu(y), F.silu(x + 1.0)), "f64[2]", "f64[3]")
    model = assert_exports(graph, [X[0, :2].astype(np.float64), X[1].astype(np.float64)])
    defined = names(model.functions)
    assert len(defined) == len(set(defined))
    assert defined.count("silu") == 1
    assert kinds(model).count("silu") == 3


def test_a_function_says_which_op_it_is() -> None:
    (function,) = to_onnx(trace(lambda x: F.silu(x), "f32[2]")).functions
    assert function.domain == "monograph"
    assert metadata(function)["monograph.op"] == "silu()"


def test_without_special_values_there_are_no_nodes_for_them() -> None:
    graph = trace(lambda x: F.max(F.gelu(x), 1), "f32[2, 3]")
    model = assert_exports(graph, [X], special_values=False)
    assert kinds(model) == ["Gelu", "max"]
    assert [node.op_type for node in model.functions[0].node] == ["Constant", "ReduceMax"]


# Weights ------------------------------------------------------------------------------------------


def weighted(size: int = 64) -> Graph:
    graph = Graph()
    x = graph.add_input("x", f"f32[n, {size}]")
    rows = np.linspace(-1, 1, size * size, dtype=np.float32).reshape(size, size)
    weight = graph.add_weight("layer.weight", rows)
    bias = graph.add_weight("layer.bias", rows[0])
    graph.set_outputs([graph.add("linear", x, weight, bias, name="y")])
    return graph


def test_weights_are_initializers_under_their_names() -> None:
    model = assert_exports(weighted(), [np.ones((2, 64), np.float32)])
    assert names(model.graph.initializer) == ["layer.weight", "layer.bias"]
    assert kinds(model) == ["Gemm"]


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f8e4m3fn", "i4", "u2", "u64", "bool"])
def test_weights_of_every_width(dtype: str) -> None:
    graph = Graph()
    numbers = (np.arange(7) % 2).astype(dtype_of(dtype).numpy)
    weight = graph.add_weight("w", numbers)
    graph.set_outputs([graph.add("cast", weight, dtype=f32)])
    assert_exports(graph, [])


def test_a_file_holds_the_model(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    to_onnx(weighted(), path)
    onnx.checker.check_model(str(path), full_check=True)
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]


def test_external_data_lies_beside_the_file(tmp_path: Path) -> None:
    graph, path = weighted(), tmp_path / "net.onnx"
    model = to_onnx(graph, path, external_data=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]
    matrix, bias = model.graph.initializer
    assert matrix.data_location == onnx.TensorProto.EXTERNAL
    assert bias.data_location == onnx.TensorProto.DEFAULT  # too small to be worth it
    onnx.checker.check_model(str(path), full_check=True)
    x = np.linspace(0, 1, 128, dtype=np.float32).reshape(2, 64)
    (got,) = new_session(path).run(None, {"x": x})
    np.testing.assert_allclose(got, interpret(graph, [x])[0], rtol=1e-5, atol=1e-4)


def test_external_data_starts_where_pages_do(tmp_path: Path) -> None:
    graph = Graph()
    weights = [graph.add_weight(f"w{n}", np.full(500 + n, n, np.float32)) for n in range(3)]
    graph.set_outputs([graph.add("exp", weight) for weight in weights])
    model = to_onnx(graph, tmp_path / "m.onnx", external_data=True)
    offsets = [
        int(next(entry.value for entry in tensor.external_data if entry.key == "offset"))
        for tensor in model.graph.initializer
    ]
    assert offsets == [0, 4096, 8192]


def test_large_weights_go_outside_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert external.LARGEST_INSIDE == 1.5 * 2**30
    monkeypatch.setattr(external, "LARGEST_INSIDE", 10_000)
    to_onnx(weighted(), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").stat().st_size == 64 * 64 * 4
    with pytest.raises(InputError, match="file of their own"):
        to_onnx(weighted())
    to_onnx(weighted(), tmp_path / "inside.onnx", external_data=False)
    assert not (tmp_path / "inside.onnx.data").exists()


def test_external_data_needs_a_path() -> None:
    with pytest.raises(InputError, match="file of their own"):
        to_onnx(weighted(), external_data=True)


def test_a_large_fill_is_not_stored() -> None:
    graph = Graph()
    x = graph.add_input("x", "f32[1000]")
    ones = graph.add_constant(ArrayData(np.broadcast_to(np.float32(2), (1000, 1000))))
    graph.set_outputs([graph.add("matmul", ones, x)])
    model = assert_exports(graph, [np.ones(1000, np.float32)])
    assert len(model.SerializeToString()) < 2000


def test_weights_that_were_not_loaded_are_an_error() -> None:
    graph = Graph()
    missing = MissingData(TensorType(f32, (3,)), "0" * 32)
    graph.set_outputs([graph.add("exp", graph.add_weight("w", missing))])
    with pytest.raises(Exception, match="was not loaded"):
        to_onnx(graph)


# Errors -------------------------------------------------------------------------------------------


def test_everything_unsupported_is_told_at_once_with_its_lines() -> None:
    def program(x: object) -> object:
        moved = F.all_reduce(x, "data", 2)  # type: ignore[arg-type]
        return memory.to_device(F.all_reduce(moved, "data", 2) + 1.0, "gpu:1")

    with pytest.raises(UnsupportedError) as caught:
        to_onnx(trace(program, "f32[3]"))
    problems = caught.value.problems
    assert [(problem.op, problem.count) for problem in problems] == [("all_reduce", 1)]
    assert all(__file__ in problem.where for problem in problems)
    assert "cannot be written" in str(caught.value)


def test_independent_problems_are_all_found() -> None:
    def program(x: object, y: object) -> object:
        return F.all_reduce(x, "data", 2), memory.to_device(y, "gpu"), F.cholesky(y)  # type: ignore[arg-type]

    with pytest.raises(UnsupportedError) as caught:
        to_onnx(trace(program, "f32[3]", "f32[3, 3]"))
    assert [problem.op for problem in caught.value.problems] == [
        "all_reduce",
        "to_device",
        "cholesky",
    ]


def test_a_problem_in_a_branch_names_the_line_in_it() -> None:
    def program(p: object, x: object) -> object:
        return F.cond(p, lambda: F.all_reduce(x, "data", 2), lambda: x)  # type: ignore[arg-type]

    with pytest.raises(UnsupportedError) as caught:
        to_onnx(trace(program, "bool[]", "f32[3]"))
    (problem,) = caught.value.problems
    assert problem.op == "all_reduce"
    assert __file__ in problem.where


def test_an_opset_that_is_too_old_or_too_new() -> None:
    graph = trace(lambda x: F.exp(x), "f32[3]")
    for opset in (17, 27):
        with pytest.raises(InputError, match="opset"):
            to_onnx(graph, opset=opset)


def test_a_dtype_that_the_opset_has_not() -> None:
    graph = trace(lambda x: F.cast(x, "f8e5m2"), "f32[3]")
    to_onnx(graph, opset=19)
    with pytest.raises(UnsupportedError, match="opset 19"):
        to_onnx(graph, opset=18)
    with pytest.raises(InputError, match="opset 18"):
        to_onnx(trace(lambda x: F.cast(x, "f32"), "f8e5m2[3]"), opset=18)


def test_the_graph_is_left_as_it_was() -> None:
    graph = trace(lambda x: F.abs(F.fft(x)) + F.silu(F.real(F.fft(x))), "f32[4]")
    before = str(graph)
    to_onnx(graph)
    assert str(graph) == before


def test_importing_the_exporter_does_not_import_onnx() -> None:
    program = "import sys, monograph.exporters.onnx; print('onnx' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_a_hand_made_model_runs() -> None:
    model = to_onnx(trace(lambda x: F.exp(x), "f32[3]"))
    check(model)
    (got,) = run_in_onnx_runtime(model, [X[0]])
    np.testing.assert_allclose(got, np.exp(X[0]), rtol=1e-6)
