"""``monograph explain``: what compiling a model did, and why."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

import typer

from monograph.cli import common


def explain(
    model: common.ModelName,
    types: common.Types = None,
    level: common.Level = "O2",
    threads: common.Threads = None,
    strict: common.Strict = False,
    cache: common.Cache = None,
    winograd_tolerance: common.WinogradTolerance = None,
    passes: common.Passes = None,
    plugins: common.Plugins = None,
    sizes: common.Sizes = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="For a program to read, not a person.")
    ] = False,
) -> None:
    """Compile a model and say what happened, and why.

    Stages with their times, nodes before and after, every kernel with the reasons for its bounds,
    bytes moved with and without fusion, the memory plan, and what runs in the interpreter.

    - monograph explain model.onnx
    - monograph explain net.py:model --input 'f32[1, 64]' --json
    """
    from monograph.compiler import Options
    from monograph.inspect.explain import explain_executable
    from monograph.inspect.inputs import parse_sizes
    from monograph.inspect.models import executable_of, find_model

    options = Options(
        common.level_name(level),
        threads,
        strict,
        cache=cache,
        winograd_tolerance=winograd_tolerance,
        passes=common.pipeline_of(passes),
    )
    with common.showing_progress("compiling"):
        found = find_model(model, types or ())
        compiled = found.compiled(options)
        cached = executable_of(compiled).report.cache
        if cached == "hit":  # nothing was compiled that could be told of
            compiled = found.compiled(replace(options, cache=False))
        executable = executable_of(compiled)
        explained = explain_executable(executable, name=model, sizes=parse_sizes(sizes or ()))
    explained = replace(explained, cache=cached)
    print(json.dumps(explained.as_json(), indent=2) if as_json else explained)
