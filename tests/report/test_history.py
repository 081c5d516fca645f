"""The graph at every pass: nothing is lost between the deltas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.ir.graph import Graph
from monograph.passes.base import Pass
from monograph.passes.instruments import Instrument, watching
from monograph.report.history import History, apply_delta, delta_of, stages_of


def network() -> Graph:
    def run(x: Any, w: Any) -> Any:
        y = F.relu(x @ w + 0.0)
        return F.softmax(y * 1.0, -1) + F.relu(x @ w + 0.0)

    return monograph.trace(run, "f32[4, 8]", "f32[8, 8]")


class Counts(Instrument):
    """How many nodes there are after every pass."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def after(self, each: Pass, graph: Graph, seconds: float, changed: bool) -> None:
        self.counts.append(len(graph))


def compiled_history(graph: Graph) -> tuple[History, Counts, Any]:
    history, counts = History(), Counts()
    with watching(history, counts):
        executable = monograph.compile(graph, cache=False)
    return history, counts, executable


@pytest.mark.parametrize(
    "before, after",
    [([], [1, 2]), ([1, 2, 3], [1, 2, 3]), ([1, 2, 3], [3, 1]), ([1, 2, 3, 4], [1, 9, 3, 4, 2])],
)
def test_a_delta_gives_back_what_it_was_made_of(before: list[int], after: list[int]) -> None:
    assert apply_delta(before, delta_of(before, after)) == after


def test_a_stage_that_shares_all_its_nodes_is_one_run() -> None:
    assert delta_of([5, 6, 7], [5, 6, 7]) == [[0, 3]]


def test_every_stage_has_the_nodes_that_the_graph_had() -> None:
    history, counts, executable = compiled_history(network())
    run = history.finish(executable.lowered)
    sizes = [len(stage.records) for stage in run.stages]
    assert sizes[0] == len(executable.graph)
    assert sizes[-1] == len(executable.lowered)
    assert set(counts.counts) <= set(sizes)
    names = [stage.name for stage in run.stages]
    assert names[0] == "as given"
    assert "simplify" in names
    assert all(stage.phase == "passes" for stage in run.stages if stage.name == "simplify")


def test_the_deltas_rebuild_the_last_graph() -> None:
    history, _, executable = compiled_history(network())
    run = history.finish(executable.lowered)
    tables: Any = history.tables()
    records: list[int] = []
    for stage in stages_of(run):
        records = apply_delta(records, stage["delta"])  # type: ignore[index, call-overload, arg-type]
    rebuilt = [
        (
            tables["ops"][record[1]],
            [tables["names"][value] for value in record[2][::2]],
            [tables["types"][type_] for type_ in record[2][1::2]],
            [tables["names"][value] for value in record[3]],
        )
        for record in (tables["records"][number] for number in records)
    ]
    assert rebuilt == [
        (
            node.op.name,
            [value.name for value in node.results],
            [str(value.type) for value in node.results],
            [value.name for value in node.operands],
        )
        for node in executable.lowered.nodes
    ]


def test_a_pass_that_did_nothing_is_named_and_has_no_stage() -> None:
    history, _, executable = compiled_history(monograph.trace(F.relu, "f32[4]"))
    run = history.finish(executable.lowered)
    assert len(run.stages) == 1
    assert {"cse", "dce", "simplify"} <= set(run.stages[0].idle)


def test_an_unwatched_graph_has_two_stages() -> None:
    executable = monograph.compile(network(), cache=False)
    run = History().finish(executable.lowered, given=executable.graph)
    assert [stage.name for stage in run.stages] == ["as given", "compiled"]


def test_watching_does_not_change_what_is_computed() -> None:
    graph = network()
    _, _, watched = compiled_history(graph)
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, 8)).astype("f4"), rng.normal(size=(8, 8)).astype("f4")
    plain = monograph.compile(graph, cache=False)
    assert np.array_equal(watched(x, w)[0], plain(x, w)[0])
