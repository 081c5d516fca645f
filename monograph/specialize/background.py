"""One thread a process that compiles in the background, one piece of work after the other.

What takes long, LLVM, runs in one thread of the lowest priority and without Python's lock: calls
have the processors to themselves. The thread ends with the process, at the next stage of what it is
compiling. A child of a fork gets a thread of its own when it first needs one, and never finds LLVM
locked by the one that it has not.
"""

from __future__ import annotations

import atexit
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from llvmlite.binding import ffi

from monograph.priority import waiting_for_others
from monograph.progress import listening
from monograph.runtime.locks import ForkedLock


def submit(work: Callable[[], None]) -> None:
    """Do this in the background when all that was submitted before is done."""
    _worker().submit(work)


def wait(seconds: float) -> bool:
    """Whether all that was submitted is done, after so long at most; for tests and benchmarks."""
    done = threading.Event()
    submit(done.set)
    return done.wait(seconds)


class _Stopped(BaseException):
    """The process ends: what is being compiled is not wanted any more."""


class _Worker:
    """The thread and what waits for it."""

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
        with listening(self._check), waiting_for_others():
            while not self._stopping:
                self._do(self._waiting.get())

    def _do(self, work: Callable[[], None]) -> None:
        """Do a piece of work; if it fails, that is reported, and the next one done."""
        try:
            work()
        except _Stopped:
            return
        except Exception:
            kind, problem, trace = sys.exc_info()
            threading.excepthook(threading.ExceptHookArgs((kind, problem, trace, self._thread)))

    def _check(self, stage: str, done: int, total: int) -> None:
        if self._stopping:
            raise _Stopped


_workers: dict[int, _Worker] = {}
_creating = ForkedLock()


def _worker() -> _Worker:
    """The worker of this process: a fork has none of its parent's threads."""
    process = os.getpid()
    with _creating:
        if process not in _workers:
            if not _workers:
                _hold_llvm_across_forks()
            _workers.clear()
            _workers[process] = _Worker()
        return _workers[process]


def _hold_llvm_across_forks() -> None:
    """Fork only while no thread is inside LLVM: its lock would stay shut in the child."""
    lock: Any = getattr(ffi.lib, "_lock", None)
    if lock is None or not hasattr(os, "register_at_fork"):
        return

    def release() -> None:
        lock.__exit__(None, None, None)

    os.register_at_fork(before=lock.__enter__, after_in_parent=release, after_in_child=release)
