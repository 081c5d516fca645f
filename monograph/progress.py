"""Progress reports of long work, for whoever listens.

The compiler announces its stages as it comes to them. Nobody has to listen, and where nobody does
an announcement costs next to nothing; the command line listens, and shows a bar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Listener: TypeAlias = Callable[[str, int, int], None]
"""Is told a stage, how many of its parts are done, and how many there are (0: nobody knows)."""

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


def announce(stage: str, done: int = 0, total: int = 0) -> None:
    """Say that a stage begins, or how far it is."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(stage, done, total)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Hear what is announced in this block, by this thread."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
