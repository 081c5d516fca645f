"""Kernels under ``torch.profiler``: each launch is a range with the kernel's name.

A call that torch's profiler watches runs the entry point that records (``recording``), which tells
of each step as it begins and ends; a range (``torch.profiler.record_function``) is opened and
closed then. That costs a few microseconds a launch. Steps that run side by side are one range.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from monograph.program.code import Copy, Interpret, Launch, LibraryCall, Step
from monograph.runtime.cpu.recording import Recorder

if TYPE_CHECKING:
    from monograph.runtime.cpu.native import Native

PREFIX = "monograph::"


class _NeverEnabled:
    """Stands for torch's profiler where nobody has imported torch."""

    _is_profiler_enabled = False


def torch_profiler() -> Any:
    """The module that says, as ``_is_profiler_enabled``, whether torch's profiler is at work."""
    return sys.modules.get("torch.autograd.profiler", _NeverEnabled)


def is_profiling() -> bool:
    """Whether torch's profiler is at work."""
    return bool(torch_profiler()._is_profiler_enabled)


class KernelRanges:
    """Opens and closes ranges for a program's steps."""

    def __init__(self, native: Native) -> None:
        self._fallbacks = native.program.fallbacks
        self._open = threading.local()
        self._recorder = Recorder(native, self._observe, capacity=1)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show what this thread runs in this block."""
        self._open.ranges = []
        try:
            with self._recorder:
                yield
        finally:
            for each in reversed(self._open.ranges):  # of a call that failed
                each.__exit__(None, None, None)
            del self._open.ranges

    def _observe(self, step: Step, ended: bool) -> None:
        ranges = getattr(self._open, "ranges", None)
        if ranges is None:  # another thread's call, which torch's profiler does not watch
            return
        if ended:
            ranges.pop().__exit__(None, None, None)
            return
        opened = torch_profiler().record_function(PREFIX + self._name(step))
        opened.__enter__()
        ranges.append(opened)

    def _name(self, step: Step) -> str:
        if isinstance(step, Launch):
            return step.kernel
        if isinstance(step, Interpret):
            return f"interpreter: {self._fallbacks[step.call].op.name}"
        if isinstance(step, LibraryCall):
            return f"{step.library}: {self._fallbacks[step.call].op.name}"
        return "copy" if isinstance(step, Copy) else "side by side"
