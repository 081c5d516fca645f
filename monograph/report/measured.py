"""What a report knows of time: a call, its kernels one by one, every thread, and the machine.

A model is called on random inputs, with and without recording (``inspect.profile``). Without the
time for that, or on inputs that do not suit it, a report says why it has no times.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from monograph.dataclass import dataclass
from monograph.errors import MonographError
from monograph.inspect.explain import Explanation
from monograph.inspect.inputs import make_inputs
from monograph.inspect.measure import alternate, busy_note
from monograph.inspect.profile import Profile, profile_calls, without_variants
from monograph.inspect.roofline import Roofline, load_or_measure_roofline
from monograph.inspect.timeline import Span
from monograph.progress import announce
from monograph.runtime.bundle import Json
from monograph.runtime.compiled import Executable

MEASURED_CALLS = 12
MAX_SECONDS = 4.0
MOST_SPANS = 4000
"""Of a call, the longest ones: as many as a page draws without lag."""


@dataclass(frozen=True)
class Measured:
    """What a call takes, or why that is not known; kernels and roofline where they are known."""

    note: str
    seconds: float | None = None
    profile: Profile | None = None
    roofline: Roofline | None = None
    busy: str = ""
    """What other programs did meanwhile, if they did anything."""

    def explained(self, explanation: Explanation) -> Explanation:
        """An explanation with the times of its kernels."""
        if self.profile is None or self.roofline is None:
            return explanation
        return explanation.measured(self.profile, self.roofline)

    def facts(self, kernels: Sequence[str]) -> dict[str, Json]:
        """The figures; times of spans in microseconds since the call began."""
        found: dict[str, Json] = {
            "call_ms": None if self.seconds is None else self.seconds * 1e3,
            "undisturbed_ms": None if self.profile is None else self.profile.undisturbed * 1e3,
            "note": self.note,
            "busy": self.busy,
        }
        if self.roofline is not None:
            found["peak_gflops"] = self.roofline.flops / 1e9
            found["levels"] = [
                {"name": each.name, "gbs": each.bandwidth / 1e9} for each in self.roofline.levels
            ]
        if self.profile is not None:
            found["overhead"] = self.profile.overhead
            found["spans"] = spans_of(self.profile, kernels)
        return found


def read_profile(profile: Profile) -> Measured:
    """What a profile that somebody made says of time."""
    note = f"the quickest of {profile.calls} calls"
    return Measured(note, profile.plain, profile, load_or_measure_roofline(profile.threads))


def measure(executable: Executable, sizes: Mapping[str, int]) -> Measured:
    """Call a program on random inputs and time it, kernel by kernel where it has kernels."""
    try:
        inputs = make_inputs(executable.graph, {}, sizes)
        executable.run(inputs)
    except MonographError as error:
        return Measured(f"it was not called: {error.message}")
    busy = busy_note() or ""
    try:
        roofline = load_or_measure_roofline(
            None if executable.native is None else executable.native.threads
        )
        with without_variants(executable):
            profile = profile_calls(
                executable,
                lambda: executable.run(inputs),
                calls=MEASURED_CALLS,
                seconds=MAX_SECONDS,
            )
    except MonographError:  # the interpreter runs all of it: there are no kernels to time
        return _whole_calls(executable, inputs, busy)
    note = f"the quickest of {profile.calls} calls on random inputs"
    return Measured(note, profile.plain, profile, roofline, busy)


def _whole_calls(executable: Executable, inputs: Sequence[object], busy: str) -> Measured:
    announce("measuring")
    until = time.perf_counter() + MAX_SECONDS
    timing = alternate({"call": lambda: executable.run(inputs)}, MEASURED_CALLS, until=until)[
        "call"
    ]
    note = f"the median of {len(timing.turns)} calls on random inputs"
    return Measured(note, timing.median, busy=busy)


def spans_of(profile: Profile, kernels: Sequence[str]) -> Json:
    """What each thread did in the quickest call: kernel, thread, begin, end; the longest ones.

    A kernel is its number, or its name if it is none of the program's (a copy, the interpreter).
    """
    call = profile.call
    numbers = {name: number for number, name in enumerate(kernels)}
    own = {span.name for span in call.threads}
    listed = [*call.threads, *(span for span in call.launches if span.name not in own)]
    longest = sorted(listed, key=lambda span: -span.seconds)[:MOST_SPANS]
    rows: list[Json] = [
        [
            numbers.get(span.name, span.name),
            span.thread,
            _microseconds(span.began - call.began),
            _microseconds(span.ended - call.began),
        ]
        for span in sorted(longest, key=_began)
    ]
    memory: list[Json] = [[_microseconds(at - call.began), nbytes] for at, nbytes in call.memory]
    return {
        "call": _microseconds(call.seconds),
        "threads": 1 + max((span.thread for span in listed), default=0),
        "rows": rows,
        "left_out": len(listed) - len(longest),
        "memory": memory[:MOST_SPANS],
    }


def _began(span: Span) -> float:
    return span.began


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 2)
