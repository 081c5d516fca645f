"""Finds the rewrite at fault: the pass, then the one rule application, group or kernel.

A wrong answer is looked for as ``validate`` does. The first step that changes it is the pass; the
case is then made small (``reduce``), and in the small case the number of rewrites is halved until
one is left. If every pass is right, the fault lies behind them: the small program is compiled with
one thread, without fusion, and without each family of kernels in turn, and what cures it is named
beside the kernel. The result holds a program of a few lines that shows the fault.
"""

from __future__ import annotations

import dataclasses
import difflib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from monograph.compiler import Options, compile_graph
from monograph.dataclass import dataclass
from monograph.errors import InputError, MonographError
from monograph.inspect.bisect_text import bisection_text
from monograph.inspect.extract import Case
from monograph.inspect.guilty_kernel import guilty_kernels
from monograph.inspect.jsonable import jsonable
from monograph.inspect.reduce import MOST_TRIALS, reduce_case
from monograph.inspect.repro import repro_text
from monograph.inspect.samples import Sample, draw_samples
from monograph.inspect.stages import Compilation, record_stages
from monograph.inspect.subject import Subject, subject_from
from monograph.inspect.suspects import (
    CALLS_AT_FIRST,
    CALLS_TO_BE_SURE,
    check_gradient,
    check_pass,
    check_program,
    without_passes,
    wrong_answers,
)
from monograph.inspect.validate import compile_options, options_for
from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.text.printer import print_graph
from monograph.passes.base import Pass
from monograph.progress import announce
from monograph.rewrite.driver import Application, limit_rewrites
from monograph.switches import SWITCHES, switch_off

MOST_DIFFERENT_LINES = 8
"""Of a pass without rules: the lines that it changed, as its rewrite is shown."""


@dataclass(frozen=True)
class Bisection:
    """What is at fault, and how to see it; ``kind`` is None if nothing was found."""

    model: str
    kind: str | None
    """``pass``, ``program``, ``cache``, ``as given`` (an op itself) or ``gradient``."""
    step: str
    """The pass, or the kernel."""
    rewrite: str
    """The rule and the node it was applied to, the lines a pass changed, or the kernel."""
    cured_by: tuple[str, ...]
    """What may be switched off to get the right answer."""
    symptom: str
    sample: str
    nodes: int
    nodes_left: int
    repro: str
    arrays: Mapping[str, Any]
    """What the repro reads from a file beside it; empty for most."""
    tried: int
    seconds: float
    searched: str = ""
    """Where a fault was looked for, and on which inputs, if there is none."""

    @property
    def is_found(self) -> bool:
        """Whether there is a fault."""
        return self.kind is not None

    def save(self, path: str | Path) -> None:
        """Write the repro, and the arrays that it reads, if any, beside it."""
        target = Path(path)
        try:
            target.write_text(self.repro)
            if self.arrays:
                np.savez(target.with_name("repro.npz"), **self.arrays)
        except OSError as problem:
            raise InputError(f"{target} cannot be written: {problem.strerror}") from problem

    def as_json(self) -> dict[str, Any]:
        """The same as plain dictionaries and lists."""
        told = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        told["arrays"] = list(self.arrays)
        found: dict[str, Any] = jsonable(told)
        return found

    def __str__(self) -> str:
        return bisection_text(self)


def bisect(
    model: Any,
    *inputs: Any,
    level: str = "O2",
    passes: str | Sequence[Pass | str] | None = None,
    target: str | None = None,
    options: Options | None = None,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    gradient: bool = False,
    trials: int = MOST_TRIALS,
    dynamic_shapes: Any = None,
    plugins: Sequence[str] = (),
) -> Bisection:
    """Find the rewrite, group or kernel that makes a compiled model's answer wrong.

    With ``gradient``, the rules of differentiation are searched instead. ``trials`` bounds how many
    smaller cases are tried. The repro loads the ``plugins``, which may hold the fault.
    """
    subject = subject_from(model, inputs, dynamic_shapes=dynamic_shapes)
    search = _Search(subject, options or options_for(level, passes, target), trials, plugins)
    samples = draw_samples(subject.graph, subject.given, sizes, seed, subject.state)
    return search.gradient(list(samples)) if gradient else search.run(list(samples))


