"""``monograph bisect``: the one rewrite, group or kernel that makes a model wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from monograph.cli import common
from monograph.cli.exit_codes import FINDING


def bisect(
    model: common.ModelName,
    types: common.Types = None,
    sizes: common.Sizes = None,
    level: common.Level = "O2",
    target: common.TargetName = None,
    threads: common.Threads = None,
    passes: common.Passes = None,
    plugins: common.Plugins = None,
    seed: common.Seed = 0,
    gradient: Annotated[
        bool, typer.Option("--gradient", help="Search the rules of differentiation instead.")
    ] = False,
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="Smaller cases to try at most.")
    ] = 250,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where to write the repro.")
    ] = Path("repro.py"),
    report: common.ReportFile = None,
    as_json: common.AsJson = False,
) -> None:
    """Find the rewrite that makes a model's answer wrong, and write a short program that shows it.

    The pass is found first, then the one application of a rule in it; or, behind the passes, the
    kernel, and what cures it when it is switched off. Exit code 3 if there is a fault.

    - monograph bisect model.onnx
    - monograph bisect net.py:model --input 'f32[batch, 64]' -o fault.py
    - monograph bisect net.py:model --gradient
    """
    from monograph.cli import report_file
    from monograph.compiler import Options
    from monograph.inspect.bisect import bisect as bisect_model
    from monograph.inspect.inputs import parse_sizes
    from monograph.inspect.models import find_model
    from monograph.inspect.subject import subject_of

    common.check_file(output)
    page = report_file.check_path(report)

    options = Options(
        common.level_name(level), threads, passes=common.pipeline_of(passes), target=target
    )
    with common.showing_progress("bisecting"):
        named = find_model(model, types or ())
        found = bisect_model(
            subject_of(named),
            options=options,
            sizes=parse_sizes(sizes or ()),
            seed=seed,
            gradient=gradient,
            trials=trials,
            plugins=plugins or (),
        )
        report_file.write(page, named, options, sizes, found)
    if found.is_found:
        found.save(output)
    print(json.dumps(found.as_json(), indent=2) if as_json else found)
    if found.is_found:
        raise typer.Exit(FINDING)
