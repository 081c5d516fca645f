"""How contenders are measured: by turns, in one process, on the same inputs.

A round gives every contender one turn. In its turn a contender first runs untimed for a moment
(threads wake, caches fill with what it uses), then for one timed block of calls; its time is that
of the block over the number of calls. Between turns all is quiet for a moment, so that
one's spinning threads do not run in another's turn, and every round begins with another contender.
A burst of foreign load hits all alike that way, and the median over rounds forgets it.

Errors are measured against float64 from the same inputs: ‖got − reference‖ / ‖reference‖, the
largest over a case's outputs; for integers, the share of elements that differ.
"""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from monograph.tuning.alternating_timer import QUIET_SECONDS, Timing

Call = Callable[[], Any]


@dataclass(frozen=True)
class Plan:
    """How long to measure: at least some rounds, at most some, and between them about so long.

    ``clock`` times the calls. Where others keep the machine busy, ``time.process_time`` says more
    than the wall's clock, provided that every contender has one thread and none of them spins.
    """

    least_rounds: int = 9
    most_rounds: int = 60
    seconds: float = 6.0
    block_seconds: float = 0.004
    warm_seconds: float = 0.001
    quiet_seconds: float = QUIET_SECONDS
    slow_factor: float = 4.0
    clock: Callable[[], float] = time.perf_counter


QUICK = Plan(least_rounds=3, most_rounds=7, seconds=1.0)


def alternate(contenders: Mapping[str, Call], plan: Plan = Plan()) -> dict[str, Timing]:  # noqa: B008
    """Time all contenders by turns."""
    if not contenders:
        return {}
    calls = {name: _calls_in_block(call, plan) for name, call in contenders.items()}
    turns: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    start = time.perf_counter()
    gc.collect()
    gc.disable()
    try:
        for number in range(plan.most_rounds):
            if number >= plan.least_rounds and time.perf_counter() - start > plan.seconds:
                break
            first = number % len(names)
            for name in names[first:] + names[:first]:
                if _sits_out(turns, name, number, plan):
                    continue
                time.sleep(plan.quiet_seconds)
                turns[name].append(_turn(contenders[name], calls[name], plan))
    finally:
        gc.enable()
    return {name: Timing(tuple(seconds)) for name, seconds in turns.items()}


def _sits_out(turns: Mapping[str, Sequence[float]], name: str, number: int, plan: Plan) -> bool:
    """Whether a contender that is many times slower than the quickest leaves this round out."""
    if number < 2 or number % 3 == 0:
        return False
    best = min(min(seconds) for seconds in turns.values() if seconds)
    return min(turns[name]) > plan.slow_factor * best


def _turn(call: Call, calls: int, plan: Plan) -> float:
    _warm(call, plan)
    start = plan.clock()
    for _ in range(calls):
        call()
    return (plan.clock() - start) / calls


def _warm(call: Call, plan: Plan) -> int:
    """Call at least once, until the time for warming is over; how often it was."""
    calls, end = 0, time.perf_counter() + plan.warm_seconds
    while not calls or time.perf_counter() < end:
        call()
        calls += 1
    return calls


def _calls_in_block(call: Call, plan: Plan) -> int:
    call()
    seconds = _turn(call, _warm(call, plan), plan)
    return max(1, math.ceil(plan.block_seconds / seconds)) if seconds > 0 else 1


def error(found: Sequence[Tensor], reference: Sequence[Tensor]) -> float:
    """How far the outputs are from the reference: the worst of them; infinite if shapes differ."""
    if [each.shape for each in found] != [each.shape for each in reference]:
        return math.inf
    return max(_distance(got, true) for got, true in zip(found, reference, strict=True))


def _distance(found: Tensor, reference: Tensor) -> float:
    if not reference.is_floating_point():
        return float((found.long() != reference.long()).double().mean())
    reference = reference.double()
    size = float(torch.linalg.vector_norm(reference))
    distance = float(torch.linalg.vector_norm(found.double() - reference))
    if math.isnan(distance):
        return math.inf
    return distance / size if size else distance


# A result whose error exceeds this is wrong, and its time is worth nothing. Eager's own error on
# these workloads is below a tenth of it.
TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2, torch.int64: 1e-3}


def tolerance(outputs: Sequence[Tensor]) -> float:
    """The largest error that a right answer of these types may have."""
    return max(TOLERANCE.get(each.dtype, 0.0) for each in outputs)


@dataclass(frozen=True)
class Load:
    """What else this machine did: the load average, and others' share of the processors' time."""

    average: float
    foreign: float


class LoadMeter:
    """Watches the machine from its making until ``read``."""

    def __init__(self) -> None:
        self.start = _processor_seconds()

    def read(self) -> Load:
        """The load since the start; the foreign share counts time stolen by other machines."""
        (busy, total), own = _processor_seconds()
        (busy_before, total_before), own_before = self.start
        passed = total - total_before
        others = busy - busy_before - (own - own_before)
        foreign = min(1.0, max(0.0, others / passed)) if passed > 0 else 0.0
        return Load(os.getloadavg()[0], foreign)


BUSY = 0.10
"""The share of the processors that others may take before figures are doubtful."""


def wait_for_quiet(patience: float, probe: float = 1.0) -> bool:
    """Sleep until others leave the machine alone, or for so many seconds; whether they do."""
    end = time.perf_counter() + patience
    while time.perf_counter() < end:
        meter = LoadMeter()
        time.sleep(probe)
        if meter.read().foreign <= BUSY:
            return True
    return False


def _processor_seconds() -> tuple[tuple[float, float], float]:
    """Seconds that all processors were busy and existed, and those used by this process."""
    path = Path("/proc/stat")
    own = sum(os.times()[:4])
    if not path.exists():
        return (own, own), own
    ticks = [int(each) for each in path.read_text().splitlines()[0].split()[1:9]]
    hertz = os.sysconf("SC_CLK_TCK")
    idle = ticks[3] + ticks[4]
    return ((sum(ticks) - idle) / hertz, sum(ticks) / hertz), own
