"""Each case in a process of its own: what crashes or hangs ends that process and nothing else.

This process has imported everything, computes nothing, and forks: a child starts in milliseconds,
with no compiled code, cache or heap damage from another case, so that a crash belongs to its case.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch._dynamo
import torch._dynamo.backends.debugging
import torch._functorch.aot_autograd
import torch.export

import monograph.bindings.dynamo
import monograph.bindings.loading
import monograph.bindings.models
import monograph.compiler
import monograph.frontends.torch
import monograph.kernel
import monograph.ops
import monograph.passes
import monograph.program
import monograph.runtime
import monograph.targets.cpu
from tests.fuzz.check import Case, Verdict, check
from tests.fuzz.programs import Model, Program
from tests.fuzz.routes import Mode, compiled

MEMORY_LIMIT = 24 << 30
"""Bytes of addresses that a child may have: one that asks for more fails alone."""

ATTEMPTS = 4
"""How often a case is begun whose process torch ends before anything is compiled: with CUDA, the
threads of its autograd fail in some of the children of a process."""

EARLY = "torch ended the process before anything was compiled"

PATIENCE = 10.0
"""How many times its processor time a child may take by the clock: other processes run as well."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case, and the processor time that it took."""

    case: Case
    verdict: Verdict
    seconds: float
    seed: int
    ended_early: bool = False
    """Whether a signal ended it before anything was compiled."""


COMPILING = (
    *(monograph.kernel, monograph.ops, monograph.passes, monograph.program),
    *(monograph.runtime, monograph.targets.cpu),
)
"""Packages whose modules are imported when they are first needed, which is in every child."""


def prepare() -> None:
    """Before the first fork: do once what every child would do again, and start no threads.

    What compiles is imported, which would take a third of a child's time, and what torch and the
    frontend make when they are first used is made; native code is not, because it depends on
    settings that differ from child to child.
    """
    for package in COMPILING:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    torch.set_num_threads(1)
    example = torch.ones(3, 2)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = ({0: torch.export.Dim("n")},)
        torch.export.export(torch.nn.Linear(2, 2), (example,), dynamic_shapes=shapes, strict=False)
        monograph.optimize(monograph.from_torch(_example, example))
        torch.compile(_example, backend="aot_eager")(example)
    torch._dynamo.reset()
    gc.collect()
    gc.freeze()


def _example(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ x.mT, -1)


@dataclass
class _Child:
    pid: int
    started: float
    deadline: float
    folder: TemporaryDirectory[str]
    seed: int
    attempt: int = 1

    def path(self, name: str) -> Path:
        return Path(self.folder.name) / name

    def log(self) -> str:
        return self.path("log").read_text(errors="replace").strip()


def _start(
    make_case: Callable[[], Case], seed: int, timeout: float, patience: float, attempt: int = 1
) -> _Child:
    folder = TemporaryDirectory(prefix="fuzz-")
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    now = time.monotonic()
    if pid:
        return _Child(pid, now, now + patience * timeout, folder, seed, attempt)
    status = 1
    try:
        seconds = int(timeout) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        _run(make_case, Path(folder.name))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _run(make_case: Callable[[], Case], folder: Path) -> None:
    """In the child: draw, note the case, judge it, look at the heap, note the verdict.

    Graphs, memory plans and accesses are verified, unless ``MONOGRAPH_VERIFY=0`` says otherwise.
    """
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    case = make_case()
    (folder / "case").write_text(json.dumps(case.to_json()))
    os.environ.setdefault("MONOGRAPH_VERIFY", "1")
    os.environ.update({"MONOGRAPH_CACHE": "0", **dict(case.settings)})

    def compile_case(*arguments: Any, **named: Any) -> Model:
        (folder / "compiled").touch()
        return compiled(*arguments, **named)

    verdict = check(case, compile_case)
    gc.collect()
    _touch_heap()
    (folder / "verdict").write_text(json.dumps(verdict.to_json()))


def _touch_heap() -> None:
    """Have the allocator walk its lists, which ends the process where they are damaged."""
    held = [bytearray(size) for size in (24, 120, 1000, 5000) for _ in range(50)]
    del held
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


def _end(child: _Child) -> Outcome | None:
    """The outcome of a child that has ended, or whose time has; None if it is still running."""
    pid, status, used = os.wait4(child.pid, os.WNOHANG)
    late = pid == 0 and time.monotonic() > child.deadline
    if pid == 0 and not late:
        return None
    if late:
        os.kill(child.pid, signal.SIGKILL)
        _, _, used = os.wait4(child.pid, 0)
    seconds = used.ru_utime + used.ru_stime
    try:
        failed = os.WIFEXITED(status) and os.WEXITSTATUS(status)
        if not child.path("case").exists():
            verdict = Verdict("torch", "torch ended the process while a program was drawn")
            verdict = _failure(child) if failed else verdict
            return Outcome(
                Case(Program((), (), ()), Mode()), verdict, seconds, child.seed, not failed
            )
        case = Case.from_json(json.loads(child.path("case").read_text()))
        verdict = _failure(child) if failed else _verdict(child, status, late)
        return Outcome(case, verdict, seconds, child.seed, verdict.message.startswith(EARLY))
    finally:
        child.folder.cleanup()


def _failure(child: _Child) -> Verdict:
    """What is said of the fuzzer's own fault, which must not end a run of thousands."""
    return Verdict("error", f"the fuzzer failed: {' | '.join(child.log().splitlines()[-3:])[:300]}")


def _verdict(child: _Child, status: int, late: bool) -> Verdict:
    if late:
        return Verdict(
            "timeout", f"no answer in {child.deadline - child.started:.0f} s by the clock"
        )
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return Verdict("timeout", "no answer in the processor time that a case has")
    written = child.path("verdict")
    if status == 0 and written.exists():
        return Verdict(**json.loads(written.read_text()))
    name = signal.Signals(-os.waitstatus_to_exitcode(status)).name
    text = f"{name}: {(child.log().splitlines() or [''])[-1][:160]}"
    if not child.path("compiled").exists():
        return Verdict("torch", f"{EARLY}: {text}")
    return Verdict("crash", text)


def run_case(case: Case, timeout: float, patience: float = PATIENCE) -> Outcome:
    """Judge one case in a child and wait for it."""
    (outcome,) = run_seeds((-1,), lambda _: case, 1, timeout, patience)
    return outcome


def run_seeds(
    seeds: Iterable[int],
    draw: Callable[[int], Case],
    jobs: int,
    timeout: float,
    patience: float = PATIENCE,
) -> Iterator[Outcome]:
    """Judge the cases of seeds, several at a time, as they end."""
    waiting = iter(seeds)
    running: list[_Child] = []
    while True:
        while len(running) < jobs and (seed := next(waiting, None)) is not None:
            make_case = partial(draw, seed)
            running.append(_start(make_case, seed, timeout, patience))
        if not running:
            return
        for child in list(running):
            outcome = _end(child)
            if outcome is None:
                continue
            running.remove(child)
            if outcome.ended_early and child.attempt < ATTEMPTS:
                make_case = partial(draw, child.seed)
                begun = _start(make_case, child.seed, timeout, patience, child.attempt + 1)
                running.append(begun)
                continue
            yield outcome
        time.sleep(0.005)
