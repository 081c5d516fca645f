"""Programs that only a run can complete: read what decides, compile what follows from it.

A graph may hang on more than the types of its inputs: on the rank of an argument, on a shape that
is one of them, on how many elements are not zero. A ``Stage`` looks at the arguments of a call as
far as its types leave them open, makes the graph again with what they show (``settle``), and has
native code for all of it, or cuts it in two (``cut``):

    before (native) ─▶ contents are read, or a node is interpreted ─▶ after: a stage again

What follows from contents is kept by contents, so that a call like an earlier one compiles nothing.
Past ``MOST_VARIANTS`` of them in one stage, further ones are interpreted, and the report says so.
See docs/decisions/21-programs-are-completed-by-the-call.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import UnsupportedError
from monograph.ir.graph import Graph, Node, Value, copy_node
from monograph.ir.interpret import bind_inputs, evaluate_node, interpret
from monograph.ir.settling import SettlingOp
from monograph.ir.types import Array, TensorType, symbols_of
from monograph.ops.data import Constant, Weight
from monograph.ops.sequence import SplitToSequence
from monograph.passes.dce import DeadCodeElimination
from monograph.runtime.bounded import taken
from monograph.runtime.bundle import Json
from monograph.runtime.compiled import CompileReport, Executable
from monograph.runtime.cut import Cut, cut, held, not_native
from monograph.runtime.locks import ForkedLock
from monograph.runtime.settle import (
    Settled,
    leaves_of,
    nested,
    settle,
    structure_of,
    substituted,
)

MOST_VARIANTS = 32
"""For how many contents (or ranks, or sizes) one stage has code at the same time."""
MOST_STAGES = 64
"""So many decisions may follow one another; a loop that decides at every turn is interpreted."""
LARGEST_CONTENTS = 4096
"""Elements that contents may have to be compiled for; more are data, not a decision."""

Compile = Callable[[Graph], Executable]


class Workshop:
    """What stages of one program share: how to compile, and the report that all of it goes to."""

    def __init__(
        self, compile_: Compile, report: CompileReport, settings: Mapping[str, Json]
    ) -> None:
        self._compile = compile_
        self.report = report
        self.settings = settings
        """How parts are compiled, to be stored: see ``runtime.compile.Options.settings``."""
        self.strict = settings["strict"]
        self.lock = ForkedLock()

    def compile(self, graph: Graph) -> Executable:
        """Native code for a graph that can have it."""
        made = self._compile(graph)
        report = self.report
        report.variants += 1
        report.kernels += made.report.kernels
        report.fallbacks += made.report.fallbacks
        return made

    def interpreted(self, nodes: Sequence[Node], reason: str) -> None:
        """Note what runs in the interpreter; an error if it must not."""
        named = tuple(repr(node) for node in nodes)
        if named and self.strict:
            raise UnsupportedError(
                f"some of this model has no native code yet: {reason}",
                hint="strict=False runs these nodes in the interpreter",
            )
        self.report.fallbacks += tuple(each for each in named if each not in self.report.fallbacks)
        if named:
            self.report.reasons += (reason,) if reason not in self.report.reasons else ()


class Plan(Protocol):
    """What a stage does once it has seen what its arguments are like."""

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The graph's outputs."""


