"""Programs and models on a GPU beside torch: eager, Inductor in three modes, XLA, a plain copy.

    python -m benchmarks.gpu [WORD …] [--peers eager,default] [--seconds 20] [--json FILE]
                             [--until 300] [--first]

A row is one program. Every contender is compiled and checked against float64, then all take turns:
a block of calls between two device events, over the number of calls. The table has the median of
the blocks. What takes longer than ``--seconds`` for a row to compile is left out, by name; no row
is begun after ``--until`` seconds. ``--first`` only makes first calls, ``ours`` among the peers,
with the caches on disk: what a process takes that finds them empty, or filled by another.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

import monograph
from benchmarks.gpu.programs import ROWS, Row
from monograph.switches import switch_off
from monograph.targets.gpu.measurements import Measurements, read_measurements
from monograph.tuning import gpu_contests

Call = Callable[[], Any]
MODES = {
    "default": {},
    "max-autotune": {"mode": "max-autotune"},
    "reduce-overhead": {"mode": "reduce-overhead"},
}
PEERS = ("eager", *MODES, "copy")
WITHOUT = "without "
"""Begins the name of a contender that is ours with a part switched off (monograph.switches)."""
ROUNDS = 15
BLOCK_MS = 4.0


@dataclass
class Result:
    """What a contender took for a row."""

    row: str
    contender: str
    milliseconds: float = 0.0
    host_milliseconds: float = 0.0
    """What the host takes to give a call to the device; the device waits if it is more."""
    error: float = 0.0
    compile_seconds: float = 0.0
    peak_mib: float = 0.0
    """What it holds, and allocates in a call, at most, beside the module and its inputs."""
    compile_mib: float = 0.0
    """The same of all that is alive, while it is compiled and first called."""
    note: str = ""
    blocks: list[float] = field(default_factory=list)


def made(row: Row) -> tuple[nn.Module, tuple[Any, ...]]:
    """A row's module and inputs, the same for every contender."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        model, inputs = row.make()
    kind = row.dtype
    given = tuple(x.to(kind) if x.is_floating_point() else x for x in inputs)
    return model.to(kind).eval(), given


def first_calls(row: Row, peers: Sequence[str]) -> None:
    """Compile a row and call it, as a process does that may find it in the caches on disk."""
    model, inputs = made(row)
    torch.cuda.synchronize()
    for name in peers:
        torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        call = _compiled(name, model, inputs, cache=True)
        call()
        torch.cuda.synchronize()
        first = time.perf_counter() - started
        call()
        torch.cuda.synchronize()
        second = time.perf_counter() - started - first
        peak = torch.cuda.max_memory_allocated() / 2**20
        print(
            f"{row.name:34} {name:16} first call {first:6.2f} s, second {second:5.2f} s, "
            f"{peak:.0f} MiB",
            flush=True,
        )


