"""Work that may wait: threads that compile beside calls leave the processors to them.

A context says whether what runs in it is such work. On Linux every thread has a niceness of its
own; elsewhere only the number of threads is less.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LOWEST_PRIORITY = 19
"""The niceness of threads that run when no other one wants to."""

_MAY_WAIT: ContextVar[bool] = ContextVar("may_wait", default=False)


def may_wait() -> bool:
    """Whether what this thread does now is not urgent."""
    return _MAY_WAIT.get()


@contextmanager
def waiting_for_others() -> Iterator[None]:
    """What this thread does in the block is not urgent."""
    token = _MAY_WAIT.set(True)
    try:
        yield
    finally:
        _MAY_WAIT.reset(token)


def lower_this_thread() -> None:
    """Let this thread, and those that it starts, run when no other wants to: for good."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
