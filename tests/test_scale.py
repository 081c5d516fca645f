"""A small slice of ``benchmarks.scale``: no stage may be quadratic."""

from __future__ import annotations

from benchmarks.scale import Row, build, failures, measure
from monograph.passes.base import make_pass

SMALL, LARGE = 2_000, 8_000


def test_every_stage_is_nearly_linear() -> None:
    rows = measure((SMALL, LARGE))
    growth = {row.stage: row.growth((SMALL, LARGE)) for row in rows}
    # A quadratic stage has a growth of 2; caches and a busy machine account for less than this.
    assert {stage: slope for stage, slope in growth.items() if slope > 1.6} == {}


def test_the_graph_has_work_for_cse_and_dce() -> None:
    graph = build(SMALL)
    assert len(graph) >= SMALL
    assert make_pass("cse").run(graph).counters["merged"] > SMALL // 10
    assert make_pass("dce").run(graph).counters["removed"] > SMALL // 30


def test_slow_growth_and_slow_passes_are_failures() -> None:
    quadratic = Row("parse", [0.01, 1.0, 100.0])
    slow = Row("cse", [0.06, 0.6, 6.0])
    fine = Row("dce", [0.01, 0.1, 1.0])
    sizes = (1_000, 10_000, 100_000)
    problems = failures([quadratic, slow, fine], sizes)
    assert len(problems) == 2
    assert "parse grows as nodes^2.00" in problems[0]
    assert "cse and dce take 7.0 s" in problems[1]
    assert failures([fine], sizes) == []
