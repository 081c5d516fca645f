"""Staged programs: run a part, read the values that decide, compile what follows from them.

A graph may hang on more than the types of its inputs: on the rank of an argument, on a shape that
is one of them, on how many elements are not zero. A ``Stage`` looks at the arguments of a call as
far as its types leave them open, makes the graph again with what they show (``specialize``), and
has native code for all of it, or cuts it in two (``cut``):

    before (native) ─▶ contents are read, or a node is interpreted ─▶ after: a stage again

Numbers that are read become symbolic sizes of what follows, where that can work with symbols
(``stage_inputs``), so that other numbers need no other code. What needs the numbers themselves is
kept by them: ``MOST_VARIANTS`` kinds of arguments in one stage. What comes after those is
interpreted until it has come often enough to take the place of the least recently used one.
See docs/decisions/21-programs-are-completed-by-the-call.md.
"""

from __future__ import annotations

import itertools
import operator
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import EvaluationError, MonographError, TypeRuleError, UnsupportedError
from monograph.ir.deferred import DeferredOp
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node, Value, copy_node
from monograph.ir.interpret import bind_inputs, interpret
from monograph.ir.types import Array, TensorType, symbols_of
from monograph.ops.data import DimValue
from monograph.ops.sequence import SplitToSequence
from monograph.passes.dce import DeadCodeElimination
from monograph.runtime.bundle import Json
from monograph.runtime.compile_report import CompileReport
from monograph.runtime.compiled import Executable
from monograph.runtime.locks import ForkedLock
from monograph.runtime.sizes import SizesDoNotFit
from monograph.specialize.decision import Decision, only_says_a_size
from monograph.specialize.recent import Recent
from monograph.specialize.specialize_graph import SpecializedGraph, specialize, substitute_sizes
from monograph.specialize.split_graph import Cut, ancestors, cut, is_data, native_inputs, not_native
from monograph.specialize.stage_inputs import (
    LARGEST_CONTENTS,
    Feed,
    SizePattern,
    contents_key,
    likely_arguments,
    may_be_sizes,
    nest_results,
    pattern_of,
    structure_of,
)

MOST_VARIANTS = 32
"""For how many contents (or ranks, or sizes) one stage has code at the same time."""
MOST_STAGES = 64
"""So many decisions may follow one another; a loop that decides at every turn is interpreted."""
MOST_LIKELY = 8
"""How many plans of a program are made before a call asks for them."""
MOST_SHAPES = 1024
"""For how many shapes of its arguments it is remembered which sizes they have."""

Compile = Callable[[Graph], Executable]


class Workshop:
    """What stages of one program share: how to compile, and the report that all of it goes to."""

    def __init__(
        self, compile_: Compile, report: CompileReport, settings: Mapping[str, Json]
    ) -> None:
        self._compile = compile_
        self.report = report
        self.settings = settings
        """How parts are compiled, to be stored: see ``runtime.options.Options.settings``."""
        self.strict = bool(settings["strict"])
        self.lock = ForkedLock()
        self._parts: list[weakref.ref[Executable]] = []
        self.likely = MOST_LIKELY
        """How many more plans may be made before a call asks for them."""

    def compile(self, graph: Graph) -> Executable:
        """Native code for a graph that can have it."""
        made = self._compile(graph)
        self._parts.append(weakref.ref(made))
        report = self.report
        report.variants += 1
        report.kernels += made.report.kernels
        report.fallbacks += made.report.fallbacks
        return made

    def parts(self) -> list[Executable]:
        """The parts that are compiled, in the order in which that was done."""
        found = [each() for each in self._parts]
        return [each for each in found if each is not None]

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


