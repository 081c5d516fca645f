"""``monograph compile``: what it prints, what it writes, what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import monograph
from monograph.errors import InputError, UnsupportedError
from monograph.inspect import models
from tests.cli.running import invoke, output_of, write_graph, write_perceptron


def test_a_compiled_model_is_summed_up_in_a_line(tmp_path: Path) -> None:
    model = write_perceptron(tmp_path)
    line = output_of("compile", model)
    assert re.fullmatch(rf"{re.escape(model)}: \d+ kernels, \d+ launches \(.+ s\)\n", line)


@pytest.mark.parametrize(
    ("stage", "what"),
    [
        ("ir", "dot_general(%x, %a)"),
        ("groups", "stays inside"),
        ("plan", "  not      depthwise: it is no convolution of each channel by itself"),
        ("kernels", "\nkernel k"),
        ("nests", "\nnest k"),
        ("llvm", "define"),
        ("asm", "k0_dot_general"),
        ("planned", "%gelu_memory = alloc()"),
        ("code", "define"),
    ],
)
def test_every_stage_is_shown(tmp_path: Path, stage: str, what: str) -> None:
    assert what in output_of("compile", write_perceptron(tmp_path), "--emit", stage)


def test_assembly_for_another_chip_is_shown(tmp_path: Path) -> None:
    text = output_of("compile", write_graph(tmp_path), "--emit", "asm", "--target", "cpu:aarch64")
    assert "fmla" in text or "fmadd" in text


def test_an_artifact_is_written_and_loads(tmp_path: Path) -> None:
    path = tmp_path / "program.mono"
    done = invoke("compile", write_perceptron(tmp_path), "-o", str(path))
    assert done.exit_code == 0, done.exception
    assert done.stderr == f"wrote {path}\n"
    result = monograph.load(path)(np.ones((5, 8), np.float32))
    np.testing.assert_allclose(result.sum(axis=-1), np.ones(5), rtol=1e-5)


def test_a_folder_gets_a_file_a_stage(tmp_path: Path) -> None:
    folder = tmp_path / "stages"
    output_of("compile", write_graph(tmp_path), "-o", str(folder))
    assert {path.name for path in folder.iterdir()} == {
        *("graph.ir", "planned.ir", "groups.txt", "plan.txt", "kernels.txt", "nests.txt"),
        *("program.ll", "program.s"),
    }
    assert all(path.read_text().strip() for path in folder.iterdir())
    monograph.parse((folder / "planned.ir").read_text())


def test_a_compiled_file_has_nothing_to_show(tmp_path: Path) -> None:
    path = tmp_path / "program.mono"
    written = output_of("compile", write_graph(tmp_path), "-o", str(path))
    counts = re.findall(r"\d+ kernels, \d+ launches", written)
    assert counts == re.findall(r"\d+ kernels, \d+ launches", output_of("compile", str(path)))
    done = invoke("compile", str(path), "--emit", "asm")
    assert isinstance(done.exception, InputError)
    assert "compiled already" in str(done.exception)


def test_strict_refuses_what_only_the_interpreter_runs(tmp_path: Path) -> None:
    path = tmp_path / "choosy.ir"
    graph = monograph.trace(lambda x: monograph.functional.bincount(x), "i64[4]")
    monograph.save_graph(graph, path)
    written = output_of("compile", str(path))
    assert "its calls complete it" in written and "in the interpreter, 1 node:" in written
    assert isinstance(invoke("compile", str(path), "--strict").exception, UnsupportedError)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("absent.onnx",), "there is no file 'absent.onnx'"),
        (("{model}", "-o", "{folder}/program.txt"), "neither a .mono file nor a folder"),
        (("{model}", "--level", "7"), "'O7' is not an optimisation level"),
        (("{model}", "--input", "f32[4]"), "example inputs are for Python models only"),
        (("{model}", "--emit", "asm", "--target", "cpu:abacus"), "'abacus' is not a processor"),
    ],
)
def test_what_cannot_be_done_is_told(
    tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    model = write_graph(tmp_path)
    given = [each.format(model=model, folder=tmp_path) for each in arguments]
    done = invoke("compile", *given)
    assert done.exit_code == 1
    assert problem in str(done.exception)


def test_an_error_in_the_users_file_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def broken(x):\n    return x.absent()\n")
    done = invoke("compile", f"{path}:broken", "--input", "f32[4]")
    assert isinstance(done.exception, InputError)
    assert done.exception.source == f"{path}:2 in broken"
    assert "AttributeError" in str(done.exception)


def test_a_bug_of_ours_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(models, "compile_model", fail)
    done = invoke("compile", write_perceptron(tmp_path))
    assert isinstance(done.exception, AssertionError)
