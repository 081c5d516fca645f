"""Recording when each kernel of a compiled program runs, on which thread, from its own code.

    with Recorder(native) as recorder:
        model(x)
    recorder.lanes()

The program's kernels stay as they are; its calls run another entry point meanwhile, compiled when
it is first needed (``targets.cpu.entry_point.recorded``). Times are seconds of the clock that
``time.perf_counter`` reads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.types import Array
from monograph.program.code import Step, walk_steps
from monograph.targets.cpu.entry_point.recorded import (
    BEGAN,
    BUSY,
    ENDED,
    GENERATION,
    LINE_WORDS,
    LOST,
    OWNER,
    PIECES,
    RECORDED_ENTRY,
    RECORDS,
    WHAT,
    RecordMemory,
    kernel_names,
    write_recorder,
)
from monograph.targets.cpu.machine import Effort, Library, compile_text, host

if TYPE_CHECKING:
    from monograph.runtime.cpu.native import Native

MAX_RECORDS_PER_THREAD = 1 << 16
"""Records of a thread for which there is room; memory is only taken as it is used."""
OTHER_CALLERS = 8
"""Threads that may call the program at once, beside its own, and be recorded."""
_OBSERVER = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True)
class StepRecord:
    """A step of the program, seen by the thread that began it: its waiting included."""

    number: int
    """Among all steps, those in others after their parents."""
    generation: int
    began: float
    ended: float


@dataclass(frozen=True)
class KernelRecord:
    """What one thread did of one launch of a kernel, in pieces."""

    code: str
    """The function that it ran."""
    generation: int
    """That of the last step that had begun: of the launch, unless steps run side by side."""
    began: float
    ended: float
    busy: float
    pieces: int


@dataclass(frozen=True)
class Lane:
    """All that one thread did, in order; ``thread`` is its ``threading.get_ident()``."""

    thread: int
    steps: tuple[StepRecord, ...]
    kernels: tuple[KernelRecord, ...]
    lost: int
    """Records for which there was no room."""


class Recorder:
    """Records the calls of a program that happen within it; ``observer`` is told of steps.

    It is called with a step and whether it has ended, on the thread that calls the program.
    """

    def __init__(
        self,
        native: Native,
        observer: Callable[[Step, bool], None] | None = None,
        capacity: int = MAX_RECORDS_PER_THREAD,
    ) -> None:
        self._native = native
        self._steps = list(walk_steps(native.program.steps))
        self._names = kernel_names(native.program)
        lanes = native.threads + OTHER_CALLERS
        words = LINE_WORDS * (2 + lanes * (1 + capacity))
        room = np.zeros(words, np.int64)
        skipped = -room.ctypes.data % (8 * LINE_WORDS) // 8
        self._words = room[skipped:]
        self._memory = RecordMemory(self._words.ctypes.data, lanes, capacity)
        self._observer = None if observer is None else _OBSERVER(self._observe(observer))
        self._entry = self._compile()

    def _observe(self, observer: Callable[[Step, bool], None]) -> Callable[[int, int], None]:
        steps = self._steps
        return lambda number, ended: observer(steps[number], bool(ended))

    def _compile(self) -> int:
        """Compile and link the entry point that records: its address."""
        native, machine = self._native, host()
        address = ctypes.cast(self._observer, ctypes.c_void_p).value if self._observer else None
        kernels = {name: native.library.address(name) for name in self._names}
        text = write_recorder(native.program, kernels, self._memory, machine.triple, address or 0)
        self._library = Library(compile_text(text, machine, effort=Effort.QUICK).object)
        return self._library.address(RECORDED_ENTRY)

    def __enter__(self) -> Recorder:
        self._native.enter_at(self._entry)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._native.enter_at(self._native.own_entry_address)

    def forget(self) -> None:
        """Begin anew, while no call runs."""
        for lane in self._lanes():
            lane[[RECORDS, LOST]] = 0

    def lanes(self) -> tuple[Lane, ...]:
        """What has been recorded, by thread."""
        found = []
        for lane in self._lanes():
            count = int(lane[RECORDS])
            if lane[OWNER] and count:
                rows = lane[LINE_WORDS : LINE_WORDS * (1 + count)].reshape(count, LINE_WORDS)
                found.append(self._lane(int(lane[OWNER]), rows, int(lane[LOST])))
        return tuple(found)

    def _lanes(self) -> list[Array]:
        length, lanes = self._memory.lane_words, self._memory.lanes
        return list(self._words[LINE_WORDS:][: lanes * length].reshape(lanes, length))

    def _lane(self, thread: int, rows: Array, lost: int) -> Lane:
        steps, kernels = [], []
        for row in rows.tolist():
            what, generation = row[WHAT], row[GENERATION]
            began, ended = row[BEGAN] * 1e-9, row[ENDED] * 1e-9
            if what < 0:
                steps.append(StepRecord(-1 - what, generation, began, ended))
            else:
                busy, pieces = row[BUSY] * 1e-9, row[PIECES]
                name = self._names[what]
                kernels.append(KernelRecord(name, generation, began, ended, busy, pieces))
        return Lane(thread, tuple(steps), tuple(kernels), lost)
