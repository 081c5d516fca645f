"""Monograph beside its peers on the CPU: ``python -m benchmarks.native``.

Every workload is given to every contender, compiled, checked against float64 and timed by turns.
``make bench-setup`` installs the peers; those that are missing are named in the table, as are
workloads that a peer cannot do. The tables show medians; × is the best peer's time over ours (more
than 1 is a win), by medians and by best turns; ceiling is the share of the streaming bandwidth of
this machine that we reach; error is ours over eager's.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import logging
import os
import platform
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress

from benchmarks import ceiling, measure, peers, report
from benchmarks.ceiling import Ceiling
from benchmarks.peers import PEERS, Peer, Prepared
from benchmarks.results import Machine, Outcome, Results, Row
from benchmarks.workloads import Case, Workload, select

PACKAGES = ("torch", "jax", "onnxruntime", "openvino", "iree-base-compiler")
REASON_LENGTH = 120


def run_workload(
    workload: Workload, contenders: Sequence[Peer], plan: measure.Plan, patience: float = 0.0
) -> Row:
    """Compile, check and time one workload with every contender."""
    case = workload.build()
    peers.begin()
    outcomes, ready = _prepare(case, contenders)
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
    return Row(workload.name, workload.group, read, written, streams, load, outcomes)


def _prepare(
    case: Case, contenders: Sequence[Peer]
) -> tuple[dict[str, Outcome], dict[str, Prepared]]:
    """Each contender's compiled case, and its error and compile time, or why it has none."""
    reference, limit = case.reference(), measure.tolerance(case.outputs())
    outcomes: dict[str, Outcome] = {}
    ready: dict[str, Prepared] = {}
    for peer in contenders:
        reason = peer.available()
        if reason is not None:
            outcomes[peer.name] = Outcome(reason)
            continue
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


def machine(bandwidth: Ceiling, contenders: Sequence[Peer]) -> Machine:
    """This machine, and the versions and calling forms of the contenders."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "missing"
    forms = {each.name: each.form for each in contenders}
    return Machine(_processor(), peers.THREADS, bandwidth, versions, forms)


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def chosen_peers(names: Sequence[str]) -> list[Peer]:
    """The contenders with these names; all without names."""
    known: Mapping[str, Peer] = {each.name: each for each in PEERS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"{unknown[0]} is not a contender; they are {', '.join(known)}")
    return [known[name] for name in names] if names else list(PEERS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.native",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="workloads or groups")
    parser.add_argument("--peers", nargs="+", default=[], metavar="PEER", help="contenders")
    parser.add_argument("--json", type=Path, help="write the results here after every workload")
    parser.add_argument("--update", action="store_true", help="keep the other rows of --json")
    parser.add_argument("--markdown", type=Path, help="write the tables here")
    parser.add_argument("--show", type=Path, help="print the tables of an earlier --json and end")
    parser.add_argument("--list", action="store_true", help="name the workloads and end")
    parser.add_argument(
        "--patience",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long to wait before each workload for other processes to be idle",
    )
    parser.add_argument(
        "--busy",
        action="store_true",
        help="for a busy machine: one thread each, processor time instead of the wall's clock",
    )
    parser.add_argument("--quick", action="store_true", help="few rounds: figures are rough")
    return parser


def show(results: Results, console: Console) -> None:
    """Print all that was found."""
    console.print(report.summary(results, peers.OURS))
    console.print()
    console.print(report.detail(results))
    console.print()
    for line in report.notes(results, peers.OURS):
        console.print(line, highlight=False)


def run(options: argparse.Namespace, console: Console) -> Results:
    """Measure all that was asked for."""
    workloads, contenders = select(options.only), chosen_peers(options.peers)
    if not workloads:
        raise SystemExit(f"no workload is called {', '.join(options.only)}; see --list")
    plan = measure.QUICK if options.quick else measure.Plan()
    if options.busy:
        plan = replace(plan, clock=time.process_time)
    rounds = 5 if options.quick else 15
    found = machine(ceiling.measure(peers.THREADS, rounds), contenders)
    found = replace(found, clock="processor" if options.busy else "wall")
    earlier = None
    if options.update and options.json and options.json.exists():
        earlier = Results.load(options.json)
    rows: list[Row] = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(workloads))
        for workload in workloads:
            progress.update(task, description=workload.name)
            rows.append(run_workload(workload, contenders, plan, options.patience))
            keep(Results(found, tuple(rows)), earlier, options.json)
            progress.advance(task)
    highest = found.ceiling.highest(ceiling.measure(peers.THREADS, rounds))
    results = Results(replace(found, ceiling=highest), tuple(rows))
    return keep(results, earlier, options.json)


def keep(results: Results, earlier: Results | None, path: Path | None) -> Results:
    """Join the results to earlier ones, and write them if a path says where."""
    joined = earlier.updated(results) if earlier else results
    if path:
        joined.save(path)
    return joined


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    options = _parser().parse_args(arguments)
    console = Console(soft_wrap=False, width=None)
    if options.list:
        for workload in select(options.only):
            console.print(f"{workload.group:<12}{workload.name}", highlight=False)
        return 0
    if options.show:
        results = Results.load(options.show)
    else:
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        torch.set_grad_enabled(False)
        peers.limit_threads(1 if options.busy else peers.THREADS)
        # What is measured is what this checkout compiles now, not what another left in the cache.
        os.environ["MONOGRAPH_CACHE"] = "0"
        results = run(options, console)
    show(results, console)
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(report.markdown(results, peers.OURS))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
