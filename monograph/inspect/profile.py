"""Where the time of a call goes, kernel by kernel: measured by the compiled code itself.

``profile`` makes calls with and without recording by turns. A launch counts as long as it took in
the call where it was quickest: on a machine with other work to do, every long call is disturbed
somewhere, but hardly any launch in every call. What recording costs is the ratio of the quickest
calls of both kinds, and is said beside them.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.inspect.chrome_trace import write_chrome_trace
from monograph.inspect.jsonable import jsonable
from monograph.inspect.profile_text import profile_text
from monograph.inspect.timeline import Call, Timeline, programs_of
from monograph.progress import announce
from monograph.runtime.compiled import Executable
from monograph.runtime.kernel_summary import KernelNote
from monograph.specialize.background import wait as wait_for_variants

if TYPE_CHECKING:
    from monograph.runtime.compiled import CompiledModel

RECORDED_CALLS = 20
"""Recorded calls, unless they take too long."""
MAX_SECONDS = 5.0
"""How long calls may go on, once there were ``MIN_CALLS``."""
MIN_CALLS = 3
MAX_WAIT_SECONDS = 30.0
"""How long a variant for the sizes of the calls is waited for."""


@dataclass(frozen=True)
class KernelTime:
    """The time of a kernel in a call."""

    name: str
    nodes: tuple[str, ...]
    """What it computes; empty for a copy and for what the interpreter runs."""
    kind: str
    space: str
    launches: int
    seconds: float
    """Of the call: of all its launches, each where it was quickest. Waiting for threads counts, and
    side by side with others its part of the time."""
    busy: float
    """The part of this time that the threads spent in the kernel, in the quickest call."""
    share: float
    """Of an undisturbed call."""


@dataclass(frozen=True)
class Profile:
    """The kernels of a call, the longest first; ``call`` is the quickest one, span by span."""

    model: str
    threads: int
    calls: int
    """How many were recorded."""
    seconds: float
    """The quickest of them."""
    undisturbed: float
    """A call of which every part were as quick as it was in its quickest call."""
    plain: float
    """The quickest call that was not recorded."""
    overhead: float
    """How many times as long the quickest recorded one took."""
    kernels: tuple[KernelTime, ...]
    peak_memory: int
    """Bytes of the arena that were alive at most."""
    lost: int
    """Records of the quickest call for which there was no room."""
    call: Call
    served_by: str = ""
    """Which program ran, of one with free sizes."""

    @property
    def other(self) -> float:
        """Seconds of a call outside of kernels: checking arguments, getting memory."""
        return self.undisturbed - sum(each.seconds for each in self.kernels)

    def as_json(self) -> dict[str, object]:
        """The same as plain dictionaries and lists, without the single spans."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "call"}
        found: dict[str, object] = jsonable(fields | {"other": self.other})
        return found

    def save_trace(self, path: str | Path) -> Path:
        """Write the quickest call as a Chrome trace, which ui.perfetto.dev opens."""
        return write_chrome_trace(path, self)

    def __str__(self) -> str:
        return profile_text(self)


def profile(
    model: CompiledModel,
    *inputs: Any,
    calls: int = RECORDED_CALLS,
    seconds: float = MAX_SECONDS,
    name: str | None = None,
    **named: Any,
) -> Profile:
    """Call a compiled model and say where the time goes.

    It makes up to ``calls`` recorded calls, and as many others, and stops after ``seconds``.
    """
    if calls < 1:
        raise InputError("nothing can be measured without a call", found=f"calls={calls}")
    executable = model if isinstance(model, Executable) else model.executable
    return profile_calls(
        executable,
        lambda: model(*inputs, **named),
        calls=calls,
        seconds=seconds,
        name=name or f"@{executable.graph.name}",
    )


