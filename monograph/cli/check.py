"""``monograph check``: every op of a model that is not supported, before any work."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from monograph.inspect.check import CheckReport
from monograph.inspect.check import check as check_model


def check(
    model: Annotated[
        str, typer.Argument(help="model.onnx, graph.ir, or file.py:module_or_function.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", help="An example input of a Python model: 'f32[1, 4]'."),
    ] = None,
) -> None:
    r"""Report every unsupported op of a model, with its place and the nearest supported form.

    \b
    monograph check model.onnx
    monograph check net.py:model --input 'f32[1, 3, 224, 224]'
    """
    report = check_model(model, inputs or ())
    if not report.problems:
        print(f"{report.model}: every op is supported")
        print(f"next: {report.next_step}")
        return
    _show(report)
    raise typer.Exit(1)


def _show(report: CheckReport) -> None:
    count = sum(problem.count for problem in report.problems)
    title = f"{report.model}: {len(report.problems)} unsupported ops, in {count} places"
    table = Table(title=title, title_justify="left")
    for heading in ("op", "times", "first at", "why", "nearest"):
        table.add_column(heading, overflow="fold")
    for problem in report.problems:
        row = (problem.op, str(problem.count), problem.where, problem.reason)
        table.add_row(*row, problem.nearest or "-")
    Console().print(table)
    print("next: replace these, or write a converter: CONTRIBUTING.md shows one in ten lines")
