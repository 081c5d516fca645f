"""The gate in front of the README's table: each kind of gap is found, and a whole run has none."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.ceiling import Ceiling
from benchmarks.commit import find_commit
from benchmarks.compile_time import Compiled
from benchmarks.gate import COMPILE_TIME_PEERS, REQUIRED_PEERS, find_gaps
from benchmarks.measure import Load
from benchmarks.peers import PEERS
from benchmarks.results import Machine, Outcome, Results, Row
from benchmarks.workloads import families, select

TIMED = Outcome(median=1.0, best=1.0, error=1e-7)


def _whole() -> Results:
    machine = Machine("cpu", 2, Ceiling(1, 1, 1, 1), {}, {})
    rows = tuple(
        Row(
            each.name,
            each.group,
            1,
            1,
            False,
            Load(0.0, 0.0),
            dict.fromkeys(("monograph", *REQUIRED_PEERS[each.group]), TIMED),
            commit="abc",
        )
        for each in select()
        if each.group in REQUIRED_PEERS
    )
    return Results(machine, rows)


def _compiled() -> list[Compiled]:
    names = ("monograph", *COMPILE_TIME_PEERS)
    return [Compiled("bert", name, 1.0, 0.5, commit="abc") for name in names]


def _changed(results: Results, name: str, **changes: object) -> Results:
    rows = (replace(row, **changes) if row.name == name else row for row in results.rows)
    return replace(results, rows=tuple(rows))


def test_a_whole_run_has_no_gaps() -> None:
    assert find_gaps(_whole(), _compiled()) == []


def test_a_peer_that_was_not_asked_is_a_gap_and_one_that_failed_is_none() -> None:
    results = _whole()
    first = next(row for row in results.rows if row.group == "pointwise")
    for outcome, gaps in (
        (Outcome("error: stack too large"), []),
        (
            Outcome("iree is not installed", absent=True),
            [f"pointwise: iree was not measured on {first.name}"],
        ),
    ):
        outcomes = {**first.outcomes, "iree": outcome}
        assert find_gaps(_changed(results, first.name, outcomes=outcomes), _compiled()) == gaps
    left_out = {name: each for name, each in first.outcomes.items() if name != "iree"}
    (gap,) = find_gaps(_changed(results, first.name, outcomes=left_out), _compiled())
    assert gap == f"pointwise: iree was not measured on {first.name}"


def test_a_row_that_is_missing_is_a_gap() -> None:
    results = _whole()
    lost = next(row for row in results.rows if row.group == "matmul")
    rows = tuple(row for row in results.rows if row is not lost)
    (gap,) = find_gaps(replace(results, rows=rows), _compiled())
    assert gap.startswith("matmul: 1 of ") and gap.endswith(lost.name)


def test_rows_of_different_or_uncommitted_compilers_are_a_gap() -> None:
    results = _whole()
    name = results.rows[0].name
    (mixed,) = find_gaps(_changed(results, name, commit="def"), _compiled())
    assert "rows are of different commits" in mixed and f"def ({name})" in mixed
    _, dirty = find_gaps(_changed(results, name, commit="abc-dirty"), _compiled())
    assert dirty == "the compiler's source was of no commit: abc-dirty"


def test_processor_time_and_missing_compile_times_are_gaps() -> None:
    results = _whole()
    busy = replace(results, machine=replace(results.machine, clock="processor"))
    assert "processor's clock" in find_gaps(busy, _compiled())[0]
    assert find_gaps(results) == ["compile times were not measured"]
    (gap,) = find_gaps(results, _compiled()[:-1])
    assert gap == f"compiling bert: not measured with {COMPILE_TIME_PEERS[-1]}"


def test_required_peers_and_families_exist() -> None:
    known = {peer.name for peer in PEERS}
    assert set(REQUIRED_PEERS) <= set(families())
    assert {name for names in REQUIRED_PEERS.values() for name in names} <= known
    assert set(COMPILE_TIME_PEERS) <= known


def test_the_commit_is_the_last_one_that_changed_the_compiler(tmp_path: Path) -> None:
    assert find_commit(tmp_path) == "unknown"

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True)

    git("init", "--quiet")
    source, page = tmp_path / "monograph" / "a.py", tmp_path / "page.md"
    source.parent.mkdir()
    source.write_text("1")
    git("add", ".")
    git("commit", "--quiet", "-m", "source")
    first = find_commit(tmp_path)
    page.write_text("text")
    git("add", ".")
    git("commit", "--quiet", "-m", "page")
    assert find_commit(tmp_path) == first
    source.write_text("2")
    assert find_commit(tmp_path) == f"{first}-dirty"


@pytest.mark.parametrize("family", sorted(REQUIRED_PEERS))
def test_every_family_is_measured_beside_somebody_who_compiles(family: str) -> None:
    assert set(REQUIRED_PEERS[family]) & {"ort", "openvino", "xla", "inductor"}
