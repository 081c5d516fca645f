"""An error as the command line prints it: no wider than the terminal, what is quoted as it is."""

from __future__ import annotations

import shutil
import textwrap

from monograph.errors import MonographError

INDENT = 11
"""How far the parts of an error stand from the margin: its label, and two spaces."""


def error_text(error: MonographError) -> str:
    """The error for a terminal; lines that quote somebody's text, and names, are never broken."""
    width = max(40, shutil.get_terminal_size().columns)
    lines = f"error: {error}".splitlines()
    quoted = _find_quoted_lines(error)
    return "\n".join(
        line if len(line) <= width or line.strip() in quoted else _wrap(line, width)
        for line in lines
    )


def _find_quoted_lines(error: MonographError) -> set[str]:
    """The lines of a place after its first: somebody's text, and a mark beneath it."""
    return {line.strip() for line in (error.where or "").splitlines()[1:]}


def _wrap(line: str, width: int) -> str:
    indent = " " * (INDENT if line.startswith("  ") else 2)
    return textwrap.fill(
        line,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )
