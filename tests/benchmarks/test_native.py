"""A run from end to end on small workloads, and what is said of it."""

from __future__ import annotations

import argparse
import io
import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import ceiling, native, report, trial, workloads
from benchmarks.ceiling import Ceiling
from benchmarks.measure import Load, Plan
from benchmarks.peers import Eager, Peer, Prepared
from benchmarks.prepacked import Prepacked
from benchmarks.results import Machine, Outcome, Results, Row, compare, geometric_mean
from benchmarks.workloads import Workload, neutral_case, normal, select

BRIEF = Plan(least_rounds=2, most_rounds=2, seconds=0.0, quiet_seconds=0.0)
SMALL = Workload("small", "test", lambda: neutral_case("small", workloads.softmax, normal(4, 8)))
QUIET = Load(0.1, 0.0)


class Wrong(Eager):
    """Right but for one bit of the meaning."""

    name = "wrong"

    def prepare(self, case: Any) -> Prepared:
        return Prepared(lambda: 2 * case.module(*case.inputs))


class Failing(Eager):
    """Cannot do anything."""

    name = "failing"

    def prepare(self, case: Any) -> Prepared:
        raise RuntimeError("a long story\nfile.mlir:3: error: no such op\nmore")


class Missing(Peer):
    """Is not installed."""

    name = "missing"
    form = "–"
    needs = ("no_such_package",)

    def prepare(self, case: Any) -> Prepared:
        raise AssertionError("was asked although it is missing")


def test_a_workload_gives_every_contender_an_outcome() -> None:
    row = trial.run_workload(SMALL, [Eager(), Wrong(), Failing(), Missing()], BRIEF)
    assert list(row.outcomes) == ["eager", "wrong", "failing", "missing"]
    assert row.outcomes["eager"].counts
    assert row.outcomes["eager"].turns == 2
    assert row.outcomes["eager"].error < 1e-6
    assert "wrong" in row.outcomes["wrong"].reason
    assert not row.outcomes["wrong"].counts
    assert row.outcomes["failing"].reason == "RuntimeError: file.mlir:3: error: no such op"
    assert row.outcomes["missing"].reason.startswith("no_such_package is not installed")
    assert not row.streams


def test_a_contender_sits_out_where_it_has_no_part_and_is_refused_with_a_reason() -> None:
    row = trial.run_workload(SMALL, [Eager(), Prepacked()], BRIEF, refused={"eager": "hung"})
    assert {name: each.reason for name, each in row.outcomes.items()} == {"eager": "hung"}


def test_steps_are_noted_as_they_begin() -> None:
    steps: list[str] = []
    trial.run_workload(SMALL, [Eager(), Failing()], BRIEF, note=steps.append)
    assert steps == ["eager", "failing", trial.TIMING]


def test_products_and_attention_are_counted() -> None:
    (linear,) = select(["bert-4x768x768"])
    assert trial.flop_count(linear.build()) == 2 * 4 * 768 * 768
    (attention,) = select(["causal-12x128x64"])
    assert trial.flop_count(attention.build()) == 4 * 12 * 128 * 128 * 64
    assert attention.flop_share == pytest.approx(0.5, abs=0.01)


def _results() -> Results:
    def outcome(median: float) -> Outcome:
        return Outcome(median=median, best=median / 2, turns=9, error=1e-7, prepared=0.5)

    rows = (
        Row("won", "g", 2**26, 2**26, True, QUIET, {
            "monograph": outcome(0.004), "eager": outcome(0.1), "ort": outcome(0.008),
        }),
        Row("lost", "g", 10, 10, False, Load(3.0, 0.5), {
            "monograph": outcome(0.002), "eager": outcome(0.1), "ort": outcome(0.001),
        }),
        Row("unknown", "g", 10, 10, False, QUIET, {
            "monograph": Outcome("not yet"), "eager": Outcome("wrong", 1e-9), "ort": outcome(1.0),
        }),
    )  # fmt: skip
    machine = Machine("a processor", 2, Ceiling(30e9, 32e9, 34e9), {"torch": "2"}, {"ort": "run"})
    return Results(machine, rows)


def test_results_survive_a_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.json"
    _results().save(path)
    assert Results.load(path) == _results()
    assert json.loads(path.read_text())["rows"][0]["name"] == "won"


def test_newer_rows_replace_older_ones() -> None:
    old = _results()
    newer = Row("lost", "g", 10, 10, False, QUIET, {"eager": Outcome("new")})
    other = Row("added", "g", 1, 1, False, QUIET, {})
    joined = old.updated(Results(old.machine, (newer, other)))
    assert [row.name for row in joined.rows] == ["won", "lost", "unknown", "added"]
    assert joined.rows[1] is newer


def test_a_ratio_above_one_is_a_win() -> None:
    results = _results()
    won, lost = (compare(row, "monograph") for row in results.rows[:2])
    assert won is not None and lost is not None
    assert (won.rival, won.ratio, won.ratio_of_best) == ("ort", 2.0, 2.0)
    assert won.share(results.machine.ceiling) == pytest.approx(2**27 / 34e9 / 0.002)
    assert (lost.ratio, lost.share(results.machine.ceiling)) == (0.5, None)


def test_bytes_a_second_stand_beside_what_the_machine_streams() -> None:
    results = _results()
    # 128 MiB in 2 ms, where a copy moves 34 GB/s; what fits in the cache has no line.
    assert report.bandwidths(results, "monograph") == [
        ["won", "128", "67.1", "33.6", "34.0", f"{2**27 / 34e9 / 0.002:.0%}"]
    ]
    busy = replace(results.rows[0], flops=10**12)
    limited = replace(results.machine.ceiling, flops=1e9)
    arithmetic = Results(replace(results.machine, ceiling=limited), (busy,))
    assert report.bandwidths(arithmetic, "monograph") == []
    otherwise = replace(results, machine=replace(results.machine, clock="processor"))
    assert report.bandwidths(otherwise, "monograph") == []