class Stage:
    """A graph, with a plan for each kind of arguments that has come."""

    def __init__(
        self, graph: Graph, workshop: Workshop, read: Sequence[int] = (), depth: int = 0
    ) -> None:
        self.graph = graph
        self.depth = depth
        """How many stages come before it."""
        self.read = tuple(read)
        """The inputs whose contents are part of the kind."""
        self._workshop = workshop
        self._plans: dict[Hashable, Plan] = {}
        self._refused: dict[str, Interpreted] = {}
        self._types = [value.type for value in graph.inputs]
        self._loose = [k for k, each in enumerate(self._types) if not isinstance(each, TensorType)]

    @property
    def settings(self) -> Mapping[str, Json]:
        """How its parts are compiled."""
        return self._workshop.settings

    @property
    def is_settled(self) -> bool:
        """Whether the arguments of all calls are of one kind."""
        return not self._loose and not self.read

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The graph's outputs for arguments in order."""
        structures = [structure_of(self._types[k], arguments[k]) for k in self._loose]
        contents = [_contents(arguments[k]) for k in self.read]
        key = (*structures, *contents)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plan_for(key, structures, arguments)
        return plan.run(arguments)

    def prepare(self) -> Plan:
        """The plan of a stage that is settled, before its first call."""
        return self._plan_for((), (), ())

    def _plan_for(self, key: Hashable, structures: Sequence[Any], arguments: Sequence[Any]) -> Plan:
        with self._workshop.lock:
            found = self._plans.get(key)
            if found is not None:
                return found
            if reason := self._refusal(arguments):
                return self._interpreted(f"@{self.graph.name} has {reason}")
            made = self._plans[key] = self._new_plan(structures, arguments)
            return made

    def _interpreted(self, reason: str) -> Interpreted:
        """One plan for all that is refused, however many they are."""
        if reason not in self._refused:
            self._refused[reason] = Interpreted(self.graph, self._workshop, reason)
        return self._refused[reason]

    def _new_plan(self, structures: Sequence[Any], arguments: Sequence[Any]) -> Plan:
        known = {k: np.array(arguments[k]) for k in self.read}
        of_input: list[Any] = [None] * len(self._types)
        for k, structure in zip(self._loose, structures, strict=True):
            of_input[k] = structure
        settled = settle(self.graph, of_input, known)
        return plan_of(settled, known, self._workshop, self.depth)

    def _refusal(self, arguments: Sequence[Any]) -> str | None:
        """Why there is to be no code for such arguments."""
        if len(self._plans) >= MOST_VARIANTS:
            return f"more than {MOST_VARIANTS} variants"
        if self.depth >= MOST_STAGES:
            return f"more than {MOST_STAGES} decisions, one after the other"
        if any(np.size(arguments[k]) > LARGEST_CONTENTS for k in self.read):
            return f"contents of more than {LARGEST_CONTENTS} elements that decide it"
        return None


def _contents(array: Array) -> Hashable:
    if np.size(array) > LARGEST_CONTENTS:
        return ("large", np.shape(array))
    given = np.asarray(array)
    if given.dtype.kind == "O":
        return (given.shape, tuple(given.reshape(-1).tolist()))
    return (given.shape, given.tobytes())


def plan_of(settled: Settled, known: Mapping[int, Array], workshop: Workshop, depth: int) -> Plan:
    """Native code for all of a graph, or a cut where it is not decided yet."""
    DeadCodeElimination().run(settled.graph)  # strings that nobody reads need no interpreter
    others = not_native(settled.graph)
    if not others:
        return Whole(settled, known, workshop)
    made = cut(settled.graph, others, settled.asked)
    waits = any(isinstance(node.op, SettlingOp | SplitToSequence) for node in made.between)
    if waits and any(True for value in settled.graph.inputs for _ in symbols_of(value.type)):
        return Sized(settled, known, workshop, depth)
    return Divided(settled, made, others, known, workshop, depth)


def _leaves(arguments: Sequence[Any], known: Mapping[int, Array]) -> list[Any]:
    """The settled graph's inputs: what is known has become part of it."""
    given = (item for k, item in enumerate(arguments) if k not in known)
    return [leaf for item in given for leaf in leaves_of(item)]


class Whole:
    """All of the graph is native; what it only hands through need not be a tensor."""

    def __init__(self, settled: Settled, known: Mapping[int, Array], workshop: Workshop) -> None:
        graph = settled.graph
        kept = held(graph)
        self._known = known
        self._trees = settled.outputs
        self._inputs = [value.index for value in kept]
        native = [v for v in graph.outputs if v.producer is not None or v in kept]
        self._handed = [None if v in native else v.index for v in graph.outputs]
        self._executable = workshop.compile(_narrowed(graph, kept, native)) if native else None

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        leaves = _leaves(arguments, self._known)
        computed: list[Any] = []
        if self._executable is not None:
            computed = self._executable.run([leaves[k] for k in self._inputs])
        found = iter(computed)
        results = [next(found) if k is None else leaves[k] for k in self._handed]
        return [nested(tree, results) for tree in self._trees]


