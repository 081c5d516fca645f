"""Pages for a terminal of 80 columns: labelled rows, aligned tables, wrapped remarks."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 80


def row(label: str, text: str, indent: int = 2) -> list[str]:
    """A label and its text, which goes on beneath itself."""
    margin = " " * indent
    return wrap(f"{margin}{label:<13}", text)


def wrap(label: str, text: str) -> list[str]:
    """Text behind a label, wrapped beneath its beginning."""
    return textwrap.wrap(
        text,
        width=WIDTH,
        initial_indent=label,
        subsequent_indent=" " * max(len(label), 2),
        break_on_hyphens=False,
    ) or [label.rstrip()]


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, indent: int = 2
) -> list[str]:
    """Columns as wide as what they hold; the first ``left`` are words, the others numbers."""
    everything = [list(headings), *map(list, rows)]
    widths = [max(len(each[k]) for each in everything) for k in range(len(headings))]
    spare = WIDTH - indent - 2 * (len(widths) - 1) - sum(widths)
    if spare < 0:  # the first column gives way
        widths[0] = max(8, widths[0] + spare)
    lines = []
    for each in everything:
        cells = [
            _shorten(cell, width).ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(each, widths, strict=True))
        ]
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    return lines


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def figure(number: float | None) -> str:
    """An error or a difference in two digits."""
    if number is None:
        return "-"
    return "0" if number == 0 else f"{number:.1e}"


def count(number: int, noun: str) -> str:
    """``1 pass``, ``2 passes``."""
    plural = f"{noun}es" if noun.endswith(("ch", "s", "x")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
