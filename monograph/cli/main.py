"""``monograph``: the command line. Each subcommand lives in a file of its own name."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated, NoReturn

import rich.console
import typer

import monograph
from monograph.cli import (
    ablate,
    bench,
    bisect,
    cache,
    check,
    compare,
    compile,
    convert,
    doctor,
    explain,
    explore,
    inspect,
    ops,
    opt,
    profile,
    quantize,
    report,
    run,
    tour,
    tune,
    validate,
)
from monograph.cli import list as list_command
from monograph.cli.errors import error_text
from monograph.cli.exit_codes import BROKEN_PIPE, ERROR, INTERNAL
from monograph.errors import InputError, MonographError, describe_error
from monograph.logs import follow_environment

app = typer.Typer(
    name="monograph",
    help="A graph compiler for machine learning that you can read like a book.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command("tour")(tour.tour)
app.command("compile")(compile.compile)
app.command("run")(run.run)
app.command("bench")(bench.bench)
app.command("compare")(compare.compare)
app.command("profile")(profile.profile)
app.command("tune")(tune.tune)
app.command("convert")(convert.convert)
app.command("quantize")(quantize.quantize)
app.command("explain")(explain.explain)
app.command("report")(report.report)
app.command("ablate")(ablate.ablate)
app.command("explore")(explore.explore)
app.command("inspect")(inspect.inspect)
app.command("opt")(opt.opt)
app.command("check")(check.check)
app.command("validate")(validate.validate)
app.command("bisect")(bisect.bisect)
app.command("ops")(ops.ops)
app.command("list")(list_command.list_items)
app.add_typer(cache.app)
app.command("doctor")(doctor.doctor)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of an error; may stand anywhere."),
    ] = False,
) -> None:
    """A graph compiler for machine learning that you can read like a book."""
    if version:
        print(f"monograph {monograph.__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and exit with one of the codes of ``exit_codes``.

    An error that we foresaw prints what is wrong; any other is a fault of Monograph's own, and says
    so. Both have a traceback with ``--debug`` alone.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    stdout = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):  # names of files may hold bytes that are no text
        stdout.reconfigure(errors="backslashreplace")
    if not debug:
        warnings.formatwarning = _format_warning
    rich.console.Console.on_broken_pipe = _tell_of_broken_pipe  # type: ignore[method-assign]
    try:
        follow_environment()
        try:
            app([each for each in given if each != "--debug"])
        finally:
            stdout.flush()  # here, where a reader that went away can be told from an error
            if sys.stdout is not stdout:  # it went away earlier: click puts another in its place
                raise BrokenPipeError
    except MonographError as error:
        _stop(error, ERROR, debug)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())  # Python flushes it once more
        sys.exit(BROKEN_PIPE)
    except Exception as error:
        described = describe_error(error)
        _stop(described, ERROR if isinstance(described, InputError) else INTERNAL, debug)


def _format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """What is said, without the line of ours, or of torch's, that says it."""
    return f"warning: {message}\n"


def _tell_of_broken_pipe(self: rich.console.Console) -> None:
    """In place of rich's own, which ends the process as if an error had been given."""
    raise BrokenPipeError


def _stop(error: MonographError, code: int, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exc()
    print(error_text(error), file=sys.stderr)
    sys.exit(code)
