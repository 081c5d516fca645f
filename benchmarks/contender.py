"""What a contender is: an adapter that compiles a case, and a call that computes it once."""

from __future__ import annotations

import importlib.util
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.workloads import Case, Inputs, flat


class Unsupported(Exception):
    """A contender cannot express a case; the message says why."""


@dataclass(frozen=True)
class Prepared:
    """A compiled case: ``call`` runs it once, ``read`` gives its result as tensors.

    ``remark`` is something that a reader of its figures should know.
    """

    call: Callable[[], Any]
    read: Callable[[Any], Inputs] = flat
    remark: str | None = None


class Peer(ABC):
    """One contender."""

    name: str
    form: str
    needs: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    """The only families that it takes part in, if it is no compiler of everything."""

    def takes(self, family: str) -> bool:
        """Whether it takes part in a family of workloads."""
        return not self.families or family in self.families

    def available(self) -> str | None:
        """Why it cannot take part, or None if it can."""
        missing = [each for each in self.needs if importlib.util.find_spec(each) is None]
        return f"{', '.join(missing)} is not installed (make bench-setup)" if missing else None

    @abstractmethod
    def prepare(self, case: Case) -> Prepared:
        """Compile the case, in the way that runs quickest where there are several."""

    def compile(self, case: Case) -> Prepared:
        """Compile the case in one way, for its time."""
        return self.prepare(case)


def quickest(ways: Sequence[Callable[[], Prepared]], calls: int = 5) -> Prepared:
    """The way whose best call is the shortest; a failure counts only where no way works."""
    prepared: list[tuple[float, Prepared]] = []
    problems: list[Exception] = []
    for way in ways:
        try:
            candidate = way()
            prepared.append((_best_seconds(candidate.call, calls), candidate))
        except Exception as problem:  # raised again below, unless another way works
            problems.append(problem)
    if not prepared:
        raise problems[0]
    return min(prepared, key=lambda each: each[0])[1]


def _best_seconds(call: Callable[[], Any], calls: int) -> float:
    call()
    seconds = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
