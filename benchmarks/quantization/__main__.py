"""``python -m benchmarks.quantization``: what each scheme loses on each task, beside ONNX Runtime.

Scores are the share of right answers in percent on a test set that neither training nor calibration
saw; a peer that fails is named with its reason. Conversions are quantize and dequantize nodes of
activations in the graph.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import monograph
from benchmarks.quantization.peers import METHODS, conversions, quantize_by_onnxruntime, session
from benchmarks.quantization.tasks import TASKS, Task
from benchmarks.trial import in_short

SCHEMES = tuple(monograph.quantize.schemes)
Row = dict[str, str | float | int]


def measure(task: Task, schemes: tuple[str, ...], peers: bool) -> list[Row]:
    """A row for every scheme, and for every calibration of ONNX Runtime."""
    whole = task.score(task.eager)
    rows: list[Row] = [{"task": task.name, "scheme": "float", "score": whole, "lost": 0.0}]
    graph = monograph.from_torch(task.model, torch.from_numpy(task.calibration[0]))
    profile = monograph.quantize.profile(graph, task.calibration, progress=False)
    for scheme in schemes:
        quantized, report = monograph.quantize.with_report(graph, profile, scheme)
        compiled = monograph.compile(quantized, strict=True)
        score = task.score(lambda batch, run=compiled: run(batch)[0])
        count = report.quantizes + report.dequantizes
        rows.append(_row(task, scheme, score, whole, count))
    for method in METHODS if peers else ():
        name = f"ONNX Runtime {method}"
        try:
            model = quantize_by_onnxruntime(task, method)
            score = task.score(session(model))
        except Exception as failure:  # its calibration fails on masks of -inf, say: the table tells
            rows.append({"task": task.name, "scheme": name, "failure": in_short(failure)})
            continue
        rows.append(_row(task, name, score, whole, conversions(model)))
    return rows


def _row(task: Task, scheme: str, score: float, whole: float, count: int) -> Row:
    lost = whole - score
    return {
        "task": task.name,
        "scheme": scheme,
        "score": score,
        "lost": lost,
        "conversions": count,
    }


def table(rows: list[Row]) -> str:
    """Markdown."""
    lines = ["| task | scheme | score | points lost | conversions |", "|---|---|---:|---:|---:|"]
    for row in rows:
        if "failure" in row:
            lines.append(f"| {row['task']} | {row['scheme']} | – | – | {row['failure']} |")
            continue
        count = row.get("conversions", "")
        figures = f"{row['score']:.2f} | {row['lost']:+.2f} | {count}"
        lines.append(f"| {row['task']} | {row['scheme']} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", action="append", choices=list(TASKS))
    parser.add_argument("--scheme", action="append", choices=SCHEMES)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = []
    for name in given.task or TASKS:
        made = measure(TASKS[name](), tuple(given.scheme or SCHEMES), not given.no_peers)
        rows += made
        print(table(made), flush=True)
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
