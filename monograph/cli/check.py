"""``monograph check``: whether a model compiles, and every op that is not supported."""

from __future__ import annotations

import linecache
import re
import shutil
import textwrap
from typing import Annotated

import typer

from monograph.cli import common
from monograph.errors import Problem
from monograph.inspect.check import check as check_model

_LINE = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?: in | \(|$)")


def check(
    model: Annotated[
        str, typer.Argument(help="model.onnx, graph.ir, or file.py:module_or_function.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", help="An example input of a Python model: 'f32[1, 4]'."),
    ] = None,
    target: common.TargetName = None,
    plugins: common.Plugins = None,
) -> None:
    """Report every unsupported op of a model, with its place and the nearest supported form.

    Without any, types are inferred and passes run too: what is fine here compiles.

    - monograph check model.onnx
    - monograph check net.py:model --input 'f32[1, 3, 224, 224]'
    """
    report = check_model(model, inputs or (), target=target)
    print(report.summary)
    for problem in report.problems:
        print(_describe(problem))
    for note in report.notes:
        print(_wrap("note: ", note))
    if report.opaque:
        print(_wrap("opaque: ", f"{', '.join(report.opaque)}, which stay calls of torch"))
    if report.problems:
        print(f"\nnext: replace these ops, then run\n  {report.next_step}")
        raise typer.Exit(1)
    print(f"next: {report.next_step}")


def _describe(problem: Problem) -> str:
    """An op, where it first stands, with that line of the user's program, and what to do of it.

    One part beneath the other: paths and lines of code are too long for the columns of a table.
    """
    times = "once" if problem.count == 1 else f"{problem.count} times"
    code = _code(problem.where)
    return "\n".join(
        (
            f"\n{problem.op}, {times}",
            _wrap("  first at  ", problem.where),
            *([] if code is None else [f"              {code}"]),
            _wrap("  why       ", problem.reason),
            _wrap("  nearest   ", problem.nearest or "no supported op has a name like it"),
        )
    )


def _wrap(label: str, text: str) -> str:
    """A label and its text as wide as the terminal; a path stays whole, to be clicked or copied."""
    return textwrap.fill(
        text,
        width=shutil.get_terminal_size().columns,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _code(where: str) -> str | None:
    """The line that a place names, if its file is there to be read."""
    found = _LINE.match(where)
    if found is None:
        return None
    return linecache.getline(found["file"], int(found["line"])).strip() or None
