"""A process that imports wrong models, each in a child of its own with little time and memory.

The parent has everything imported already, so that a child costs a fork. It reads names of cases
from its standard input, one a line, and answers each with a line of JSON: what came out, in how
many seconds. A child that is killed, by the kernel or for taking too long, is an outcome too.

    echo "a cycle" | python -m tests.frontends.onnx.hostile.sandbox
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType, TracebackType

import numpy as np

from monograph.errors import MonographError
from monograph.frontends.onnx import from_onnx
from monograph.frontends.onnx.registry import converters
from monograph.ir.interpret import interpret
from monograph.ir.verify import verify
from tests.frontends.onnx.hostile import CASES, Case

PATIENCE = 9
"""How many times longer than its processor time a child may really take: machines are busy."""

MEMORY = 4 << 30
"""Bytes of address space that one import may add."""


@dataclass(frozen=True)
class Outcome:
    """What came of a model: the class of the error (empty for none), its text, and the time."""

    error: str
    message: str = ""
    text: str = ""
    seconds: float = 0.0


class Sandbox:
    """The process, for callers: ``with Sandbox() as sandbox: sandbox.outcome(name)``."""

    def __enter__(self) -> Sandbox:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[4],
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def outcome(self, name: str) -> Outcome:
        """What comes of a case, by its name."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(name) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))


def outcome_of(case: Case) -> Outcome:
    """Make and import a model in a child process; what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        return in_child(lambda: _attempt(case, Path(folder)), case.seconds * PATIENCE)


def in_child(attempt: Callable[[], Outcome], patience: float) -> Outcome:
    """The outcome of a function in a forked process, which may crash or hang."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(writing, attempt)
    os.close(writing)
    content = _read(reading, child, patience)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if content:
        return Outcome(**json.loads(content))
    if os.WIFSIGNALED(status):
        return Outcome("crash", f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
    return Outcome("crash", f"exit status {os.WEXITSTATUS(status)}")


def _answer(writing: int, attempt: Callable[[], Outcome]) -> None:
    """In the child: send the outcome and end without any of the parent's clean-up."""
    try:
        content = json.dumps(asdict(attempt()))
        os.write(writing, content.encode())
    finally:
        os._exit(0)


def _read(reading: int, child: int, patience: float) -> bytes:
    """What the child sends until it ends; it is killed when patience does."""
    content = b""
    end = time.monotonic() + patience
    while True:
        ready, _, _ = select.select([reading], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            return b'{"error": "hang", "message": "it waits without end"}'
        piece = os.read(reading, 1 << 16)
        if not piece:
            return content
        content += piece


def _attempt(case: Case, folder: Path) -> Outcome:
    """In the child: make the model, then import (and run) it under the limits."""
    source = case.make(folder)
    limit(case.seconds)
    start = time.process_time()
    try:
        graph = from_onnx(source)
        verify(graph)
        if case.interrupt:
            signal.signal(signal.SIGALRM, _press_control_c)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
        outputs = [] if case.run is None else interpret(graph, case.run)
    except BaseException as error:
        seconds = time.process_time() - start
        return described(error, str(folder), seconds)
    seconds = time.process_time() - start
    if case.gives is not None and not np.array_equal(outputs[0], case.gives):
        return Outcome("wrong", f"it gives {outputs[0]!r}", seconds=seconds)
    return Outcome("", seconds=seconds)


def described(error: BaseException, folder: str, seconds: float) -> Outcome:
    """An error as an outcome; the temporary folder is left out of its text."""
    name = type(error).__name__
    if not isinstance(error, MonographError | KeyboardInterrupt):
        name = f"not a MonographError: {name}"
    message = error.message if isinstance(error, MonographError) else str(error)
    text = str(error)
    return Outcome(
        name,
        message.replace(folder, "{folder}")[:2000],
        text.replace(folder, "{folder}")[:4000],
        seconds,
    )


def limit(seconds: int) -> None:
    """From here on, little more processor time and memory."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    end = int(used.ru_utime + used.ru_stime) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (end, end + 5))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _press_control_c(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Answer every line of the standard input."""
    converters()  # import them all before the first fork
    for line in sys.stdin:
        outcome = outcome_of(CASES[json.loads(line)])
        print(json.dumps(asdict(outcome)), flush=True)


if __name__ == "__main__":
    main()
