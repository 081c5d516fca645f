"""Measure models as people ship them: ``python -m benchmarks.shipped``.

Each is measured with its sizes free, from the third call on at one size, and with its sizes fixed,
beside ONNX Runtime and OpenVINO, by turns in one process, with the error of each.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from benchmarks import measure, peers
from benchmarks.shipped import select
from benchmarks.shipped.contenders import CONTENDERS
from benchmarks.shipped.table import markdown
from benchmarks.shipped.trial import Row, run_model


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shipped", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="models or families")
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--threads", type=int, default=peers.THREADS, help="of each contender")
    parser.add_argument(
        "--busy",
        action="store_true",
        help="for a busy machine: one thread each, processor time instead of the wall's clock",
    )
    parser.add_argument("--quick", action="store_true", help="few rounds: figures are rough")
    parser.add_argument("--small", action="store_true", help="the small forms, as tests use them")
    parser.add_argument("--minutes", type=float, help="begin no model after so long")
    parser.add_argument("--json", type=Path, help="write the figures here after every model")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    parser.add_argument("--list", action="store_true", help="name the models and end")
    return parser


def prepare_process(threads: int) -> None:
    """Make this process fit for measuring: no cache on disk, no chatter, so many threads."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_grad_enabled(False)
    peers.limit_threads(threads)
    os.environ["MONOGRAPH_CACHE"] = "0"


def run(options: argparse.Namespace, console: Console) -> list[Row]:
    """Measure all that was asked for."""
    threads = 1 if options.busy else options.threads
    prepare_process(threads)
    plan = measure.QUICK if options.quick else measure.Plan()
    plan = replace(plan, clock=time.process_time) if options.busy else plan
    end = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    rows: list[Row] = []
    with console.status("…") as status:
        for model in select(options.only):
            if end is not None and time.monotonic() > end:
                console.print(f"no time was left for {model.name}")
                continue
            row = run_model(model, options.contenders, plan, threads, options.small, status.update)
            rows.append(row)
            if options.json:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps([each.as_json() for each in rows], indent=1))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    options = _parser().parse_args(arguments)
    console = Console(soft_wrap=True)
    if options.list:
        for model in select(options.only):
            console.print(f"{model.family:<8}{model.name:<20}{model.exporter}", highlight=False)
        return 0
    rows = run(options, console)
    clock = "processor" if options.busy else "wall"
    text = markdown(rows, clock, 1 if options.busy else options.threads)
    console.print(text, highlight=False, markup=False)
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
