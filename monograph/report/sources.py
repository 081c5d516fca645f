"""The lines of the user's program that nodes came from, for a report to show.

A graph names files, and a graph may come from a stranger: a ``.ir`` file could name any file of
this machine, and a report that quoted it would give it away. So a file is quoted only if it holds
Python code that this process has loaded.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Sequence

from monograph.runtime.bundle import Json

MAX_FILE_LINES = 20_000
"""A longer file is not quoted whole, but around the lines that nodes came from."""
MAX_FILES = 200
CONTEXT_LINES = 20
"""Lines before and after one that a node came from, of a file that is not quoted whole."""


def list_loaded_files() -> set[str]:
    """The files of the modules that this process has imported, and of a notebook's cells."""
    modules = list(sys.modules.values())
    files = {str(getattr(module, "__file__", None) or "") for module in modules}
    return (files | set(linecache.cache)) - {""}


def source_facts(files: Sequence[str], lines: Iterable[tuple[str, int]], allowed: set[str]) -> Json:
    """Each file's path and its lines by number; no lines of what may not, or cannot, be read."""
    wanted: dict[str, set[int]] = {file: set() for file in files}
    for file, line in lines:
        wanted[file].add(line)
    found: list[Json] = []
    for number, (file, places) in enumerate(wanted.items()):
        quoted: dict[str, Json] = {}
        if file in allowed and number < MAX_FILES:
            quoted = _quote(linecache.getlines(file), places)
        found.append({"path": file, "lines": quoted})
    return found


def _quote(text: Sequence[str], places: set[int]) -> dict[str, Json]:
    """Chunks of consecutive lines by the number of the first: the whole file, or around places."""
    if not text:
        return {}
    if len(text) <= MAX_FILE_LINES:
        return {"1": [line.rstrip("\n") for line in text]}
    near = {
        line
        for place in places
        for line in range(place - CONTEXT_LINES, place + CONTEXT_LINES + 1)
        if 1 <= line <= len(text)
    }
    quoted: dict[str, Json] = {}
    chunk: list[Json] = []
    for line in sorted(near):
        if line - 1 not in near:
            chunk = []
            quoted[str(line)] = chunk
        chunk.append(text[line - 1].rstrip("\n"))
    return quoted