def test_a_wrong_answer_is_not_the_best_peer() -> None:
    row = _results().rows[2]
    assert row.quickest(["eager", "ort"]) == "ort"
    assert compare(row, "monograph") is None


def test_tables_fit_and_tell_losses_reasons_and_load() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    native.show(_results(), console)
    shown = console.export_text()
    assert max(len(line) for line in shown.splitlines()) <= 100
    text = " ".join(shown.split())
    assert "g: Geometric mean over 2 workloads 1.00 by medians" in text
    assert "least 0.50 (lost)" in text and "Slower than the best peer on 1: lost 0.50." in text
    assert "Under 85%" not in text
    assert "monograph on unknown: not yet" in text
    assert "busy machine" in text and "lost" in text


def test_slow_streams_rough_answers_and_remarks_are_named() -> None:
    results = _results()
    ours = Outcome(median=1.0, best=1.0, error=5e-7, remark="odd")
    outcomes = {**results.rows[0].outcomes, "monograph": ours}
    shamed = Results(results.machine, (replace(results.rows[0], outcomes=outcomes),))
    text = "\n".join(report.notes(shamed, "monograph"))
    assert "Under 85% of the floor's speed on 1: won 0%." in text
    assert "More than 2 times eager's error on 1: won 5.0." in text
    assert "monograph on won: odd." in text


def test_processor_time_is_no_benchmark() -> None:
    results = _results()
    assert "processor time" not in " ".join(report.notes(results, "monograph"))
    rough = replace(results, machine=replace(results.machine, clock="processor"))
    assert "processor time" in " ".join(report.notes(rough, "monograph"))


def test_markdown_has_a_line_a_workload() -> None:
    text = report.markdown(_results(), "monograph")
    assert "| won | 4.00 | 8.00 | ort | 2.00 | 2.00 |" in text
    assert "| unknown | failed |" in text
    assert "- ort is called as `run`." in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0.1234, "123"), (0.01234, "12.3"), (0.001234, "1.23"), (1e-6, "0.0010")],
)
def test_times_have_three_digits(seconds: float | None, text: str) -> None:
    assert report.milliseconds(seconds) == text


def test_geometric_mean() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


def test_the_ceiling_is_measured() -> None:
    found = ceiling.measure(threads=2, rounds=2, mebibytes=1)
    assert found.read > 1e8 and found.copy > 1e8 and found.triad > 1e8 and found.flops > 1e8


def test_the_floor_depends_on_the_share_of_writes() -> None:
    found = Ceiling(read=30e9, triad=20e9, copy=10e9)
    assert found.seconds(30, 0) == pytest.approx(1e-9)
    assert found.seconds(10, 10) == pytest.approx(2e-9)
    assert found.seconds(0, 20) == pytest.approx(2e-9)
    assert found.highest(Ceiling(1, 25e9, 1)) == Ceiling(30e9, 25e9, 10e9)


def test_the_floor_is_the_longer_of_moving_and_multiplying() -> None:
    found = Ceiling(read=30e9, triad=20e9, copy=10e9, flops=100e9)
    assert found.floor(30, 0, 1) == pytest.approx(1e-9)
    assert found.floor(30, 0, 1000) == pytest.approx(1e-8)
    assert found.floor(0, 0, 0) == 0.0


def test_unknown_contenders_are_refused() -> None:
    with pytest.raises(SystemExit, match="nobody"):
        trial.chosen_peers(["nobody"])


def test_the_command_lists_and_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(native, "select", lambda patterns=(): [SMALL])
    monkeypatch.setattr(native.ceiling, "measure", lambda threads, rounds: Ceiling(1e9, 1e9, 1e9))
    monkeypatch.setattr(trial.Job, "settle", lambda self: None)
    assert native.main(["--list"]) == 0
    assert "small" in capsys.readouterr().out
    path, written = tmp_path / "r.json", tmp_path / "r.md"
    arguments = ["--quick", "--only", "small", "--peers", "eager", "--one-process"]
    assert native.main([*arguments, "--json", str(path), "--markdown", str(written)]) == 0
    assert Results.load(path).rows[0].outcomes["eager"].counts
    assert "| small |" in written.read_text()
    assert native.main(["--show", str(path)]) == 0
    assert "small" in capsys.readouterr().out


def _options(*arguments: str) -> argparse.Namespace:
    return native._parser().parse_args(arguments)


def test_a_family_is_chosen_and_the_telling_workloads_come_first_in_a_limited_time() -> None:
    assert {each.group for each in native.chosen_workloads(_options("--family", "matmul"))} == {
        "matmul"
    }
    quick = native.chosen_workloads(_options("--family", "matmul", "--quick"))
    limited = native.chosen_workloads(_options("--family", "matmul", "--minutes", "5"))
    assert 0 < len(quick) < len(limited)
    assert limited[: len(quick)] == quick
    both = native.chosen_workloads(_options("--family", "matmul", "rows", "--minutes", "5"))
    assert {each.group for each in both[:2]} == {"matmul", "rows"}
    with pytest.raises(SystemExit, match="nothing is not a family"):
        native.chosen_workloads(_options("--family", "nothing"))


def test_a_machine_is_described_without_its_name() -> None:
    found = native.machine(Ceiling(1.0, 1.0, 1.0), [], 2)
    assert found.description.startswith("2 cores, ")
    assert platform.node() not in found.description
