"""The command line, as a person uses it: in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """\
graph @main(%x: f32[4]) -> (f32[4]) {
  %a = relu(%x) : f32[4]
  %b = relu(%x) : f32[4]
  %unused = exp(%x) : f32[4]
  %y = add(%a, %b) : f32[4]
  return %y
}
"""


def monograph(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from monograph.cli.main import main; main()", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        env={"COLUMNS": "80", "PATH": "", "NO_COLOR": "1"},
        cwd=Path(__file__).parents[2],
    )


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.ir"
    path.write_text(PROGRAM)
    return path


def test_opt_runs_the_passes_and_prints_the_graph(program: Path) -> None:
    done = monograph("opt", str(program), "-p", "cse,dce")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "graph @main(%x: f32[4]) -> (f32[4]) {\n"
        "  %a = relu(%x) : f32[4]\n"
        "  %y = add(%a, %a) : f32[4]\n"
        "  return %y\n"
        "}\n"
    )


def test_opt_reads_standard_input_and_runs_levels() -> None:
    done = monograph("opt", "-", "-O", "1", text=PROGRAM)
    assert done.returncode == 0, done.stderr
    assert "exp" not in done.stdout


def test_opt_writes_a_file_and_shows_statistics(program: Path, tmp_path: Path) -> None:
    target = tmp_path / "small.ir"
    done = monograph("opt", str(program), "-p", "cse,dce", "-o", str(target), "--stats")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "4 → 3" in done.stderr
    assert "removed 1" in done.stderr
    assert "add(%a, %a)" in target.read_text()


def test_opt_without_passes_checks_and_prints(program: Path) -> None:
    assert monograph("opt", str(program)).stdout == PROGRAM


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("opt", "missing.ir"), "there is no file 'missing.ir'"),
        (("opt",), "no file to read"),
        (("opt", "{program}", "-p", "sce"), "there is no pass called 'sce'"),
        (("opt", "{program}", "-O", "7"), "'O7' is not an optimisation level"),
        (("opt", "{program}", "-p", "dce", "-O", "1"), "both -p and -O were given"),
        (("ops", "sofmax"), "there is no op called 'sofmax'"),
        (("tour", "--phase", "99"), "there is no chapter 99"),
    ],
)
def test_errors_are_one_message_and_exit_code_one(
    program: Path, arguments: tuple[str, ...], problem: str
) -> None:
    done = monograph(*(argument.format(program=program) for argument in arguments))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {problem}")
    assert "Traceback" not in done.stderr


def test_bad_text_shows_the_line(program: Path) -> None:
    program.write_text(PROGRAM.replace("exp(%x)", "exp(%z)"))
    done = monograph("opt", str(program))
    assert done.returncode == 1
    assert "%z" in done.stderr
    assert "program.ir" in done.stderr


def test_the_passes_are_listed() -> None:
    done = monograph("opt", "--list")
    for name in ("cse", "dce", "simplify", "recognize", "fold_conv_bn", "lower_composites"):
        assert name in done.stdout


def test_the_ops_are_listed_and_shown() -> None:
    assert "softmax" in monograph("ops").stdout
    done = monograph("ops", "softmax")
    assert "axis: int" in done.stdout
    assert "composite" in done.stdout


def test_the_version_is_printed() -> None:
    assert monograph("--version").stdout.startswith("monograph 0.")
