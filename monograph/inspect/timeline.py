"""Calls of a compiled program as they happened: which kernel ran when, on which thread.

The compiled code records it (``runtime.cpu.recording``). Here the records of a call become spans
with the names of kernels: *launches*, as the thread that makes the call sees them, with its waiting
for other threads, and what each *thread* did.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from monograph.dataclass import dataclass
from monograph.errors import UnsupportedError
from monograph.program.code import Copy, Interpret, Launch, LibraryCall, walk_steps
from monograph.program.liveness import alive_bytes, begin_times
from monograph.runtime.compiled import Executable
from monograph.runtime.cpu.recording import KernelRecord, Lane, Recorder, StepRecord

COPY = "copy"
SIDE_BY_SIDE = "side by side"


@dataclass(frozen=True)
class Span:
    """Something that went on from a time to another on a thread; 0 is the one that calls."""

    name: str
    thread: int
    began: float
    ended: float
    busy: float
    """Seconds of it in the kernel itself."""
    pieces: int = 1

    @property
    def seconds(self) -> float:
        """From begin to end."""
        return self.ended - self.began


@dataclass(frozen=True)
class Call:
    """One call. Launches that run side by side lie within one of the ``regions``."""

    began: float
    ended: float
    launches: tuple[Span, ...]
    threads: tuple[Span, ...]
    regions: tuple[Span, ...]
    memory: tuple[tuple[float, int], ...]
    """Bytes of the arena that are alive, from each of these times on."""
    lost: int
    """Records for which there was no room."""

    @property
    def seconds(self) -> float:
        """How long it took, checks of the arguments included."""
        return self.ended - self.began

    def times(self) -> dict[str, list[float]]:
        """Seconds of the call for each launch of each kernel, in order.

        Copies and interpreted nodes count as kernels. While several launches run at once, each is
        given its part of the time: all add up to no more than the call.
        """
        found: dict[str, list[float]] = {}
        parts = divide_overlaps([(span.began, span.ended) for span in self.launches])
        for span, part in zip(self.launches, parts, strict=True):
            found.setdefault(span.name, []).append(part)
        return found


def divide_overlaps(spans: Sequence[tuple[float, float]]) -> list[float]:
    """The length of each span; where several overlap, the time is divided among them."""
    changes = sorted(
        [(began, 1, number) for number, (began, _) in enumerate(spans)]
        + [(ended, 0, number) for number, (_, ended) in enumerate(spans)]
    )
    found = [0.0] * len(spans)
    open_: dict[int, None] = {}
    before = 0.0
    for instant, begins, number in changes:
        for each in open_:
            found[each] += (instant - before) / len(open_)
        before = instant
        if begins:
            open_[number] = None
        else:
            open_.pop(number, None)
    return found


def programs_of(executable: Executable) -> dict[str, Executable]:
    """The native programs of a model, by what their kernels' names begin with.

    There are several where calls complete a program, or where sizes that came back have their own.
    """
    found = list(_programs(executable))
    if len(found) == 1:
        return {"": found[0]}
    return {f"{number}.": each for number, each in enumerate(found)}


def _programs(executable: Executable) -> Iterator[Executable]:
    for part in () if executable.stage is None else executable.stage.parts:
        yield from _programs(part)
    native = executable.native
    if native is None:
        return
    yield executable
    variants = native.variants
    for sizes in () if variants is None else variants.states():
        ready = None if variants is None else variants.ready(sizes)
        if ready is not None:
            yield from _programs(ready)


class Timeline:
    """Records the calls of a compiled model, which has been called before.

    with Timeline(executable) as timeline:
        call = timeline.record(lambda: model(x))
    """

    def __init__(self, executable: Executable) -> None:
        programs = programs_of(executable)
        if not programs:
            raise UnsupportedError(
                "this program has no kernels to time: the interpreter runs all of it",
                hint="explain says why",
            )
        self.programs = {
            label: _Program(label, each)
            for label, each in programs.items()
            if each.native is not None
        }

    def drop_idle(self) -> None:
        """Forget the programs without a part in the last call; a single one needs no label."""
        busy = {name: each for name, each in self.programs.items() if each.recorder.lanes()}
        if len(busy) == 1:
            (only,) = busy.values()
            only.label = ""
            busy = {"": only}
        self.programs = busy or self.programs

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Let calls within it be recorded."""
        with ExitStack() as stack:
            for program in self.programs.values():
                stack.enter_context(program.recorder)
            yield

    def record(self, call: Callable[[], object]) -> Call:
        """Call it once."""
        for program in self.programs.values():
            program.recorder.forget()
        with self.recording():
            began = time.perf_counter()
            call()
            ended = time.perf_counter()
        return self._collect(began, ended)

    def _collect(self, began: float, ended: float) -> Call:
        numbers: dict[int, int] = {threading.get_ident(): 0}
        launches: list[Span] = []
        regions: list[Span] = []
        threads: list[Span] = []
        memory: list[tuple[float, int]] = []
        lost = 0
        for program in self.programs.values():
            lanes = program.recorder.lanes()
            named = program.named(lanes)
            for lane in lanes:
                thread = numbers.setdefault(lane.thread, len(numbers))
                lost += lane.lost
                for step in lane.steps:
                    name, is_region = program.step_name(step.number)
                    spans = regions if is_region else launches
                    spans.append(
                        Span(name, thread, step.began, step.ended, step.ended - step.began)
                    )
                for record in lane.kernels:
                    span = (record.began, record.ended, record.busy, record.pieces)
                    threads.append(Span(named[record], thread, *span))
            memory += program.memory(lanes)
        launched, ran, beside = map(_in_time, (launches, threads, regions))
        return Call(began, ended, launched, ran, beside, tuple(sorted(memory)), lost)


