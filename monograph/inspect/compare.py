"""Compares a compiled model with other runtimes: answers, errors, times, compile times, memory.

All take turns in one process on the same inputs, so that a busy machine slows all of them alike,
and each turn of another is divided by our turn of the same round. Answers are held against the same
graph in double precision (``precise``). Whoever is not installed or cannot take the model is there
too, with the reason.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import InputError, MonographError
from monograph.inspect.compare_text import comparison_text
from monograph.inspect.jsonable import jsonable
from monograph.inspect.measure import Timing, alternate
from monograph.inspect.models import Model
from monograph.inspect.peers import PEERS, peer
from monograph.inspect.precise import judge, relative_error
from monograph.inspect.reference import Reference
from monograph.ir.types import Array
from monograph.progress import announce
from monograph.runtime.compiled import Executable

OURS = "monograph"
WRONG = "wrong"
USUAL = ("onnxruntime", "torch", "inductor", "openvino", "xla", "iree")
"""Who is compared with unless it is said."""
ROUNDS = 15
Call = Callable[[], "list[Array]"]


CONFIDENCE = 0.95
STUDENT_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""The two-sided quantile of Student's distribution, by the number of rounds."""
SMALLEST_EFFECT = 0.01
"""Calls of one program by turns differ by up to this: where its memory lies, if nothing else."""


@dataclass(frozen=True)
class RatioSpread:
    """A ratio: its median over rounds, and where the true median lies with confidence of 95 %."""

    median: float
    low: float
    high: float

    @property
    def is_noise(self) -> bool:
        """Whether it may as well be 1, or differs from it by less than such timing can tell."""
        return self.low <= 1 <= self.high or abs(self.median - 1) < SMALLEST_EFFECT

    def __str__(self) -> str:
        return f"{_short(self.median)} ({_short(self.low)}–{_short(self.high)})"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def ratio(mine: Timing, ours: Timing) -> RatioSpread:
    """How many times as long, round by round."""
    return spread_of([a / b for a, b in zip(mine.turns, ours.turns, strict=True)])


def spread_of(ratios: Sequence[float]) -> RatioSpread:
    """The median, and the interval in which the true one lies with a confidence of 95 %.

    Its ends are two of the ratios: so many of n rounds lie above the true median by chance as heads
    fall in n throws, whatever the noise is like. Fewer than six rounds have no such two; Student's
    distribution is taken of their logarithms then, as if these were normal.
    """
    ordered, count = sorted(ratios), len(ratios)
    median = statistics.median(ordered)
    if count < 2:
        return RatioSpread(median, median, median)
    below = _rank(count)
    if below is not None:
        return RatioSpread(median, ordered[below], ordered[-1 - below])
    logarithms = [math.log(each) for each in ordered]
    reach = math.exp(STUDENT_95[count] * statistics.stdev(logarithms) / math.sqrt(count))
    return RatioSpread(median, median / reach, median * reach)


