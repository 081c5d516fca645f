"""The runner of ONNX's backend suite counts every test, and enough of them pass."""

from __future__ import annotations

import unittest
from typing import Any

import pytest

pytest.importorskip("onnx")

from tests.frontends.onnx import backend, conformance

ALL = 2033
PARTS = 4


@pytest.fixture(scope="module")
def tests() -> dict[str, Any]:
    loaded = conformance.load_tests()
    conformance._TESTS.update(loaded)
    return loaded


def test_nothing_is_left_out(tests: dict[str, Any]) -> None:
    assert len(tests) == ALL


def test_a_skipped_test_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def skip(_: Any) -> None:
        raise unittest.SkipTest("declined")

    monkeypatch.setitem(conformance._TESTS, "skipped", skip)
    assert conformance.run_test("skipped").reason == "SkipTest: declined"


@pytest.mark.parametrize(
    "name", ["test_add_cpu", "test_loop11_cpu", "test_reshape_extended_dims_cpu"]
)
def test_a_test_passes(tests: dict[str, Any], name: str) -> None:
    outcome = conformance.run_test(name)
    assert not outcome.reason, outcome.detail


@pytest.mark.parametrize(
    "name", ["test_add_cpu", "test_identity_sequence_cpu", "test_string_concat_cpu"]
)
def test_a_test_passes_compiled(
    tests: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend.RUNNER, "target", "cpu")
    outcome = conformance.run_test(name)
    assert not outcome.reason, outcome.detail
    assert bool(outcome.interpreted) is (name == "test_string_concat_cpu")


@pytest.mark.parametrize("part", range(PARTS))
def test_every_tenth_test_passes_compiled(
    tests: dict[str, Any], part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend.RUNNER, "target", "cpu")
    names = sorted(set(tests) - set(conformance.KNOWN) - {"skipped"})[::10]
    outcomes = [conformance.run_test(name) for name in names[part::PARTS]]
    assert len(outcomes) >= 200 // PARTS
    assert not [f"{each.name}: {each.reason}" for each in outcomes if each.reason]


@pytest.mark.slow
def test_nothing_but_the_known_fails(tests: dict[str, Any]) -> None:
    outcomes = list(conformance.run_tests(sorted(tests), jobs=2))
    assert not conformance._print_failures(outcomes)


def test_only_a_failure_that_is_not_known_is_unexpected(
    tests: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    known, other = sorted(conformance.KNOWN)[:2], "test_add_cpu"
    outcomes = [
        conformance.Outcome(known[0], "wrong", "", 0.0),
        conformance.Outcome(known[1], "", "", 0.0),
        conformance.Outcome(other, "wrong", "", 0.0),
    ]
    assert conformance._print_failures(outcomes) == [other]
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(" (")[0] for line in printed] == [
        f"known: {known[0]} fails",
        f"known: {known[1]} passes now",
        f"FAILED: {other}: wrong",
    ]


def test_every_known_failure_is_a_test(tests: dict[str, Any]) -> None:
    assert set(conformance.KNOWN) <= set(tests)