def profile_calls(
    executable: Executable,
    call: Callable[[], object],
    *,
    calls: int = RECORDED_CALLS,
    seconds: float = MAX_SECONDS,
    name: str = "",
) -> Profile:
    """The profile of a call that runs an executable.

    It is of what serves such calls from then on: a variant for their sizes, if one is compiled.
    """
    for _ in range(MIN_CALLS):  # the first ones complete programs and pack weights
        call()
    announce("waiting for variants")
    wait_for_variants(MAX_WAIT_SECONDS)
    call()  # which packs the weights of one that is new
    announce("compiling the recording")
    programs = list(programs_of(executable).values())
    timeline = Timeline(executable)
    timeline.record(call)
    timeline.drop_idle()
    recorded, plain = [], []
    until = time.perf_counter() + seconds
    gc.collect()
    for number in range(calls):
        if number >= MIN_CALLS and time.perf_counter() > until:
            break
        announce("calls", number, calls)
        call()  # so that the threads are awake
        began = time.perf_counter()
        call()
        plain.append(time.perf_counter() - began)
        recorded.append(timeline.record(call))
    if list(programs_of(executable).values()) != programs:  # and they may serve these calls
        return profile_calls(executable, call, calls=calls, seconds=seconds, name=name)
    quickest = min(recorded, key=lambda each: each.seconds)
    times = [each.times() for each in recorded]
    launches = quickest_launches(times)
    other = min(
        each.seconds - sum(map(sum, own.values()))
        for each, own in zip(recorded, times, strict=True)
    )
    undisturbed = other + sum(map(sum, launches.values()))
    return Profile(
        model=name or f"@{executable.graph.name}",
        threads=max(program.native.threads for program in timeline.programs.values()),
        calls=len(recorded),
        seconds=quickest.seconds,
        undisturbed=undisturbed,
        plain=min(plain),
        overhead=quickest.seconds / min(plain),
        kernels=_kernel_times(launches, quickest, _notes(timeline), undisturbed),
        peak_memory=max((nbytes for _, nbytes in quickest.memory), default=0),
        lost=quickest.lost,
        call=quickest,
        served_by=_name_program(executable, timeline),
    )


def _name_program(executable: Executable, timeline: Timeline) -> str:
    native = executable.native
    if native is None or native.static or len(timeline.programs) > 1:
        return ""
    (only,) = timeline.programs.values()
    return "the program for all sizes" if only.native is native else "a variant for these sizes"


def quickest_launches(calls: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """For each launch of each kernel the least time that it took; those that every call had."""
    return {
        name: [
            min(several) for several in zip(*(each.get(name, ()) for each in calls), strict=False)
        ]
        for name in calls[0]
    }


def _notes(timeline: Timeline) -> dict[str, KernelNote]:
    """What is known of the kernels, by the names that a timeline gives them."""
    return {
        label + note.name: note
        for label, program in timeline.programs.items()
        for note in program.executable.report.kernels
    }


@contextlib.contextmanager
def without_variants(executable: Executable) -> Iterator[None]:
    """Let calls run the programs for all sizes: those that are explained."""
    with contextlib.ExitStack() as stack:
        for program in programs_of(executable).values():
            if program.native is not None and program.native.variants is not None:
                stack.enter_context(program.native.variants.leave_out())
        yield


def _kernel_times(
    launches: Mapping[str, Sequence[float]],
    quickest: Call,
    notes: Mapping[str, KernelNote],
    undisturbed: float,
) -> tuple[KernelTime, ...]:
    """The kernels, the longest first."""
    found = []
    for name, times in launches.items():
        note = notes.get(name)
        seconds = sum(times)
        found.append(
            KernelTime(
                name,
                () if note is None else note.nodes,
                "" if note is None else note.kind,
                "" if note is None else note.space,
                len(times),
                seconds,
                _busy(quickest, name),
                seconds / undisturbed,
            )
        )
    return tuple(sorted(found, key=lambda each: -each.seconds))


def _busy(call: Call, name: str) -> float:
    """How much of a kernel's time the threads that took part in the call spent in it."""
    count = len({span.thread for span in call.threads}) or 1
    open_ = sum(span.seconds for span in call.launches if span.name == name)
    spent = sum(span.busy for span in call.threads if span.name == name)
    return min(1.0, spent / (open_ * count)) if open_ else 0.0
