"""Is the answer still right? Every pass before and after, then the compiled program.

The graph is run as it was given and after every pass that changed it, on the caller's inputs, on
random ones and on adversarial ones (``samples``), in its own precision and in double precision.
Last, the compiled program is held against the framework. Each comparison has a word (``precise``):
*exact*, *more accurate*, *within rounding* or *wrong*, with the numbers beside it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from monograph.api import as_pipeline
from monograph.compiler import Options, compile_graph
from monograph.dataclass import dataclass
from monograph.errors import InputError, MonographError
from monograph.inspect.evaluate import Evaluator
from monograph.inspect.jsonable import jsonable
from monograph.inspect.precise import NOISE_FACTOR, precision_of, relative_error
from monograph.inspect.reference import Reference
from monograph.inspect.samples import Sample, draw_samples, list_oversized
from monograph.inspect.stages import Compilation, StageGraph, record_stages
from monograph.inspect.subject import Subject, subject_from
from monograph.inspect.suspects import leave_other_results
from monograph.inspect.validate_text import validation_text
from monograph.ir.graph import Graph
from monograph.ir.types import TensorType
from monograph.passes.base import Pass
from monograph.progress import announce
from monograph.runtime.compiled import Executable
from monograph.runtime.device import runs_here

WORDS = ("exact", "more accurate", "within rounding", "wrong")
"""From the best to the worst."""
NOT_CHECKED = "not checked"
"""The word where no sample could be run."""
DEFAULT_SECONDS = 60.0
"""After which no further sample is begun."""
DRIFT_ULPS = 64
"""By how many units of the graph's own precision its meaning in double precision may move."""


@dataclass(frozen=True)
class StepVerdict:
    """What one step did to the answers: the worst over all samples and outputs."""

    name: str
    word: str
    difference: float = 0.0
    """From the answer before the step (from the framework's, for the program)."""
    error: float | None = None
    """Of the answer after the step, against double precision."""
    other_error: float | None = None
    """Of the answer before it."""
    drift: float | None = None
    """How far the answer in double precision moved."""
    sample: str = ""
    output: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Validation:
    """All of it; ``word`` is the worst of the words."""

    model: str
    framework: str
    samples: tuple[str, ...]
    skipped: tuple[str, ...]
    """Samples that are too large, that there was no time for, or that the graph refuses."""
    passes_run: int
    steps: tuple[StepVerdict, ...]
    """One for every pass that changed the graph."""
    program: StepVerdict | None
    """The compiled program; None if it was not compiled."""
    notes: tuple[str, ...]
    seconds: float

    @property
    def word(self) -> str:
        """The worst word: of a step that is wrong, or else of the program."""
        if self.first_wrong is not None:
            return "wrong"
        if not self.samples:
            return NOT_CHECKED
        ends = [] if self.program is None else [self.program]
        last = ends or self.steps[-1:]
        return worst_word([each.word for each in last])

    @property
    def is_right(self) -> bool:
        """Whether something was compared, and nothing is wrong."""
        return self.word not in ("wrong", NOT_CHECKED)

    @property
    def first_wrong(self) -> str | None:
        """The first step that changed the meaning."""
        ends = [] if self.program is None else [self.program]
        return next((each.name for each in (*self.steps, *ends) if each.word == "wrong"), None)

    def as_json(self) -> dict[str, Any]:
        """The same as plain dictionaries and lists."""
        figures = {"word": self.word, "first_wrong": self.first_wrong}
        found: dict[str, Any] = jsonable({**figures, **dataclasses.asdict(self)})
        return found

    def __str__(self) -> str:
        return validation_text(self)


