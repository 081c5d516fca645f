"""``monograph inspect``: one model in every IR, side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from monograph.cli import common, completion
from monograph.errors import InputError

EVERY = "fx,torchscript,onnx,hlo,relay,monograph"


def inspect(
    model: common.ModelName,
    irs: Annotated[
        str,
        typer.Option(
            "--as",
            autocompletion=completion.views,
            help="fx, torchscript, onnx, stablehlo, hlo, relay, monograph.",
        ),
    ] = EVERY,
    types: common.Types = None,
    sizes: common.Sizes = None,
    plugins: common.Plugins = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="An HTML file, a column for each IR.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print all source lines, however many there are.")
    ] = False,
) -> None:
    """Show a model in several IRs, aligned by source line, and a table that compares them.

    The table is counted in the model: how many values have types, whether names are bound once,
    what is control flow, how many nodes there are of which ops.

    - monograph inspect net.py:model --input 'f32[1, 64]'
    - monograph inspect model.onnx --as onnx,monograph --size batch=1
    - monograph inspect net.py:model -o page.html
    """
    from monograph.inspect.conversion import write_files
    from monograph.inspect.inputs import parse_sizes
    from monograph.inspect.side_by_side import MOST_GROUPS, text_of
    from monograph.inspect.side_by_side_page import page_of
    from monograph.inspect.subject import load_subject
    from monograph.inspect.views import VIEWS, views_of

    names = [name.strip() for name in irs.split(",") if name.strip()]
    unknown = [name for name in names if name not in VIEWS]
    if unknown or not names:
        raise InputError(
            f"there is no IR {unknown[0]!r}" if unknown else "no IR is named",
            expected=", ".join(VIEWS),
        )
    if output is not None and output.suffix != ".html":
        raise InputError(f"{str(output)!r} is no HTML file", expected="a name that ends in .html")
    common.check_file(output)
    with common.showing_progress("inspecting"):
        graph = load_subject(model, types or ()).graph
        views = views_of(graph, names, parse_sizes(sizes or ()))
    if output is None:
        print(text_of(model, views, None if everything else MOST_GROUPS))
        return
    small = len(graph) <= MOST_DRAWN
    page = page_of(model, views, graph.svg() if small else "")
    for path in write_files(output, {".html": page.encode()}):
        print(f"wrote {path}", file=sys.stderr)


MOST_DRAWN = 150
"""Nodes of a graph that is drawn beneath the columns."""
