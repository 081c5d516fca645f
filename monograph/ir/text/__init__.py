"""The text form of graphs: print, parse, save, load.

Printing is loaded without the rest, since a first program is printed (for its key in the cache) but
not parsed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monograph.ir.text.files import load_graph, save_graph
    from monograph.ir.text.parser import parse, parse_type
    from monograph.ir.text.printer import describe, print_graph, print_node

__all__ = [
    "describe",
    "load_graph",
    "parse",
    "parse_type",
    "print_graph",
    "print_node",
    "save_graph",
]

_HOMES = {
    "describe": "printer",
    "load_graph": "files",
    "parse": "parser",
    "parse_type": "parser",
    "print_graph": "printer",
    "print_node": "printer",
    "save_graph": "files",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
