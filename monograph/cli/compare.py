"""``monograph compare``: a compiled model beside everybody else who is installed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Annotated

import typer

from monograph.cli import common, completion, exit_codes


def compare(
    model: common.ModelName,
    inputs: common.Inputs = None,
    others: Annotated[
        str,
        typer.Option(
            "--with",
            autocompletion=completion.peers,
            help="Who to compare with, separated by commas.",
        ),
    ] = "onnxruntime,torch,inductor,openvino,xla,iree",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Turns for each.")] = 15,
    budget: Annotated[
        float, typer.Option("--budget", help="Seconds of measuring after which no round begins.")
    ] = 60.0,
    sizes: common.Sizes = None,
    seed: common.Seed = 0,
    level: common.Level = "O2",
    target: common.TargetName = None,
    threads: common.Threads = None,
    strict: common.Strict = False,
    winograd_tolerance: common.WinogradTolerance = None,
    passes: common.Passes = None,
    plugins: common.Plugins = None,
    report: common.ReportFile = None,
    as_json: common.AsJson = False,
) -> None:
    """Hold a compiled model against other runtimes and compilers: answers, times, memory.

    They take turns in one process on the same inputs; errors are against double precision. Who is
    not installed, or cannot take the model, is named with the reason. Exits with 3 if our answer is
    wrong.

    - monograph compare model.onnx --with onnxruntime,openvino
    - monograph compare net.py:model --input 'f32[8, 64]' --json
    """
    from monograph.cli import report_file
    from monograph.compiler import Options
    from monograph.inspect.compare import compare as compare_all
    from monograph.inspect.compare import names_in
    from monograph.inspect.inputs import make_inputs, parse_sizes, split_inputs
    from monograph.inspect.measure import busy_note
    from monograph.inspect.models import executable_of, find_model

    page = report_file.check_path(report)
    ways, types = split_inputs(inputs or ())
    options = Options(
        common.level_name(level),
        threads,
        strict,
        winograd_tolerance=winograd_tolerance,
        keep_weights=True,  # the graph is run in double precision, too
        passes=common.pipeline_of(passes),
        target=target,
    )
    chosen = parse_sizes(sizes or ())
    with common.showing_progress("comparing"):
        found = find_model(model, types)
        comparison = compare_all(
            found,
            lambda: executable_of(found.compiled(replace(options, cache=False))),
            lambda executable: make_inputs(executable.graph, ways, chosen, seed),
            names_in(others),
            threads=threads,
            rounds=rounds,
            budget=budget,
        )
        busy = busy_note()
        report_file.write(page, found, options, sizes, comparison)
    print(json.dumps(comparison.as_json(), indent=2) if as_json else comparison)
    if busy is not None:
        print(busy, file=sys.stderr)
    if not comparison.is_right:
        raise typer.Exit(exit_codes.FINDING)
