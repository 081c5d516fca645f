"""Timing contenders by turns: in one process, on the same inputs, so that noise hits all alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping

from monograph.dataclass import dataclass
from monograph.progress import announce

BLOCK_SECONDS = 0.005
"""About how long a turn lasts; one call, if a call takes longer."""

WARM_SECONDS = 0.001
"""After a pause the first calls find cold caches and a slow clock: for so long nothing is timed."""

QUIET_SECONDS = 0.05
"""Threads of some peers (ONNX Runtime's) spin for tens of milliseconds after a call."""


@dataclass(frozen=True)
class Timing:
    """Seconds a call, one for each turn."""

    turns: tuple[float, ...]

    @property
    def median(self) -> float:
        """What a call usually takes."""
        return statistics.median(self.turns)

    @property
    def best(self) -> float:
        """What a call takes when nothing else happens."""
        return min(self.turns)


def alternate(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    quiet: float = QUIET_SECONDS,
    before: Callable[[], object] | None = None,
    until: float | None = None,
    least: int = 3,
) -> dict[str, Timing]:
    """Give every contender one turn a round; every round begins with another one.

    With ``before``, which is called ahead of each timed call, a turn is one call. After ``until``
    (by ``time.perf_counter``) no round begins, once there were at least ``least``.
    """
    calls = {name: 1 if before else _calls_in_turn(call) for name, call in contenders.items()}
    turns: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    gc.collect()
    for number in range(rounds):
        if until is not None and number >= least and time.perf_counter() > until:
            break
        announce("rounds", number, rounds)
        first = number % len(names)
        for name in names[first:] + names[:first]:
            turns[name].append(_turn(contenders[name], calls[name], quiet, before))
    return {name: Timing(tuple(seconds)) for name, seconds in turns.items()}


def _turn(
    call: Callable[[], object], calls: int, quiet: float, before: Callable[[], object] | None
) -> float:
    """Quiet, until the threads of who went before sleep; some calls untimed, to warm up; then."""
    time.sleep(quiet)
    warm = time.perf_counter() + (WARM_SECONDS if before is None else 0)
    call()
    while time.perf_counter() < warm:
        call()
    if before is not None:
        before()
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - started) / calls


def _calls_in_turn(call: Callable[[], object]) -> int:
    """How many calls fill a turn. Single calls are too cold to tell: ever more are timed."""
    call()
    calls = 1
    while True:
        started = time.perf_counter()
        for _ in range(calls):
            call()
        took = time.perf_counter() - started
        if took > BLOCK_SECONDS / 2:
            return max(1, round(calls * BLOCK_SECONDS / took))
        calls *= 2
