"""The README's table: written from results, losses included, and nothing else is touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import compile_time, readme
from benchmarks.ceiling import Ceiling
from benchmarks.compile_time import Compiled
from benchmarks.measure import Load
from benchmarks.results import Machine, Outcome, Results, Row

QUIET = Load(0.0, 0.0)


def _row(name: str, group: str, ours: float | None, peer: float) -> Row:
    mine = Outcome("broken") if ours is None else Outcome(median=ours, best=ours, error=2e-7)
    outcomes = {
        "monograph": mine,
        "eager": Outcome(median=9.0, best=9.0, error=1e-7),
        "ort": Outcome(median=peer, best=peer, error=1e-7),
    }
    return Row(name, group, 1, 1, False, QUIET, outcomes)


def _results() -> Results:
    forms = {"monograph": "compile", "eager": "call", "ort": "run"}
    machine = Machine("cpu", 2, Ceiling(1, 1, 1, 1), {"torch": "2"}, forms, description="2 cores")
    rows = (
        _row("bert", "models", 0.1, 0.2),
        _row("gpt2", "models", 0.4, 0.2),
        _row("square", "matmul", None, 0.2),
    )
    return Results(machine, rows, ("late",))


def test_the_table_tells_means_losses_failures_and_what_is_missing() -> None:
    text = readme.section(_results())
    assert "Measured on cpu, 2 cores, " in text
    assert "| whole models | 2 | 1.00 | 0.50 | 1.00 | 0.50 | 1 | 2.00 |" in text
    assert "| matrix products | 1 | – | – | – | – | – | – |" in text
    assert "| bert | **100 (100)** | 9000 (9000) | 200 (200) | 2.00 | 2.00 |" in text
    assert "whole models: gpt2 0.50." in text
    assert "No comparison: square." in text
    assert "Not measured: late." in text


def test_peers_that_did_not_run_everything_are_told_apart() -> None:
    results = _results()
    bert, gpt2, square = results.rows
    failed = replace(gpt2, outcomes={**gpt2.outcomes, "ort": Outcome("refused")})
    text = readme.section(replace(results, rows=(bert, failed, square)))
    assert "- Whole models beside eager, ort (on 1 of them)." in text
    assert "- Matrix products beside eager, ort." in text


def test_compile_time_and_memory_stand_beside_the_peers() -> None:
    compiled = [
        Compiled("bert", "monograph", 1.0, 0.5, None, 2**21, 2**20),
        Compiled("bert", "inductor", 10.0, 5.0, None, 2**23, 2**22),
        Compiled("bert", "ort", 3.0, 3.0, None, 2**22, 2**21),
        Compiled("bert", "iree", reason="too slow"),
    ]
    text = readme.section(_results(), compiled)
    assert "|  | monograph | inductor | ort | iree |" in text
    assert "| bert | 1.0 / 0.5 | 10.0 / 5.0 | 3.0 / 3.0 | failed |" in text
    assert "| bert | 2 / 1 | 8 / 4 | 4 / 2 | failed |" in text


def test_only_what_is_between_the_marks_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readme, "find_gaps", lambda *results: [])
    page, data, times = tmp_path / "p.md", tmp_path / "r.json", tmp_path / "c.json"
    page.write_text(f"before\n{readme.BEGIN}\nformer text\n{readme.END}\nafter\n")
    _results().save(data)
    compile_time.save([Compiled("bert", "monograph", 1.0, 0.5)], times)
    arguments = [str(data), "--page", str(page), "--compile-time", str(times)]
    assert readme.main(arguments) == 0
    first = page.read_text()
    assert first.startswith("before\n") and first.endswith(f"{readme.END}\nafter\n")
    assert "former" not in first and "whole models" in first and "| bert | 1.0 / 0.5 |" in first
    assert readme.main(arguments) == 0
    assert page.read_text() == first


def test_results_with_gaps_do_not_reach_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, data = tmp_path / "p.md", tmp_path / "r.json"
    before = f"{readme.BEGIN}\nformer text\n{readme.END}\n"
    page.write_text(before)
    _results().save(data)
    assert readme.main([str(data), "--page", str(page)]) == 1
    assert page.read_text() == before
    assert "models: iree was not measured on bert, gpt2" in capsys.readouterr().out
    assert readme.main([str(data), "--page", str(page), "--print"]) == 0


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(SystemExit, match="no place"):
        readme.replaced("text", "table")


def test_the_readme_has_a_place_for_the_table() -> None:
    text = (readme.ROOT / "README.md").read_text()
    assert text.index(readme.BEGIN) < text.index(readme.END)
