"""A schedule: how a kernel's index space is visited. It never changes what is computed.

``order``      the axes, outermost first; the first ``rows`` of them are the *row* level, where
               the reductions that depend on no other axis are computed, once a row
``parallel``   how many leading axes form the parallel loop; with ``tile``, the vector axis is
               cut into tiles of that many elements and its tiles join it
``vector``     the axes whose neighbours share an instruction, ``width`` of them at a time: those
               of the innermost loops, or the last of the rows
``block``      an axis that is cut into blocks, and its block moved next to the vector loop: what
               is contiguous along it is then read while it is still in the cache
``along_tiles``  whether the last parallel axis goes inside the tiles instead of around them
``jam``        the axis whose next ``copies`` iterations are computed together, so that what they
               read in common is read once
``partial``    how many elements a sum that is not vectorised takes before it is added to a second
               one, so that rounding does not grow with its length
``cache_row``  whether a row's intermediate values that later visits need are kept in a small
               buffer (in the cache) instead of computed again
``prefetch``   the row axis whose next value's elements are prefetched
``pipelined_rows``  how many rows are pipelined, each written while the next one is read
``softmax_block``   of how many elements of a long row a softmax finds the maximum and the sum
               at a time
``prefetch_bytes``  how many bytes before they are read elements along the vector axis are
               prefetched
``streaming``  outputs written past the cache, because nobody will find them there

They print as directives: ``rows(i0) parallelize(i0) vectorize(i1, 16) cache_row stream(o0)``.
"""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.dims import Symbol
from monograph.kernel.text import dim_text


@dataclass(frozen=True)
class Schedule:
    """See the module docstring."""

    order: tuple[Symbol, ...]
    rows: int
    parallel: int
    vector: tuple[Symbol, ...] = ()
    width: int = 1
    tile: int = 0
    block: tuple[Symbol, int] | None = None
    along_tiles: bool = False
    jam: tuple[tuple[Symbol, int], ...] = ()
    partial: int = 0
    cache_row: bool = False
    prefetch: Symbol | None = None
    pipelined_rows: int = 0
    softmax_block: int = 0
    prefetch_bytes: int = 0
    streaming: frozenset[str] = frozenset()
    grain: int = 1

    def __str__(self) -> str:
        def names(symbols: tuple[Symbol, ...]) -> str:
            return ", ".join(map(dim_text, symbols))

        parts = [f"reorder({names(self.order)})", f"rows({names(self.order[: self.rows])})"]
        if self.tile:
            parts.append(f"tile({names(self.vector)}, {self.tile})")
        if self.block is not None:
            parts.append(f"block({dim_text(self.block[0])}, {self.block[1]})")
        parts.append(f"parallelize({names(self.order[: self.parallel])})")
        if self.along_tiles:
            parts.append("along_tiles")
        if self.vector:
            parts.append(f"vectorize({names(self.vector)}, {self.width})")
        parts += [f"jam({dim_text(symbol)}, {copies})" for symbol, copies in self.jam]
        if self.partial:
            parts.append(f"partial({self.partial})")
        if self.cache_row:
            parts.append("cache_row")
        if self.prefetch is not None:
            parts.append(f"prefetch({dim_text(self.prefetch)})")
        if self.pipelined_rows:
            parts.append(f"pipelined_rows({self.pipelined_rows})")
        if self.softmax_block:
            parts.append(f"softmax_block({self.softmax_block})")
        if self.prefetch_bytes:
            parts.append(f"prefetch_bytes({self.prefetch_bytes})")
        if self.streaming:
            parts.append(f"stream({', '.join(sorted(self.streaming))})")
        return " ".join(parts)
