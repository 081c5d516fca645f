"""Variants: programs for the sizes that come back, specialized in the background.

A program with symbolic sizes runs at any of them, but its schedules, layouts and algorithms have to
hold for all. When the same sizes come a second time, a *variant* is compiled for just those, by a
thread of its own, while calls go on with the symbolic program; once it is there, calls of these
sizes run it. No call waits for it, and results may then differ in their last bits. At most
``MONOGRAPH_VARIANTS`` are kept (4 unless it is set, 0 for none), the least recently used one is
dropped, and from then on sizes have to come twice as often before they get one, so that many sizes
in turns do not keep a processor busy. Packed weights that are the same are held once.

A variant that cannot be compiled is not tried again: the symbolic program serves these sizes, and
``explain`` names the reason.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import MonographError
from monograph.ir.types import Array
from monograph.progress import listening

if TYPE_CHECKING:
    from monograph.runtime.compiled import Executable
    from monograph.runtime.executable import Native

CALLS_BEFORE = 2
"""How often sizes have to come before a variant is compiled for them."""
MAX_COUNTED = 256
"""For how many sizes it is counted how often they came."""

Sizes = tuple[int, ...]


class State(Enum):
    """What has become of a variant."""

    WAITING = "waiting to be compiled"
    READY = "compiled"
    REFUSED = "not possible"


@dataclass
class Variant:
    """A program for some sizes, once it is there."""

    state: State = State.WAITING
    executable: Executable | None = None
    reason: str = ""


class Variants:
    """The variants of one program; ``make`` compiles one for sizes in the program's order."""

    def __init__(self, most: int, make: Callable[[Sizes], Executable]) -> None:
        self.version = 0
        """Changes whenever another program serves some sizes."""
        self._most = most
        self._make = make
        self._calls_before = CALLS_BEFORE
        self._lock = threading.Lock()
        self._variants: OrderedDict[Sizes, Variant] = OrderedDict()
        self._calls: OrderedDict[Sizes, int] = OrderedDict()

    def find(self, sizes: Sizes) -> Native | None:
        """The variant for these sizes, if it is there; this call counts as one of these sizes."""
        variant = self._variants.get(sizes)
        if variant is None:
            self._count(sizes)
            return None
        if variant.executable is None:
            return None
        with self._lock:
            if sizes in self._variants:
                self._variants.move_to_end(sizes)
        return variant.executable.native

    def ready(self, sizes: Sizes) -> Executable | None:
        """The variant for these sizes, if it is there."""
        variant = self._variants.get(sizes)
        return None if variant is None else variant.executable

    def states(self) -> Mapping[Sizes, Variant]:
        """What there is, the least recently used first."""
        with self._lock:
            return dict(self._variants)

    def wait(self, seconds: float) -> bool:
        """Whether nothing is left to compile, after so long at most; for tests and benchmarks."""
        done = threading.Event()
        _worker().submit(done.set)
        return done.wait(seconds)

    def _count(self, sizes: Sizes) -> None:
        with self._lock:
            calls = self._calls.pop(sizes, 0) + 1
            self._calls[sizes] = calls
            while len(self._calls) > MAX_COUNTED:
                self._calls.popitem(last=False)
            if calls < self._calls_before or sizes in self._variants:
                return
            self._calls.pop(sizes)
            self._variants[sizes] = Variant()
            self._drop_oldest()
        held = weakref.ref(self)
        _worker().submit(lambda: _compile(held, sizes))

    def _drop_oldest(self) -> None:
        while len(self._variants) > self._most:
            _, dropped = self._variants.popitem(last=False)
            self.version += dropped.executable is not None
            self._calls_before *= 2

    def compile(self, sizes: Sizes) -> None:
        """Compile the variant for these sizes, unless nobody wants it any more."""
        variant = self._variants.get(sizes)
        if variant is None:
            return
        try:
            variant.executable = self._make(sizes)
            variant.state = State.READY
        except MonographError as error:
            variant.state, variant.reason = State.REFUSED, error.message
        self.version += 1


def _compile(held: weakref.ref[Variants], sizes: Sizes) -> None:
    """Compile for a program, if it is still there."""
    variants = held()
    if variants is not None:
        variants.compile(sizes)


def share_panels(made: dict[int, Array], others: Mapping[int, Array]) -> None:
    """Replace packed weights by equal ones that another program holds already."""
    by_size: dict[tuple[int, str], list[Array]] = {}
    for array in others.values():
        by_size.setdefault((array.nbytes, array.dtype.str), []).append(array)
    for slot, array in made.items():
        for other in by_size.get((array.nbytes, array.dtype.str), ()):
            if other is not array and np.array_equal(other.view(np.uint8), array.view(np.uint8)):
                made[slot] = other
                break


class _Stopped(BaseException):
    """The process ends: what is being compiled is not wanted any more."""


class _Worker:
    """One thread a process that compiles, one variant after the other."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="monograph-variants", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def submit(self, work: Callable[[], None]) -> None:
        """Do this when all that was submitted before is done."""
        self._waiting.put(work)

    def stop(self) -> None:
        """End with what is being compiled, at its next stage: LLVM must be at rest at the end."""
        self._stopping = True
        self._waiting.put(lambda: None)
        self._thread.join()

    def _run(self) -> None:
        try:
            with listening(self._check):
                while not self._stopping:
                    self._waiting.get()()
        except _Stopped:
            return

    def _check(self, stage: str, done: int, total: int) -> None:
        if self._stopping:
            raise _Stopped


_workers: dict[int, _Worker] = {}
_creating = threading.Lock()


def _worker() -> _Worker:
    """The worker of this process: a fork has none of its parent's threads."""
    process = os.getpid()
    with _creating:
        if process not in _workers:
            _workers.clear()
            _workers[process] = _Worker()
        return _workers[process]