def _in_time(spans: list[Span]) -> tuple[Span, ...]:
    return tuple(sorted(spans, key=lambda span: span.began))


class _Program:
    """One program, its recorder, and the names of its steps."""

    def __init__(self, label: str, executable: Executable) -> None:
        native = executable.native
        assert native is not None, "programs_of names those with native code"
        self.executable = executable
        self.native = native
        self.recorder = Recorder(native)
        self.label = label
        self._steps = list(walk_steps(native.program.steps))
        self._codes = native.program.codes
        self._firsts: dict[str, str] = {}
        for step in self._steps:
            if isinstance(step, Launch):
                self._firsts.setdefault(self._codes.get(step.kernel, step.kernel), step.kernel)

    def step_name(self, number: int) -> tuple[str, bool]:
        """The name of a step, and whether it runs others side by side."""
        step = self._steps[number]
        if isinstance(step, Launch):
            return self.label + step.kernel, False
        if isinstance(step, Interpret):
            node = self.native.program.fallbacks[step.call]
            return f"{self.label}interpreter: {node.op.name}", False
        if isinstance(step, LibraryCall):
            node = self.native.program.fallbacks[step.call]
            return f"{self.label}{step.library}: {node.op.name}", False
        return (self.label + COPY, False) if isinstance(step, Copy) else (SIDE_BY_SIDE, True)

    def named(self, lanes: Sequence[Lane]) -> Mapping[KernelRecord, str]:
        """The kernel of each record, by the launch that it belongs to.

        That is the one of its generation, or else the one on its own thread that it lies in: what
        runs side by side is launched by the thread that runs it.
        """
        launched = {step.generation: step for lane in lanes for step in lane.steps}
        found = {}
        for lane in lanes:
            for record in lane.kernels:
                step = launched.get(record.generation)
                if step is None or not self._runs(step, record):
                    step = next((s for s in lane.steps if self._holds(s, record)), None)
                kernel = None if step is None else self._steps[step.number]
                name = kernel.kernel if isinstance(kernel, Launch) else self._firsts[record.code]
                found[record] = self.label + name
        return found

    def _runs(self, step: StepRecord, record: KernelRecord) -> bool:
        launch = self._steps[step.number]
        return isinstance(launch, Launch) and self._code(launch) == record.code

    def _holds(self, step: StepRecord, record: KernelRecord) -> bool:
        inside = step.began <= record.began and record.ended <= step.ended
        return inside and self._runs(step, record)

    def _code(self, launch: Launch) -> str:
        return self._codes.get(launch.kernel, launch.kernel)

    def memory(self, lanes: Sequence[Lane]) -> list[tuple[float, int]]:
        """Bytes of the arena that are alive as each step of the program itself begins."""
        steps = self.native.program.steps
        sizes = list(self.native.calls_at)
        if not sizes:
            return []
        plan, times = (
            self.native.plan_for(sizes[-1]),
            dict(zip(map(id, steps), begin_times(steps), strict=True)),
        )
        found, last = [], -1
        for lane in lanes:
            for record in lane.steps:
                moment = times.get(id(self._steps[record.number]))
                nbytes = -1 if moment is None else alive_bytes(plan, moment)
                if nbytes >= 0 and nbytes != last:
                    found.append((record.began, nbytes))
                    last = nbytes
        return found