class StagePlan(Protocol):
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
        self._plans: Recent[Hashable, StagePlan] = Recent(MOST_VARIANTS)
        self._only: StagePlan | None = None
        self._refused: dict[str, Interpreted] = {}
        self._types = [value.type for value in graph.inputs]
        self._loose = [k for k, each in enumerate(self._types) if not isinstance(each, TensorType)]
        self._sizes = frozenset(k for k in self.read if may_be_sizes(self._types[k]))
        """The inputs, of those that are read, whose numbers may be sizes."""
        self._checked: set[Hashable] = set()

    @property
    def settings(self) -> Mapping[str, Json]:
        """How its parts are compiled."""
        return self._workshop.settings

    @property
    def parts(self) -> list[Executable]:
        """The programs that it consists of by now, those of other stages of the model included."""
        return self._workshop.parts()

    @property
    def is_settled(self) -> bool:
        """Whether the arguments of all calls are of one kind."""
        return not self._loose and not self.read

    def call(self, inputs: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        """The graph's outputs for inputs that nobody has checked yet."""
        arguments = self._check_arguments(inputs)
        try:
            return self.run(arguments)
        except TypeRuleError as error:  # what was read does not fit: the call's fault
            raise EvaluationError(
                error.message,
                expected=error.expected,
                found=error.found,
                where=error.where,
                source=error.source,
                hint=error.hint,
            ) from error

    def _check_arguments(self, inputs: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any]:
        kinds = None
        if not self._loose and not isinstance(inputs, Mapping):
            kinds = _kinds(inputs)
            if kinds is not None and kinds in self._checked:
                return inputs
        arguments, _ = bind_inputs(self.graph, inputs)
        is_same = kinds is not None and all(map(operator.is_, arguments, inputs))
        if is_same and len(self._checked) < MOST_SHAPES:
            self._checked.add(kinds)
        return arguments

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The graph's outputs for arguments in order."""
        if self._only is not None:
            return self._only.run(arguments)
        key = self._key(arguments)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plan_for(arguments)
        if not self._sizes:
            return plan.run(arguments)
        try:
            return plan.run(arguments)
        except SizesDoNotFit:
            return self._plan_for(arguments, self._exact_key(arguments)).run(arguments)

    def prepare(self) -> None:
        """Make the plans that are needed, or likely to be, before the first call."""
        if self.is_settled:
            self._only = self._plan_for(())
            return
        for arguments in [] if self._loose else self._likely():
            if self._workshop.likely:
                self._workshop.likely -= 1
                self._try(arguments)

    def _likely(self) -> list[list[Any]]:
        """Arguments that stand for those that calls bring: a size, both sides of a condition."""
        choices = [likely_arguments(self._types[k]) for k in self.read]
        chosen: list[list[Any]] = []
        for each in itertools.product(*choices):
            arguments: list[Any] = [None] * len(self._types)
            for k, argument in zip(self.read, each, strict=True):
                arguments[k] = argument
            chosen.append(arguments)
        return chosen

    def _try(self, arguments: Sequence[Any]) -> None:
        """Make a plan for likely arguments, unless it would need their very numbers."""
        with self._workshop.lock:
            key = self._key(arguments)
            try:
                made = self._new_plan(key, arguments, is_likely=True)
            except MonographError:  # a call that needs this plan makes it again, and says why not
                return
            if made is not None:
                self._plans.put(key, made)

    def _exact_key(self, arguments: Sequence[Any]) -> tuple[Hashable, ...]:
        """The key of a plan for these very numbers."""
        structures = [structure_of(self._types[k], arguments[k]) for k in self._loose]
        return (*structures, *(contents_key(arguments[k]) for k in self.read))

    def _key(self, arguments: Sequence[Any]) -> tuple[Hashable, ...]:
        """What decides which plan serves these arguments: structures, then what is read."""
        structures = [structure_of(self._types[k], arguments[k]) for k in self._loose]
        return (*structures, *(self._contents(k, arguments[k]) for k in self.read))

    def _contents(self, number: int, argument: Any) -> Hashable:
        pattern = pattern_of(np.asarray(argument)) if number in self._sizes else None
        return contents_key(argument) if pattern is None else pattern

    def _plan_for(
        self, arguments: Sequence[Any], exact: tuple[Hashable, ...] | None = None
    ) -> StagePlan:
        with self._workshop.lock:
            key = exact or self._key(arguments)
            found = self._plans.get(key)
            if found is not None:
                return found
            if reason := self._refusal(key, arguments):
                return self._interpret(f"@{self.graph.name} has {reason}")
            made = self._new_plan(key, arguments)
            assert made is not None
            self._plans.put(exact or self._key(arguments), made)
            return made

    def _interpret(self, reason: str) -> Interpreted:
        """One plan for all that is refused, however many they are."""
        if reason not in self._refused:
            self._refused[reason] = Interpreted(self.graph, self._workshop, reason)
        return self._refused[reason]

    def _new_plan(
        self, key: Sequence[Hashable], arguments: Sequence[Any], *, is_likely: bool = False
    ) -> StagePlan | None:
        """A plan; None if it needs numbers of arguments that are merely likely."""
        of_input: list[Any] = [None] * len(self._types)
        for k, structure in zip(self._loose, key, strict=False):
            of_input[k] = structure
        sizes = {
            k: each
            for k, each in zip(self.read, key[len(self._loose) :], strict=True)
            if isinstance(each, SizePattern) and each.has_sizes
        }
        tried = frozenset(sizes)
        while True:
            known = {k: np.array(arguments[k]) for k in self.read if k not in sizes}
            settled, needed = self._settle(of_input, known, sizes)
            if not needed:
                break
            if is_likely:
                return None
            sizes = {k: each for k, each in sizes.items() if k not in needed}
        self._sizes -= tried.difference(sizes)
        feed = Feed(self._types, known, sizes)
        return plan_of(settled, feed, self._workshop, self.depth)

    def _settle(
        self,
        structures: Sequence[Any],
        known: Mapping[int, Array],
        sizes: Mapping[int, SizePattern],
    ) -> tuple[SpecializedGraph, set[int]]:
        """The graph with what is known; the inputs whose numbers have to be known themselves."""
        try:
            settled = specialize(self.graph, structures, known, sizes)
        except MonographError:
            if not sizes:
                raise
            return SpecializedGraph(self.graph, (), {}, {}), set(sizes)
        return settled, list_needed_numbers(settled)

    def _refusal(self, key: Hashable, arguments: Sequence[Any]) -> str | None:
        """Why there is to be no code for such arguments."""
        if self.depth >= MOST_STAGES:
            return f"more than {MOST_STAGES} decisions, one after the other"
        if any(np.size(arguments[k]) > LARGEST_CONTENTS for k in self.read):
            return f"contents of more than {LARGEST_CONTENTS} elements that decide it"
        if self._plans.is_full and not self._workshop.strict and not self._plans.comes_often(key):
            return f"more than {self._plans.most} variants"
        return None


def _kinds(inputs: Sequence[Any]) -> Hashable | None:
    """Dtypes and shapes of arrays in row-major order; None if one is something else."""
    if not all(type(each) is np.ndarray and each.flags.c_contiguous for each in inputs):
        return None
    return tuple([(each.dtype, each.shape) for each in inputs])


def list_needed_numbers(settled: SpecializedGraph) -> set[int]:
    """The inputs of the source whose numbers some node needs, though they were read as sizes.

    That is one that still waits, not for data that is computed before it, and mentions the sizes.
    """
    found: set[int] = set()
    for node in not_native(settled.graph) if settled.read else ():
        asked = settled.asked.get(node, ())
        if not asked and not isinstance(node.op, DeferredOp | SplitToSequence):
            continue
        if any(is_data(value) for value in asked):
            continue
        operands = (*asked, *node.operands)
        symbols = {symbol for value in operands for symbol in symbols_of(value.type)}
        for each in ancestors(operands):
            symbols.update(each.op.symbols() if isinstance(each.op, DimValue) else ())
        found.update(settled.read[symbol] for symbol in symbols if symbol in settled.read)
    return found


def plan_of(settled: SpecializedGraph, feed: Feed, workshop: Workshop, depth: int) -> StagePlan:
    """Native code for all of a graph, or a cut where it is not decided yet."""
    DeadCodeElimination().run(settled.graph)  # strings that nobody reads need no interpreter
    others = not_native(settled.graph)
    if not others:
        return Whole(settled, feed, workshop)
    made = cut(settled.graph, others, settled.asked)
    waiting = [n for n in made.between if isinstance(n.op, DeferredOp | SplitToSequence)]
    sizes = {symbol for value in settled.graph.inputs for symbol in symbols_of(value.type)}
    if waiting and sizes:
        operands = (value for node in waiting for value in node.operands)
        needed = {symbol for value in operands for symbol in symbols_of(value.type)}
        return Sized(settled, feed, needed & sizes or sizes, workshop, depth)
    return Divided(settled, made, others, feed, workshop, depth)


class Outputs:
    """Nests results as a source's outputs were nested."""

    def __init__(self, settled: SpecializedGraph) -> None:
        self._trees = settled.outputs
        self._is_flat = self._trees == tuple(range(len(settled.graph.outputs)))

    def __call__(self, results: list[Any]) -> list[Any]:
        """The source's outputs."""
        return results if self._is_flat else [nest_results(tree, results) for tree in self._trees]


class Whole:
    """All of the graph is native; what it only hands through need not be a tensor."""

    def __init__(self, settled: SpecializedGraph, feed: Feed, workshop: Workshop) -> None:
        graph = settled.graph
        kept = native_inputs(graph)
        self._feed = feed
        self._outputs = Outputs(settled)
        self._inputs = [value.index for value in kept]
        native = [v for v in graph.outputs if v.producer is not None or v in kept]
        handed = [None if v in native else v.index for v in graph.outputs]
        self._handed = None if handed == [None] * len(handed) else handed
        self._executable = workshop.compile(_narrow(graph, kept, native)) if native else None

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        leaves = self._feed(arguments)
        computed: list[Any] = []
        if self._executable is not None:
            computed = self._executable.run([leaves[k] for k in self._inputs])
        if self._handed is not None:
            found = iter(computed)
            computed = [next(found) if k is None else leaves[k] for k in self._handed]
        return self._outputs(computed)


def _narrow(graph: Graph, inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
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
        settled: SpecializedGraph,
        made: Cut,
        others: Mapping[Node, str],
        feed: Feed,
        workshop: Workshop,
        depth: int,
    ) -> None:
        self._feed = feed
        self._outputs = Outputs(settled)
        self._inputs = [value.index for value in native_inputs(made.graph)]
        evaluated = (node for node in made.between if node not in made.bounded)
        computing = [node for node in evaluated if not only_says_a_size(node)]
        if computing:
            workshop.interpreted(computing, others[computing[0]])
        self._decision = Decision(made)
        self._before = workshop.compile(made.before) if made.before.outputs else None
        self._after = Stage(made.after, workshop, made.read, depth + 1)
        self._after.prepare()

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        leaves = self._feed(arguments)
        computed: list[Any] = []
        if self._before is not None:
            computed = self._before.run([leaves[k] for k in self._inputs])
        handed = self._decision(leaves, computed)
        return self._outputs(self._after.run([*leaves, *handed]))


class Sized:
    """Only sizes that are known let the graph be decided: a stage for each.

    Sizes that no node waits for stay symbols.
    """

    def __init__(
        self,
        settled: SpecializedGraph,
        feed: Feed,
        needed: set[Symbol],
        workshop: Workshop,
        depth: int,
    ) -> None:
        self._graph = settled.graph
        self._outputs = Outputs(settled)
        self._needed = sorted(needed, key=lambda symbol: symbol.name)
        self._depth = depth
        self._feed = feed
        self._workshop = workshop
        self._stages: Recent[tuple[int, ...], Stage] = Recent(MOST_VARIANTS)
        self._sizes: dict[Hashable, tuple[int, ...]] = {}
        self._refused: Interpreted | None = None

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        leaves = self._feed(arguments)
        sizes = self._sizes_of(leaves)
        stage = self._stages.get(sizes) or self._stage_for(sizes)
        return self._outputs(stage.run(leaves))

    def _sizes_of(self, leaves: Sequence[Any]) -> tuple[int, ...]:
        shapes = tuple([np.shape(leaf) for leaf in leaves])
        found = self._sizes.get(shapes)
        if found is None:
            _, bindings = bind_inputs(self._graph, leaves)
            found = tuple(bindings[symbol] for symbol in self._needed)
            if len(self._sizes) >= MOST_SHAPES:
                self._sizes.clear()
            self._sizes[shapes] = found
        return found

    def _stage_for(self, sizes: tuple[int, ...]) -> Stage | Interpreted:
        workshop = self._workshop
        with workshop.lock:
            found = self._stages.get(sizes)
            if found is not None:
                return found
            may_wait = self._stages.is_full and not workshop.strict
            if may_wait and not self._stages.comes_often(sizes):
                return self._interpret()
            bindings = dict(zip(self._needed, sizes, strict=True))
            made = Stage(substitute_sizes(self._graph, bindings), workshop, (), self._depth + 1)
            self._stages.put(sizes, made)
            return made

    def _interpret(self) -> Interpreted:
        if self._refused is None:
            reason = f"more than {self._stages.most} sizes of @{self._graph.name}"
            self._refused = Interpreted(self._graph, self._workshop, reason)
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