def _rank(count: int) -> int | None:
    """The number of the ratio, of so many in order, that the interval begins with."""
    outside, rank = 0.0, None
    for number in range(count // 2):
        outside += 2 * math.comb(count, number) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        rank = number
    return rank


@dataclass(frozen=True)
class Contender:
    """One way to run the model. Without a time it did not run, and ``reason`` says why."""

    name: str
    reason: str = ""
    median: float | None = None
    best: float | None = None
    times_ours: RatioSpread | None = None
    """How many times as long as ours."""
    error: float | None = None
    """The largest of the outputs' errors, in norm, against double precision."""
    verdict: str = ""
    """The worst word of its outputs, beside ours; of ours, beside the most accurate other."""
    remark: str = ""
    """Where it is wrong."""
    compile_seconds: float | None = None
    """Until the first call had returned, less a usual call."""
    memory: int | None = None
    """Bytes by which the process grew meanwhile: program, packed weights, buffers."""

    @property
    def ran(self) -> bool:
        """Whether it took part."""
        return self.median is not None


@dataclass(frozen=True)
class Comparison:
    """All contenders, ours first."""

    model: str
    rounds: int
    contenders: tuple[Contender, ...]

    @property
    def is_right(self) -> bool:
        """Whether our answer is no wrong one; another's may be."""
        return self.contenders[0].verdict != WRONG

    def as_json(self) -> dict[str, object]:
        """The same as plain dictionaries and lists."""
        found: dict[str, object] = jsonable(self)
        return found

    def __str__(self) -> str:
        return comparison_text(self)


@dataclass
class _Ready:
    """A contender that can run: its first answer, and what it took to get there."""

    call: Call
    answer: list[Array]
    seconds: float
    memory: int | None


def compare(
    model: Model,
    compile_ours: Callable[[], Executable],
    make_arrays: Callable[[Executable], Sequence[Array]],
    others: Sequence[str] = USUAL,
    *,
    threads: int | None = None,
    rounds: int = ROUNDS,
    budget: float | None = None,
    strict: bool = False,
) -> Comparison:
    """Run a model in every way that is asked for.

    After ``budget`` seconds of rounds no other begins, once there were three: however long others
    compile, the figures are of as many rounds. With ``strict``, one that cannot run is an error.
    """
    unknown = [name for name in others if name not in PEERS]
    if unknown:
        raise InputError(f"{unknown[0]!r} is nothing to compare with", expected=", ".join(PEERS))
    made: list[Executable] = []
    arrays: list[Array] = []

    def prepare_ours() -> Call:
        executable = compile_ours()
        made.append(executable)
        arrays.extend(make_arrays(executable))
        return lambda: executable.run(arrays)

    ready = {OURS: _prepare(OURS, prepare_ours)}
    reasons: dict[str, str] = {}
    for name in dict.fromkeys(others):
        try:
            ready[name] = _prepare(name, lambda: peer(name, model, made[0], arrays, threads))  # noqa: B023
        except Exception as problem:  # another's fault, which is what the table is to tell
            if strict:
                raise
            reasons[name] = reason_of(problem)
    until = None if budget is None else time.perf_counter() + budget
    timings = alternate({name: each.call for name, each in ready.items()}, rounds, until=until)
    announce("double precision")
    reference = None if model.is_compiled else Reference(made[0].graph, arrays)
    found = [
        _contender(name, each, timings[name], timings[OURS], ready, reference)
        for name, each in ready.items()
    ]
    missing = [Contender(name, reason) for name, reason in reasons.items()]
    return Comparison(model.name, len(timings[OURS].turns), (*found, *missing))


def names_in(text: str) -> list[str]:
    """The names in a list like ``onnxruntime,torch``."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError("nobody is named to compare with", expected=", ".join(PEERS))
    return names


def _prepare(name: str, make: Callable[[], Call]) -> _Ready:
    """Compile, and call once: some compile then."""
    announce(f"preparing {name}")
    gc.collect()
    before, started = resident_bytes(), time.perf_counter()
    call = make()
    answer = [np.asarray(each) for each in call()]
    taken, after = time.perf_counter() - started, resident_bytes()
    grown = None if before is None or after is None else max(0, after - before)
    return _Ready(call, answer, taken, grown)


def _contender(
    name: str,
    own: _Ready,
    timing: Timing,
    ours: Timing,
    ready: dict[str, _Ready],
    reference: Reference | None,
) -> Contender:
    error = _error_of(own.answer, reference)
    word, remark = _verdict(name, ready, reference)
    return Contender(
        name,
        median=timing.median,
        best=timing.best,
        times_ours=ratio(timing, ours),
        error=error,
        verdict=word,
        remark=remark,
        compile_seconds=max(0.0, own.seconds - timing.median),
        memory=own.memory,
    )


def _error_of(answer: list[Array], reference: Reference | None) -> float | None:
    return largest_error(answer, None if reference is None else reference.answers)


def _verdict(name: str, ready: dict[str, _Ready], reference: Reference | None) -> tuple[str, str]:
    """The word for an answer beside ours; ours is held against the most accurate of the others."""
    answer = ready[name].answer
    if name != OURS:
        return worst_word(answer, ready[OURS].answer, reference)
    others = [each.answer for key, each in ready.items() if key != OURS]
    if not others:
        return "", ""
    errors = [_error_of(each, reference) for each in others]
    ranked = sorted(zip(errors, range(len(others)), strict=True), key=_by_error)
    return worst_word(answer, others[ranked[0][1]], reference)


def _by_error(pair: tuple[float | None, int]) -> float:
    return float("inf") if pair[0] is None else pair[0]


WORDS = ("exact", "more accurate", "within rounding", WRONG)
"""The best first."""


def worst_word(
    got: Sequence[Array], other: Sequence[Array], reference: Reference | None
) -> tuple[str, str]:
    """The worst word of an answer's outputs, and what is to be said of it."""
    if len(got) != len(other):
        return WRONG, f"{len(got)} outputs, not {len(other)}"
    worst, remark = WORDS[0], ""
    for k, (mine, its) in enumerate(zip(got, other, strict=True)):
        if reference is None:
            verdict = judge(np.asarray(mine), np.asarray(its), None)
        else:
            verdict = reference.judge(k, mine, its)
        if WORDS.index(verdict.word) > WORDS.index(worst):
            worst, remark = verdict.word, verdict.remark
    return worst, remark


def largest_error(answer: Sequence[Array], reference: Sequence[Array] | None) -> float | None:
    """The largest error of the outputs; None where nothing says what is right."""
    if reference is None or len(answer) != len(reference):
        return None
    pairs = zip(answer, reference, strict=True)
    return max((relative_error(np.asarray(a), np.asarray(b)) for a, b in pairs), default=0.0)


def reason_of(problem: Exception) -> str:
    """Why somebody cannot take a model, in a line."""
    if isinstance(problem, MonographError):
        found = f" (found {problem.found})" if problem.found else ""
        return f"{problem.message}{found}"
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return f"{type(problem).__name__}: {lines[0] if lines else ''}".rstrip(": ")


def resident_bytes() -> int | None:
    """The memory that this process has; None where the system does not tell."""
    path = Path("/proc/self/statm")
    if not path.exists():
        return None
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
