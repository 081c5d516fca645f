"""How long compiling takes, and how much memory: ``python -m benchmarks.compile_time``.

Each contender compiles a workload and runs it once, in a process of its own, after its imports: the
first time with empty caches, the second time, in another process, with what the first one left
behind. Time to write an ONNX file counts for those who read one. ``processor`` is the time that
processors spent on the first time, in all threads and in the compilers that were started: on a busy
machine it says more than the clock.

Memory is what the process holds at its peak beyond what it held after its imports, inputs and
weights included: while it compiles, and while it runs a few times after that, when the model that
it was compiled from is forgotten by all who do not need it.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import peers
from benchmarks.commit import find_commit
from benchmarks.peers import Peer
from benchmarks.trial import chosen_peers, in_short
from benchmarks.workloads import neutral_case, normal, select, softmax

WORKLOADS = ("chain4-4096x4096", "bert-base-1x128")
LONGEST = 900
CALLS = 3
"""How often a program runs before its memory is read."""


@dataclass(frozen=True)
class Compiled:
    """Seconds from a module to its first result, cold and with warm caches, or why none.

    ``compiling`` and ``running`` are the peaks of memory, in bytes, with empty caches.
    """

    workload: str
    peer: str
    cold: float | None = None
    warm: float | None = None
    reason: str | None = None
    compiling: int | None = None
    running: int | None = None
    processor: float | None = None
    absent: bool = False
    """Whether the contender was not asked: it is not installed, or no time was left."""
    commit: str = ""


@dataclass(frozen=True)
class Sample:
    """What one process found. ``before`` is the processor's time until compiling began."""

    seconds: float
    compiling: int | None
    running: int | None
    before: float = 0.0


def measure(workload: str, peer: Peer, longest: float = LONGEST) -> Compiled:
    """Compile twice, each time in a new process, with a cache folder that only they use."""
    reason = peer.available()
    if reason is not None:
        return Compiled(workload, peer.name, reason=reason, absent=True)
    samples = []
    processor = None
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            spent = _of_children()
            found = _in_process(workload, peer.name, Path(folder), longest)
            if isinstance(found, str):
                return Compiled(workload, peer.name, reason=found)
            if processor is None:
                processor = _of_children() - spent - found.before
            samples.append(found)
    cold, warm = samples
    memory = {"compiling": cold.compiling, "running": cold.running}
    return Compiled(workload, peer.name, cold.seconds, warm.seconds, processor=processor, **memory)


def _of_children() -> float:
    """The processor's time of all processes that this one started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _in_process(workload: str, peer: str, folder: Path, longest: float) -> Sample | str:
    """What a new process measures, or what it says is wrong."""
    environment = os.environ | {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "MONOGRAPH_CACHE_DIR": str(folder / "monograph"),
        "MONOGRAPH_CACHE": "1",
    }
    command = [sys.executable, "-m", "benchmarks.compile_time", "--inside", peer, workload]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=longest, check=False
        )
    except subprocess.TimeoutExpired:
        return f"took more than {longest:.0f} s"
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        complaints = done.stderr.strip().splitlines()
        return complaints[-1] if complaints else f"ended with {done.returncode}"
    answer = json.loads(lines[-1])
    return answer if isinstance(answer, str) else Sample(**answer)


def inside(peer_name: str, workload: str) -> Sample | str:
    """Compile and run, here and now; what is imported on first use is imported before."""
    (peer,) = chosen_peers([peer_name])
    (chosen,) = [each for each in select() if each.name == workload]
    warm_up = neutral_case("warm-up", softmax, normal(3, 5))
    peer.compile(warm_up).call()
    del warm_up
    _forget()
    before = _resident("VmRSS")
    case = chosen.build()
    spent = time.process_time()
    start = time.perf_counter()
    try:
        prepared = peer.compile(case)
        prepared.call()
    except Exception as problem:  # peers fail in their own ways; the table tells which
        return in_short(problem)
    seconds = time.perf_counter() - start
    compiling = _resident("VmHWM")
    del case
    _forget()
    if not _reset_peak():
        return Sample(seconds, _beyond(compiling, before), None, spent)
    for _ in range(CALLS):
        prepared.call()
    running = _beyond(_resident("VmHWM"), before)
    return Sample(seconds, _beyond(compiling, before), running, spent)


def _forget() -> None:
    """Give back to the system what nobody uses."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _resident(kind: str) -> int | None:
    """The resident bytes of this process, now (VmRSS) or at their peak (VmHWM)."""
    path = Path("/proc/self/status")
    lines = path.read_text().splitlines() if path.exists() else []
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith(kind)]
    return found[0] if found else None


def _beyond(bytes_held: int | None, before: int | None) -> int | None:
    return None if bytes_held is None or before is None else bytes_held - before


def _reset_peak() -> bool:
    """Let the peak begin anew; whether the system allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def table(found: Sequence[Compiled]) -> Table:
    """All figures, or the reasons why there are none."""
    title = "Seconds to compile and run once, and MiB at the peak"
    made = Table(title=title, title_justify="left", box=None)
    numbers = ("cold", "warm", "processor", "compiling", "running")
    for heading in ("workload", "contender", *numbers, ""):
        made.add_column(heading, justify="right" if heading in numbers else "left")
    for each in found:
        times = (each.cold, each.warm, each.processor)
        seconds = ("–" if value is None else f"{value:.2f}" for value in times)
        memory = (mebibytes(value) for value in (each.compiling, each.running))
        made.add_row(each.workload, each.peer, *seconds, *memory, each.reason or "")
    return made


def mebibytes(size: int | None) -> str:
    """A size in whole MiB."""
    return "–" if size is None else f"{size / 2**20:.0f}"


def save(found: Sequence[Compiled], path: Path) -> None:
    """Write as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")


def load(path: Path) -> list[Compiled]:
    """Read what ``save`` wrote."""
    return [Compiled(**each) for each in json.loads(path.read_text())]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compile_time",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", default=list(WORKLOADS), metavar="NAME")
    parser.add_argument("--peers", nargs="+", default=[], metavar="PEER")
    parser.add_argument("--minutes", type=float, help="begin nothing after so long")
    parser.add_argument("--longest", type=float, default=LONGEST, metavar="SECONDS")
    parser.add_argument("--json", type=Path, help="write the results here after each of them")
    parser.add_argument("--inside", nargs=2, metavar=("PEER", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_grad_enabled(False)
    peers.limit_threads()
    if options.inside:
        found_here = inside(*options.inside)
        print(json.dumps(found_here if isinstance(found_here, str) else asdict(found_here)))
        return 0
    contenders = chosen_peers(options.peers)
    names = _names(options.only)
    pairs = [(workload, peer) for workload in names for peer in contenders]
    until = None if options.minutes is None else time.time() + 60 * options.minutes
    found: list[Compiled] = []
    commit = find_commit()
    console = Console()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(pairs))
        for workload, peer in pairs:
            progress.update(task, description=f"{workload} with {peer.name}")
            if until is not None and time.time() > until:
                late = Compiled(workload, peer.name, reason="no time was left", absent=True)
                found.append(late)
            else:
                measured = measure(workload, peer, options.longest)
                found.append(replace(measured, commit=commit))
            progress.advance(task)
            if options.json:
                save(found, options.json)
    console.print(table(found))
    return 0


def _names(patterns: Sequence[str]) -> list[str]:
    """The workloads with these names, or of these families."""
    found = [each.name for each in select() if each.name in patterns or each.group in patterns]
    if not found:
        raise SystemExit(f"no workload is called {', '.join(patterns)}")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
