"""Monograph beside its peers on the CPU: ``python -m benchmarks.native``.

Every workload is given to every contender, compiled, checked against float64 and timed by turns.
``make bench-setup`` installs the peers; those that are missing are named in the table, as are
workloads that a peer cannot do. The tables show medians; × is the best peer's time over ours (more
than 1 is a win), by medians and by best turns; floor is the share that we reach of what this
machine can stream or multiply; error is ours against float64, and beside it as a multiple of
eager's.

A family is measured with ``--family matmul``, for at most so long with ``--minutes 20``: the
workloads that tell most come first, and those for which there was no time are named. ``--quick``
takes only the telling ones, for a few turns each.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from benchmarks import ceiling, peers, report, trial
from benchmarks.ceiling import Ceiling
from benchmarks.commit import find_commit
from benchmarks.peers import Peer
from benchmarks.results import Machine, Results, Row
from benchmarks.supervise import Limits, Supervisor
from benchmarks.trial import Job, chosen_peers
from benchmarks.workloads import Workload, families, select

WIDTH = 120
"""Columns of tables that go to a file."""
PACKAGES = ("torch", "jax", "onnxruntime", "openvino", "iree-base-compiler")


def machine(bandwidth: Ceiling, contenders: Sequence[Peer], threads: int) -> Machine:
    """This machine, and the versions and calling forms of the contenders."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "missing"
    forms = {each.name: each.form for each in contenders}
    return Machine(
        _processor(), threads, bandwidth, versions, forms, description=_description(threads)
    )


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _description(threads: int) -> str:
    """What a program can see of the processor: it is the same on every machine of the kind."""
    from monograph.targets.cpu.machine import host

    seen = host()
    kind = f"{platform.machine()} with vectors of {8 * seen.vector_bytes} bits"
    cores = "one core" if threads == 1 else f"{threads} cores"
    return f"{cores}, {kind}, {seen.l3 >> 20} MiB of shared cache"


def chosen_workloads(options: argparse.Namespace) -> list[Workload]:
    """The workloads that were asked for, the telling ones first where the time is limited."""
    known = families()
    for family in options.family:
        if family not in known:
            raise SystemExit(f"{family} is not a family; they are {', '.join(known)}")
    chosen = [
        each for each in select(options.only) if not options.family or each.group in options.family
    ]
    if options.quick and not options.only:
        chosen = [each for each in chosen if each.telling]
    if options.minutes is not None:
        chosen = _telling_first(chosen)
    if not chosen:
        raise SystemExit(f"no workload is called {', '.join(options.only)}; see --list")
    return chosen


def _telling_first(chosen: Sequence[Workload]) -> list[Workload]:
    """Those that tell most, then the others; one of each family in turn."""
    places: dict[tuple[str, bool], int] = {}
    order = []
    for number, each in enumerate(chosen):
        place = places.get((each.group, each.telling), 0)
        places[each.group, each.telling] = place + 1
        order.append((not each.telling, place, number))
    return [chosen[number] for _, _, number in sorted(order)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.native",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--family", nargs="+", default=[], metavar="FAMILY", help="whole families")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="workloads or groups")
    parser.add_argument("--peers", nargs="+", default=[], metavar="PEER", help="contenders")
    parser.add_argument("--without", nargs="+", default=[], metavar="PEER", help="all but these")
    parser.add_argument("--minutes", type=float, help="begin no workload after so long")
    parser.add_argument(
        "--longest",
        type=float,
        default=Limits.compile,
        metavar="SECONDS",
        help="how long a contender may take to compile one workload",
    )
    parser.add_argument("--threads", type=int, default=peers.THREADS, help="of each contender")
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
    parser.add_argument(
        "--quick", action="store_true", help="the telling workloads, few rounds: figures are rough"
    )
    parser.add_argument(
        "--one-process",
        action="store_true",
        help="measure in this process: a contender that hangs or dies takes the run with it",
    )
    return parser


def show(results: Results, console: Console) -> None:
    """Print all that was found."""
    for table in report.tables(results, peers.OURS):
        console.print(table)
        console.print()
    for line in report.notes(results, peers.OURS):
        console.print(line, highlight=False)


def run(options: argparse.Namespace, console: Console) -> Results:
    """Measure all that was asked for."""
    workloads = chosen_workloads(options)
    names = [each.name for each in chosen_peers(options.peers)]
    contenders = chosen_peers([each for each in names if each not in options.without])
    threads = 1 if options.busy else options.threads
    rounds = 5 if options.quick else 15
    found = machine(ceiling.measure(threads, rounds), contenders, threads)
    found = replace(found, clock="processor" if options.busy else "wall")
    earlier = None
    if options.update and options.json and options.json.exists():
        earlier = Results.load(options.json)
    job = Job(
        (),
        tuple(each.name for each in contenders),
        options.quick,
        options.busy,
        threads,
        options.patience,
        until=None if options.minutes is None else time.time() + 60 * options.minutes,
    )
    rows: list[Row] = []
    commit = find_commit()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(workloads))

        def tell(text: str) -> None:
            progress.update(task, description=text.strip() or "…")

        if options.one_process:
            measured = _here(job, workloads)
        else:
            limits = Limits(compile=options.longest)
            measured = Supervisor(job, limits).run(workloads, tell)
        for row in measured:
            rows.append(replace(row, commit=commit))
            _keep(Results(found, tuple(rows)), earlier, options.json)
            progress.advance(task)
    highest = found.ceiling.highest(ceiling.measure(threads, rounds))
    done = {row.name for row in rows}
    missing = tuple(each.name for each in workloads if each.name not in done)
    results = Results(replace(found, ceiling=highest), tuple(rows), missing)
    return _keep(results, earlier, options.json)


def _here(job: Job, workloads: Sequence[Workload]) -> Iterator[Row]:
    """The row of each workload, measured in this process."""
    job.settle()
    contenders = chosen_peers(job.contenders)
    for workload in workloads:
        if job.until is None or time.time() < job.until:
            yield trial.run_workload(workload, contenders, job.plan(), job.patience)


def _keep(results: Results, earlier: Results | None, path: Path | None) -> Results:
    """Join the results to earlier ones, and write them if a path says where."""
    joined = earlier.updated(results) if earlier else results
    if path:
        joined.save(path)
    return joined


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    options = _parser().parse_args(arguments)
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console.width = WIDTH
    if options.list:
        for workload in chosen_workloads(options):
            console.print(f"{workload.group:<12}{workload.name}", highlight=False)
        return 0
    results = Results.load(options.show) if options.show else run(options, console)
    show(results, console)
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(report.markdown(results, peers.OURS))
    return 0


if __name__ == "__main__":
    # As Ctrl-C does, being told to end ends the process that measures, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    raise SystemExit(main())
