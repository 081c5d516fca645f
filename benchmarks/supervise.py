"""Measuring in watched processes: a contender that hangs or dies costs one cell, not a run.

Workloads run a few to a process (whole models one to a process, for their memory). The process
notes what it is about to do; if it then dies, or compiling or timing takes longer than anybody
would wait, it is ended, the contender that did it gets the reason as its outcome, and the workload
is measured again with the others.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.measure import Load
from benchmarks.results import Outcome, Row, read_row
from benchmarks.trial import TIMING, Job
from benchmarks.workloads import Workload

TOGETHER = 8
"""Workloads to a process, so that what peers never free does not pile up."""
POLL = 0.2
ALLOCATOR_SETTINGS = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
}
"""Settings of glibc's allocator for every process that measures: freed memory is kept for the next
allocation, whoever asks for it. As it comes, the allocator gives large blocks back to the system,
and a contender that allocates its outputs pays for fresh pages in each call: more than for the work
itself where that is little. Programs that run for long keep such memory in one way or another."""


@dataclass(frozen=True)
class Limits:
    """Seconds: to compile with one contender, to time all, and after the end of a run's time."""

    compile: float = 300.0
    timing: float = 600.0
    grace: float = 120.0


@dataclass
class Progress:
    """How far a process is: the workload and the stage that it is in, and since when."""

    workload: str | None = None
    stage: str | None = None
    since: float = 0.0

    def read(self, entry: dict[str, Any]) -> None:
        """Take an entry of the journal into account."""
        self.since = time.time()
        self.workload = entry.get("begin", self.workload)
        self.stage = entry.get("stage")
        if "row" in entry:
            self.workload = self.stage = None


class Supervisor:
    """Runs a job in processes, and gives the rows as they come."""

    def __init__(self, job: Job, limits: Limits | None = None, module: str = "benchmarks.trial"):
        self.job = job
        self.limits = limits or Limits()
        self.module = module
        self.refused: dict[str, dict[str, str]] = {}

    def run(
        self, workloads: Sequence[Workload], tell: Callable[[str], None] = lambda text: None
    ) -> Iterator[Row]:
        """The row of each workload, until the time is over; ``tell`` hears what is being done."""
        waiting = list(workloads)
        with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
            while waiting and not self._is_over(0.0):
                batch = _batch(waiting)
                before = len(waiting)
                refusals = sum(map(len, self.refused.values()))
                for row in self._process(batch, Path(folder), tell):
                    waiting = [each for each in waiting if each.name != row.name]
                    yield row
                stuck = len(waiting) == before
                if stuck and refusals == sum(map(len, self.refused.values())):
                    return

    def _is_over(self, grace: float) -> bool:
        return self.job.until is not None and time.time() > self.job.until + grace

    def _process(
        self, batch: Sequence[Workload], folder: Path, tell: Callable[[str], None]
    ) -> Iterator[Row]:
        """The rows that one process gives, and that of a workload whose timing it died of."""
        names = tuple(each.name for each in batch)
        path = folder / f"{time.time_ns()}.json"
        path.write_text(
            json.dumps(asdict(replace(self.job, workloads=names, refused=self.refused)))
        )
        journal, complaints = path.with_suffix(".journal"), path.with_suffix(".errors")
        journal.touch()
        environment = {
            **os.environ,
            **ALLOCATOR_SETTINGS,
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        }
        with complaints.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", self.module, str(path)],
                env=environment,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )
        progress = Progress(since=time.time())
        reason = None
        try:
            with journal.open() as lines:
                while True:
                    ended = process.poll() is not None
                    for entry in _entries(lines):
                        progress.read(entry)
                        tell(f"{progress.workload or ''} {progress.stage or ''}")
                        if "row" in entry:
                            yield read_row(entry["row"])
                    if ended:
                        break
                    reason = self._overdue(progress)
                    if reason is not None or self._is_over(self.limits.grace):
                        break
                    time.sleep(POLL)
        finally:
            _end(process)
        if progress.workload is None and progress.stage is None:
            if process.returncode and reason is None:
                raise SystemExit(f"a process failed before it measured: {_last_line(complaints)}")
            return
        if reason is None and self._is_over(self.limits.grace):
            return
        reason = reason or _ending(process.returncode, complaints)
        yield from self._blame(progress, reason, batch)

    def _overdue(self, progress: Progress) -> str | None:
        """Why a process is to be ended, if it is."""
        passed = time.time() - progress.since
        if progress.stage == TIMING:
            allowed = self.limits.timing + self.job.patience
            return f"took more than {allowed:.0f} s to time" if passed > allowed else None
        limit = self.limits.compile
        return f"took more than {limit:.0f} s to compile" if passed > limit else None

    def _blame(self, progress: Progress, reason: str, batch: Sequence[Workload]) -> Iterator[Row]:
        """Refuse the contender that was being compiled; if none was, give the workload up."""
        name = progress.workload
        assert name is not None
        if progress.stage not in (None, TIMING):
            self.refused.setdefault(name, {})[str(progress.stage)] = reason
            return
        (group,) = (each.group for each in batch if each.name == name)
        everyone = self.job.contenders or ("monograph",)
        outcomes = {peer: Outcome(f"all at once: {reason}") for peer in everyone}
        yield Row(name, group, 0, 0, False, Load(os.getloadavg()[0], 0.0), outcomes)


def _batch(waiting: Sequence[Workload]) -> list[Workload]:
    """The next workloads for one process: a model, or several that are none."""
    if waiting[0].group == "models":
        return list(waiting[:1])
    small = (each for each in waiting[:TOGETHER])
    batch = []
    for each in small:
        if each.group == "models":
            break
        batch.append(each)
    return batch


def _entries(lines: Any) -> Iterator[dict[str, Any]]:
    """The whole lines that have been added."""
    while True:
        place = lines.tell()
        line = lines.readline()
        if not line.endswith("\n"):
            lines.seek(place)
            return
        yield json.loads(line)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that we started, and the compilers that it started."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            process.kill()
    process.wait()


def _ending(code: int, complaints: Path) -> str:
    """What a process died of."""
    if code < 0:
        return f"ended the process with {signal.Signals(-code).name}"
    return f"ended the process: {_last_line(complaints)}"


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
