"""The graph after every pass, stored as deltas, for the report's slider.

``History`` is an instrument. Each node of each stage becomes a *record*, a short list of numbers
that refer to tables of strings; a node that a pass left alone keeps its record, so that a stage is
the runs of records that it shares with the stage before, and the few that are new:

    records   0: %x = relu(%a)   1: %y = add(%x, %zero)   2: %z = exp(%y)   3: %z = exp(%x)
    stage 0   [0, 1, 2]
    stage 1   [[0, 1], 3]        # record 0 as it was, then a new one: the addition is gone

A node is known by the names of its results, and a value by its own: a pass that puts a node in
another's place, under its name, has changed it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.inspect.jsonable import jsonable
from monograph.inspect.pass_steps import Figures, figures_of
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.location import Location
from monograph.ir.text.attributes import spell_attributes
from monograph.ir.text.constants import spell_contents
from monograph.ir.text.printer import print_graph
from monograph.passes.base import Pass
from monograph.passes.instruments import Instrument
from monograph.progress import announce
from monograph.report.families import family_of
from monograph.runtime.bundle import Json
from monograph.targets.base import Target

Delta: TypeAlias = "list[int | list[int]]"

MAX_REGION_CHARACTERS = 20_000
"""How much is shown of the bodies of a loop or branch."""
NONE = -1
"""Stands for a string or location that a record does not have."""


class Table:
    """Strings, each once, by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of a string, which is new if nobody has used it before."""
        return self.numbers.setdefault(text, len(self.numbers))

    def strings(self) -> list[Json]:
        """All of them, in order of their numbers."""
        return list(self.numbers)


@dataclass
class PassGraph:
    """A graph as one pass left it."""

    name: str
    phase: str
    """``given``, ``passes`` or ``lowering``."""
    seconds: float | None
    records: list[int]
    inputs: list[int]
    outputs: list[int]
    counters: Mapping[str, int] = field(default_factory=dict)
    idle: list[str] = field(default_factory=list)
    """Passes that ran after this one and changed nothing."""
    graph: Graph | None = None
    """A copy, until it is counted."""
    figures: Figures | None = None
    """What the graph would be as a program (``inspect.pass_steps``), if that was looked at."""


@dataclass
class Run:
    """The stages of one graph, from how it was given to how it is lowered."""

    graph: Graph
    stages: list[PassGraph] = field(default_factory=list)
    pipelines: int = 0
    """How many pipelines have begun on it: the passes of the level, then those after lowering."""


@dataclass
class _Seen:
    """A node as it was when it was last recorded."""

    node: Node
    """Held, so that no other node gets its id."""
    state: tuple[object, ...]
    record: int


class History(Instrument):
    """Records every graph that is compiled while it watches (``instruments.watching``)."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.ops = Table()
        self.families: list[str] = []
        self.types = Table()
        self.names = Table()
        self.texts = Table()
        self.files = Table()
        self.records: list[list[Json]] = []
        self.locations: dict[Location, int] = {}
        self._seen: dict[int, _Seen] = {}
        self._numbers: dict[tuple[str, ...], int] = {}
        self._contents: dict[str, int] = {}
        """The number of each record, by what it holds."""

    # What the pipelines tell -------------------------------------------------------------------

    def start(self, graph: Graph) -> None:
        """A pipeline begins: what changed since the last one, lowering did."""
        run = self.run_of(graph)
        if run is None:
            run = Run(graph)
            self.runs.append(run)
            self._snapshot(run, "as given", "given", None)
        else:
            self._snapshot(run, "lower", "lowering", None)
        run.pipelines += 1

    def after(self, each: Pass, graph: Graph, seconds: float, changed: bool) -> None:
        """A pass has run."""
        run = self.run_of(graph)
        if run is not None:
            phase = "passes" if run.pipelines == 1 else "lowering"
            self._snapshot(run, str(each), phase, seconds)

    def finish(self, graph: Graph, given: Graph | None = None) -> Run:
        """The run of a lowered graph, with what happened to it after the last pipeline.

        Of a graph whose passes nobody watched it is two stages: ``given``, and the graph itself.
        """
        run = self.run_of(graph)
        if run is not None:
            self._snapshot(run, "lower", "lowering", None)
            return run
        run = Run(graph)
        self.runs.append(run)
        if given is not None and given is not graph:
            self._snapshot(run, "as given", "given", None, given)
        self._snapshot(run, "compiled", "lowering" if run.stages else "given", None)
        return run

    def run_of(self, graph: Graph) -> Run | None:
        """What was recorded of a graph."""
        return next((run for run in self.runs if run.graph is graph), None)

    # Records -----------------------------------------------------------------------------------

    def node_number(self, node: Node) -> int:
        """The number that stands for a node in all its records."""
        names = tuple(value.name for value in node.results)
        key = names or (f"#{id(node)}",)  # one without results is known by itself
        return self._numbers.setdefault(key, len(self._numbers))

    def value_number(self, value: Value) -> int:
        """The number that stands for a value: that of its name."""
        return self.names.number(value.name)

    def _snapshot(
        self, run: Run, name: str, phase: str, seconds: float | None, graph: Graph | None = None
    ) -> None:
        graph = graph or run.graph
        stage = PassGraph(
            name,
            phase,
            seconds,
            [self._record(node) for node in graph.nodes],
            [part for value in graph.inputs for part in self._type_of(value)],
            [self.value_number(value) for value in graph.outputs],
        )
        last = run.stages[-1] if run.stages else None
        if last is None or (stage.records, stage.outputs) != (last.records, last.outputs):
            stage.graph = graph.clone()
            run.stages.append(stage)
        elif seconds is not None:
            last.idle.append(name)

    def _type_of(self, value: Value) -> tuple[int, int]:
        return self.value_number(value), self.types.number(str(value.type))

    def _record(self, node: Node) -> int:
        seen = self._seen.get(id(node))
        types = tuple((value.name, value.type) for value in node.results)
        # A region may change without its node: it is looked at again each time.
        state = (node.op, node.operands, types, node.location)
        if seen is not None and seen.state == state and not node.regions:
            return seen.record
        record: list[Json] = [
            self.node_number(node),
            self._op(node),
            [part for value in node.results for part in self._type_of(value)],
            [self.value_number(value) for value in node.operands],
            self._text(_attributes(node)),
            self._location(node.location),
            self._text(_regions(node)),
        ]
        content = json.dumps(record)
        number = self._contents.setdefault(content, len(self.records))
        if number == len(self.records):
            self.records.append(record)
        self._seen[id(node)] = _Seen(node, state, number)
        return number

    def _op(self, node: Node) -> int:
        known = len(self.ops.numbers)
        number = self.ops.number(node.op.name)
        if number == known:
            self.families.append(family_of(node.op))
        return number

    def _text(self, text: str) -> int:
        return self.texts.number(text) if text else NONE

    def _location(self, location: Location | None) -> int:
        if location is None:
            return NONE
        return self.locations.setdefault(location, len(self.locations))

    # JSON --------------------------------------------------------------------------------------

    def tables(self) -> dict[str, Json]:
        """The tables that records refer to."""
        places: list[Json] = [
            [self.files.number(each.file), each.line, each.function, each.scope]
            for each in self.locations
        ]
        return {
            "ops": self.ops.strings(),
            "families": list(self.families),
            "types": self.types.strings(),
            "names": self.names.strings(),
            "texts": self.texts.strings(),
            "locations": places,
            "records": list(self.records),
        }


