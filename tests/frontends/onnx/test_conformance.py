"""The runner of ONNX's backend suite counts every test, and enough of them pass."""

from __future__ import annotations

import unittest
from typing import Any

import pytest

pytest.importorskip("onnx")

from tests.frontends.onnx import backend, conformance

ALL = 2033
ENOUGH = 2025


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


@pytest.mark.parametrize("name", ["test_add_cpu", "test_identity_sequence_cpu"])
def test_a_test_passes_compiled(
    tests: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend.RUNNER, "target", "cpu")
    outcome = conformance.run_test(name)
    assert not outcome.reason, outcome.detail
    assert bool(outcome.interpreted) is (name == "test_identity_sequence_cpu")


@pytest.mark.slow
def test_enough_of_the_suite_passes(tests: dict[str, Any]) -> None:
    outcomes = conformance.run_tests(sorted(tests), jobs=2)
    failed = [outcome.name for outcome in outcomes if outcome.reason]
    assert len(tests) - len(failed) >= ENOUGH, failed
