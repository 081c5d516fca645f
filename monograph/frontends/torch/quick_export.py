"""Speeds up ``torch.export`` by leaving out work whose result is not read here.

Exporting is most of what compiling a torch model takes when the code is in the cache. It writes
Python for every intermediate form of the graph, and reads the source line of every frame of the
stack for every node, though only the frames of the model are kept.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Any

import torch.fx.proxy

LAZY = "torch.fx._lazy_graph_module"
"""Where torch keeps graphs of which no Python is written before somebody runs them."""


@contextmanager
def quick_export() -> Iterator[None]:
    """While it is on, graphs are exported in less time, and are the same."""
    with ExitStack() as stack:
        if importlib.util.find_spec(LAZY) is not None:  # as in all versions that we know
            stack.enter_context(LAZY_GRAPHS)
        if hasattr(torch.fx.proxy, "CapturedTraceback"):
            stack.enter_context(SHORT_STACKS)
        yield


class SharedContext:
    """A change of torch's globals that several threads share.

    The first one in makes the change, and the last one out takes it back. Were each to put back
    what it found, the one that came second and left last would put back the change itself.
    """

    def __init__(self, change: Callable[[], AbstractContextManager[None]]) -> None:
        self._change = change
        self._inside = 0
        self._lock = threading.Lock()
        self._entered = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._entered.enter_context(self._change())
            self._inside += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._entered.close()


def _lazy_graphs() -> AbstractContextManager[None]:
    """Graph modules that write their Python when it is asked for."""
    changed: AbstractContextManager[None] = importlib.import_module(LAZY)._use_lazy_graph_module(
        True
    )
    return changed


@contextmanager
def _short_stacks() -> Iterator[None]:
    """Torch's tracing records stacks as ``Frames``."""
    proxy: Any = torch.fx.proxy
    original = proxy.CapturedTraceback
    proxy.CapturedTraceback = Frames
    try:
        yield
    finally:
        proxy.CapturedTraceback = original


LAZY_GRAPHS = SharedContext(_lazy_graphs)
SHORT_STACKS = SharedContext(_short_stacks)


class Frames:
    """The stack of calls from a model's ``forward`` on, in the place of torch's own record of it.

    A source line is read when it is printed.
    """

    def __init__(self, calls: list[tuple[str, int, str]]) -> None:
        self._calls = calls

    @classmethod
    def extract(cls, **_: Any) -> Frames:
        """The calls of this moment, the outermost first."""
        calls, first = [], 0
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            calls.append((code.co_filename, frame.f_lineno, code.co_name))
            if code.co_name == "forward":
                first = len(calls)
            frame = frame.f_back
        return cls(calls[:first][::-1])

    def summary(self) -> traceback.StackSummary:
        """The calls as the standard library shows them."""
        found = (traceback.FrameSummary(*each, lookup_line=False) for each in self._calls)
        return traceback.StackSummary(found)