def validate(
    model: Any,
    *inputs: Any,
    level: str = "O2",
    passes: str | Sequence[Pass | str] | None = None,
    target: str | None = None,
    options: Options | None = None,
    sizes: Mapping[str, int] | None = None,
    seconds: float = DEFAULT_SECONDS,
    seed: int = 0,
    dynamic_shapes: Any = None,
) -> Validation:
    """Run every pass before and after on many inputs, then the compiled program.

    ``model`` and ``inputs`` are what ``monograph.compile`` takes. After ``seconds`` no further
    sample is begun; the first is always finished. ``sizes`` fixes symbolic dimensions.
    ``passes`` run instead of the level's, as ``monograph.optimize`` takes them.
    """
    started = time.perf_counter()
    subject = subject_from(model, inputs, dynamic_shapes=dynamic_shapes)
    chosen = compile_options(options or options_for(level, passes, target))
    announce("compiling")
    compilation = record_stages(lambda: compile_graph(subject.graph, chosen))
    checker = _Checker(subject, compilation)
    drawn = list(draw_samples(subject.graph, subject.given, sizes, seed, subject.state))
    begun: list[str] = []
    skipped = [f"{name}: too large to be made up" for name in list_oversized(subject.graph, sizes)]
    for sample in drawn:
        if begun and time.perf_counter() - started > seconds:
            skipped.append(f"{sample.name}: no time left of {seconds:g} s")
            continue
        reason = checker.check(sample, len(begun), len(drawn))
        begun.append(sample.name)
        if reason is not None:
            skipped.append(f"{begun.pop()}: {reason}")
    return Validation(
        subject.name,
        subject.framework_name,
        tuple(begun),
        tuple(skipped),
        compilation.runs,
        tuple(checker.steps()),
        checker.program(),
        tuple(checker.notes),
        time.perf_counter() - started,
    )


def options_for(
    level: str, passes: str | Sequence[Pass | str] | None, target: str | None
) -> Options:
    """How to compile what is to be looked into."""
    pipeline = None if passes is None else as_pipeline(passes)
    return Options(level, passes=pipeline, target=target)


def compile_options(options: Options) -> Options:
    """The options with what tools need: the passes must run, and the weights stay readable."""
    if not runs_here(options.resolved_target.record):
        raise InputError(
            f"{options.resolved_target} is not this machine, and it is run to see its answers",
            hint="look for the fault where the program will run",
        )
    return dataclasses.replace(options, cache=False, keep_weights=True, variants=0)


def worst_word(words: Sequence[str]) -> str:
    """The worst of some words; no answer at all is exact."""
    return max(words, key=WORDS.index, default="exact")


