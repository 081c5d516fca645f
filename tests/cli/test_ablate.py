"""``monograph ablate``: a table, JSON and a chart, within its budget."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import output_of, write_graph


def test_figures_come_as_json_and_as_a_chart(tmp_path: Path) -> None:
    chart = tmp_path / "ablation.svg"
    text = output_of(
        "ablate", write_graph(tmp_path), "--budget", "20", "--rounds", "3", "--no-alone",
        "--json", "--chart", str(chart),
    )  # fmt: skip
    found = json.loads(text)
    assert found["seconds"] > 0 and found["alone"] == []
    states = {each["part"]["name"]: each["state"] for each in found["without"]}
    assert states["recognize"] == "nothing to do in this model"
    assert chart.read_text().startswith("<svg")
