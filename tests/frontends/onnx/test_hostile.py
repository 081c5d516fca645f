"""Every wrong model ends soon, in the error that it deserves; nothing crashes or hangs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("onnx")

from tests.frontends.onnx.hostile import CASES, Case
from tests.frontends.onnx.hostile.case import SECONDS
from tests.frontends.onnx.hostile.sandbox import Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running


MODELS = [
    pytest.param(case, id=name, marks=[pytest.mark.slow] * (case.seconds > SECONDS))
    for name, case in CASES.items()
]


@pytest.mark.parametrize("case", MODELS)
def test_a_wrong_model_gives_a_clear_error_soon(case: Case, sandbox: Sandbox) -> None:
    outcome = sandbox.outcome(case.name)
    expected = case.error.__name__ if case.error else "KeyboardInterrupt" if case.interrupt else ""
    assert (outcome.error, outcome.message) == (expected, case.message), outcome.text
    assert outcome.seconds < case.seconds
    assert len(outcome.text) < 3000


def test_there_are_many_of_them() -> None:
    assert sum(case.error is not None for case in CASES.values()) >= 45
