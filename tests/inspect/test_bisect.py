"""Bisection: planted faults are found, the rewrite is named, and the repro shows the fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.inspect import reference, suspects
from monograph.inspect.bisect import bisect
from monograph.inspect.extract import Case, all_values, extract
from monograph.inspect.measure import busy_note
from monograph.inspect.reduce import reduce_case
from monograph.passes.simplify import Simplify
from monograph.rewrite.driver import limit_rewrites
from tests.inspect.planted import FAULTS, MODEL, Fault, find, names

QUICK = (
    "wrong rule",
    "rule that is off by little",
    "batch norm without its scale",
    "wrong type rule",
    "wrong gradient of tanh",
    "wrong gradient of a sum",
)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(each, id=each.name, marks=() if each.name in QUICK else pytest.mark.slow)
        for each in FAULTS
    ],
)
def test_a_planted_fault_is_found_and_named(
    fault: Fault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if fault.name == "missing barrier" and (busy := busy_note()) is not None:
        pytest.skip(f"a race needs a processor for each thread: {busy}")
    monkeypatch.setenv("MONOGRAPH_CACHE", "1")
    monkeypatch.setenv("MONOGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("MONOGRAPH_VERIFY", raising=False)
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        found = find(fault, patch)
        assert found.kind == fault.kind, str(found)
        assert names(fault, found), str(found)
        assert len(found.repro.splitlines()) <= 40
        found.save(tmp_path / "repro.py")
        with pytest.raises((AssertionError, monograph.MonographError)):
            exec(found.repro, {})
    if fault.kind not in ("cache", "as given"):  # the cache stays as it is, and so do types in text
        exec(found.repro, {})


def test_a_model_without_a_fault_has_none() -> None:
    found = bisect(MODEL())
    assert not found.is_found
    assert json.loads(json.dumps(found.as_json()))["kind"] is None


def test_the_memory_of_results_is_spoiled_before_it_is_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def function(x: Any, i: Any) -> Any:
        return F.exp(x), i, x.graph.add_weight("w", np.ones(3, "f4"))

    executable = monograph.compile(
        monograph.trace(function, "f32[4]", "i64[2]"), cache=False, keep_weights=True
    )
    inputs = [np.zeros(4, "f4"), np.array([3, 5])]
    suspects.leave_other_results(executable, inputs)
    assert [each.tolist() for each in executable.run(inputs)] == [[1.0] * 4, [3, 5], [1.0] * 3]
    mine = [np.zeros((2, 3), "f4"), inputs[1]]
    monkeypatch.setattr(executable, "run", lambda given: mine)
    suspects.leave_other_results(executable, inputs)
    assert np.isnan(mine[0]).all()
    assert inputs[1].tolist() == [3, 5]


def test_equal_answers_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[bytes] = []
    right = reference.judge

    def judge(got: Any, *others: Any) -> Any:
        judged.append(got.tobytes())
        return right(got, *others)

    monkeypatch.setattr(reference, "judge", judge)
    executable = monograph.compile(lambda x: F.exp(x), "f32[40]", cache=False).executable
    case = Case(executable.graph, (np.linspace(-1, 1, 40, dtype="f4"),))
    assert suspects.wrong_answers(executable, case, calls=5) is None
    assert len(judged) == 1
    answers = iter([np.zeros(40, "f4")])
    monkeypatch.setattr(executable, "run", lambda inputs: [next(answers, np.ones(40, "f4"))])
    assert suspects.wrong_answers(executable, case, calls=5), "another answer is judged again"


def test_rewrites_can_be_limited_and_are_logged() -> None:
    graph = monograph.trace(lambda x: (x * 1.0) * 1.0, "f32[4]")
    with limit_rewrites(1) as done:
        Simplify().run(graph)
    assert len(done) == 1
    assert done[0].rule
    assert len(graph) > 0


def test_a_part_of_a_graph_computes_what_it_did_inside() -> None:
    graph = monograph.trace(lambda x: F.exp(F.sin(x) + 1.0) * x, "f32[5]")
    x = np.linspace(-1, 1, 5, dtype="f4")
    values = all_values(graph, [x])
    kept = [node for node in graph.nodes if node.op.name in ("add", "exp")]
    case = extract(graph, kept, values)
    (output,) = (node.result for node in kept if node.op.name == "exp")
    assert np.array_equal(monograph.interpret(case.graph, case.inputs)[0], values[output])


def test_a_case_is_reduced_to_what_fails() -> None:
    graph = monograph.trace(lambda x: F.exp(F.tanh(F.sin(x))) + 1.0, "f32[12, 30]")

    def fails(case: Case) -> str | None:
        return "tanh" if any(node.op.name == "tanh" for node in case.graph.nodes) else None

    case, tried = reduce_case(Case(graph, (np.ones((12, 30), "f4"),)), fails)
    assert [node.op.name for node in case.graph.nodes] == ["tanh"]
    assert case.inputs[0].shape == (1, 1)
    assert tried < 40
