"""Likely sizes: what cost models plan with where only a call knows a size."""

from __future__ import annotations

from monograph.ir.dims.binding import evaluate_dim
from monograph.ir.dims.polynomial import Dim, Symbol

LIKELY_SIZE = 512
"""What a symbol stands for that has no small upper end: long enough that loops are worth it."""
MAX_LIKELY_UPPER = 4096
"""The largest upper end of a range that is taken for the size itself."""


def likely_size(dim: Dim) -> int:
    """A size to plan with: symbols stand for the upper end of their range if that is small.

    A size that depends on an index, as that of the last piece of an axis does, is the first one's.
    """
    if isinstance(dim, int):
        return dim
    return evaluate_dim(dim, {symbol: _likely_symbol(symbol) for symbol in dim.symbols()})


def _likely_symbol(symbol: Symbol) -> int:
    if symbol.name.startswith("_") and symbol.lower == 0:
        return 0
    upper = symbol.upper
    if upper is not None and upper <= MAX_LIKELY_UPPER:
        return upper
    return max(symbol.lower, LIKELY_SIZE)
