"""What a notebook shows of a graph or a compiled model when a cell ends with one."""

from __future__ import annotations

import html

from monograph.inspect.structure import op_counts
from monograph.ir.graph import Graph
from monograph.program.arena import readable
from monograph.report.svg import graph_svg
from monograph.runtime.compiled import Executable

MAX_DRAWN_NODES = 150
"""A larger graph is counted instead of drawn: nobody reads it in a cell."""
MAX_LISTED = 12


def graph_html(graph: Graph) -> str:
    """The drawing of a small graph; the inputs, outputs and ops of a large one."""
    if len(graph) <= MAX_DRAWN_NODES:
        return f'<div style="overflow:auto;max-height:640px">{graph_svg(graph)}</div>'
    rows = [
        ("inputs", ", ".join(f"%{value.name}: {value.type}" for value in graph.inputs)),
        ("outputs", ", ".join(f"%{value.name}: {value.type}" for value in graph.outputs)),
        ("nodes", f"{len(graph):,}"),
        *list((name, f"{count:,}") for name, count in op_counts(graph).items())[:MAX_LISTED],
    ]
    return _table(f"@{graph.name}", rows)


def executable_html(executable: Executable) -> str:
    """Its inputs and outputs, kernels and memory, and how to see more."""
    report = executable.report
    inputs = ", ".join(f"%{value.name}: {value.type}" for value in executable.graph.inputs)
    rows = [
        ("inputs", inputs),
        ("outputs", ", ".join(f"%{name}: {type_}" for name, type_ in executable.outputs)),
        ("nodes", f"{report.nodes_before:,} given, {report.nodes_after:,} after passes"),
        ("kernels", f"{len(report.kernels):,}"),
    ]
    if executable.native is not None and executable.native.static:
        rows.append(("arena", readable(executable.native.plan_for(()).peak)))
    if report.fallbacks:
        rows.append(("in the interpreter", f"{len(report.fallbacks):,} nodes"))
    if report.specialised is not None:
        rows.append(("completed by calls", report.specialised))
    rows += [(note.name, f"{note.kind} over {note.space}") for note in report.kernels[:MAX_LISTED]]
    if len(report.kernels) > MAX_LISTED:
        rows.append(("…", f"{len(report.kernels) - MAX_LISTED} more kernels"))
    return _table(f"@{executable.graph.name}", rows) + (
        "<p>All of it, the graph at every pass and the code of every kernel: "
        "<code>compiled.report(&quot;report.html&quot;)</code></p>"
    )


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    lines = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(text)}</td></tr>'
        for name, text in rows
    )
    return f"<table><caption>{html.escape(title)}</caption>{lines}</table>"
