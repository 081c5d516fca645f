"""``monograph validate``: whether every pass, and the compiled program, keep the answer."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from monograph.cli import common
from monograph.cli.exit_codes import FINDING


def validate(
    model: common.ModelName,
    types: common.Types = None,
    sizes: common.Sizes = None,
    level: common.Level = "O2",
    target: common.TargetName = None,
    threads: common.Threads = None,
    winograd_tolerance: common.WinogradTolerance = None,
    passes: common.Passes = None,
    plugins: common.Plugins = None,
    seed: common.Seed = 0,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, help="After which no further sample is begun.")
    ] = 60.0,
    report: common.ReportFile = None,
    as_json: common.AsJson = False,
) -> None:
    """Run every pass before and after on many inputs, then the compiled program.

    Inputs are the model's own examples, random ones, and adversarial ones: magnitudes far apart,
    equal numbers, zeros and subnormals, NaN and infinities, sizes at the ends of their ranges.
    The verdict is exact, more accurate than the framework, within rounding, or wrong: exit code 3.

    - monograph validate model.onnx
    - monograph validate net.py:model --input 'f32[batch, 64]' --json
    """
    from monograph.cli import report_file
    from monograph.compiler import Options
    from monograph.inspect.inputs import parse_sizes
    from monograph.inspect.models import find_model
    from monograph.inspect.subject import subject_of
    from monograph.inspect.validate import validate as validate_model

    page = report_file.check_path(report)

    options = Options(
        common.level_name(level),
        threads,
        winograd_tolerance=winograd_tolerance,
        passes=common.pipeline_of(passes),
        target=target,
    )
    with common.showing_progress("validating"):
        named = find_model(model, types or ())
        found = validate_model(
            subject_of(named),
            options=options,
            sizes=parse_sizes(sizes or ()),
            seconds=seconds,
            seed=seed,
        )
        report_file.write(page, named, options, sizes, found)
    print(json.dumps(found.as_json(), indent=2) if as_json else found)
    if not found.is_right:
        raise typer.Exit(FINDING)