def contenders(
    row: Row, peers: Sequence[str], seconds: float
) -> tuple[dict[str, Call], list[Result]]:
    """The calls to time, and what is known of each before: compile time, error, memory."""
    model, inputs = made(row)
    exact = None
    if row.is_checked:
        doubled = [x.double() if x.is_floating_point() else x for x in inputs]
        with torch.no_grad():
            exact = _flat(copy.deepcopy(model).double()(*doubled))
    calls: dict[str, Call] = {}
    results = []
    started = time.perf_counter()
    for name in ("ours", *peers):
        if name == "copy":
            continue
        result = Result(row.name, name)
        results.append(result)
        if time.perf_counter() - started > seconds and name != "ours":
            result.note = "no time left"
            continue
        try:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            gc.collect()
            held = torch.cuda.memory_allocated() / 2**20
            begun = time.perf_counter()
            call = _compiled(name, model, inputs)
            for _ in range(3):
                found = [each.clone() for each in _flat(call())]
            torch.cuda.synchronize()
            result.compile_seconds = time.perf_counter() - begun
            result.compile_mib = torch.cuda.max_memory_allocated() / 2**20
            if exact is not None:
                result.error = _error(found, exact)
            del found
            result.peak_mib = _memory_of(call) - held
            calls[name] = call
        except Exception as problem:
            text = traceback.format_exc().splitlines()[-6:]
            result.note = f"{type(problem).__name__}: {str(problem)[:200]}"
            print("\n".join(text), flush=True)
    if "copy" in peers and row.copied:
        source = torch.empty(row.copied // 2, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        calls["copy"] = lambda: target.copy_(source)
        results.append(Result(row.name, "copy"))
    return calls, results


def _memory_of(call: Call) -> float:
    """MiB that are alive at most in a call."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated()) / 2**20


def _compiled(name: str, model: nn.Module, inputs: Sequence[Any], *, cache: bool = False) -> Call:
    if name == "ours" or name.startswith(WITHOUT):
        off = switch_off(name.removeprefix(WITHOUT)) if name != "ours" else nullcontext()
        with off:
            ours = monograph.compile(model, *inputs, target="gpu", cache=cache)
        return lambda: ours(*inputs)
    if name == "eager":
        return lambda: model(*inputs)
    torch._dynamo.reset()
    theirs = torch.compile(model, **MODES[name])
    return lambda: theirs(*inputs)


def measure(calls: dict[str, Call], results: list[Result], rounds: int = ROUNDS) -> None:
    """Blocks of calls by turns; medians go into the results."""
    by_name = {result.contender: result for result in results}
    counts = {
        name: max(1, min(200, round(BLOCK_MS / _block(call, 2)))) for name, call in calls.items()
    }
    for _ in range(rounds):
        for name, call in calls.items():
            by_name[name].blocks.append(_block(call, counts[name]))
    for name, call in calls.items():
        by_name[name].host_milliseconds = _host_time(call)
        by_name[name].milliseconds = statistics.median(by_name[name].blocks)


def _block(call: Call, count: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    call()
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / count


def _host_time(call: Call, count: int = 20) -> float:
    """Milliseconds until a call returns, which does not wait for the device."""
    times = []
    for _ in range(count):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    torch.cuda.synchronize()
    return statistics.median(times) * 1e3


def _flat(result: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = torch.utils._pytree.tree_leaves(result)
    return found


def _error(got: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    pairs = zip(got, exact, strict=True)
    return max(float((x.double() - y).norm() / y.norm().clamp(min=1e-30)) for x, y in pairs)


def table(results: Sequence[Result]) -> str:
    """The rows as Markdown: milliseconds, errors and seconds to compile."""
    names = list(dict.fromkeys(result.contender for result in results))
    lines = [f"| row | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for row in dict.fromkeys(result.row for result in results):
        cells = {result.contender: _cell(result) for result in results if result.row == row}
        lines.append(f"| {row} | {' | '.join(cells.get(name, '–') for name in names)} |")
    return "\n".join(lines)


def _cell(result: Result) -> str:
    if result.note:
        return result.note.split(":")[0]
    text = f"{result.milliseconds:.4g}"
    if result.contender == "copy":
        return text
    return f"{text} ({result.error:.0e}, {result.compile_seconds:.1f} s)"


def add_measurements(path: Path) -> None:
    """Add what choices in this process were made by to a table (``MONOGRAPH_GPU_TIMES``)."""
    found = Measurements()
    if path.exists():
        found = read_measurements(path.read_text(encoding="utf-8"))
    for table in gpu_contests.list_tables():
        found.machine = table.machine
        found.sites.update(table.sites)
    path.write_text(found.text(), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Measure rows, print each as it is done, then the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="rows whose names contain a word; all without")
    parser.add_argument(
        "--peers", default="eager,default,copy", help=f"{', '.join(PEERS)}, '{WITHOUT}SWITCH'"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="for compiling a row's peers")
    parser.add_argument(
        "--until", type=float, default=1e9, help="seconds after which no row begins"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--first", action="store_true", help="make first calls, with caches")
    parser.add_argument("--measurements", type=Path, help="a file to add what was measured to")
    parser.add_argument("--json", type=Path, help="a file to add the results to")
    parser.add_argument("--list", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        print("\n".join(ROWS))
        return 0
    warnings.simplefilter("ignore")
    torch.backends.cudnn.allow_tf32 = False
    started = time.perf_counter()
    words = chosen.words or [""]
    named = [[word] if word in ROWS else [x for x in ROWS if word in x] for word in words]
    rows = list(dict.fromkeys(ROWS[name] for found in named for name in found))
    if not torch.cuda.is_available():
        raise SystemExit("this measures on a GPU, and torch sees none here")
    print(torch.cuda.get_device_name(), f"torch {torch.__version__}", flush=True)
    results: list[Result] = []
    lost: list[str] = []
    is_continued = chosen.json is not None and chosen.json.exists()
    before = json.loads(chosen.json.read_text(encoding="utf-8")) if is_continued else []
    for row in rows:
        if time.perf_counter() - started > chosen.until:
            lost.append(row.name)
            continue
        try:
            with torch.no_grad():
                peers = [each for each in chosen.peers.split(",") if each]
                if chosen.first:
                    first_calls(row, peers)
                    continue
                calls, found = contenders(row, peers, chosen.seconds)
                measure(calls, found, chosen.rounds)
        except Exception:  # the other rows are still worth their time; this one is named at the end
            traceback.print_exc(file=sys.stdout)
            lost.append(row.name)
            continue
        results += found
        for each in found:
            shown = each.note or (
                f"{each.milliseconds:9.4f} ms  host {each.host_milliseconds:7.4f}  "
                f"error {each.error:.1e}  first calls {each.compile_seconds:5.1f} s  "
                f"peak {each.peak_mib:6.0f} MiB"
            )
            print(f"{each.row:34} {each.contender:16} {shown}", flush=True)
        if chosen.measurements is not None:
            add_measurements(chosen.measurements)
        if chosen.json is not None:
            shown = json.dumps(before + [asdict(each) for each in results], indent=1)
            chosen.json.write_text(shown, encoding="utf-8")
    if results:
        print("\n" + table(results))
    if lost:
        print(f"not measured, since they failed or there was no time: {', '.join(lost)}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
