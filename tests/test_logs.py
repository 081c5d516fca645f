"""Stages log through the standard ``logging``, when they are asked to."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

import monograph
from monograph import logs
from monograph.errors import InputError

PROGRAM = """
import monograph
monograph.compile(monograph.trace(lambda x: x * 1.0 + x, "f32[4]"), cache=False)
"""


@pytest.fixture(autouse=True)
def quiet_afterwards() -> Iterator[None]:
    yield
    logs.follow_environment({})


def stderr_of(setting: str) -> str:
    environment = {"MONOGRAPH_LOG": setting, "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_only_the_stages_that_are_named_are_printed() -> None:
    printed = stderr_of("passes,+fusion")
    assert "[monograph.passes] simplify: 3 → 1 nodes" in printed
    assert "unchanged" not in printed
    assert "[monograph.fusion] group 0: add" in printed
    assert "[monograph.emit]" not in printed
    assert stderr_of("") == ""


def test_a_program_that_configures_logging_gets_the_messages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="monograph.emit"):
        monograph.compile(monograph.trace(lambda x: x + x, "f32[4]"), cache=False)
    assert [record.name for record in caplog.records] == ["monograph.emit"]
    assert "1 kernels" in caplog.text


def test_levels_are_read_from_left_to_right() -> None:
    levels = logs.parse_levels("all, -cache ,+fusion")
    assert levels["passes"] == logging.INFO
    assert levels["cache"] == logging.ERROR
    assert levels["fusion"] == logging.DEBUG
    assert logs.parse_levels("") == {}


@pytest.mark.parametrize("text", ["pases", "++passes", "+", "passes;fusion"])
def test_what_is_no_stage_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="which is no stage") as caught:
        logs.follow_environment({"MONOGRAPH_LOG": text})
    assert "passes" in (caught.value.expected or "")


def test_the_setting_may_change_and_end() -> None:
    logs.follow_environment({"MONOGRAPH_LOG": "+passes"})
    assert logging.getLogger("monograph.passes").level == logging.DEBUG
    logs.follow_environment({"MONOGRAPH_LOG": "fusion"})
    assert logging.getLogger("monograph.passes").level == logging.NOTSET
    assert logging.getLogger("monograph.fusion").level == logging.INFO
