"""Ablation: what each part of the compiler buys for a model, switched off in turn and alone.

A part is a pass, a group of rewrite rules, a pass of the target's lowering, or an optimisation with
a switch (``monograph.switches``: families of kernels, kinds of fusion, the reuse of memory). The
program without it, and the whole one, take turns; a ratio whose interval of 95 % holds 1 is called
no effect. *Alone* is the part added to a program from which all parts are missing.

What does nothing to a model is not measured: a pass that changed nothing, rules that never applied,
a switch without which the code is the same.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import pkgutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import cache

import numpy as np

from monograph.compiler import Options, compile_graph
from monograph.dataclass import dataclass
from monograph.errors import MonographError
from monograph.inspect.ablate_text import ablation_text
from monograph.inspect.compare import RatioSpread, largest_error, ratio
from monograph.inspect.explain import explain_executable
from monograph.inspect.jsonable import jsonable
from monograph.inspect.measure import alternate
from monograph.inspect.pass_steps import REQUIRED
from monograph.inspect.precise import double_precision
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import Array
from monograph.passes.base import Pass
from monograph.passes.manager import FixedPoint, Pipeline, flat_passes
from monograph.progress import announce
from monograph.rewrite import rules as rule_modules
from monograph.rewrite.driver import watch_rewrites
from monograph.rewrite.rule import Rule
from monograph.runtime.compiled import Executable
from monograph.switches import SWITCHES, switch_off
from monograph.targets.cpu.build import CpuAssembled, Program
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.target import CpuTarget

TIMING_ROUNDS = 9
BUDGET_SECONDS = 120.0
"""Seconds for all of it, unless it is said."""
SLOW_SHARE = 0.05
"""A single call may take this part of the budget; what takes longer is not measured."""
MARGIN = 1.3
"""Parts that were not reached may take longer than those that were."""
TURNS_OF_WHOLE = 3
"""For the time of a call that the page begins with."""
FUSION = "fusion"
ARENA_REUSE = "arena_reuse"
NEEDED_LOWERING = (*REQUIRED, "split_complex_products")


class PartKind(StrEnum):
    """What a part is."""

    PASS = "pass"
    RULES = "rules"
    LOWERING = "lowering"
    SWITCH = "switch"


@dataclass(frozen=True)
class Part:
    """A part of the compiler that can be left out."""

    kind: PartKind
    name: str


class State(StrEnum):
    """What became of the question what a part buys."""

    MEASURED = "measured"
    IDLE = "nothing to do in this model"
    SAME = "the same code without it"
    FAILED = "does not compile"
    SKIPPED = "not measured: out of budget"


@dataclass(frozen=True)
class Costs:
    """What a program costs beside time."""

    kernels: int
    bytes_moved: int
    peak: int
    compile_seconds: float
    error: float | None


@dataclass(frozen=True)
class Effect:
    """What a part buys. ``speedup`` is how many times as fast it makes the program."""

    part: Part
    state: State
    speedup: RatioSpread | None = None
    costs: Costs | None = None
    """Of the program without it; or with it alone."""
    reason: str = ""

    @property
    def median(self) -> float:
        """The median of the speedup; 1 where there is none."""
        return 1.0 if self.speedup is None else self.speedup.median

    @property
    def counts(self) -> bool:
        """Whether it has an effect on the time that is no noise."""
        return self.speedup is not None and not self.speedup.is_noise


@dataclass(frozen=True)
class Ablation:
    """What all parts buy: each left out of the whole, and each added to nothing."""

    model: str
    seconds: float
    """A call of the whole program, the median of all its turns."""
    costs: Costs
    whole: RatioSpread | None
    """How many times as fast the whole is as nothing."""
    nothing: Costs | None
    without: tuple[Effect, ...]
    alone: tuple[Effect, ...]
    remark: str = ""
    """Why there is no ``alone``."""
    needed: float | None = None
    """Seconds that would be enough for all of it, about; None if they were."""

    def explained(self, effects: Sequence[Effect]) -> float | None:
        """The part of the whole that single parts explain, as logarithms of ratios add up."""
        if self.whole is None or self.whole.is_noise or not effects:
            return None
        gained = sum(math.log(each.median) for each in effects if each.counts)
        return gained / math.log(self.whole.median)

    def as_json(self) -> dict[str, object]:
        """The same as plain dictionaries and lists."""
        found: dict[str, object] = jsonable(self)
        shares = {
            "explained_without": self.explained(self.without),
            "explained_alone": self.explained(self.alone),
        }
        return found | shares

    def __str__(self) -> str:
        return ablation_text(self)


# Parts --------------------------------------------------------------------------------------------


@cache
def rule_groups() -> dict[str, frozenset[int]]:
    """The rules of each module, by their ids."""
    found = {}
    for module in pkgutil.iter_modules(rule_modules.__path__):
        loaded = importlib.import_module(f"{rule_modules.__name__}.{module.name}")
        rules: Sequence[Rule] = getattr(loaded, "RULES", ())
        if rules:
            found[module.name] = frozenset(map(id, rules))
    return found


def parts_of(options: Options) -> tuple[Part, ...]:
    """All that can be left out when compiling so, what usually matters most first."""
    passes = [each.name for each in flat_passes(options.pipeline)]
    lowering = [each.name for each in flat_passes(options.resolved_target.lowering())]
    optional = [name for name in lowering if name not in (*NEEDED_LOWERING, *passes)]
    return (
        *(Part(PartKind.SWITCH, name) for name in (FUSION, *SWITCHES)),
        *(Part(PartKind.PASS, name) for name in dict.fromkeys(passes)),
        *(Part(PartKind.LOWERING, name) for name in dict.fromkeys(optional)),
        *(Part(PartKind.RULES, name) for name in rule_groups()),
    )


class _SameCode(Exception):
    """What was assembled is what is known already: nothing is emitted."""


class _Without(CpuTarget):
    """This processor, with some passes of its lowering left out.

    It knows what it assembled by a digest, and does not emit once more what ``known`` stands for.
    """

    def __init__(
        self, name: str, machine: Machine, out: frozenset[str], known: str | None = None
    ) -> None:
        super().__init__(name, machine)
        self._out = out
        self._known = known
        self.digest = ""

    def lowering(self, *, fusion: bool = True) -> Pipeline:
        """The passes but those."""
        return without_passes(super().lowering(fusion=fusion), self._out)

    def emit(self, assembled: CpuAssembled) -> Program:
        """The program, unless its steps, memory and loops are known."""
        self.digest = hashlib.sha256(assembled.listing().encode()).hexdigest()
        if self.digest == self._known:
            raise _SameCode
        return super().emit(assembled)


def without_passes(pipeline: Pipeline, names: frozenset[str]) -> Pipeline:
    """A pipeline but some passes, in its fixed points too."""
    found: list[Pass | FixedPoint] = []
    for entry in pipeline:
        if isinstance(entry, FixedPoint):
            kept = tuple(each for each in entry.passes if each.name not in names)
            found += [replace(entry, passes=kept)] if kept else []
        elif entry.name not in names:
            found.append(entry)
    return tuple(found)


def compile_without(
    graph: Graph, options: Options, out: Sequence[Part], known: str | None = None
) -> tuple[Executable, str]:
    """The program that some parts of the compiler have no share in, and the digest of its code.

    It stops with ``_SameCode`` before LLVM if that digest is ``known``.
    """
    names = {kind: frozenset(each.name for each in out if each.kind is kind) for kind in PartKind}
    chosen = replace(
        options,
        cache=False,
        passes=without_passes(options.pipeline, names[PartKind.PASS]),
        fusion=options.fusion and FUSION not in names[PartKind.SWITCH],
    )
    target = options.resolved_target
    lowering = names[PartKind.LOWERING] | names[PartKind.PASS]  # which runs some passes again
    watched = None
    if isinstance(target, CpuTarget):
        watched = _Without(target.name, target.machine, lowering, known)
        chosen = replace(chosen, target=watched)
    with ExitStack() as stack:
        stack.enter_context(switch_off(*(names[PartKind.SWITCH] - {FUSION})))
        if names[PartKind.RULES]:
            stack.enter_context(_vetoing(names[PartKind.RULES]))
        executable = compile_graph(graph, chosen)
    if watched is not None:
        return executable, watched.digest
    text = "" if executable.program is None else executable.program.text
    return executable, hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def _vetoing(groups: frozenset[str]) -> Iterator[None]:
    vetoed = frozenset().union(*(rule_groups()[name] for name in groups))
    with watch_rewrites(lambda rule, node, values: id(rule) not in vetoed):
        yield


def active_parts(graph: Graph, options: Options) -> tuple[Executable, str, frozenset[Part]]:
    """The whole program, its digest, and the passes and rules that did something for it."""
    applied: set[int] = set()

    def watcher(rule: Rule, node: Node, values: tuple[Value, ...]) -> bool:
        applied.add(id(rule))
        return True

    with watch_rewrites(watcher):
        executable, digest = compile_without(graph, options, [])
    steps = [] if executable.report.passes is None else executable.report.passes.steps
    changed = {step.name for step in steps if step.changed}
    found = [
        part
        for part in parts_of(options)
        if part.kind is PartKind.SWITCH
        or (part.kind in (PartKind.PASS, PartKind.LOWERING) and part.name in changed)
        or (part.kind is PartKind.RULES and rule_groups()[part.name] & applied)
    ]
    return executable, digest, frozenset(found)


# Measuring ----------------------------------------------------------------------------------------


def ablate(
    graph: Graph,
    options: Options,
    inputs: Sequence[Array],
    *,
    name: str = "",
    budget: float = BUDGET_SECONDS,
    rounds: int = TIMING_ROUNDS,
    alone: bool = True,
) -> Ablation:
    """Leave out each part in turn, then add each to nothing, for as long as the budget lasts."""
    bench = _Bench(graph, options, inputs, budget, rounds)
    parts = parts_of(options)
    without = [bench.without(part, number, len(parts)) for number, part in enumerate(parts)]
    nothing, whole, remark = None, None, "it was not asked for"
    single: list[Effect] = []
    if alone:
        nothing, whole, remark = bench.nothing(parts)
        if nothing is not None:  # what matters to the whole first, since the budget may end
            ranked = sorted(without, key=lambda each: each.speedup is None)
            single = [bench.alone(each, parts) for each in ranked]
    skipped = sum(each.state is State.SKIPPED for each in (*without, *single))
    if remark == State.SKIPPED:
        skipped += sum(each.state is not State.IDLE for each in without)
    return Ablation(
        name or f"@{graph.name}",
        bench.seconds,
        bench.costs,
        whole,
        None if nothing is None else nothing.costs,
        tuple(without),
        tuple(single),
        remark,
        bench.seconds_with(skipped) if skipped else None,
    )


@dataclass
class _Built:
    executable: Executable
    costs: Costs
    digest: str


class _Bench:
    """The whole program, and what is measured beside it."""

    def __init__(
        self,
        graph: Graph,
        options: Options,
        inputs: Sequence[Array],
        budget: float,
        rounds: int,
    ) -> None:
        self._graph = graph
        self._options = replace(options, keep_weights=True)
        self._inputs = inputs
        self._rounds = rounds
        self._began = time.perf_counter()
        self._until = self._began + budget
        self._spent: list[float] = []
        """Seconds for each part that was measured, or tried."""
        self._slowest = budget * SLOW_SHARE
        announce("the whole program")
        started = time.perf_counter()
        executable, digest, self._active = active_parts(graph, self._options)
        self._reference: list[Array] | None = None
        self._whole = self._build(executable, digest, time.perf_counter() - started)
        self._bare: _Built | None = None
        if self._left > budget / 2:  # a large graph takes long in double precision
            announce("double precision")
            self._reference = double_precision(graph, inputs)
            error = self._error(executable)
            self._whole.costs = replace(self._whole.costs, error=error)
        self.costs = self._whole.costs
        turns = alternate({"whole": lambda: executable.run(self._inputs)}, TURNS_OF_WHOLE)
        self.seconds = turns["whole"].best

    @property
    def _left(self) -> float:
        return self._until - time.perf_counter()

    def seconds_with(self, more: int) -> float:
        """About how long all of it would take with so many parts more."""
        each = sum(self._spent) / len(self._spent) if self._spent else self.costs.compile_seconds
        return time.perf_counter() - self._began + MARGIN * each * more

    def without(self, part: Part, number: int, count: int) -> Effect:
        """What the program loses without a part."""
        if part not in self._active:
            return Effect(part, State.IDLE)
        announce(f"without {part.name}", number, count)
        return self._measure(part, [part], self._whole, is_slower=True)

    def nothing(self, parts: Sequence[Part]) -> tuple[_Built | None, RatioSpread | None, str]:
        """The program without any of them, and how many times as fast the whole one is."""
        announce("without anything")
        if self._left < 0:
            return None, None, State.SKIPPED.value
        try:
            self._bare = self._compile(parts)
        except MonographError as problem:
            return None, None, f"without anything it does not compile: {problem.message}"
        bare = self._bare
        started = time.perf_counter()
        bare.executable.run(self._inputs)
        took = time.perf_counter() - started
        if took > self._slowest:
            return None, None, f"a call without anything takes {took:.1f} s: raise the budget"
        return bare, self._ratio(bare, self._whole), ""

    def alone(self, left_out: Effect, parts: Sequence[Part]) -> Effect:
        """What a part gains alone, of which it is known what the whole loses without it."""
        part = left_out.part
        if left_out.state is State.IDLE:
            return Effect(part, State.IDLE)
        assert self._bare is not None
        announce(f"{part.name} alone")
        others = [each for each in parts if each != part]
        return self._measure(part, others, self._bare, is_slower=False)

    def _measure(
        self, part: Part, out: Sequence[Part], beside: _Built, *, is_slower: bool
    ) -> Effect:
        if self._left < 0:
            return Effect(part, State.SKIPPED)
        started = time.perf_counter()
        found = self._try_without(part, out, beside, is_slower=is_slower)
        self._spent.append(time.perf_counter() - started)
        return found

    def _try_without(
        self, part: Part, out: Sequence[Part], beside: _Built, *, is_slower: bool
    ) -> Effect:
        # Memory is planned when a program is loaded: its code does not say what it shares.
        known = None if part.name == ARENA_REUSE else beside.digest
        try:
            made = self._compile(out, known)
        except _SameCode:
            return Effect(part, State.SAME)
        except MonographError as problem:
            return Effect(part, State.FAILED, reason=problem.message)
        if (made.digest, made.costs.peak) == (beside.digest, beside.costs.peak):
            return Effect(part, State.SAME)
        pair = (made, beside) if is_slower else (beside, made)
        return Effect(part, State.MEASURED, self._ratio(*pair), made.costs)

    def _ratio(self, slow: _Built, quick: _Built) -> RatioSpread:
        """How many times as long one takes as the other, by turns."""
        calls = {
            "slow": lambda: slow.executable.run(self._inputs),
            "quick": lambda: quick.executable.run(self._inputs),
        }
        timings = alternate(calls, self._rounds, until=self._until)
        return ratio(timings["slow"], timings["quick"])

    def _compile(self, out: Sequence[Part], known: str | None = None) -> _Built:
        started = time.perf_counter()
        executable, digest = compile_without(self._graph, self._options, out, known)
        return self._build(executable, digest, time.perf_counter() - started)

    def _build(self, executable: Executable, digest: str, seconds: float) -> _Built:
        explained = explain_executable(executable)
        memory = explained.memory
        return _Built(
            executable,
            Costs(
                explained.launches,
                explained.bytes_moved,
                0 if memory is None else memory.peak,
                seconds,
                self._error(executable),
            ),
            digest,
        )

    def _error(self, executable: Executable) -> float | None:
        if self._reference is None:
            return None
        answer = [np.asarray(each) for each in executable.run(self._inputs)]
        return largest_error(answer, self._reference)
