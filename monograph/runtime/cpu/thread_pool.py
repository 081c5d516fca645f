"""The threads that programs run on: one pool a process, compiled and created on first use.

The pool itself is native code (:mod:`monograph.targets.cpu.threads`). This module compiles it,
makes its functions known to programs that are linked later, and sees to it that nothing is left
hanging when the process forks or ends.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading

import llvmlite.binding as llvm

from monograph.config import MOST_THREADS, processor_count
from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.runtime.cpu.shared_code import compile_quickly, load_for_good, load_or_compile
from monograph.runtime.thread_count import thread_count
from monograph.targets.cpu.threads.pool import (
    CONFIGURE,
    PARALLEL_FOR,
    RESET,
    START,
    STOP,
    pool_module,
)

SPIN_NANOSECONDS = 700_000
"""Nanoseconds that an idle worker looks out for work before it sleeps.

Long enough that the workers of a running program stay awake from kernel to kernel; short enough
that an idle process costs nothing.
"""

CROWDED_SPIN = 20_000
"""The same where there are more threads than processors: who spins is in another's way."""

_CONFIGURE_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
_START_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
_STOP_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32)
_RESET_TYPE = ctypes.CFUNCTYPE(None)


@dataclass(frozen=True)
class Pool:
    """The addresses of a pool's native functions, and the few that Python calls itself."""

    addresses: dict[str, int]

    @property
    def parallel_for_address(self) -> int:
        """``i32 (ptr body, ptr context, i64 total, i64 grain, i64 threads)``."""
        return self.addresses[PARALLEL_FOR]

    def configure(self, threads: int) -> None:
        """Let no region use more than this many threads, the caller included."""
        _check_threads(threads)
        spin = SPIN_NANOSECONDS if threads <= processor_count() else CROWDED_SPIN
        _CONFIGURE_TYPE(self.addresses[CONFIGURE])(threads, spin)

    def start(self, threads: int) -> int:
        """Create the workers of so many threads now; how many threads there are after that.

        Nobody has to call this: the first region that wants workers creates them.
        """
        _check_threads(threads)
        return int(_START_TYPE(self.addresses[START])(threads))

    def stop(self) -> bool:
        """End the workers and wait for them; false, and nothing done, while a region runs.

        The next region creates them again.
        """
        return int(_STOP_TYPE(self.addresses[STOP])()) == 0

    def reset(self) -> None:
        """Forget the workers, in the child of a fork, where they do not exist."""
        _RESET_TYPE(self.addresses[RESET])()


def _check_threads(threads: int) -> None:
    if 1 <= threads <= MOST_THREADS:
        return
    expected = f"from 1 to {MOST_THREADS}"
    raise InputError("not a number of threads", expected=expected, found=str(threads))


_pool: Pool | None = None
_most = 0
"""The most threads that a region of the pool may use."""
_lock = threading.Lock()


def pool() -> Pool:
    """The pool of this process, compiled and configured the first time."""
    global _most, _pool
    with _lock:
        if _pool is None:
            _most = thread_count()
            made = load_pool(load_or_compile_pool())
            made.configure(_most)
            atexit.register(made.stop)
            _pool = made
        return _pool


def symbols(threads: int | None = None) -> None:
    """Let modules that are linked from now on find the pool's functions by name.

    They may use so many threads, though the environment says less, but no more than there are
    processors for.
    """
    global _most
    made = pool()
    for name, address in made.addresses.items():
        llvm.add_symbol(name, address)
    wanted = min(threads or 1, processor_count())
    with _lock:
        if wanted > _most:
            made.configure(wanted)
            _most = wanted


def load_or_compile_pool() -> bytes:
    """The object file of this machine's pool; it is compiled once and then kept on the disk."""
    return load_or_compile("pool", pool_module(llvm.get_process_triple()), compile_pool)


def compile_pool(text: str) -> bytes:
    """An object file, for the machine that this process runs on, of a pool's LLVM module.

    Its cost is that of cache lines travelling between cores: there is nothing to optimise.
    """
    return compile_quickly(text)


def load_pool(compiled: bytes) -> Pool:
    """Link an object that holds a pool, with state of its own, into this process.

    Workers may run its code until the very end of the process.
    """
    return Pool(load_for_good(compiled, (PARALLEL_FOR, CONFIGURE, START, STOP, RESET)))


def _before_fork() -> None:
    """Let nobody create the pool meanwhile, and end the workers, whom the child would lose."""
    _lock.acquire()
    if _pool is not None:
        _pool.stop()


def _after_fork_in_child() -> None:
    """Forget what a region of another thread has left behind, which could not be stopped."""
    if _pool is not None:
        _pool.reset()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_lock.release,
        after_in_child=_after_fork_in_child,
    )
