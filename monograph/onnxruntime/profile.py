"""What ``SessionOptions.enable_profiling`` records: loading and runs, for Chrome's trace viewer.

One event a line, between ``[`` and ``]``. Kernels are not timed one by one: a model is one program.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Profile:
    """Events of one session."""

    def __init__(self, prefix: str) -> None:
        self.start_ns = time.monotonic_ns()
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
        self.path = f"{prefix}_{stamp}_{os.getpid()}_{id(self):x}.json"
        self._events: list[dict[str, object]] = []

    @contextmanager
    def event(self, name: str) -> Iterator[None]:
        """Record how long something takes."""
        started = time.monotonic_ns()
        yield
        self._events.append(
            {
                "cat": "Session",
                "pid": os.getpid(),
                "tid": threading.get_native_id(),
                "dur": (time.monotonic_ns() - started) // 1000,
                "ts": (started - self.start_ns) // 1000,
                "ph": "X",
                "name": name,
                "args": {},
            }
        )

    def write(self) -> str:
        """Write the file; its path."""
        with open(self.path, "w") as file:
            lines = ",\n".join(json.dumps(event) for event in self._events)
            file.write(f"[\n{lines}\n]\n")
        return self.path
