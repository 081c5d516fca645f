"""``monograph convert``, as a person would use it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.text.files import save_graph
from tests.cli.running import invoke


@pytest.fixture
def model(tmp_path: Path) -> Path:
    graph = monograph.trace(lambda x: F.softmax(x * 2.0, -1), "f32[batch, 4]")
    return save_graph(graph, tmp_path / "model.ir")


def test_a_graph_becomes_onnx(model: Path) -> None:
    out = model.with_name("model.onnx")
    result = invoke("convert", str(model), str(out))
    assert result.exit_code == 0, result.output
    assert "ONNX:" in result.output and "on 3 samples" in result.output
    compiled = monograph.compile(str(out))
    x = np.random.rand(3, 4).astype("f4")
    (found,) = compiled(x)
    assert found.shape == (3, 4)


def test_hlo_needs_sizes_and_says_so(model: Path) -> None:
    pytest.importorskip("jax")
    out = model.with_name("model.hlo")
    refused = invoke("convert", str(model), str(out))
    assert "--size batch=8" in str(refused.exception)
    assert not out.exists()
    assert invoke("convert", str(model), str(out), "--size", "batch=8").exit_code == 0
    assert "HloModule" in out.read_text()


def test_a_file_that_no_sample_could_check_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "model.ir"
    path.write_text(
        "graph @g(%x: f32[3]) -> (f32[1]) {\n"
        "  %c = constant([7]) : i64[1]\n"
        "  %out = take(%x, %c) {axis = 0} : f32[1]\n"
        "  return %out\n}\n"
    )
    result = invoke("convert", str(path), str(path.with_suffix(".py")))
    assert result.exit_code == 3 and "every sample is refused" in result.output


def test_stablehlo_keeps_free_sizes(model: Path) -> None:
    pytest.importorskip("jax")
    out = model.with_name("model.mlir")
    result = invoke("convert", str(model), str(out))
    assert result.exit_code == 0 and "on 3 samples" in result.output
    assert "tensor<?x4xf32>" in out.read_text()
    compiled = monograph.load(out)
    assert str(compiled.graph.inputs[0].type) == "f32[batch, 4]"


def test_the_format_is_named_where_the_suffix_is_another(model: Path) -> None:
    out = model.with_name("graph.gv")
    result = invoke("convert", str(model), str(out), "--to", "dot")
    assert result.exit_code == 0 and out.read_text().startswith("digraph")
    assert invoke("convert", str(model), str(out), "--to", "tflite").exit_code == 1


def test_a_folder_that_is_missing_is_named_before_the_work(model: Path) -> None:
    result = invoke("convert", str(model), str(model.parent / "missing" / "model.onnx"))
    assert result.exit_code == 1 and "no such folder" in str(result.exception)
    assert "ONNX:" not in result.output


BOTH = """
import jax
import jax.numpy as jnp
import torch

def of_jax(x):
    return jnp.tanh(x) * 2

jitted = jax.jit(of_jax)

def of_torch(x):
    return torch.tanh(x) * 2
"""


@pytest.mark.parametrize(
    ("name", "framework"), [("of_jax", "JAX"), ("jitted", "JAX"), ("of_torch", "torch")]
)
def test_a_function_in_a_file_of_several_frameworks_is_known_by_its_code(
    tmp_path: Path, name: str, framework: str
) -> None:
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    file = tmp_path / "both.py"
    file.write_text(BOTH)
    given = (f"{file}:{name}", "--input", "f32[batch, 4]")
    result = invoke("convert", *given[:1], str(tmp_path / "out.ir"), *given[1:])
    assert result.exit_code == 0 and f"beside {framework}" in result.output, result.output
    checked = invoke("check", *given)
    assert checked.exit_code == 0 and "every op is supported" in checked.output
