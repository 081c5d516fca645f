"""``python -m benchmarks.quantization.speed``: whole models in small integers beside their peers.

Every contender quantizes the same float model on the same batches. All are timed by turns in one
process; errors are against the float model, since that is what quantizing loses. A contender that
fails is named with its reason.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks import measure, peers
from benchmarks.quantization.contenders import contenders
from benchmarks.trial import in_short
from benchmarks.workloads import Inputs, Workload, select

MODELS = (
    "resnet50-1",
    "mobilenet-v2-1",
    "bert-base-1x128",
    "vit-b16-1",
    "llama-160m-decode-1x128",
)
BATCHES = 4
"""Batches that ranges are taken from; one of them is what is timed."""


@dataclass(frozen=True)
class Row:
    """One contender on one model: milliseconds, and the error against the float model."""

    model: str
    contender: str
    median: float | None = None
    best: float | None = None
    error: float | None = None
    prepared: float | None = None
    """Seconds from the float model to the first call, quantizing included."""
    remark: str | None = None


def batches_like(inputs: Inputs) -> list[Inputs]:
    """Inputs of the same kind: the case's own, and others drawn alike."""
    torch.manual_seed(1)
    return [inputs, *(tuple(map(_draw_like, inputs)) for _ in range(BATCHES - 1))]


def _draw_like(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_floating_point():
        return torch.randn_like(tensor)
    return torch.randint(0, int(tensor.max()) + 1, tensor.shape, dtype=tensor.dtype)


def measure_model(workload: Workload, plan: measure.Plan) -> list[Row]:
    """Prepare every contender, then time those that work by turns."""
    case = workload.build()
    expected = case.outputs()
    made: dict[str, Row] = {}
    calls: dict[str, measure.Call] = {}
    for contender in contenders(case, batches_like(case.inputs), "decode" in workload.name):
        name, started = contender.name, time.perf_counter()
        problem = contender.available()
        try:
            prepared = None if problem else contender.prepare(case)
            results = () if prepared is None else prepared.read(prepared.call())
        except Exception as failure:  # peers fail in their own ways; the table tells which
            prepared, problem = None, in_short(failure)
        if prepared is None:
            made[name] = Row(workload.name, name, remark=problem)
            continue
        seconds, error = time.perf_counter() - started, measure.error(results, expected)
        made[name] = Row(workload.name, name, None, None, error, seconds, prepared.remark)
        calls[name] = prepared.call
    timings = measure.alternate(calls, plan)
    for name, timing in timings.items():
        row, median, best = made[name], 1e3 * timing.median, 1e3 * timing.best
        made[name] = Row(row.model, name, median, best, row.error, row.prepared, row.remark)
    return list(made.values())


def table(rows: list[Row]) -> str:
    """Markdown."""
    lines = ["| model | contender | ms | best | error | quantized in s | |"]
    lines.append("|---|---|---:|---:|---:|---:|---|")
    for row in rows:
        times = [f"{each:.2f}" if each is not None else "–" for each in (row.median, row.best)]
        error = "–" if row.error is None else f"{row.error:.2g}"
        took = "–" if row.prepared is None else f"{row.prepared:.1f}"
        cells = (row.model, row.contender, *times, error, took, row.remark or "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def build(name: str) -> Workload:
    """The workload of that very name."""
    return next(each for each in select([name]) if each.name == name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", help=f"one of the workloads, say {MODELS[0]}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=6.0, help="how long to time a model")
    parser.add_argument("--busy", action="store_true", help="one thread, processor time")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    peers.limit_threads(1 if given.busy else given.threads)
    clock = time.process_time if given.busy else time.perf_counter
    plan = measure.Plan(seconds=given.seconds, clock=clock)
    rows: list[Row] = []
    for name in given.model or MODELS:
        made = measure_model(build(name), plan)
        rows += made
        print(table(made), flush=True)
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))


if __name__ == "__main__":
    main()
