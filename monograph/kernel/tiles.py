"""How a matrix product is cut up, as a value: its tiles and blocks, and where operands are read.

A target chooses one (or a tuner edits one), ``kernel/product.py`` makes the loops of it, and it
prints as directives: ``tile(21·6+1·2 rows, 16 columns) block(126 rows, 128 columns, 256 of k) …``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from monograph.ir.dims import Dim, dim_min


class Reading(Enum):
    """Where the product finds an operand."""

    IN_PLACE = "in place"
    PACKED = "packed"
    """Stored beforehand: the left operand in rows, the right one in panels."""
    BLOCK = "packed by block"
    """Stored in a small buffer, a block at a time, just before it is used."""
    TILES = "packed in tiles"
    """Of the left operand: stored beforehand, tile after tile, as it is read."""


class Ahead(Enum):
    """When the next panel of a packed right operand is asked for: it comes from far away."""

    NOTHING = "nothing"
    STEPS = "each step"
    """A step of it with every step of k: few tiles share a panel, and ask for it many times."""
    TILES = "each tile"
    """A part of it before every tile."""


@dataclass(frozen=True)
class Segment:
    """``count`` tiles of ``rows`` rows each, the first at row ``start``."""

    start: int
    rows: int
    count: int


def tile_start(segments: Sequence[Segment], height: int, tile: Dim) -> Dim:
    """The first row of a tile, by its number; without segments all tiles are alike."""
    if len(segments) < 2:
        return tile * height
    high, low = segments
    return dim_min(tile * height, low.start - high.count * low.rows + tile * low.rows)


def tile_count(segments: Sequence[Segment], height: int, rows: Dim) -> Dim:
    """How many tiles cover the rows."""
    if not segments:
        return (rows + height - 1) // height
    return sum(each.count for each in segments)


@dataclass(frozen=True)
class Tiling:
    """How a product is cut into blocks and tiles."""

    rows: tuple[Segment, ...]
    """The tiles of all rows; empty if their number is not known."""
    height: int
    """Rows of a tile (of most, if there are several kinds)."""
    columns: int
    depth: int
    """Products that are summed in registers at a time; 0 for all."""
    block_tiles: int
    """Tiles of ``height`` rows in a block."""
    block_panels: int
    left: Reading
    right: Reading
    grain: int = 1
    narrow: bool = False
    """Whether panels keep the operand's own, narrower type: fewer bytes, more instructions."""
    ahead: Ahead = Ahead.NOTHING

    def __str__(self) -> str:
        heights = "+".join(f"{each.count}·{each.rows}" for each in self.rows) or str(self.height)
        parts = [
            f"tile({heights} rows, {self.columns} columns)",
            f"block({self.block_tiles * self.height} rows, "
            f"{self.block_panels * self.columns} columns, {self.depth or 'all'} of k)",
            f"left({self.left.value}) right({self.right.value})",
        ]
        if self.narrow:
            parts.append("narrow(right)")
        if self.ahead is not Ahead.NOTHING:
            parts.append(f"ahead({self.ahead.value})")
        return " ".join(parts)
