"""``monograph ablate``: what each part of the compiler buys for a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from monograph.cli import common


def ablate(
    model: common.ModelName,
    inputs: common.Inputs = None,
    budget: Annotated[
        float, typer.Option("--budget", min=1.0, help="Seconds after which nothing is begun.")
    ] = 120.0,
    rounds: Annotated[int, typer.Option("--rounds", min=3, help="Turns for each pair.")] = 9,
    alone: Annotated[
        bool, typer.Option("--alone/--no-alone", help="Also add each part to nothing.")
    ] = True,
    chart: Annotated[
        Path | None, typer.Option("--chart", metavar="FILE.svg", help="Draw it, too.")
    ] = None,
    sizes: common.Sizes = None,
    seed: common.Seed = 0,
    level: common.Level = "O2",
    threads: common.Threads = None,
    winograd_tolerance: common.WinogradTolerance = None,
    passes: common.Passes = None,
    plugins: common.Plugins = None,
    report: common.ReportFile = None,
    as_json: common.AsJson = False,
) -> None:
    """Switch off each part of the compiler in turn, and measure what it bought.

    Passes, groups of rules, kinds of fusion, families of kernels and the reuse of memory: time
    (by turns, with its spread), kernels, bytes moved, memory, error. A ratio whose interval of 95 %
    holds 1 is no effect.

    - monograph ablate model.onnx --budget 60
    - monograph ablate net.py:model --input 'f32[8, 64]' --chart ablation.svg
    """
    from monograph.cli import report_file
    from monograph.compiler import Options
    from monograph.inspect.ablate import ablate as ablate_graph
    from monograph.inspect.ablate_text import ablation_svg
    from monograph.inspect.inputs import make_inputs, parse_sizes, split_inputs
    from monograph.inspect.measure import busy_note
    from monograph.inspect.models import executable_of, find_model

    common.check_file(chart)
    page = report_file.check_path(report)
    ways, types = split_inputs(inputs or ())
    options = Options(
        common.level_name(level),
        threads,
        keep_weights=True,
        winograd_tolerance=winograd_tolerance,
        passes=common.pipeline_of(passes),
    )
    with common.showing_progress("ablating"):
        found = find_model(model, types)
        graph = executable_of(found.compiled(options)).graph
        arrays = make_inputs(graph, ways, parse_sizes(sizes or ()), seed)
        made = ablate_graph(
            graph, options, arrays, name=model, budget=budget, rounds=rounds, alone=alone
        )
        busy = busy_note()
        report_file.write(page, found, options, sizes, made)
    print(json.dumps(made.as_json(), indent=2) if as_json else made)
    if chart is not None:
        chart.write_text(ablation_svg(made), encoding="utf-8")
        print(f"wrote {chart}", file=sys.stderr)
    if busy is not None:
        print(busy, file=sys.stderr)
