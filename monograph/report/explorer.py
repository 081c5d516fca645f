"""The explorer's compiler from the server's side: one process, one edit at a time, each in time."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from monograph.dataclass import dataclass
from monograph.errors import MonographError, TimeLimitError

WAITS_AT_EXIT_SECONDS = 5.0
"""How long a process that was told to end may take, before it is made to."""


@dataclass(frozen=True)
class Opening:
    """What is explored, and how it is compiled."""

    model: str
    types: Sequence[str] = ()
    level: str = "O2"
    threads: int | None = None
    passes: str | None = None
    plugins: Sequence[str] = ()
    sizes: Mapping[str, int] | None = None
    target: str | None = None

    def line(self) -> str:
        """It as the worker reads it."""
        given = {
            "model": self.model,
            "types": list(self.types),
            "level": self.level,
            "threads": self.threads,
            "passes": self.passes,
            "plugins": list(self.plugins),
            "sizes": dict(self.sizes or {}),
            "target": self.target,
        }
        return json.dumps(given) + "\n"


class WorkerError(MonographError):
    """What the process that compiles could not do; its message is the whole error."""


class BusyError(MonographError):
    """Another edit is being compiled."""


class Explorer:
    """Compiles a model, and then edits of it, in a process that can be ended.

    ``seconds`` is what an edit may take; opening the model may take as long as it takes.
    """

    def __init__(self, opening: Opening, seconds: float) -> None:
        self.opening = opening
        self.seconds = seconds
        self._working = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> dict[str, Any]:
        """What is known of the model."""
        with self._working:
            return self._start()

    def edit(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What became of an edit; an error if there is none, or if another is at work."""
        if not self._working.acquire(blocking=False):
            raise BusyError("another edit is being compiled", hint="wait until that is done")
        try:
            if self._process is None:
                self._start()
            return self._ask(json.dumps(given) + "\n", self.seconds)
        finally:
            self._working.release()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(WAITS_AT_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def _start(self) -> dict[str, Any]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "monograph.report.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self._ask(self.opening.line(), None)

    def _ask(self, line: str, seconds: float | None) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(line.encode())
            process.stdin.flush()
        except BrokenPipeError:
            self.close()
            raise WorkerError("the process that compiles has ended") from None
        answer = self._read(process, None if seconds is None else time.monotonic() + seconds)
        found: dict[str, Any] = json.loads(answer)
        if "error" in found:
            raise WorkerError(found["error"])
        return found

    def _read(self, process: subprocess.Popen[bytes], until: float | None) -> bytes:
        """One line; the process is ended if it does not come in time."""
        assert process.stdout is not None
        found: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not found or not found[-1].endswith(b"\n"):
                left = None if until is None else until - time.monotonic()
                if left is not None and (left <= 0 or not selector.select(left)):
                    self.close()
                    raise TimeLimitError(
                        f"the edit was given up after {self.seconds:g} seconds",
                        hint="`monograph explore --timeout` allows more",
                    )
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part:
                    code = process.wait()
                    self.close()
                    raise WorkerError(f"the process that compiles has ended (exit status {code})")
                found.append(part)
        return b"".join(found)
