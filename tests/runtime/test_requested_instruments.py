"""Compiling heeds what the environment asks of passes: to check the graph, and to write it down."""

from __future__ import annotations

from pathlib import Path

import pytest

import monograph
from monograph import functional as F
from monograph.errors import MonographError
from monograph.ir.graph import Graph
from monograph.ir.text import parse_type
from monograph.ir.text.parser import parse
from monograph.ir.text.printer import print_graph
from monograph.kernel.parse import parse_kernels
from monograph.passes.base import PassResult
from monograph.passes.cse import CommonSubexpressionElimination


def test_compiling_writes_the_graph_after_every_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONOGRAPH_DUMP", str(tmp_path))
    monograph.compile(lambda x: F.softmax(x * 1.0, -1), "f32[4, 8]")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0] == "00_start.ir"
    assert any("cse" in name for name in names)
    assert "softmax" in (tmp_path / "00_start.ir").read_text()
    graphs = [name for name in names if name.endswith(".ir")]
    assert "exp" in (tmp_path / graphs[-1]).read_text()  # lowered
    assert any("lower_composites" in name for name in graphs)
    for name in graphs:
        text = (tmp_path / name).read_text()
        assert print_graph(parse(text)) == text.split("\n", 1)[1].rstrip("\n")
    stages = [name.split("_", 1)[1] for name in names[len(graphs) :]]
    assert stages == ["groups.txt", "kernels.txt", "plans.txt", "assembled.txt", "code.ll"]
    text = next(tmp_path.glob("*_kernels.txt")).read_text()
    assert "\n".join(map(str, parse_kernels(text))) in text and "exp(" in text
    assert [int(name.split("_")[0]) for name in names] == list(range(len(names)))


def test_compiling_checks_the_graph_after_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(self: object, graph: Graph) -> PassResult:
        node = graph.nodes[0]
        node.results[0].type = parse_type("f32[1, 2, 3]")
        return PassResult(changed=True)

    monkeypatch.setattr(CommonSubexpressionElimination, "run", spoil)
    monkeypatch.setenv("MONOGRAPH_VERIFY", "1")
    with pytest.raises(MonographError, match="cse"):
        monograph.compile(lambda x: F.exp(x) + 1.0, "f32[4, 8]")
