"""The same model in several IRs as one HTML file that needs nothing else: a column each."""

from __future__ import annotations

import html
from collections.abc import Sequence

from monograph.inspect.side_by_side import SourceLineGroup, align, table_rows
from monograph.inspect.views import Line, View

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #1b1f24; background: #fff }
h1 { font-size: 1.4rem } p { max-width: 60rem; color: #57606a }
table.facts { border-collapse: collapse; margin: 1rem 0 2rem }
table.facts th, table.facts td { text-align: left; padding: .2rem .9rem; vertical-align: top }
table.facts tr + tr { border-top: 1px solid #e3e8ed }
.scroll { overflow: auto; max-height: 88vh; border: 1px solid #cfd6dd; border-radius: 6px }
table.lines { border-collapse: separate; border-spacing: 0; min-width: 100% }
table.lines th { position: sticky; top: 0; background: #f4f6f8; text-align: left; z-index: 1 }
table.lines th, table.lines td { padding: .3rem .8rem; vertical-align: top }
table.lines td { border-top: 1px solid #e9edf1; font: 12px/1.5 ui-monospace, monospace;
  min-width: 17rem; max-width: 24rem; overflow-wrap: anywhere }
table.lines td div { padding-left: 1.2em; text-indent: -1.2em }
table.lines td:first-child { background: #fafbfc; position: sticky; left: 0 }
.place { color: #8a939c } tr:hover td { background: #f2f8fd }
"""


def page_of(name: str, views: Sequence[View], drawing: str = "") -> str:
    """The page; ``drawing`` is the graph as SVG."""
    title = html.escape(name)
    shown = [view for view in views if not view.problem]
    problems = "".join(
        f"<p><b>{html.escape(view.title)}</b>: {html.escape(view.problem)}</p>"
        for view in views
        if view.problem
    )
    heads = "".join(f"<th>{html.escape(view.title)}</th>" for view in shown)
    rows = "".join(map(_row, align(shown))) if shown else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head><body><h1>{title}</h1>"
        "<p>One model in several IRs. A row is a line of the model's source; weights and constants "
        "are left out.</p>"
        f"{_facts(views)}{problems}"
        f'<div class="scroll"><table class="lines"><thead><tr><th>source</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        f"{f'<h2>The graph</h2>{drawing}' if drawing else ''}</body></html>\n"
    )


def _facts(views: Sequence[View]) -> str:
    heads = "".join(f"<th>{html.escape(view.title)}</th>" for view in views)
    rows = "".join(
        f"<tr><th>{label}</th>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"
        for label, cells in table_rows(views)
    )
    return f'<table class="facts"><tr><th></th>{heads}</tr>{rows}</table>'


def _row(group: SourceLineGroup) -> str:
    place = f'<span class="place">{html.escape(group.place)}</span>'
    source = f"<div>{html.escape(group.source())}</div>"
    cells = "".join(f"<td>{''.join(map(_line, lines))}</td>" for lines in group.lines)
    return f"<tr><td>{place}{source}</td>{cells}</tr>"


def _line(line: Line) -> str:
    return f"<div>{html.escape(line.text)}</div>"