def _narrowed(graph: Graph, inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
    if len(inputs) == len(graph.inputs) and len(outputs) == len(graph.outputs):
        return graph
    narrow = Graph(graph.name)
    mapping = {value: narrow.add_input(value.name, value.type) for value in inputs}
    for node in graph.nodes:
        copy_node(node, narrow, mapping)
    narrow.set_outputs([mapping[value] for value in outputs])
    return narrow


class Divided:
    """What comes before the decision, the decision, and a stage for what comes after it."""

    def __init__(
        self,
        settled: Settled,
        made: Cut,
        others: Mapping[Node, str],
        known: Mapping[int, Array],
        workshop: Workshop,
        depth: int,
    ) -> None:
        self._known = known
        self._trees = settled.outputs
        self._cut = made
        self._inputs = [value.index for value in held(made.graph)]
        self._evaluated = [node for node in made.between if node not in made.bounded]
        computing = [node for node in self._evaluated if not _only_says_a_size(node)]
        if computing:
            workshop.interpreted(computing, others[computing[0]])
        self._before = workshop.compile(made.before) if made.before.outputs else None
        self._after = Stage(made.after, workshop, made.read, depth + 1)
        if self._after.is_settled:
            self._after.prepare()

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        leaves = _leaves(arguments, self._known)
        found = dict(zip(self._cut.graph.inputs, leaves, strict=True))
        computed: list[Any] = []
        if self._before is not None:
            computed = self._before.run([leaves[k] for k in self._inputs])
        found.update(zip(self._cut.computed, computed, strict=False))
        self._decide(found, leaves, computed)
        handed = [found[value] for value in self._cut.handed]
        results = self._after.run([*leaves, *handed])
        return [nested(tree, results) for tree in self._trees]

    def _decide(
        self, found: dict[Value, Any], leaves: Sequence[Any], computed: Sequence[Any]
    ) -> None:
        """Find the results of the nodes between, in their order."""
        bindings = bind_inputs(self._cut.graph, leaves)[1] if self._evaluated else {}
        for node in self._cut.between:
            first = self._cut.bounded.get(node)
            if first is not None:
                last = first + len(node.results)
                results: Sequence[Any] = taken(node, computed[first:last], int(computed[last]))
            else:
                with np.errstate(all="ignore"):
                    operands = [_array(value, found) for value in node.operands]
                    results = evaluate_node(node, operands, bindings)
            found.update(zip(node.results, results, strict=True))


def _array(value: Value, found: Mapping[Value, Any]) -> Any:
    op = value.op
    return op.data.array() if isinstance(op, Constant | Weight) else found[value]


def _only_says_a_size(node: Node) -> bool:
    """Whether the results have no elements: all that they tell is a size that was read."""
    return all(isinstance(v.type, TensorType) and 0 in v.type.shape for v in node.results)


class Sized:
    """Only sizes that are known let the graph be decided: a stage for each."""

    def __init__(
        self, settled: Settled, known: Mapping[int, Array], workshop: Workshop, depth: int
    ) -> None:
        self._settled = settled
        self._depth = depth
        self._known = known
        self._workshop = workshop
        self._stages: dict[Hashable, Stage] = {}
        self._refused: Interpreted | None = None

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        leaves = _leaves(arguments, self._known)
        key = tuple(np.shape(leaf) for leaf in leaves)
        stage = self._stages.get(key) or self._stage_for(key, leaves)
        results = stage.run(leaves)
        return [nested(tree, results) for tree in self._settled.outputs]

    def _stage_for(self, key: Hashable, leaves: Sequence[Any]) -> Stage | Interpreted:
        graph = self._settled.graph
        with self._workshop.lock:
            found = self._stages.get(key)
            if found is not None:
                return found
            if len(self._stages) < MOST_VARIANTS:
                _, bindings = bind_inputs(graph, leaves)
                made = Stage(substituted(graph, bindings), self._workshop, (), self._depth + 1)
                self._stages[key] = made
                return made
            if self._refused is None:
                reason = f"more than {MOST_VARIANTS} sizes of @{graph.name}"
                self._refused = Interpreted(graph, self._workshop, reason)
            return self._refused


@dataclass
class Interpreted:
    """All of the graph runs in the interpreter."""

    graph: Graph
    workshop: Workshop
    reason: str

    def __post_init__(self) -> None:
        self.workshop.interpreted(list(self.graph.nodes), self.reason)

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The graph's outputs."""
        return interpret(self.graph, list(arguments))
