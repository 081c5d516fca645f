"""Locks that are reopened in the child of a fork.

The child of a fork has one thread. A lock that another thread held at that moment stays held there
for good, and whoever waits for it sleeps for ever.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType


class ForkedLock:
    """A lock for ``with``, which its own thread may take again, and which a child finds open."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.release()

    def open(self) -> None:
        """Forget who holds it, in the child of a fork."""
        self._lock = threading.RLock()


_locks: weakref.WeakSet[ForkedLock] = weakref.WeakSet()


def _after_fork() -> None:
    for each in list(_locks):
        each.open()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
