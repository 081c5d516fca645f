"""``monograph tune``: a line a kernel, and what the whole program gains."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import invoke, output_of, write_graph, write_perceptron


def test_a_line_a_kernel_and_a_verdict(tmp_path: Path) -> None:
    lines = output_of("tune", write_perceptron(tmp_path), "--budget", "2").splitlines()
    assert lines[0].split()[:2] == ["kernel", "launches"]
    assert "default" in " ".join(lines[-2:])


def test_figures_come_as_json(tmp_path: Path) -> None:
    found = json.loads(output_of("tune", write_graph(tmp_path), "--budget", "0.5", "--json"))
    assert found["kept"] in (True, False) and found["gain"] > 0
    assert all(each["launches"] >= 1 for each in found["kernels"])


def test_a_compiled_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "program.mono"
    output_of("compile", write_graph(tmp_path), "-o", str(path))
    done = invoke("tune", str(path))
    assert done.exit_code == 1 and "cannot be tuned" in str(done.exception)
