"""Where in the user's program a torch node came from."""

from __future__ import annotations

import re
from typing import Any

from monograph.ir.location import Location

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_LIBRARY = re.compile(r"[/\\](torch|transformers|site-packages[/\\]\w+)[/\\]")


def location_of(node: Any) -> Location:
    """The user's line that made a torch node, and the path of the module that it stands in.

    Of torch's stack trace the innermost line outside the libraries is taken, or the innermost of
    all; a node that has no trace is named itself.
    """
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    scope = _scope(node)
    if not frames:
        return Location("<torch graph>", 0, str(node.name), scope)
    own = [frame for frame in frames if not _LIBRARY.search(frame["file"])]
    frame = (own or frames)[-1]
    return Location(frame["file"], int(frame["line"]), frame["function"], scope)


def _scope(node: Any) -> str:
    """The path of the innermost module: ``encoder.layer.0.attention``."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    entry = list(stack.values())[-1]
    path = entry[0] if isinstance(entry, tuple) else str(entry)
    cleaned = re.sub(r"L\['self'\]\.?|^_empty.*", "", str(path))
    return cleaned.strip(".")
