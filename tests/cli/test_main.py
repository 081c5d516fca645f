"""What holds for every command: exit codes, tracebacks, completion."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import monograph as monograph_package
from monograph.cli import exit_codes
from monograph.cli import main as command_line
from tests.cli.running import output_of, write_perceptron

ROOT = Path(__file__).parents[2]
PROGRAM = "import sys; sys.argv[0] = 'monograph'; from monograph.cli.main import main; main()"


def monograph(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={"COLUMNS": "80", "PATH": "", "NO_COLOR": "1", **environment},
        cwd=ROOT,
    )


def test_an_error_has_a_traceback_with_debug_alone() -> None:
    plain = monograph("opt", "missing.ir")
    assert plain.returncode == exit_codes.ERROR
    assert "Traceback" not in plain.stderr
    assert plain.stderr.startswith("error: there is no file 'missing.ir'")
    for arguments in (("--debug", "opt", "missing.ir"), ("opt", "missing.ir", "--debug")):
        told = monograph(*arguments)
        assert told.returncode == exit_codes.ERROR
        assert "Traceback" in told.stderr and plain.stderr in told.stderr


def test_an_error_that_nobody_foresaw_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: list[str]) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(command_line, "app", fail)
    with pytest.raises(SystemExit) as ended:
        command_line.main(["tour"])
    assert ended.value.code == exit_codes.INTERNAL
    printed = capsys.readouterr().err
    assert printed.startswith("error: ZeroDivisionError: by nothing")
    assert f"{__file__}:" in printed and "--debug" in printed and "Traceback" not in printed


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENAMETOOLONG, "File name too long", "m.onnx"), "'m.onnx': File name too"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    ],
)
def test_what_the_system_refuses_is_no_fault_of_ours(
    error: OSError,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(arguments: list[str]) -> None:
        raise error

    monkeypatch.setattr(command_line, "app", fail)
    with pytest.raises(SystemExit) as ended:
        command_line.main(["tour"])
    assert ended.value.code == exit_codes.ERROR
    assert capsys.readouterr().err.startswith(f"error: {told}")


def test_a_command_that_does_not_exist() -> None:
    assert monograph("complie").returncode == 2


def test_a_wrong_log_setting_is_an_error_before_anything_runs() -> None:
    done = monograph("--version", MONOGRAPH_LOG="nothing")
    assert done.returncode == exit_codes.ERROR
    assert "names 'nothing'" in done.stderr


def test_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.ir")
    try:
        monograph_package.save_graph(
            monograph_package.trace(lambda x: x + x, "f32[4]"), tmp_path / name
        )
    except OSError:
        pytest.skip("the file system takes names of text alone")
    for command in (["check"], ["report", "-o", str(tmp_path / "r.html")]):
        done = monograph(command[0], str(tmp_path / name), *command[1:])
        assert done.returncode == 0, done.stderr
    done = monograph("convert", str(tmp_path / name), str(tmp_path / "m.onnx"))
    assert done.returncode == 0 and "exact" in done.stdout, done.stderr


@pytest.mark.parametrize("command", [["list", "ops"], ["ops"], ["--help"]])
def test_who_reads_the_output_may_go_away(command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *command],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        cwd=ROOT,
    )
    os.close(writing)
    assert done.returncode == exit_codes.BROKEN_PIPE, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("monograph ca", ["cache"]),
        ("monograph cache p", ["prune"]),
        ("monograph list ta", ["targets"]),
        ("monograph validate --se", ["--seed", "--seconds"]),
    ],
)
def test_completion_knows_commands_options_and_values(words: str, expected: list[str]) -> None:
    done = monograph(
        _MONOGRAPH_COMPLETE="complete_bash",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split()) - 1),
    )
    assert sorted(done.stdout.split()) == sorted(expected), done.stderr


def test_messages_of_stages_are_printed_of_python_models_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="monograph.passes"):
        output_of("run", write_perceptron(tmp_path), "--no-cache")
    assert any(record.message.startswith("lower_composites") for record in caplog.records)


def test_a_warning_is_one_line_without_code_of_ours(tmp_path: Path) -> None:
    model = tmp_path / "model.ir"
    model.write_text("graph @f(%x: f32[3]) -> (f32[3]) {\n  return %x\n}\n")
    file = tmp_path / "file"
    file.touch()
    done = monograph("compile", str(model), MONOGRAPH_CACHE_DIR=str(file), MONOGRAPH_CACHE="1")
    (warning,) = [line for line in done.stderr.splitlines() if "cache" in line]
    assert warning.startswith("warning: the compilation cache in ")
    assert ".py" not in done.stderr
