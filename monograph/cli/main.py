"""``monograph``: the command line. Each subcommand lives in a file of its own name."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import monograph
from monograph.cli import (
    bench,
    bisect,
    check,
    compile,
    explain,
    explore,
    ops,
    opt,
    quantize,
    report,
    run,
    tour,
    tune,
    validate,
)
from monograph.cli.errors import error_text
from monograph.errors import MonographError

app = typer.Typer(
    name="monograph",
    help="A graph compiler for machine learning that you can read like a book.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command("tour")(tour.tour)
app.command("compile")(compile.compile)
app.command("run")(run.run)
app.command("bench")(bench.bench)
app.command("tune")(tune.tune)
app.command("quantize")(quantize.quantize)
app.command("explain")(explain.explain)
app.command("report")(report.report)
app.command("explore")(explore.explore)
app.command("opt")(opt.opt)
app.command("check")(check.check)
app.command("validate")(validate.validate)
app.command("bisect")(bisect.bisect)
app.command("ops")(ops.ops)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """A graph compiler for machine learning that you can read like a book."""
    if version:
        print(f"monograph {monograph.__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; an error that we foresaw prints without a traceback, exit code 1."""
    try:
        app()
    except MonographError as error:
        print(error_text(error), file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
