"""StableHLO programs as graphs: ``from_stablehlo``, of MLIR's text or bytecode.

jaxlib parses and verifies the module (``module``), its functions are walked in order (``reader``),
and each operation is handed to its converter (``operations``, ``structured``). What operations mean
in ours is in ``frontends.xla``, which the reader of jaxprs shares. Free sizes are symbols; what the
module computes with them is worked out beside the graph (``sizes``).

jaxlib itself is imported by the modules of this package, never by the package's ``__init__``.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from monograph.errors import InputError
from monograph.ir.graph import Graph

__all__ = ["from_stablehlo"]


def from_stablehlo(source: str | Path | bytes) -> Graph:
    """The graph of a module's public function: a path, the text, or the bytes of a file."""
    if importlib.util.find_spec("jax") is None:
        raise InputError("reading StableHLO needs jaxlib", hint="pip install 'monograph[jax]'")
    from monograph.frontends.stablehlo.reader import read_module

    if isinstance(source, bytes) or (isinstance(source, str) and _is_text(source)):
        return read_module(source)
    path = Path(source)
    if not path.is_file():
        raise InputError(
            f"there is no file {str(source)!r:.200}",
            expected="the path of an .mlir file, the text of a module, or its bytecode",
        )
    return read_module(path.read_bytes(), str(path))


def _is_text(source: str) -> bool:
    return "\n" in source or "func.func" in source