class _Search:
    """One search: the options that it compiles with, and what it has found out."""

    def __init__(
        self, subject: Subject, options: Options, trials: int, plugins: Sequence[str] = ()
    ) -> None:
        self.subject = subject
        self.given_options = options
        self.options = compile_options(options)
        self.trials = trials
        self.plugins = plugins
        self.started = time.perf_counter()

    def run(self, samples: Sequence[Sample]) -> Bisection:
        """Look at every sample: the graph itself, each pass, the program, the cache."""
        announce("compiling")
        compilation = record_stages(lambda: compile_graph(self.subject.graph, self.options))
        run_on: list[str] = []
        for sample in samples:
            announce(f"sample {sample.name}")
            case = Case(self.subject.graph, sample.arrays)
            refusal = _refusal_of(case)
            found = None
            if refusal is not None:
                found = self._as_given(case, sample, refusal)
            else:
                run_on.append(sample.name)
                if self._is_wrong(compilation, case):
                    found = self._in_passes(compilation, sample) or self._behind_passes(
                        compilation, case, sample
                    )
            if found is not None:
                return found
        found = self._in_cache(samples, compilation.changing_specials)
        return found or self._nothing("the passes, the kernels and the disk cache", run_on)

    def gradient(self, samples: Sequence[Sample]) -> Bisection:
        """Look for an op whose gradient is not its slope."""
        run_on: list[str] = []
        for sample in samples:
            if sample.name.startswith(("specials", "zeros", "equal", "ends")):
                continue  # kinks, where there is no slope
            run_on.append(sample.name)
            case = Case(self.subject.graph, sample.arrays)
            symptom = check_gradient(case)
            if symptom is None:
                continue
            small, tried = reduce_case(case, check_gradient, self.trials)
            ops = " and ".join(dict.fromkeys(node.op.name for node in _computing(small.graph)))
            step = f"the gradient of {ops}"
            return self._make("gradient", step, _nodes_text(small.graph), small, sample, tried)
        return self._nothing("the gradients alone", run_on)

    # What is at fault -----------------------------------------------------------------------------

    def _as_given(self, case: Case, sample: Sample, refusal: MonographError) -> Bisection | None:
        """An op whose type rule and evaluation do not agree: the graph cannot be interpreted.

        Only ordinary inputs count: others may be what an op refuses.
        """
        if not sample.name.startswith("given" if self.subject.given else "normal"):
            return None
        where = refusal.where or ""
        op = where.partition("= ")[2].partition("(")[0] or "an op"
        rewrite = where.splitlines()[0] if where else ""
        step = f"{op}'s own definition"
        return self._make("as given", step, rewrite, case, sample, 0, symptom=refusal.message)

    def _in_passes(self, compilation: Compilation, sample: Sample) -> Bisection | None:
        stages = compilation.stages
        for before, after in pairwise(stages):
            each = after.made_by
            if each is None:
                continue
            case = Case(before.graph, sample.arrays)
            if self._fails_by(each)(case) is None:
                continue
            small, tried = reduce_case(case, self._fails_by(each), self.trials)
            rewrite = _guilty_rewrite(each, small)
            return self._make("pass", str(each), rewrite, small, sample, tried, each=each)
        return None

    def _behind_passes(
        self, compilation: Compilation, case: Case, sample: Sample
    ) -> Bisection | None:
        last = compilation.stages[-1].graph if compilation.stages else case.graph
        options = self.options
        lowered = Case(last, sample.arrays)
        for graph_case in (lowered, case):
            if self._fails(without_passes(options))(graph_case) is not None:
                case, options = graph_case, without_passes(options)
                break
        small, tried = reduce_case(case, self._fails(options), self.trials)
        cures = self._cures(small, options)
        step, rewrite = self._kernels(small, options)
        error = compilation.error
        if isinstance(error, MonographError) and error.during:
            step = error.during
        return self._make(
            "program", step, rewrite, small, sample, tried, cured_by=cures, options=options
        )

    def _in_cache(self, samples: Sequence[Sample], later: Sequence[Graph]) -> Bisection | None:
        """A program that is right when it is compiled, and wrong when it comes from the disk."""
        cached = dataclasses.replace(self.options, cache=True)
        for sample in samples[:1]:
            case = Case(self.subject.graph, sample.arrays)

            if all(check_program(cached, case, later=later) is None for _ in range(2)):
                return None
            step, cure = "the disk cache", ("cache=False",)
            where = "the program that the cache has for this graph is another's, or damaged"
            return self._make("cache", step, where, case, sample, 0, cured_by=cure)
        return None

    def _is_wrong(self, compilation: Compilation, case: Case) -> bool:
        """Whether the program of the whole model fails on a sample."""
        if compilation.error is not None:
            return True
        later = compilation.changing_specials
        return wrong_answers(compilation.made, case, CALLS_AT_FIRST, later) is not None

    def _fails(self, options: Options) -> Callable[[Case], str | None]:
        return lambda case: check_program(options, case)

    def _fails_by(self, each: Pass) -> Callable[[Case], str | None]:
        return lambda case: check_pass(each, case)

    def _cures(self, case: Case, options: Options) -> tuple[str, ...]:
        """What makes the answer right when it is switched off."""
        announce("switching parts off")
        ways: dict[str, tuple[Options, tuple[str, ...]]] = {
            "threads=1": (dataclasses.replace(options, threads=1), ()),
            **{name: (options, (name,)) for name in SWITCHES},
            "fusion": (dataclasses.replace(options, fusion=False), ()),
        }
        found = []
        for name, (chosen, off) in ways.items():
            with ExitStack() as stack:
                if off:
                    stack.enter_context(switch_off(*off))
                if check_program(chosen, case, CALLS_TO_BE_SURE) is None:
                    found.append(name)
        return tuple(found)

    def _kernels(self, case: Case, options: Options) -> tuple[str, str]:
        """The kernel at fault, and what it computes how; or what stands in its place."""
        announce("looking for the kernel")
        try:
            found = guilty_kernels(case, options)
        except Exception as problem:  # it is the finding, and is told elsewhere
            return "compiling", f"compiling fails: {type(problem).__name__}"
        if not found:
            return "the interpreter", "no kernel: it runs in the interpreter"
        names = ", ".join(each.name for each in found)
        step = f"kernel {names}" if len(found) == 1 else f"one of the kernels {names}"
        return step, "; ".join(map(str, found))

    # The result -----------------------------------------------------------------------------------

    def _make(
        self,
        kind: str,
        step: str,
        rewrite: str,
        case: Case,
        sample: Sample,
        tried: int,
        *,
        each: Pass | None = None,
        cured_by: tuple[str, ...] = (),
        symptom: str = "",
        options: Options | None = None,
    ) -> Bisection:
        used = options or self.options
        symptom = symptom or self._symptom(kind, case, each, used)
        told = "" if used.passes is None else f", passes={list(map(str, used.passes))!r}"
        told += f", threads={used.threads}" if used.threads else ""
        title = f"{step}: {symptom}"[:90].replace('"', "'")
        text, arrays = repro_text(
            title, kind, case, step=str(each or ""), options=told, plugins=self.plugins
        )
        return Bisection(
            self.subject.name,
            kind,
            step,
            rewrite,
            cured_by,
            symptom,
            sample.name,
            len(self.subject.graph),
            len(_computing(case.graph)),
            text,
            arrays,
            tried,
            time.perf_counter() - self.started,
        )

    def _symptom(self, kind: str, case: Case, each: Pass | None, options: Options) -> str:
        if kind == "gradient":
            return check_gradient(case) or ""
        if each is not None:
            return check_pass(each, case) or ""
        return check_program(options, case) or "wrong when it comes from the cache"

    def _nothing(self, where: str, samples: Sequence[str]) -> Bisection:
        seconds = time.perf_counter() - self.started
        nodes = len(self.subject.graph)
        name = self.subject.name
        count = "1 sample" if len(samples) == 1 else f"{len(samples)} samples"
        searched = f"{where}, on {count}" + (f": {', '.join(samples)}" if samples else "")
        return Bisection(name, None, "", "", (), "", "", nodes, nodes, "", {}, 0, seconds, searched)


