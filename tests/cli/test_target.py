"""``--target`` of every command: what is made for another chip is shown and saved, not run here."""

from __future__ import annotations

from pathlib import Path

import pytest

import monograph
from monograph.errors import InputError, MonographError
from tests.cli.running import invoke, output_of

OTHER = "cpu:riscv64"
"""A chip that no test runs on."""


def model(folder: Path) -> str:
    path = folder / "net.ir"
    graph = monograph.trace(lambda x: monograph.functional.softmax(x * 2, -1), "f32[8, 64]")
    monograph.save_graph(graph, path)
    return str(path)


@pytest.mark.parametrize(
    "command", ["compile", "run", "bench", "tune", "explain", "report", "check", "validate"]
)
def test_every_command_knows_targets_and_refuses_what_is_none(command: str, tmp_path: Path) -> None:
    done = invoke(command, model(tmp_path), "--target", "tpu")
    assert done.exit_code == 1 and "'tpu' is not a target" in str(done.exception)


def test_what_is_made_for_another_chip_is_told_of(tmp_path: Path) -> None:
    path = model(tmp_path)
    assert "riscv64" in output_of("explain", path, "--target", OTHER)
    assert "rv64" in output_of("compile", path, "--emit", "asm", "--target", OTHER)
    assert "every op is supported" in output_of("check", path, "--target", OTHER)
    page = tmp_path / "page.html"
    output_of("report", path, "--target", OTHER, "-o", str(page))
    assert page.stat().st_size > 10_000
    folder = tmp_path / "stages"
    output_of("compile", path, "--target", OTHER, "-o", str(folder))
    assert "rv64" in (folder / "program.s").read_text()


@pytest.mark.parametrize("command", ["run", "tune", "validate", "bisect"])
def test_what_runs_a_program_refuses_one_for_another_chip(command: str, tmp_path: Path) -> None:
    done = invoke(command, model(tmp_path), "--target", OTHER)
    assert isinstance(done.exception, MonographError), done.exception
    assert "this machine" in str(done.exception)


def test_an_old_spelling_still_works_and_says_so(tmp_path: Path) -> None:
    done = invoke("compile", model(tmp_path), "--emit", "llvm", "--chip", "aarch64")
    assert done.exit_code == 0 and "--target cpu:aarch64" in done.stderr


def test_a_search_is_not_asked_of_another_chip_by_a_level_but_by_a_budget(tmp_path: Path) -> None:
    output_of("compile", model(tmp_path), "-O3", "--target", OTHER)
    graph = monograph.load_graph(model(tmp_path))
    with pytest.raises(InputError, match="a search measures"):
        monograph.compile(graph, target=OTHER, budget=1.0)
