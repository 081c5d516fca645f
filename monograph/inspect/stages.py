"""The graph at every step of its compilation, as the passes left it.

``record_stages`` compiles for real and takes a copy of the graph whenever a pass has changed it, so
that what tools look at is what the compiler did. A compilation that fails keeps what it had come
to, and the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from monograph.dataclass import dataclass
from monograph.ir.compare import structurally_equal
from monograph.ir.graph import Graph, Node, Value
from monograph.passes.base import Pass
from monograph.passes.instruments import Instrument, watching
from monograph.rewrite.driver import watch_rewrites
from monograph.rewrite.rule import Rule

START = "as given"
LOWERING = "lowering"
"""Stands for what happens to a graph between two pipelines."""


@dataclass(frozen=True)
class StageGraph:
    """A graph after a step: what made it, and how long that took."""

    name: str
    seconds: float
    graph: Graph
    made_by: Pass | None = None
    changes_specials: bool = False
    """Whether a rule was applied that answers otherwise at NaN and infinities, as it says."""


@dataclass(frozen=True)
class Compilation:
    """What became of a graph: its stages, what was made of it, or the error that ended it."""

    stages: tuple[StageGraph, ...]
    runs: int
    """How many passes ran, those that changed nothing included."""
    made: Any
    error: Exception | None

    @property
    def changing_specials(self) -> list[Graph]:
        """The graph after each pass that answers otherwise at NaN and infinities."""
        return [stage.graph for stage in self.stages if stage.changes_specials]


class Recorder(Instrument):
    """Takes a copy of the graph after every pass that changed it."""

    def __init__(self) -> None:
        self.stages: list[StageGraph] = []
        self.runs = 0
        self._graph: Graph | None = None
        self._changes_specials = False

    def see(self, rule: Rule, node: Node, values: tuple[Value, ...]) -> bool:
        """Note what a rule says that it changes."""
        self._changes_specials |= rule.changes_specials
        return True

    def start(self, graph: Graph) -> None:
        """Take a copy of what a pipeline begins with; graphs that are parts of it do not count."""
        if self._graph is None:
            self._graph = graph
            self.stages.append(StageGraph(START, 0.0, graph.clone()))
        elif graph is self._graph and not structurally_equal(graph, self.stages[-1].graph):
            self.stages.append(StageGraph(LOWERING, 0.0, graph.clone()))

    def after(self, each: Pass, graph: Graph, seconds: float, changed: bool) -> None:
        """Take a copy of what a pass made."""
        if graph is not self._graph:
            return
        self.runs += 1
        if changed:
            copy = graph.clone()
            self.stages.append(StageGraph(str(each), seconds, copy, each, self._changes_specials))
        self._changes_specials = False


def record_stages(compile_it: Callable[[], Any]) -> Compilation:
    """Run something that compiles a graph, and keep the graph at every step.

    Whatever it raises is kept, too: for the caller, a compilation that fails is a finding.
    """
    recorder = Recorder()
    made, error = None, None
    with watching(recorder), watch_rewrites(recorder.see):
        try:
            made = compile_it()
        except Exception as problem:
            error = problem
    return Compilation(tuple(recorder.stages), recorder.runs, made, error)


@contextmanager
def specials_changed() -> Iterator[list[bool]]:
    """Not empty once a rule was applied that answers otherwise at NaN and infinities."""
    found: list[bool] = []

    def see(rule: Rule, node: Node, values: tuple[Value, ...]) -> bool:
        if rule.changes_specials:
            found.append(True)
        return True

    with watch_rewrites(see):
        yield found
