"""``monograph opt``: run passes on a graph in text form and print what comes out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from monograph.api import optimize_with_report
from monograph.cli import completion
from monograph.cli.common import Plugins, check_file, level_name
from monograph.errors import InputError
from monograph.ir.graph import Graph
from monograph.ir.text.files import load_graph, save_graph
from monograph.ir.text.parser import parse
from monograph.ir.text.printer import print_graph
from monograph.ir.verify import verify as verify_graph
from monograph.passes.base import all_passes
from monograph.passes.instruments import Dump, Instrument, Verify
from monograph.passes.manager import Report


def opt(
    file: Annotated[
        str | None, typer.Argument(help="A graph in text form (.ir); - reads standard input.")
    ] = None,
    passes: Annotated[
        str | None,
        typer.Option(
            "-p",
            "--passes",
            autocompletion=completion.passes,
            help="Passes to run, in order: cse,dce.",
        ),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            "-O",
            "--level",
            autocompletion=completion.levels,
            help="Run a level's pipeline: O0 to O3.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the graph there.")
    ] = None,
    verify: Annotated[bool, typer.Option(help="Check the graph after every pass.")] = True,
    stats: Annotated[
        bool, typer.Option("--stats", help="Show each step's time and counts on standard error.")
    ] = False,
    dump: Annotated[
        Path | None, typer.Option("--dump", help="Write the graph after every pass into a folder.")
    ] = None,
    locations: Annotated[
        bool, typer.Option("--locations", help="Print where each node came from.")
    ] = False,
    list_passes: Annotated[
        bool, typer.Option("--list", help="List the passes with their options.")
    ] = False,
    plugins: Plugins = None,
) -> None:
    """Run passes on a graph in text form and print the result.

    - monograph opt model.ir -p cse,dce
    - monograph opt model.ir -p 'simplify{fast_math=true},dce' --stats
    - monograph opt model.ir -O O2 -o smaller.ir
    - monograph opt model.ir --plugin my_passes.py -p my_pass,dce
    """
    if list_passes:
        _list_passes()
        return
    if file is None:
        raise InputError("no file to read", expected="a .ir file, or - for standard input")
    if passes is not None and level is not None:
        raise InputError(
            "both -p and -O were given", hint="a level is a list of passes: choose one"
        )
    check_file(output)
    graph = _read(file)
    verify_graph(graph)
    instruments: list[Instrument] = [Verify()] if verify else []
    if dump is not None:
        instruments.append(Dump(dump))
    chosen = None if level is not None else (passes or "")
    result, report = optimize_with_report(graph, level_name(level or "O2"), chosen, instruments)
    if output is None:
        print(print_graph(result, locations=locations))
    else:
        save_graph(result, output)
    if stats:
        _show(report)


def _read(file: str) -> Graph:
    if file == "-":
        return parse(sys.stdin.read(), source="standard input")
    path = Path(file)
    if not path.is_file():
        raise InputError(f"there is no file {file!r}", expected="a graph in text form (.ir)")
    return load_graph(path)


def _show(report: Report) -> None:
    table = Table(title="passes", title_justify="left")
    for heading, justify in (
        ("pass", "left"),
        ("ms", "right"),
        ("nodes", "right"),
        ("did", "left"),
    ):
        table.add_column(heading, justify="right" if justify == "right" else "left")
    for step in report.steps:
        did = ", ".join(f"{name} {count}" for name, count in step.counters.items() if count)
        nodes = f"{step.nodes_before} → {step.nodes_after}"
        table.add_row(step.name, f"{step.seconds * 1000:.2f}", nodes, did or "-")
    Console(stderr=True).print(table)


def _list_passes() -> None:
    table = Table(title="passes", title_justify="left")
    table.add_column("pass")
    table.add_column("options")
    table.add_column("what it does")
    for name, cls in all_passes().items():
        options = ", ".join(f"{key}={value}" for key, value in cls().options().items())
        summary = (cls.__doc__ or "").strip().splitlines()[0]
        table.add_row(name, options or "-", summary)
    Console().print(table)
