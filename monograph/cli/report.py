"""``monograph report``: a page about a model, in one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from monograph.cli import common
from monograph.cli.exit_codes import FINDING


def report(
    model: common.ModelName,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    types: common.Types = None,
    level: common.Level = "O2",
    target: common.TargetName = None,
    threads: common.Threads = None,
    winograd_tolerance: common.WinogradTolerance = None,
    passes: common.Passes = None,
    plugins: common.Plugins = None,
    sizes: common.Sizes = None,
    measure: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Time calls on random inputs.")
    ] = True,
    checks: Annotated[
        bool,
        typer.Option("--validate/--no-validate", help="Check every pass and the program, too."),
    ] = False,
    sources: Annotated[
        bool,
        typer.Option("--sources/--no-sources", help="Quote the model's own Python files."),
    ] = True,
) -> None:
    """Compile a model and write a page about it: one HTML file that needs nothing else.

    It holds the graph at every pass, the kernels with their loop nests, LLVM IR and assembly, and
    the memory plan, with links from each to the others. Open it in any browser.

    - monograph report model.onnx -o report.html
    - monograph report net.py:model --input 'f32[1, 64]' --validate
    """
    from monograph.compiler import Options
    from monograph.inspect.inputs import parse_sizes
    from monograph.inspect.models import find_model
    from monograph.inspect.subject import named_subject
    from monograph.inspect.validate import validate
    from monograph.report.models import compile_recorded, data_of
    from monograph.report.page import page_html
    from monograph.report.write import html_path

    file = html_path(output)
    options = Options(
        common.level_name(level),
        threads,
        cache=False,
        listings=True,
        keep_weights=True,  # flops, listings and history look at constants
        winograd_tolerance=winograd_tolerance,
        passes=common.pipeline_of(passes),
        target=target,
    )
    with common.showing_progress("reporting"):
        found = find_model(model, types or ())
        recorded = compile_recorded(found, options)
        data = data_of(
            recorded,
            name=model,
            sizes=parse_sizes(sizes or ()),
            measures=measure,
            quotes_sources=sources,
        )
        verdict = None
        if checks:
            subject = named_subject(model, types or ())
            verdict = validate(subject, options=options, sizes=parse_sizes(sizes or ()))
            data.facts["validation"] = verdict.as_json()
        file.write_text(page_html(data), encoding="utf-8")
    print(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")
    if verdict is not None and not verdict.is_right:
        raise typer.Exit(FINDING)
