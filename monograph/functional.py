"""Functions on values of a graph, named and shaped like NumPy's.

They may be called wherever a graph is being built: inside ``monograph.trace``, on values of a graph
made by hand, and (the elementwise ones) in rewrite patterns. Numbers and arrays become constants,
mixed dtypes are promoted, negative axes count from the end.

A family of ops is loaded when a function of it is first used. ``functional.pyi`` lists the
functions, for type checkers and for this module.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

_LINE = re.compile(r"^from (monograph\.ops\.[\w.]+) import (\w+) as ", re.MULTILINE)
_HOMES = {
    name: home for home, name in _LINE.findall(Path(__file__).with_suffix(".pyi").read_text())
}
"""The module of each function."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
