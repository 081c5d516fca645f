"""Models from one format into another: the verdict, what is written, and what is not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import torch

import monograph
from monograph import functional as F
from monograph.errors import InputError
from monograph.exporters.formats import Written
from monograph.exporters.runtimes import run_torch
from monograph.inspect.conversion import WRITABLE, Format, convert, format_for, write_files
from monograph.inspect.subject import Subject, subject_from
from monograph.ir.graph import Graph
from tests.cli.running import invoke

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 12)
        self.second = torch.nn.Linear(12, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x + self.second(torch.relu(self.first(x))), -1)


def negated(graph: Graph) -> Written:
    """An exporter that is wrong."""
    return Written(
        {".bad": b""}, lambda arrays: [-each for each in monograph.interpret(graph, arrays)]
    )


@pytest.mark.parametrize("name", ["fx", "torchscript", "onnx", "hlo", "monograph"])
def test_a_format_with_a_runtime_is_compared_with_torch(name: str) -> None:
    if name == "hlo":
        pytest.importorskip("jax")
    subject = subject_from(Net(), [torch.randn(3, 6)])
    made = convert(subject, WRITABLE[name])
    assert made.word in ("exact", "more accurate", "within rounding"), str(made)
    assert made.compared_with == "torch" and made.samples == 3


@pytest.mark.parametrize("name", ["relay", "dot", "svg"])
def test_a_format_without_one_says_why_it_is_not_run(name: str) -> None:
    made = convert(subject_from(Net(), [torch.randn(3, 6)]), WRITABLE[name])
    assert made.word is None and "not run, because" in str(made)


def test_a_wrong_answer_is_found_and_named() -> None:
    subject = subject_from(Net(), [torch.randn(3, 6)])
    made = convert(subject, Format("bad", "Bad", ".bad", negated))
    assert made.is_wrong and "on given" in made.remark


def test_free_sizes_are_drawn_or_fixed() -> None:
    graph = monograph.trace(lambda x: F.softmax(x, -1), "f32[batch, 4]")
    subject = Subject("model", graph)
    assert convert(subject, WRITABLE["onnx"]).samples == 3
    fixed = convert(subject, WRITABLE["torchscript"], {"batch": 5})
    assert fixed.word in ("exact", "within rounding", "more accurate")


class Sizes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int, float]:
        return x.relu(), x.numel(), x.shape[0] * 1.5


@pytest.mark.parametrize("name", ["fx", "torchscript", "onnx", "monograph"])
def test_numbers_of_python_are_compared_as_values(name: str) -> None:
    batch = torch.export.Dim("batch")
    subject = subject_from(Sizes(), [torch.randn(4, 3)], dynamic_shapes=({0: batch},))
    made = convert(subject, WRITABLE[name])
    assert made.word == "exact" and made.compared_with == "torch", str(made)


def onnx_model(folder: Path, text: str) -> Path:
    header = '<ir_version: 8, opset_import: ["": 18]>\n'
    onnx.save(onnx.parser.parse_model(header + text), folder / "model.onnx")
    return folder / "model.onnx"


def test_a_sample_that_a_runtime_refuses_is_named_and_the_others_count(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    gather = "g (float[N,2] x, int64[K] i) => (float[K,2] y) { y = Gather(x, i) }"
    path = onnx_model(tmp_path, gather)
    result = invoke("convert", str(path), str(tmp_path / "model.mlir"))
    assert result.exit_code == 0, result.output
    assert "exact on 3 samples, beside ONNX Runtime" in result.output
    assert "not run on normal (N=0, K=0) (the runtime of StableHLO: " in result.output


def test_a_sample_that_the_reference_refuses_is_named_too(tmp_path: Path) -> None:
    top = "k = Constant<value_ints=[3]>() y, j = TopK<axis=0>(x, k)"
    path = onnx_model(tmp_path, f"g (float[N,2] x) => (float[3,2] y, int64[3,2] j) {{ {top} }}")
    made = convert(subject_from(path, []), WRITABLE["monograph"])
    assert made.word == "exact" and made.samples == 3
    assert "not run on normal (N=0) (ONNX Runtime: " in str(made)


def test_where_every_sample_is_refused_nothing_is_compared() -> None:
    def refuse(arrays: object) -> list[np.ndarray]:
        raise RuntimeError("there is no such kernel")

    format_ = Format("bad", "Bad", ".bad", lambda graph: Written({".bad": b""}, refuse))
    made = convert(Subject("model", monograph.trace(F.relu, "f32[batch, 4]")), format_)
    assert made.word is None and not made.is_wrong and made.is_unchecked
    assert str(made).startswith("Bad: not compared, because every sample is refused: normal (")
    assert "there is no such kernel" in str(made)


def test_a_model_that_onnx_runtime_cannot_load_is_held_against_the_interpreter(
    tmp_path: Path,
) -> None:
    narrow = "a = Cast<to=16>(x) b = Abs(a) y = Cast<to=1>(b)"
    path = onnx_model(tmp_path, f"g (float[N,2] x) => (float[N,2] y) {{ {narrow} }}")
    made = convert(subject_from(path, []), WRITABLE["torchscript"])
    assert made.word == "exact", str(made)
    assert made.compared_with == "the interpreter, as ONNX Runtime cannot load it"


def test_a_framework_that_cannot_run_the_model_is_replaced_by_the_interpreter() -> None:
    def refuse(arrays: object) -> list[np.ndarray]:
        raise RuntimeError("there is no such kernel")

    graph = monograph.trace(F.relu, "f32[batch, 4]")
    made = convert(Subject("model", graph, framework=refuse), WRITABLE["monograph"])
    assert made.word == "exact" and made.compared_with == "the interpreter"
    assert "there is no such kernel" in str(made)


def test_the_python_file_stands_alone(tmp_path: Path) -> None:
    net, x = Net(), torch.randn(3, 6)
    made = convert(subject_from(net, [x]), format_for(tmp_path / "written_net.py"))
    paths = write_files(tmp_path / "written_net.py", made.files)
    assert [path.name for path in paths] == ["written_net.py", "written_net.safetensors"]
    spec = importlib.util.spec_from_file_location("written_net", paths[0])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop("written_net", None)
    (found,) = run_torch(module.Model(), [x.numpy()])
    np.testing.assert_allclose(found, net(x).detach().numpy(), 1e-5)


def test_an_unknown_suffix_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="tells no format") as caught:
        format_for(Path("model.tflite"))
    assert ".onnx (ONNX)" in str(caught.value)
    with pytest.raises(InputError, match="monograph compile"):
        format_for(Path("model.mono"))


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_files(tmp_path / "missing" / "model.dot", {".dot": b"digraph {}"})


def test_a_damaged_program_of_torch_is_one_error_and_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "damaged.pt2"
    path.write_bytes(b"something else")
    result = invoke("convert", str(path), str(tmp_path / "out.onnx"))
    assert result.exit_code == 1
    assert not caplog.records and "Traceback" not in result.output
