"""``monograph profile``: where the time of a call goes, kernel by kernel and thread by thread."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from monograph.cli import common


def profile(
    model: common.ModelName,
    inputs: common.Inputs = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write a Chrome trace, which ui.perfetto.dev opens."),
    ] = None,
    calls: Annotated[int, typer.Option("--calls", min=1, help="Calls to record.")] = 20,
    sizes: common.Sizes = None,
    seed: common.Seed = 0,
    level: common.Level = "O2",
    threads: common.Threads = None,
    strict: common.Strict = False,
    cache: common.Cache = None,
    winograd_tolerance: common.WinogradTolerance = None,
    passes: common.Passes = None,
    plugins: common.Plugins = None,
    report: common.ReportFile = None,
    as_json: common.AsJson = False,
) -> None:
    """Say where the time of a call goes: each kernel's, measured by the compiled code.

    The kernels are the very ones that calls run; they are entered in another way while it records,
    and the table says what that costs.

    - monograph profile model.onnx
    - monograph profile net.py:model --input 'f32[8, 64]' -o trace.json
    """
    from monograph.cli import report_file
    from monograph.compiler import Options
    from monograph.inspect.inputs import make_inputs, parse_sizes, split_inputs
    from monograph.inspect.measure import busy_note
    from monograph.inspect.models import executable_of, find_model
    from monograph.inspect.profile import profile_calls

    common.check_file(output)
    page = report_file.check_path(report)
    ways, types = split_inputs(inputs or ())
    options = Options(
        common.level_name(level),
        threads,
        strict,
        cache=cache,
        winograd_tolerance=winograd_tolerance,
        passes=common.pipeline_of(passes),
    )
    with common.showing_progress("profiling"):
        named = find_model(model, types)
        executable = executable_of(named.compiled(options))
        arrays = make_inputs(executable.graph, ways, parse_sizes(sizes or ()), seed)
        busy = busy_note()
        found = profile_calls(executable, lambda: executable.run(arrays), calls=calls, name=model)
        report_file.write(page, named, options, sizes, found)
    print(json.dumps(found.as_json(), indent=2) if as_json else found)
    if output is not None:
        found.save_trace(output)
        print(f"wrote {output}: open it in ui.perfetto.dev or chrome://tracing", file=sys.stderr)
    if busy is not None:
        print(busy, file=sys.stderr)
