"""``monograph profile``: a table of 80 columns, JSON, and a trace in a file."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import output_of, write_graph, write_perceptron
from tests.inspect.test_profile import check_trace


def test_the_table_names_each_kernel(tmp_path: Path) -> None:
    model = write_perceptron(tmp_path)
    lines = output_of("profile", model, "--calls", "3").splitlines()
    assert lines[0] == model
    assert max(map(len, lines[1:])) <= 80
    assert "outside of kernels" in lines[-1]


def test_figures_come_as_json_and_spans_as_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    text = output_of("profile", write_graph(tmp_path), "--calls", "3", "--json", "-o", str(path))
    found = json.loads(text)
    assert sum(each["seconds"] for each in found["kernels"]) <= found["seconds"]
    names = {each["name"] for each in found["kernels"]}
    spans = check_trace(json.loads(path.read_text()))
    assert {span["name"] for span in spans if span["cat"] == "kernel"} == names
