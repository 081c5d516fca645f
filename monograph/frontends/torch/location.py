"""Where in the user's program a torch node came from."""

from __future__ import annotations

import os
import re
from typing import Any

import torch

from monograph.ir.location import Location

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_LIBRARIES = f"{os.sep}site-packages{os.sep}"


def location_of(node: Any) -> Location:
    """The user's line that made a torch node, and the path of the module that it stands in.

    Of torch's stack trace the innermost line outside all libraries is taken, else the innermost
    outside torch (a model of a library), else the innermost; a node without a trace names itself.
    """
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    scope = _scope(node)
    if not frames:
        return Location("<torch graph>", 0, str(node.name), scope)
    outside = [frame for frame in frames if not frame["file"].startswith((_TORCH, _OURS))]
    own = [frame for frame in outside if _LIBRARIES not in frame["file"]]
    frame = (own or outside or frames)[-1]
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