def count_stages(run: Run, target: Target, sizes: Mapping[str, int]) -> None:
    """Count the kernels, bytes and memory of each stage, and let its graph go."""
    for number, stage in enumerate(run.stages):
        announce("what passes bought", number, len(run.stages))
        if stage.graph is not None:
            stage.figures = figures_of(stage.graph, target, sizes)
            stage.graph = None


def stages_of(run: Run) -> list[Json]:
    """The stages as JSON, each as its difference from the one before."""
    found: list[Json] = []
    before: list[int] = []
    for stage in run.stages:
        delta: list[Json] = [
            each if isinstance(each, int) else [*each] for each in delta_of(before, stage.records)
        ]
        found.append(
            {
                "name": stage.name,
                "phase": stage.phase,
                "ms": None if stage.seconds is None else round(stage.seconds * 1e3, 3),
                "counters": {key: count for key, count in stage.counters.items() if count},
                "idle": list(stage.idle),
                "figures": None if stage.figures is None else jsonable(stage.figures),
                "inputs": list(stage.inputs),
                "outputs": list(stage.outputs),
                "delta": delta,
            }
        )
        before = stage.records
    return found


def delta_of(before: Iterable[int], after: Iterable[int]) -> Delta:
    """``after`` as runs ``[start, count]`` of ``before``, and single numbers that are new."""
    place = {record: position for position, record in enumerate(before)}
    delta: Delta = []
    for record in after:
        position = place.get(record)
        if position is None:
            delta.append(record)
            continue
        last = delta[-1] if delta else None
        if isinstance(last, list) and last[0] + last[1] == position:
            last[1] += 1
        else:
            delta.append([position, 1])
    return delta


def apply_delta(before: list[int], delta: Delta) -> list[int]:
    """What ``delta_of`` described: the page does the same."""
    after: list[int] = []
    for each in delta:
        after += [each] if isinstance(each, int) else before[each[0] : each[0] + each[1]]
    return after


def _attributes(node: Node) -> str:
    """What stands in a node's braces; of a weight its label, of a constant its contents."""
    op = node.op
    if op.name == "constant":
        return spell_contents(op.attributes()["data"], elide=True)
    if op.name == "weight":
        return str(op.attributes()["label"])
    return ", ".join(spell_attributes(op))


def _regions(node: Node) -> str:
    """The bodies of control flow, as text."""
    text = "\n\n".join(print_graph(region) for region in node.regions)
    if len(text) <= MAX_REGION_CHARACTERS:
        return text
    return f"{text[:MAX_REGION_CHARACTERS]}\n… ({len(text):,} characters in all)"
