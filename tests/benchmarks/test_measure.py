"""Measuring by turns, and errors against float64."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from benchmarks import measure
from benchmarks.measure import Load, LoadMeter, Plan, Timing, alternate, error, tolerance

BRIEF = Plan(
    least_rounds=4,
    most_rounds=4,
    seconds=0.0,
    block_seconds=0.0,
    warm_seconds=0.0,
    quiet_seconds=0.0,
    clock=itertools.count().__next__,  # every call takes as long, whatever else the machine does
)


def test_every_contender_has_a_turn_in_every_round() -> None:
    order: list[str] = []
    contenders = {name: lambda name=name: order.append(name) for name in "abc"}
    timings = alternate(contenders, BRIEF)
    assert {name: len(timing.turns) for name, timing in timings.items()} == dict.fromkeys("abc", 4)
    # Two calls a turn: one to warm up, one timed. Every round begins with another contender.
    turns = "".join(order)[-2 * 3 * 4 :]
    assert turns == "aabbcc" + "bbccaa" + "ccaabb" + "aabbcc"


class Clock:
    """Time that passes only where a contender lets it: tests depend on no other load."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def takes(self, seconds: float) -> Callable[[], None]:
        """A contender that takes so long."""

        def call() -> None:
            self.now += seconds

        return call


def test_a_slower_contender_takes_longer() -> None:
    clock = Clock()
    plan = Plan(least_rounds=3, most_rounds=3, quiet_seconds=0.0, clock=clock)
    timings = alternate({"quick": clock.takes(0.001), "slow": clock.takes(0.002)}, plan)
    assert timings["slow"].best == pytest.approx(0.002)
    assert timings["quick"].median == pytest.approx(0.001)


def test_a_much_slower_contender_sits_out_two_rounds_of_three() -> None:
    clock = Clock()
    plan = replace(BRIEF, least_rounds=8, most_rounds=8, block_seconds=0.0001, clock=clock)
    timings = alternate({"quick": clock.takes(1e-5), "slow": clock.takes(0.001)}, plan)
    assert len(timings["quick"].turns) == 8
    assert len(timings["slow"].turns) == 4  # rounds 0, 1, 3 and 6


def test_measuring_ends_when_its_time_is_over() -> None:
    plan = Plan(least_rounds=2, most_rounds=1000, seconds=0.0, quiet_seconds=0.0)
    assert len(alternate({"only": lambda: None}, plan)["only"].turns) == 2


def test_processor_time_does_not_count_sleep() -> None:
    plan = Plan(least_rounds=3, most_rounds=3, quiet_seconds=0.0, clock=time.process_time)
    assert alternate({"sleeps": lambda: time.sleep(0.005)}, plan)["sleeps"].best < 0.004


def test_no_contenders_give_no_times() -> None:
    assert alternate({}, BRIEF) == {}


def test_median_and_best_of_turns() -> None:
    timing = Timing((3.0, 1.0, 2.0, 50.0))
    assert (timing.median, timing.best) == (2.5, 1.0)


def test_error_is_relative_to_the_reference() -> None:
    reference = [torch.tensor([3.0, 4.0], dtype=torch.float64)]
    assert error([torch.tensor([3.0, 4.5])], reference) == pytest.approx(0.1)


def test_error_is_that_of_the_worst_output() -> None:
    right, wrong = torch.ones(2), torch.zeros(2)
    reference = [torch.ones(2, dtype=torch.float64)] * 2
    assert error([right, wrong], reference) == pytest.approx(1.0)


@pytest.mark.parametrize("found", [[torch.ones(3)], [torch.full((2,), math.nan)], []])
def test_wrong_shapes_counts_and_nans_are_infinitely_wrong(found: list[torch.Tensor]) -> None:
    assert error(found, [torch.ones(2, dtype=torch.float64)]) == math.inf


def test_integers_are_counted() -> None:
    assert error([torch.tensor([1, 2, 3, 5])], [torch.tensor([1, 2, 3, 4])]) == 0.25
    assert error([torch.tensor([1, 2], dtype=torch.int32)], [torch.tensor([1, 2])]) == 0.0


def test_narrower_types_may_err_more() -> None:
    assert tolerance([torch.ones(1)]) < tolerance([torch.ones(1, dtype=torch.bfloat16)])


def test_own_work_is_not_foreign_load() -> None:
    meter = LoadMeter()
    end = time.perf_counter() + 0.2
    while time.perf_counter() < end:
        pass
    load = meter.read()
    assert 0.0 <= load.foreign <= 1.0
    assert load.average >= 0.0


def test_waiting_for_quiet_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not measure.wait_for_quiet(0.0)
    shares = iter([0.9, 0.5, 0.02])
    monkeypatch.setattr(LoadMeter, "read", lambda _: Load(1.0, next(shares)))
    assert measure.wait_for_quiet(5.0, probe=0.0)
    assert next(shares, None) is None
