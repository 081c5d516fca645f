"""``monograph bench``: every contender has a line, with its time and error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import invoke, output_of, write_graph, write_perceptron


def test_contenders_are_timed_by_turns(tmp_path: Path) -> None:
    arguments = ("--against", "numpy", "--against", "interpreter", "--rounds", "2")
    lines = output_of("bench", write_graph(tmp_path), *arguments).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["monograph", "numpy", "interpreter"]
    assert lines[1].split()[3] == "1.00"


def test_figures_come_as_json(tmp_path: Path) -> None:
    text = output_of("bench", write_perceptron(tmp_path), "--rounds", "1", "--json")
    figures = json.loads(text)["monograph"]
    assert figures["best"] <= figures["median"]
    assert 0 < figures["error"] < 1e-5


def test_torch_is_timed_on_its_own_models(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "net.py"
    path.write_text("import torch\nnet = torch.nn.Linear(8, 4)\n")
    arguments = ("--input", "f32[3, 8]", "--against", "torch", "--rounds", "1")
    assert "torch" in output_of("bench", f"{path}:net", *arguments)
    done = invoke("bench", write_graph(tmp_path), "--against", "torch", "--rounds", "1")
    assert done.exit_code == 1
    assert "torch does not run" in str(done.exception)