def _refusal_of(case: Case) -> MonographError | None:
    """Why the graph itself cannot be interpreted on its inputs; None if it can."""
    try:
        interpret(case.graph, case.inputs)
    except MonographError as problem:
        return problem
    return None


def _guilty_rewrite(each: Pass, case: Case) -> str:
    """The one rule application that changes the answer, or the lines that the pass changed."""
    announce("halving the rewrites")
    with limit_rewrites() as done:
        check_pass(each, case)
    low, high = 0, len(done)  # right with `low` rewrites, wrong with `high`
    if not high or _find_break_with(each, case, 0)[0]:
        return _diff_lines(each, case)
    while high - low > 1:
        middle = (low + high) // 2
        if _find_break_with(each, case, middle)[0]:
            high = middle
        else:
            low = middle
    _, applied = _find_break_with(each, case, high)
    guilty = applied[min(high, len(applied)) - 1]
    return f"rule {guilty.rule}: {guilty.node} became {guilty.replacement}"


def _find_break_with(each: Pass, case: Case, limit: int) -> tuple[bool, list[Application]]:
    with limit_rewrites(limit) as done:
        return check_pass(each, case) is not None, done


def _diff_lines(each: Pass, case: Case) -> str:
    after = case.graph.clone()
    try:
        each.run(after)
    except Exception as problem:  # what a pass raises is told as its fault
        return f"{type(problem).__name__}: {problem}".splitlines()[0]
    before_lines, after_lines = (print_graph(g).splitlines() for g in (case.graph, after))
    lines = [
        line.replace("  ", " ", 1).rstrip()
        for line in difflib.unified_diff(before_lines, after_lines, lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    return "; ".join(lines[:MOST_DIFFERENT_LINES]) or "an order or a type"


def _computing(graph: Graph) -> list[Any]:
    """The nodes that are no constants or weights."""
    return [node for node in graph.nodes if node.operands or node.regions]


def _nodes_text(graph: Graph) -> str:
    return "; ".join(repr(node) for node in _computing(graph))
