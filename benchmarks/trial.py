"""One workload with every contender: compile, check against float64, time by turns.

``python -m benchmarks.trial JOB`` does that for a list of workloads in a process of its own, and
writes a line to a journal at every step, so that whoever watches knows what it was doing if it
hangs or dies (``benchmarks.supervise``).
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import ceiling, measure, peers
from benchmarks.peers import PEERS, Peer, Prepared
from benchmarks.results import Outcome, Row
from benchmarks.workloads import Case, Workload, select

REASON_LENGTH = 120
TIMING = "timing"
"""What is noted when all contenders are compiled, and are timed by turns."""


def run_workload(
    workload: Workload,
    contenders: Sequence[Peer],
    plan: measure.Plan,
    patience: float = 0.0,
    refused: Mapping[str, str] | None = None,
    note: Callable[[str], None] = lambda stage: None,
) -> Row:
    """Compile, check and time one workload with every contender that takes part.

    ``refused`` says which contenders are not to be tried, and why; ``note`` is told what begins.
    """
    case = workload.build()
    peers.begin()
    chosen = [peer for peer in contenders if peer.takes(workload.group)]
    outcomes, ready = _prepare(case, chosen, refused or {}, note)
    note(TIMING)
    measure.wait_for_quiet(patience)
    meter = measure.LoadMeter()
    timings = measure.alternate({name: each.call for name, each in ready.items()}, plan)
    load = meter.read()
    for name, timing in timings.items():
        outcomes[name] = replace(
            outcomes[name], median=timing.median, best=timing.best, turns=len(timing.turns)
        )
    read, written = traffic(case)
    streams = read + written > 1.5 * ceiling.cache_bytes()
    flops = int(flop_count(case) * workload.flop_share)
    return Row(workload.name, workload.group, read, written, streams, load, outcomes, flops)


def _prepare(
    case: Case,
    contenders: Sequence[Peer],
    refused: Mapping[str, str],
    note: Callable[[str], None],
) -> tuple[dict[str, Outcome], dict[str, Prepared]]:
    """Each contender's compiled case, and its error and compile time, or why it has none."""
    reference, limit = case.reference(), measure.tolerance(case.outputs())
    outcomes: dict[str, Outcome] = {}
    ready: dict[str, Prepared] = {}
    for peer in contenders:
        missing = peer.available()
        reason = refused.get(peer.name) or missing
        if reason is not None:
            outcomes[peer.name] = Outcome(reason, absent=missing is not None)
            continue
        note(peer.name)
        start = time.perf_counter()
        try:
            prepared = peer.prepare(case)
            result = prepared.call()
            seconds = time.perf_counter() - start
            error = measure.error(prepared.read(result), reference)
        except Exception as problem:  # peers fail in their own ways; the table tells which
            outcomes[peer.name] = Outcome(in_short(problem))
            continue
        wrong = f"wrong: its error is {error:.1e}" if error > limit else None
        outcomes[peer.name] = Outcome(wrong, error=error, prepared=seconds, remark=prepared.remark)
        ready[peer.name] = prepared
    return outcomes, ready


def in_short(problem: Exception) -> str:
    """The line of a message that says most, cut to a length that a table bears."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    telling = [line for line in lines if "error:" in line] or lines or [""]
    text = f"{type(problem).__name__}: {telling[0]}"
    return text if len(text) <= REASON_LENGTH else text[: REASON_LENGTH - 1] + "…"


def traffic(case: Case) -> tuple[int, int]:
    """The bytes that any program has to read and to write: all that inputs span, all outputs."""
    read = sum(each.untyped_storage().nbytes() for each in case.inputs)
    read += sum(each.nbytes for each in case.module.state_dict().values())
    return read, sum(each.nbytes for each in case.outputs())


def flop_count(case: Case) -> int:
    """The products and sums of its contractions, as PyTorch counts them; others are few."""
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    counter = FlopCounterMode(display=False, custom_mapping={fused: _attention_flops})
    with torch.no_grad(), counter:
        case.module(*case.inputs)
    return counter.get_total_flops()


def _attention_flops(
    q: Sequence[int], k: Sequence[int], v: Sequence[int], *_: Any, **__: Any
) -> int:
    """Of the two products of one head, for all heads; which share keys and values or not."""
    batch, heads, queries, size = q
    return 2 * batch * heads * queries * k[-2] * (size + v[-1])


def chosen_peers(names: Sequence[str]) -> list[Peer]:
    """The contenders with these names; all without names."""
    known: Mapping[str, Peer] = {each.name: each for each in PEERS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"{unknown[0]} is not a contender; they are {', '.join(known)}")
    return [known[name] for name in names] if names else list(PEERS)


@dataclass(frozen=True)
class Job:
    """What one process is to measure, and how; plain values, so that it travels as JSON."""

    workloads: tuple[str, ...]
    contenders: tuple[str, ...] = ()
    quick: bool = False
    busy: bool = False
    threads: int = peers.THREADS
    patience: float = 0.0
    refused: dict[str, dict[str, str]] = field(default_factory=dict)
    """For each workload the contenders that are not to be tried, and why."""
    until: float | None = None
    """The time of the clock (``time.time``) after which no workload begins."""

    def plan(self) -> measure.Plan:
        """How long to measure, and by which clock."""
        plan = measure.QUICK if self.quick else measure.Plan()
        return replace(plan, clock=time.process_time) if self.busy else plan

    def settle(self) -> None:
        """Make this process fit for measuring."""
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        torch.set_grad_enabled(False)
        peers.limit_threads(self.threads)
        # What is measured is what this checkout compiles now, not what another left in the cache.
        os.environ["MONOGRAPH_CACHE"] = "0"


class Journal:
    """A file with one JSON object a line, each flushed as soon as it is written."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("a")

    def write(self, **entry: Any) -> None:
        """Add a line."""
        self.file.write(json.dumps(entry) + "\n")
        self.file.flush()


def run(job: Job, journal: Journal) -> None:
    """Measure every workload of a job, and note each step."""
    job.settle()
    known = {each.name: each for each in select()}
    contenders = chosen_peers(job.contenders)
    for name in job.workloads:
        if job.until is not None and time.time() > job.until:
            return
        journal.write(begin=name)

        def note(stage: str, name: str = name) -> None:
            journal.write(stage=stage, workload=name)

        refused = job.refused.get(name, {})
        row = run_workload(known[name], contenders, job.plan(), job.patience, refused, note)
        journal.write(row=asdict(row))
        gc.collect()


def main(arguments: Sequence[str]) -> int:
    """Read the job, and write the journal beside it."""
    path = Path(arguments[0])
    job = Job(**json.loads(path.read_text()))
    run(job, Journal(path.with_suffix(".journal")))
    # Threads of peers that do not end would keep the process; all that matters is on disk.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
