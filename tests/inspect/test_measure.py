"""Contenders are timed by turns, and a busy machine is told of."""

from __future__ import annotations

import os
import time

import pytest

from monograph.inspect.measure import alternate, busy_note


def test_every_contender_has_a_turn_a_round_and_the_slow_one_is_slower() -> None:
    timings = alternate({"quick": lambda: None, "slow": lambda: time.sleep(0.002)}, 3)
    assert {name: len(timing.turns) for name, timing in timings.items()} == {"quick": 3, "slow": 3}
    assert timings["slow"].best >= 0.002
    assert timings["quick"].best < timings["slow"].best <= timings["slow"].median


def test_a_busy_machine_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (1e4, 1.0, 1.0), raising=False)
    note = busy_note()
    assert note is not None and "busy" in note
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0), raising=False)
    assert busy_note() is None
