"""What a person gets wrong on the command line: a message of 80 columns, and no traceback."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

import monograph
import monograph.inspect.models
from monograph.cli import main as command_line
from monograph.cli.errors import error_text
from monograph.errors import InputError, MonographError
from tests.cli.running import invoke, output_of, write_graph, write_perceptron

NET = """\
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return x.nothing


class Wrong(torch.nn.Module):
    def forward(self, x):
        return x @ torch.ones(5, 5)


def double(x):
    return x * 2


net, wrong, number = Net(), Wrong(), 5
"""
TOOLS = ("validate", "bisect", "ablate", "compare", "profile", "report", "explore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are damaged, or of another kind than their names say."""
    folder = tmp_path_factory.mktemp("files")
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Exp", ["x"], ["y"])
    ends = [value("x", 1, ["n", 8])], [value("y", 1, ["n", 8])]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", *ends))
    onnx.save(model, str(folder / "whole.onnx"))
    whole = (folder / "whole.onnx").read_bytes()
    (folder / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "text.onnx").write_text("a model\n" * 9)
    saved = monograph.compile(str(folder / "whole.onnx")).save(folder / "whole.mono")
    stored = saved.read_bytes()
    (folder / "cut.mono").write_bytes(stored[: len(stored) // 2])
    (folder / "empty.mono").write_bytes(b"")
    (folder / "weights.pt").write_bytes(b"something")
    (folder / "notes.txt").write_text("hi")
    (folder / "fake.npy").write_text("hi")
    (folder / "fake.npz").write_text("hi")
    np.save(folder / "x.npy", np.ones((2, 8), np.float32))
    np.save(folder / "wide.npy", np.ones((2, 9), np.float32))
    np.savez(folder / "x.npz", x=np.ones((2, 8), np.float32))
    (folder / "net.py").write_text(NET)
    write_graph(folder)
    return folder


def told(folder: Path, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The error of a subcommand that is run in the folder, as it is printed."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    done = invoke(*arguments)
    assert isinstance(done.exception, MonographError), done.exception or done.output
    text = error_text(done.exception)
    assert all(len(line) <= 80 or len(line.split()) <= 2 for line in text.splitlines()), text
    return text


@pytest.mark.parametrize("command", ["check", "explain", "compile", "run", "bench", "tune", *TOOLS])
@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("absent.onnx", "there is no file 'absent.onnx'"),
        ("cut.onnx", "not an ONNX model, or a damaged one"),
        ("empty.onnx", "holds no graph"),
        ("text.onnx", "not an ONNX model, or a damaged one"),
        ("weights.pt", "holds weights"),
        ("notes.txt", "expected an ONNX model"),
        (".", "is a folder"),
        ("", "no model is named"),
    ],
)
def test_files_that_are_no_models(
    folder: Path, command: str, file: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problem in told(folder, command, file, monkeypatch=monkeypatch)


@pytest.mark.parametrize("command", ["explain", "run", "bench", "compare", "profile", "report"])
@pytest.mark.parametrize(
    ("file", "problem"), [("cut.mono", "is damaged"), ("empty.mono", "is not an artifact")]
)
def test_programs_that_are_damaged(
    folder: Path, command: str, file: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problem in told(folder, command, file, monkeypatch=monkeypatch)


@pytest.mark.parametrize("command", ["validate", "bisect", "explore"])
def test_programs_that_are_compiled_already_have_no_graph(
    folder: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = told(folder, command, "whole.mono", monkeypatch=monkeypatch)
    assert "no graph" in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("check whole.mono", "is compiled already"),
        ("run whole.onnx --input x=wide.npy", "wrong size in dimension 1"),
        ("run whole.onnx --input x=fake.npy", "bytes of another kind"),
        ("run whole.onnx --input fake.npz", "bytes of another kind"),
        ("run whole.onnx --input absent.npz", "there is no file 'absent.npz'"),
        ("run whole.onnx --size n=3 --input x=x.npy", "two sizes are given for 'n'"),
        ("run whole.onnx --size n=99999999999999", "too large to be made up"),
        ("run whole.onnx --level 9", "not an optimisation level"),
        ("compile whole.onnx --size n=5..2", "holds no size"),
        ("compile net.py:number --input f32[4]", "is not a model"),
        ("compile net.py:double --input x=x.npy", "not the type of an example input"),
        ("check net.py:double --input x.npy", "not the type of an example input"),
        ("compile net.py:net --input f32[4]", "net.py:6 in forward"),
        ("compile net.py:wrong --input f32[4,4]", "net.py:11 in forward"),
        ("opt graph.ir -o /no/such/folder/out.ir", "there is no such folder"),
        ("opt graph.ir -o .", "is a folder"),
        ("ops --family nonsense", "there is no family 'nonsense'"),
    ],
)
def test_what_does_not_fit_is_named(
    folder: Path, arguments: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_text = told(folder, *arguments.split(), monkeypatch=monkeypatch)
    assert problem in " ".join(told_text.split())


@pytest.mark.parametrize(
    "arguments", ["run whole.onnx --nonsense", "nonsense", "bench whole.onnx --rounds 0"]
)
def test_options_that_there_are_not_end_with_2(
    folder: Path, arguments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert invoke(*arguments.split()).exit_code == 2


def test_a_function_of_torch_has_free_sizes_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    model = ("net.py:double", "--input", "f32[batch, 4]")
    assert "3×4" in output_of("run", *model, "--size", "batch=3", "--compare", "torch")
    assert "every op is supported" in output_of("check", *model)


def test_an_error_is_printed_and_the_status_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.argv", ["monograph", "opt", "absent.ir", "-p", "no_such_pass"])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("error: there is no file 'absent.ir'")


def test_quoted_text_is_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    line = "%y = " + "exp(" * 40
    error = InputError("a word " * 20, where=f"file.ir:1:1\n{line}\n^", hint="a hint " * 20)
    text = error_text(error)
    assert line in text
    assert all(len(each) <= 60 for each in text.splitlines() if line not in each)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"cache": "no"}, "cache is yes or no"),
        ({"variants": -1}, "variants is a number"),
        ({"variants": "few"}, "variants is a number"),
        ({"sizes": [1]}, "sizes are given by name"),
        ({"passes": 5}, "passes are a list"),
    ],
)
def test_options_of_compile_of_another_kind(options: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        monograph.compile(torch.nn.Linear(4, 2).eval(), torch.ones(1, 4), **options)


def test_what_is_compiled_is_no_model_and_a_number_no_path() -> None:
    compiled = monograph.compile(torch.nn.Linear(4, 2).eval(), torch.ones(1, 4))
    for each in (compiled, compiled.executable):
        with pytest.raises(InputError, match="compiled already"):
            monograph.compile(each, torch.ones(1, 4))
    with pytest.raises(InputError, match="not the name of a file"):
        compiled.save(5)
    with pytest.raises(InputError, match="not the name of a file"):
        monograph.load(5)


def test_functions_of_another_kind_of_thing() -> None:
    graph = monograph.trace(lambda x: x + 1, "f32[n]")
    for wrong, problem in (
        (lambda: monograph.trace(5, "f32[2]"), "not a function"),
        (lambda: monograph.parse(5), "not a text"),
        (lambda: monograph.verify(5), "not a graph"),
        (lambda: monograph.save_graph(5, "graph.ir"), "not a graph"),
        (lambda: monograph.save_graph(graph, 5), "not the name of a file"),
        (lambda: monograph.load_graph(5), "not the name of a file"),
        (lambda: monograph.explain(monograph.compile(graph), sizes={"n": "a"}), "is no size"),
        (lambda: monograph.compile(lambda x: torch.exp(x), "f32[4]"), "function of torch's ops"),
    ):
        with pytest.raises(InputError, match=problem):
            wrong()


@pytest.mark.parametrize(
    ("command", "option", "name"),
    [
        ("profile", "-o", "trace.json"),
        ("ablate", "--chart", "chart.svg"),
        ("bisect", "-o", "repro.py"),
        ("validate", "--report", "r.html"),
    ],
)
def test_a_place_that_is_not_there_is_said_before_the_work(
    folder: Path, command: str, option: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monograph.inspect.models, "find_model", None)  # is not come to
    text = told(folder, command, "graph.ir", option, f"nowhere/{name}", monkeypatch=monkeypatch)
    assert text.splitlines()[0] == "error: there is no such folder"


@pytest.mark.parametrize(
    "command",
    [
        ("bisect", "-o", "FOLDER"),
        ("profile", "-o", "FOLDER"),
        ("ablate", "--chart", "FOLDER"),
        ("convert", "FOLDER", "--to", "onnx"),
        ("inspect", "-o", "FOLDER.html"),
        ("report", "-o", "FOLDER.html"),
        ("explain", "--report", "FOLDER.html"),
    ],
    ids=lambda command: command[0],
)
def test_a_folder_is_no_file_to_write(command: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "folder.html"
    folder.mkdir()
    first, *rest = (each.replace("FOLDER.html", str(folder)) for each in command)
    rest = [each.replace("FOLDER", str(tmp_path)) for each in rest]
    result = invoke(first, write_perceptron(tmp_path), *rest)
    assert result.exit_code == 1 and "is a folder" in str(result.exception)


def test_a_full_disk_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    model = write_perceptron(tmp_path)
    result = invoke("report", model, "-o", str(tmp_path / "report.html"))
    assert result.exit_code == 1 and "cannot be written" in str(result.exception)


def test_nobody_is_nothing_to_compare_with(tmp_path: Path) -> None:
    result = invoke("compare", write_perceptron(tmp_path), "--with", "")
    assert result.exit_code == 1 and "nobody is named" in str(result.exception)
