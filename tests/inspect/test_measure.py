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


def test_cold_calls_favour_nobody() -> None:
    """Calls take longer at first, and after a pause: none of these is timed."""

    class Program:
        """A call of 20 µs, whose first ones take ``first`` and those after a pause 100 µs."""

        def __init__(self, first: float) -> None:
            self.first, self.calls, self.cold = first, 0, 0
            self.last = time.perf_counter()

        def __call__(self) -> None:
            began = time.perf_counter()
            self.cold = 5 if began - self.last > 0.01 else self.cold - 1
            took = self.first if self.calls < 3 else 1e-4 if self.cold > 0 else 2e-5
            self.calls += 1
            while time.perf_counter() < began + took:
                pass
            self.last = time.perf_counter()

    timings = alternate({"quick": Program(2e-5), "slow at first": Program(2e-3)}, 5, quiet=0.02)
    assert all(timing.best < 3e-5 for timing in timings.values())


def test_a_busy_machine_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (1e4, 1.0, 1.0), raising=False)
    note = busy_note()
    assert note is not None and "busy" in note
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0), raising=False)
    assert busy_note() is None
