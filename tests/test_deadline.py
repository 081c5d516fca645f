"""How long a call may take: limits, their nesting, the environment, and the interpreter."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

import monograph
from monograph import functional as F
from monograph.config import Config
from monograph.deadline import call_limit, check_time, remaining
from monograph.errors import InputError, MonographError, TimeLimitError

LIMIT = 0.05
"""Seconds: short, and long enough for a first turn."""


def test_without_a_limit_time_is_never_up() -> None:
    check_time()
    assert remaining() is None


def test_a_limit_ends_with_its_block() -> None:
    with monograph.time_limit(60):
        left = remaining()
        assert left is not None and 0 < left <= 60
    assert remaining() is None


def test_a_limit_inside_another_can_only_be_shorter() -> None:
    with monograph.time_limit(60), monograph.time_limit(3600):
        left = remaining()
        assert left is not None and left <= 60
    with monograph.time_limit(3600), monograph.time_limit(60):
        left = remaining()
        assert left is not None and left <= 60


def test_when_the_time_is_up_every_look_says_so() -> None:
    with monograph.time_limit(1e-9):
        with pytest.raises(TimeLimitError, match="longer than its time limit"):
            check_time()
        with pytest.raises(TimeLimitError):
            remaining()


def test_no_limit_can_be_said() -> None:
    with monograph.time_limit(math.inf):
        check_time()
        assert remaining() == math.inf


@pytest.mark.parametrize("seconds", [0, -1.0, math.nan, "2", None, True])
def test_what_is_no_time_is_refused(seconds: object) -> None:
    limit = monograph.time_limit(seconds)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not a number of seconds"), limit:
        pass


def test_the_error_is_one_of_ours_and_one_of_pythons() -> None:
    assert issubclass(TimeLimitError, MonographError)
    assert issubclass(TimeLimitError, TimeoutError)


def test_the_environment_limits_calls_that_have_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_TIMEOUT", "60")
    with call_limit():
        left = remaining()
        assert left is not None and left <= 60
    with monograph.time_limit(3600), call_limit():
        left = remaining()
        assert left is not None and left > 60


def test_the_setting_is_read() -> None:
    assert Config.from_environment({"MONOGRAPH_TIMEOUT": " 2.5 "}).timeout == 2.5
    assert Config.from_environment({}).timeout is None


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan"])
def test_a_setting_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="MONOGRAPH_TIMEOUT is not a time"):
        Config.from_environment({"MONOGRAPH_TIMEOUT": text})


def _endless() -> monograph.Graph:
    def count(x: monograph.Value) -> monograph.Value:
        return F.while_loop(lambda k: F.less(k, 2**62), lambda k: k + 1, x)

    return monograph.trace(count, "i64[]")


def _idle() -> monograph.Graph:
    """A loop whose regions have no node at all."""
    return monograph.trace(lambda x: F.while_loop(lambda k: k, lambda k: k, x), "bool[]")


@pytest.mark.parametrize("graph, given", [(_endless(), 0), (_idle(), True)], ids=["count", "idle"])
def test_a_loop_in_the_interpreter_has_an_end(graph: monograph.Graph, given: object) -> None:
    begin = time.monotonic()
    with monograph.time_limit(LIMIT), pytest.raises(TimeLimitError) as caught:
        monograph.interpret(graph, [np.array(given)])
    assert "while" in str(caught.value)
    assert time.monotonic() - begin >= LIMIT


def test_the_interpreter_heeds_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONOGRAPH_TIMEOUT", str(LIMIT))
    with pytest.raises(TimeLimitError):
        monograph.interpret(_endless(), [np.array(0)])
