"""``monograph explain``: what compiling a model did, and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from monograph.cli import common


def explain(
    model: common.ModelName,
    types: common.Types = None,
    level: common.Level = "O2",
    target: common.TargetName = None,
    threads: common.Threads = None,
    strict: common.Strict = False,
    cache: common.Cache = None,
    winograd_tolerance: common.WinogradTolerance = None,
    passes: common.Passes = None,
    plugins: common.Plugins = None,
    sizes: common.Sizes = None,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Time the kernels in calls.")
    ] = True,
    report: common.ReportFile = None,
    as_json: common.AsJson = False,
) -> None:
    """Compile a model and say what happened, and why.

    Stages with their times; nodes, kernels, bytes and memory before and after each pass; every
    kernel with the reasons for its bounds, its time in a call, and what that is of what this
    machine can do; the memory plan, and what runs in the interpreter.

    - monograph explain model.onnx
    - monograph explain net.py:model --input 'f32[1, 64]' --json
    """
    from monograph.cli import report_file
    from monograph.compiler import Options
    from monograph.inspect.explain import explain_executable
    from monograph.inspect.inputs import make_inputs, parse_sizes
    from monograph.inspect.models import executable_of, find_model
    from monograph.inspect.pass_steps import PassStep, pass_steps
    from monograph.inspect.profile import profile_calls, without_variants
    from monograph.inspect.roofline import load_or_measure_roofline
    from monograph.inspect.stages import record_stages

    page = report_file.check_path(report)
    options = Options(
        common.level_name(level),
        threads,
        strict,
        cache=cache,
        winograd_tolerance=winograd_tolerance,
        passes=common.pipeline_of(passes),
        target=target,
    )
    chosen = parse_sizes(sizes or ())
    with common.showing_progress("explaining"):
        found = find_model(model, types or ())
        recorded = record_stages(lambda: found.compiled(options))
        cached = "" if recorded.error is not None else executable_of(recorded.made).report.cache
        if cached == "hit" and not found.is_compiled:  # and has forgotten what the passes did
            recorded = record_stages(lambda: found.compiled(replace(options, cache=False)))
        if recorded.error is not None:
            raise recorded.error
        compiled = recorded.made
        steps: Sequence[PassStep] = ()
        if not found.is_compiled:
            steps = pass_steps(recorded.stages, options.resolved_target, chosen)
        executable = executable_of(compiled)
        explained = explain_executable(executable, name=model, sizes=chosen, steps=steps)
        if measure and executable.native is not None:
            arrays = make_inputs(executable.graph, {}, chosen, seed=0)
            with without_variants(executable):
                profile = profile_calls(executable, lambda: executable.run(arrays))
            roofline = load_or_measure_roofline(executable.native.threads)
            explained = explained.measured(profile, roofline)
            if explained.is_above_the_roof:
                roofline = load_or_measure_roofline(executable.native.threads, again=True)
                explained = explained.measured(profile, roofline)
        report_file.write(page, found, options, sizes, measures=measure)
    explained = replace(explained, cache=cached)
    print(json.dumps(explained.as_json(), indent=2) if as_json else explained)
