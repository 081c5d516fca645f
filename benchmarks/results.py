"""What a run found, as plain values: they go to JSON and come back equal."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.ceiling import Ceiling
from benchmarks.measure import Load


@dataclass(frozen=True)
class Outcome:
    """One contender on one workload: its figures, or the reason why there are none.

    Seconds are a call's; ``prepared`` are those of compiling and the first call, caches warm or
    not; ``error`` is against float64. A wrong answer has figures and a reason.
    """

    reason: str | None = None
    median: float | None = None
    best: float | None = None
    turns: int = 0
    error: float | None = None
    prepared: float | None = None
    remark: str | None = None
    absent: bool = False
    """Whether the contender was not there to be asked (not installed)."""

    @property
    def counts(self) -> bool:
        """Whether there is a time, and of a right answer."""
        return self.reason is None and self.median is not None


@dataclass(frozen=True)
class Row:
    """One workload: every contender's outcome, the bytes that it has to move, and the load.

    ``streams`` says whether the bytes are more than the cache holds; ``flops`` are the products and
    sums of its contractions.
    """

    name: str
    group: str
    read: int
    written: int
    streams: bool
    load: Load
    outcomes: dict[str, Outcome]
    flops: int = 0
    commit: str = ""
    """The state of the compiler that was measured (``benchmarks.gate.find_commit``)."""

    def quickest(self, names: Sequence[str]) -> str | None:
        """Which of the contenders has the shortest median."""
        counting = [name for name in names if name in self.outcomes and self.outcomes[name].counts]
        return min(counting, key=lambda name: self.outcomes[name].median or 0.0, default=None)


@dataclass(frozen=True)
class Machine:
    """What it was measured on and with."""

    processor: str
    threads: int
    ceiling: Ceiling
    versions: dict[str, str]
    forms: dict[str, str]
    clock: str = "wall"
    description: str = ""
    """Cores, vectors and caches: what a reader needs, and nothing that names the machine."""


@dataclass(frozen=True)
class Results:
    """A whole run."""

    machine: Machine
    rows: tuple[Row, ...]
    unmeasured: tuple[str, ...] = ()
    """Workloads that were asked for, and for which there was no time."""

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> Results:
        """Read what ``save`` wrote."""
        data = json.loads(path.read_text())
        ceiling = Ceiling(**data["machine"].pop("ceiling"))
        machine = Machine(ceiling=ceiling, **data["machine"])
        rows = tuple(read_row(each) for each in data["rows"])
        return Results(machine, rows, tuple(data.get("unmeasured", ())))

    def updated(self, newer: Results) -> Results:
        """These results with the rows of a newer run in place of the old ones."""
        fresh = {row.name: row for row in newer.rows}
        kept = [fresh.pop(row.name, row) for row in self.rows]
        ceiling = self.machine.ceiling.highest(newer.machine.ceiling)
        rows = (*kept, *fresh.values())
        known = {row.name for row in rows}
        wanted = dict.fromkeys((*self.unmeasured, *newer.unmeasured))
        missing = tuple(name for name in wanted if name not in known)
        return Results(replace(newer.machine, ceiling=ceiling), rows, missing)

    def family(self, group: str) -> Results:
        """The rows of one family alone."""
        return replace(self, rows=tuple(row for row in self.rows if row.group == group))

    def families(self) -> list[str]:
        """The families that there are rows of, in order."""
        return list(dict.fromkeys(row.group for row in self.rows))


def read_row(data: dict[str, Any]) -> Row:
    """A row as JSON has it."""
    plain = dict(data)
    outcomes = {name: Outcome(**each) for name, each in plain.pop("outcomes").items()}
    return Row(load=Load(**plain.pop("load")), outcomes=outcomes, **plain)


@dataclass(frozen=True)
class Comparison:
    """One contender beside the best of the others; ratios above 1 mean that it is quicker."""

    row: Row
    ours: Outcome
    rival: str
    ratio: float
    ratio_of_best: float

    def share(self, ceiling: Ceiling) -> float | None:
        """How much of what this machine can do it reaches, by its best turn."""
        row = self.row
        read, written = (row.read, row.written) if row.streams else (0, 0)
        floor = ceiling.floor(read, written, row.flops)
        return floor / self.ours.best if floor and self.ours.best else None

    @property
    def error_beside_eager(self) -> float | None:
        """Its error over eager's."""
        eager = self.row.outcomes.get("eager")
        if eager is None or not eager.error or self.ours.error is None:
            return None
        return self.ours.error / eager.error


def compare(row: Row, name: str, rivals: Sequence[str] = ()) -> Comparison | None:
    """The named contender beside the quickest other one (of ``rivals``), where both have times."""
    ours = row.outcomes.get(name)
    others = [each for each in row.outcomes if each != name and (not rivals or each in rivals)]
    rival = row.quickest(others)
    if ours is None or rival is None or not ours.counts or not ours.median or not ours.best:
        return None
    other = row.outcomes[rival]
    bests = [row.outcomes[each].best for each in others if row.outcomes[each].counts]
    best = min(each for each in bests if each is not None)
    return Comparison(row, ours, rival, (other.median or 0.0) / ours.median, best / ours.best)


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean of ratios."""
    return math.exp(sum(math.log(each) for each in ratios) / len(ratios))
