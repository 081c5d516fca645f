"""Each case in a process of its own: what crashes or hangs ends that process and nothing else.

This process has imported everything, computes nothing, and forks: a child starts in milliseconds,
with no compiled code, cache or heap damage from another case, so that a crash belongs to its case.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch._dynamo
import torch._dynamo.backends.debugging
import torch._functorch.aot_autograd
import torch.export

import monograph.frontends.torch
import monograph.runtime.compile
import monograph.runtime.dynamo
import monograph.runtime.loading
import monograph.runtime.models  # noqa: F401  what children would otherwise import, each for itself
from tests.fuzz.check import Case, Verdict, check

MEMORY_LIMIT = 24 << 30
"""Bytes of addresses that a child may have: one that asks for more fails alone."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case, and how long that took; ``seed`` is None while shrinking."""

    case: Case
    verdict: Verdict
    seconds: float
    seed: int | None = None


def prepare() -> None:
    """Before the first fork: one thread, so that none is missing in a child; no garbage to look at."""
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()


@dataclass
class _Child:
    pid: int
    started: float
    deadline: float
    folder: TemporaryDirectory[str]
    seed: int | None

    def path(self, name: str) -> Path:
        return Path(self.folder.name) / name


def _start(make_case: Callable[[], Case], seed: int | None, timeout: float) -> _Child:
    folder = TemporaryDirectory(prefix="fuzz-")
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    now = time.monotonic()
    if pid:
        return _Child(pid, now, now + timeout, folder, seed)
    status = 1
    try:
        _run(make_case, Path(folder.name))
        status = 0
    finally:
        os._exit(status)


def _run(make_case: Callable[[], Case], folder: Path) -> None:
    """In the child: draw, note the case, judge it, note the verdict, look whether the heap is whole."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    case = make_case()
    (folder / "case").write_text(json.dumps(case.to_json()))
    os.environ.update({"MONOGRAPH_CACHE": "0", **dict(case.settings)})
    verdict = check(case)
    gc.collect()
    _touch_heap()
    (folder / "verdict").write_text(json.dumps(verdict.to_json()))


def _touch_heap() -> None:
    """Have the allocator walk its lists, which ends the process where something wrote past its own."""
    held = [bytearray(size) for size in (24, 120, 1000, 5000) for _ in range(50)]
    del held
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def _end(child: _Child) -> Outcome | None:
    """The outcome of a child that has ended, or whose time has; None if it is still running."""
    pid, status = os.waitpid(child.pid, os.WNOHANG)
    late = pid == 0 and time.monotonic() > child.deadline
    if pid == 0 and not late:
        return None
    if late:
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
    seconds = time.monotonic() - child.started
    try:
        case = Case.from_json(json.loads(child.path("case").read_text()))
        return Outcome(case, _verdict(child, status, late), seconds, child.seed)
    finally:
        child.folder.cleanup()


def _verdict(child: _Child, status: int, late: bool) -> Verdict:
    if late:
        return Verdict("timeout", f"no answer in {child.deadline - child.started:.0f} s")
    written = child.path("verdict")
    if status == 0 and written.exists():
        return Verdict(**json.loads(written.read_text()))
    lines = child.path("log").read_text(errors="replace").strip().splitlines() or [""]
    code = os.waitstatus_to_exitcode(status)
    name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    return Verdict("crash", f"{name}: {lines[-1][:160]}")


def run_case(case: Case, timeout: float) -> Outcome:
    """Judge one case in a child and wait for it."""
    child = _start(lambda: case, None, timeout)
    while (outcome := _end(child)) is None:
        time.sleep(0.005)
    return outcome


def run_seeds(
    seeds: Iterable[int], draw: Callable[[int], Case], jobs: int, timeout: float
) -> Iterator[Outcome]:
    """Judge the cases of seeds, several at a time, as they end."""
    waiting = iter(seeds)
    running: list[_Child] = []
    while True:
        while len(running) < jobs and (seed := next(waiting, None)) is not None:
            running.append(_start(lambda seed=seed: draw(seed), seed, timeout))  # type: ignore[misc]
        if not running:
            return
        for child in list(running):
            outcome = _end(child)
            if outcome is not None:
                running.remove(child)
                yield outcome
        time.sleep(0.005)
