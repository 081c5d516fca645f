"""How long compiling takes, beside peers: ``python -m benchmarks.compile_time``.

Each contender compiles a workload and runs it once, in a process of its own, after its imports: the
first time with empty caches, the second time, in another process, with what the first one left
behind. Time to write an ONNX file counts for those who read one.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import peers
from benchmarks.native import chosen_peers, in_short
from benchmarks.peers import Peer
from benchmarks.workloads import neutral_case, normal, select, softmax

WORKLOADS = ("chain4-4096x4096", "bert-base-1x128")
LONGEST = 900


@dataclass(frozen=True)
class Compiled:
    """Seconds from a module to its first result, cold and with warm caches, or why none."""

    workload: str
    peer: str
    cold: float | None = None
    warm: float | None = None
    reason: str | None = None


def measure(workload: str, peer: Peer) -> Compiled:
    """Compile twice, each time in a new process, with a cache folder that only they use."""
    reason = peer.available()
    if reason is not None:
        return Compiled(workload, peer.name, reason=reason)
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            found = _in_process(workload, peer.name, Path(folder))
            if isinstance(found, str):
                return Compiled(workload, peer.name, reason=found)
            seconds.append(found)
    return Compiled(workload, peer.name, cold=seconds[0], warm=seconds[1])


def _in_process(workload: str, peer: str, folder: Path) -> float | str:
    """The seconds that a new process measures, or what it says is wrong."""
    environment = os.environ | {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "MONOGRAPH_CACHE_DIR": str(folder / "monograph"),
        "MONOGRAPH_CACHE": "1",
    }
    command = [sys.executable, "-m", "benchmarks.compile_time", "--inside", peer, workload]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
        )
    except subprocess.TimeoutExpired:
        return f"took more than {LONGEST} s"
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        complaints = done.stderr.strip().splitlines()
        return complaints[-1] if complaints else f"ended with {done.returncode}"
    answer: float | str = json.loads(lines[-1])
    return answer


def inside(peer_name: str, workload: str) -> float | str:
    """Compile and run once, here and now; what is imported on first use is imported before."""
    (peer,) = chosen_peers([peer_name])
    (chosen,) = [each for each in select() if each.name == workload]
    warm_up = neutral_case("warm-up", softmax, normal(3, 5))
    peer.compile(warm_up).call()
    case = chosen.build()
    start = time.perf_counter()
    try:
        peer.compile(case).call()
    except Exception as problem:  # peers fail in their own ways; the table tells which
        return in_short(problem)
    return time.perf_counter() - start


def table(found: Sequence[Compiled]) -> Table:
    """All figures, or the reasons why there are none."""
    made = Table(title="Seconds to compile and run once", title_justify="left", box=None)
    for heading in ("workload", "contender", "cold", "warm caches", ""):
        made.add_column(heading, justify="right" if heading in ("cold", "warm caches") else "left")
    for each in found:
        cells = ("–" if seconds is None else f"{seconds:.2f}" for seconds in (each.cold, each.warm))
        made.add_row(each.workload, each.peer, *cells, each.reason or "")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compile_time",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", default=list(WORKLOADS), metavar="NAME")
    parser.add_argument("--peers", nargs="+", default=[], metavar="PEER")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--inside", nargs=2, metavar=("PEER", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_grad_enabled(False)
    peers.limit_threads()
    if options.inside:
        print(json.dumps(inside(*options.inside)))
        return 0
    contenders = chosen_peers(options.peers)
    pairs = [(workload, peer) for workload in options.only for peer in contenders]
    found: list[Compiled] = []
    console = Console()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(pairs))
        for workload, peer in pairs:
            progress.update(task, description=f"{workload} with {peer.name}")
            found.append(measure(workload, peer))
            progress.advance(task)
    console.print(table(found))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
