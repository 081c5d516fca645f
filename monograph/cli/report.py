"""``monograph report``: a page about a model, in one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from monograph.cli import common, completion
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
    ablates: Annotated[
        bool, typer.Option("--ablate/--no-ablate", help="Measure what each part buys, too.")
    ] = False,
    others: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="NAMES",
            autocompletion=completion.peers,
            help="Compare with others, too: onnxruntime,torch.",
        ),
    ] = None,
    sources: Annotated[
        bool,
        typer.Option("--sources/--no-sources", help="Quote the model's own Python files."),
    ] = True,
) -> None:
    """Compile a model and write a page about it: one HTML file that needs nothing else.

    It holds the graph at every pass, the kernels with their loop nests, LLVM IR and assembly, and
    the memory plan, with links from each to the others. Open it in any browser.

    validate, bisect, ablate and compare write what they found to such a page by --report.

    - monograph report model.onnx -o report.html
    - monograph report net.py:model --input 'f32[1, 64]' --validate --compare torch
    """
    from monograph.compiler import Options
    from monograph.inspect.inputs import parse_sizes
    from monograph.inspect.models import find_model
    from monograph.inspect.subject import subject_of
    from monograph.inspect.validate import validate
    from monograph.report.findings import Finding
    from monograph.report.models import ablation_of, comparison_of, write_page
    from monograph.report.write import html_path

    file = html_path(output)
    options = Options(
        common.level_name(level),
        threads,
        winograd_tolerance=winograd_tolerance,
        passes=common.pipeline_of(passes),
        target=target,
    )
    chosen = parse_sizes(sizes or ())
    findings: list[Finding] = []
    is_right = True
    with common.showing_progress("reporting"):
        found = find_model(model, types or ())
        if checks:
            verdict = validate(subject_of(found), options=options, sizes=chosen)
            findings.append(verdict)
            is_right = verdict.is_right
        if others is not None:
            comparison = comparison_of(found, options, others, sizes=chosen)
            findings.append(comparison)
            is_right = is_right and comparison.is_right
        if ablates:
            findings.append(ablation_of(found, options, sizes=chosen))
        write_page(
            file,
            found,
            options,
            sizes=chosen,
            measures=measure,
            quotes_sources=sources,
            findings=findings,
        )
    print(f"{file}: {file.stat().st_size / 2**20:.1f} MiB")
    if not is_right:
        raise typer.Exit(FINDING)
