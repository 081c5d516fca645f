"""Running passes: in order, to a fixed point, watched by instruments, with a report of each step.

A pipeline is a sequence of passes and ``FixedPoint`` groups. The manager runs it on one graph and
returns a ``Report``: a step for every pass that ran, with its time, node counts and counters.
Instruments see every step from outside; the passes know nothing of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from monograph.dataclass import dataclass
from monograph.errors import MonographError, PassError
from monograph.ir.graph import Graph
from monograph.logs import stage_logger
from monograph.passes.base import Pass, PassResult

if TYPE_CHECKING:
    from monograph.passes.instruments import Instrument


_LOG = stage_logger("passes")


@dataclass(frozen=True)
class FixedPoint:
    """Passes that run in turn, again and again, until none of them changes anything."""

    passes: tuple[Pass, ...]
    limit: int = 20


Pipeline: TypeAlias = Sequence[Pass | FixedPoint]


def flat_passes(pipeline: Pipeline) -> list[Pass]:
    """The passes of a pipeline, those of its fixed points too."""
    listed = [each.passes if isinstance(each, FixedPoint) else (each,) for each in pipeline]
    return [each for several in listed for each in several]


@dataclass(frozen=True)
class Step:
    """One run of one pass."""

    name: str
    seconds: float
    nodes_before: int
    nodes_after: int
    changed: bool
    counters: dict[str, int]


@dataclass
class Report:
    """Everything that happened to a graph, in order."""

    steps: list[Step] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The time that the passes took together."""
        return sum(step.seconds for step in self.steps)

    def totals(self) -> dict[str, int]:
        """Counters summed over all steps, as ``pass.counter``."""
        sums: dict[str, int] = {}
        for step in self.steps:
            for counter, count in step.counters.items():
                key = f"{step.name}.{counter}"
                sums[key] = sums.get(key, 0) + count
        return {key: count for key, count in sums.items() if count}


def run_pipeline(
    graph: Graph, pipeline: Pipeline, instruments: Sequence[Instrument] = ()
) -> Report:
    """Run a pipeline on ``graph``, in place."""
    report = Report()
    for instrument in instruments:
        instrument.start(graph)
    for entry in pipeline:
        if isinstance(entry, FixedPoint):
            _run_to_fixed_point(graph, entry, instruments, report)
        else:
            _run_pass(graph, entry, instruments, report)
    return report


def _run_to_fixed_point(
    graph: Graph, group: FixedPoint, instruments: Sequence[Instrument], report: Report
) -> None:
    for _ in range(group.limit):
        if not any([_run_pass(graph, each, instruments, report) for each in group.passes]):
            return
    names = ", ".join(each.name for each in group.passes)
    raise PassError(
        f"no fixed point after {group.limit} rounds",
        expected="passes that come to rest",
        found=f"{names} still change the graph",
        hint="MONOGRAPH_DUMP=dir writes the graph after each step: compare the last rounds",
    )


def _run_pass(graph: Graph, each: Pass, instruments: Sequence[Instrument], report: Report) -> bool:
    before = len(graph)
    start = time.perf_counter()
    try:
        result = each.run(graph)
    except MonographError as error:
        raise error.with_context(during=str(each)) from None
    step = _step(each, result, time.perf_counter() - start, before, len(graph))
    report.steps.append(step)
    _log(step)
    for instrument in instruments:
        instrument.after(each, graph, step.seconds, result.changed)
    return result.changed


def _log(step: Step) -> None:
    took = step.seconds * 1e3
    if not step.changed:
        _LOG.debug("%s: unchanged, %.2f ms", step.name, took)
        return
    _LOG.info("%s: %d → %d nodes, %.2f ms", step.name, step.nodes_before, step.nodes_after, took)
    for counter, count in step.counters.items():
        if count:
            _LOG.debug("  %s: %d", counter, count)


def _step(each: Pass, result: PassResult, seconds: float, before: int, after: int) -> Step:
    return Step(each.name, seconds, before, after, result.changed, dict(result.counters))


def passes_of(pipeline: Pipeline) -> Iterator[Pass]:
    """The passes of a pipeline, those inside fixed points too."""
    for entry in pipeline:
        if isinstance(entry, FixedPoint):
            yield from entry.passes
        else:
            yield entry