class _Checker:
    """Compares the stages of one compilation, sample by sample."""

    def __init__(self, subject: Subject, compilation: Compilation) -> None:
        self.subject = subject
        self.stages = compilation.stages[1:]
        self.compilation = compilation
        self.notes: list[str] = []
        self._evaluator = Evaluator()
        self._found: list[list[StepVerdict]] = [[] for _ in self.stages]
        self._program: list[StepVerdict] = []
        self._limit = DRIFT_ULPS * narrowest_eps(subject.graph)

    def check(self, sample: Sample, number: int, total: int) -> str | None:
        """Compare all stages on a sample; why not, if the graph itself refuses it."""
        announce(f"sample {sample.name}, as given", number, total)
        self._evaluator.forget()
        graph = self.subject.graph
        try:
            first = self._evaluator.run(graph, sample.arrays)
        except MonographError as refusal:
            return refusal.message
        reference = Reference(graph, sample.arrays, self._evaluator)
        before, wide = first, reference.answers
        if reference.refusal:
            self._note(f"no double precision to compare with: {reference.refusal}")
        for stage, found in zip(self.stages, self._found, strict=True):
            announce(f"sample {sample.name}, {stage.name}", number, total)
            if stage.changes_specials:
                reference.allow_specials(stage.graph)
            compare = _Comparison(self, stage.name, sample.name, reference)
            verdict, before, wide = compare.stage(stage, before, wide, sample)
            found.append(verdict)
        if self.compilation.made is not None:
            announce(f"sample {sample.name}, the program", number, total)
            compare = _Comparison(self, "compiled program", sample.name, reference)
            self._program.append(compare.program(self._framework(sample, first), first, sample))
        return None

    def steps(self) -> list[StepVerdict]:
        """The worst that was found of each stage."""
        return [
            _worst(found) if found else StepVerdict(stage.name, NOT_CHECKED)
            for stage, found in zip(self.stages, self._found, strict=True)
        ]

    def program(self) -> StepVerdict | None:
        """The worst that was found of the program, or that it could not be compiled."""
        error = self.compilation.error
        if error is not None:
            return StepVerdict("compiled program", "wrong", np.inf, remark=_describe_problem(error))
        return _worst(self._program) if self._program else None

    @property
    def executable(self) -> Executable:
        """What was compiled."""
        made: Executable = self.compilation.made
        return made

    @property
    def limit(self) -> float:
        """How far the answer in double precision may move."""
        return self._limit

    @property
    def evaluator(self) -> Evaluator:
        """The interpreter with a memory."""
        return self._evaluator

    def _framework(self, sample: Sample, first: list[Any]) -> list[Any]:
        call = self.subject.framework
        if call is None:
            return first
        try:
            answers = call(sample.arrays)
        except Exception as problem:  # the framework's own: it may refuse what we compute
            told = f"{type(problem).__name__}: {problem}".splitlines()[0]
            self._note(f"{self.subject.framework_name} refuses {sample.name} ({told})")
            return first
        if len(answers) != len(first):
            self._note(f"{self.subject.framework_name} has {len(answers)} outputs: not compared")
            return first
        return answers

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True)
class _Comparison:
    """One step on one sample."""

    checker: _Checker
    step: str
    sample: str
    reference: Reference

    def stage(
        self, stage: StageGraph, before: list[Any], wide_before: list[Any] | None, sample: Sample
    ) -> tuple[StepVerdict, list[Any], list[Any] | None]:
        """The verdict on a pass, and the answers after it, in double precision, too."""
        evaluator = self.checker.evaluator
        try:
            after = evaluator.run(stage.graph, sample.arrays)
            wide = None if wide_before is None else evaluator.run_wide(stage.graph, sample.arrays)
        except MonographError as problem:
            return self._fail(problem), before, wide_before
        found = [self._judge(k, got, before[k]) for k, got in enumerate(after)]
        worst = _worst(found) if found else StepVerdict(self.step, "exact", sample=self.sample)
        if wide is None or wide_before is None:
            return worst, after, None
        return self._with_drift(worst, wide, wide_before), after, wide

    def program(self, answers: list[Any], own: list[Any], sample: Sample) -> StepVerdict:
        """The verdict on the program, beside the framework's answers and the graph's own."""
        try:
            leave_other_results(self.checker.executable, sample.arrays)
            got = self.checker.executable.run(list(sample.arrays))
        except MonographError as problem:
            return self._fail(problem)
        others = [self.reference.mend(k, each, own[k]) for k, each in enumerate(answers)]
        found = [self._judge(k, each, others[k]) for k, each in enumerate(got)]
        return _worst(found) if found else StepVerdict(self.step, "exact", sample=self.sample)

    def _judge(self, output: int, got: Any, other: Any) -> StepVerdict:
        verdict = self.reference.judge(output, got, other)
        return StepVerdict(
            self.step,
            verdict.word,
            verdict.difference,
            verdict.error,
            verdict.other_error,
            sample=self.sample,
            output=self.checker.subject.graph.outputs[output].name,
            remark=verdict.remark,
        )

    def _fail(self, problem: Exception) -> StepVerdict:
        return StepVerdict(
            self.step, "wrong", np.inf, sample=self.sample, remark=_describe_problem(problem)
        )

    def _with_drift(self, verdict: StepVerdict, wide: list[Any], before: list[Any]) -> StepVerdict:
        """The verdict, with how far the answer in double precision moved."""
        drifts = [
            relative_error(np.asarray(got), np.asarray(exact))
            if isinstance(got, np.ndarray) and got.dtype.kind in "fc"
            else 0.0
            for got, exact in zip(wide, before, strict=True)
        ]
        drift = max(drifts, default=0.0)
        verdict = dataclasses.replace(verdict, drift=drift)
        if drift <= self.checker.limit or verdict.word == "wrong":
            return verdict
        output = drifts.index(drift)
        if not np.isfinite(drift) or drift <= NOISE_FACTOR * self.reference.spread(output):
            return verdict  # judged by element, in the graph's own precision
        remark = f"in double precision the answer moves by {drift:.1e}"
        return dataclasses.replace(verdict, word="wrong", remark=remark)


def narrowest_eps(graph: Graph) -> float:
    """The coarsest precision that a float in the graph has; double's if there is none."""
    dtypes = {
        value.dtype
        for node in graph.walk()
        for value in (*node.operands, *node.results)
        if isinstance(value.type, TensorType) and value.dtype.is_float
    }
    found = [precision_of(dtype.numpy).eps for dtype in dtypes]
    return max(found, default=float(np.finfo(np.float64).eps))


def _worst(found: Sequence[StepVerdict]) -> StepVerdict:
    """The worst word, and among equals the largest difference."""
    chosen = max(found, key=lambda each: (WORDS.index(each.word), each.difference))
    drifts = [each.drift for each in found if each.drift is not None]
    return dataclasses.replace(chosen, drift=max(drifts, default=None))


def _describe_problem(problem: Exception) -> str:
    if isinstance(problem, MonographError):
        return f"fails: {problem.message}"
    return f"fails: {type(problem).__name__}: {problem}"
