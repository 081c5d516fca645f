"""``monograph run``: inputs from files or made up, outputs shown, kept and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monograph import functional as F
from monograph.errors import InputError, TimeLimitError
from monograph.frontends.trace import trace
from monograph.inspect import peers
from monograph.ir.graph import Value
from monograph.ir.text.files import save_graph
from monograph.runtime.compiled import Executable
from tests.cli.running import invoke, output_of, write_graph, write_perceptron
from tests.cli.test_check import write_onnx


def test_outputs_are_shown_and_kept(tmp_path: Path) -> None:
    model, kept = write_perceptron(tmp_path), tmp_path / "results.npz"
    text = output_of("run", model, "--size", "batch=3", "-o", str(kept))
    assert "softmax" in text
    assert "3×4" in text
    with np.load(kept) as results:
        assert results["softmax"].shape == (3, 4)


def test_an_input_comes_from_a_file_and_gives_the_sizes(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
    np.save(tmp_path / "x.npy", x)
    output_of(
        "run",
        write_perceptron(tmp_path),
        "--input",
        f"x={tmp_path}/x.npy",
        "-o",
        str(tmp_path / "out"),
    )
    assert np.load(tmp_path / "out" / "softmax.npy").shape == (2, 4)


def test_the_same_seed_gives_the_same_outputs(tmp_path: Path) -> None:
    model = write_graph(tmp_path)
    first, same, other = (output_of("run", model, "--seed", seed) for seed in ("1", "1", "2"))
    assert first == same != other


def test_a_saved_program_runs(tmp_path: Path) -> None:
    path = str(tmp_path / "program.mono")
    output_of("compile", write_perceptron(tmp_path), "-o", path)
    assert "5×4" in output_of("run", path, "--size", "batch=5")


def test_a_run_ends_when_its_time_is_up(tmp_path: Path) -> None:
    path = tmp_path / "endless.ir"
    save_graph(trace(_halve_forever, "f32[]"), path)
    result = invoke("run", str(path), "--timeout", "0.1")
    assert isinstance(result.exception, TimeLimitError)
    refused = invoke("run", str(path), "--timeout", "-1")
    assert isinstance(refused.exception, InputError)


def _halve_forever(x: Value) -> Any:
    return F.while_loop(lambda c: F.less(c[0], 2**62), lambda c: (c[0] + 1, c[1] * 0.5), (0, x))


@pytest.mark.parametrize("other", ["interpreter", "onnxruntime"])
def test_outputs_are_held_against_anothers(tmp_path: Path, other: str) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    text = output_of("run", write_perceptron(tmp_path), "--compare", other)
    assert any(word in text for word in ("exact", "more accurate", "within rounding"))
    assert "double precision" in text


def test_a_wrong_answer_is_called_so_and_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros = [np.zeros((4, 4), np.float32)]
    with monkeypatch.context() as patch:
        patch.setattr(peers, "interpret", lambda graph, inputs: zeros)
        done = invoke("run", write_graph(tmp_path), "--compare", "interpreter")
    assert done.exit_code == 0  # ours is nearer to double precision than zeros are
    assert "more accurate" in done.stdout
    monkeypatch.setattr(Executable, "run", lambda self, inputs: zeros)
    done = invoke("run", write_graph(tmp_path), "--compare", "interpreter")
    assert done.exit_code == 1
    assert "wrong" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--input", "w=zeros"), "there is no input 'w'"),
        (("--input", "x=seven"), "input 'x' cannot be 'seven'"),
        (("--input", "x=random:3:1"), "is an empty range"),
        (("--input", "x=absent.npy"), "there is no file 'absent.npy'"),
        (("--size", "batch=8"), "no dimension is called 'batch'"),
        (("--size", "batch"), "'batch' is not a size"),
        (("--output", "results.txt"), "neither a .npz file nor a folder"),
        (("--compare", "torch"), "torch does not run"),
    ],
)
def test_what_cannot_be_done_is_told(
    tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    done = invoke("run", write_graph(tmp_path), *arguments)
    assert done.exit_code == 1
    assert isinstance(done.exception, InputError)
    assert problem in str(done.exception)


def test_an_onnx_file_runs_as_onnxruntime_does(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    write_onnx(path, "a = Relu(x) y = Exp(a)")
    text = output_of("run", str(path), "--input", "x=ones", "--compare", "onnxruntime")
    assert "2.71828" in text
    assert "wrong" not in text


def test_all_inputs_come_from_one_file(tmp_path: Path) -> None:
    model = tmp_path / "add.ir"
    model.write_text(
        "graph @add(%x: f32[n], %y: f32[n]) -> (f32[n]) {\n"
        "  %z = add(%x, %y) : f32[n]\n  return %z\n}\n"
    )
    np.savez(tmp_path / "in.npz", x=np.arange(3, dtype=np.float32), y=np.ones(3, np.float32))
    out = tmp_path / "out.npz"
    output_of("run", str(model), "--input", str(tmp_path / "in.npz"), "--output", str(out))
    np.testing.assert_array_equal(np.load(out)["z"], [1, 2, 3])
