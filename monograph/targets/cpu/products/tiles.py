"""A tiling as a value: register tiles, cache blocks, and where each operand is read from.

A target chooses one (or a tuner edits one), ``product.py`` makes the loops of it, and it
prints as directives: ``tile(21·6+1·2 rows, 16 columns) block(126 rows, 128 columns, 256 of k) …``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from monograph.dataclass import dataclass
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


class PanelPrefetch(Enum):
    """When the next panel of a packed right operand is asked for: it comes from far away."""

    NOTHING = "nothing"
    STEPS = "each step"
    """A step of it with every step of k: few tiles share a panel, and ask for it many times."""
    TILES = "each tile"
    """A part of it before every tile."""


@dataclass(frozen=True)
class Segment:
    """``count`` tiles of ``rows`` rows each, the first at row ``start``."""

    start: Dim
    rows: int
    count: Dim
    limit: int | None = None
    """The most tiles that a count known only when it runs comes to, whatever its bounds can tell;
    None if there is no end to them."""
    overhangs: bool = False
    """Whether the last tile may reach over the edge."""

    @property
    def most(self) -> int:
        """The most tiles it has, if it comes after another."""
        if isinstance(self.count, int):
            return self.count
        assert self.limit is not None, "only the first tiles are without number"
        return self.limit


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
    count: Dim = 0
    for each in segments:
        count = count + each.count
    return count


def open_segments(rows: Dim, height: int) -> tuple[Segment, ...]:
    """Tiles of two heights for a number of rows that is known only when it runs.

    Each tile that is a row lower spares one row that nobody asked for. Few rows, of which there
    may be no such tiles, are in tiles of one height, and the last may reach over the edge.
    """
    tiles = tile_count((), height, rows)
    missing = rows * (height - 1) % height
    low = missing * dim_min(1, tiles // height)
    high = tiles - low
    last = Segment(high * height, height - 1, low, limit=height - 1)
    return Segment(0, height, high, overhangs=True), last


def exact_segments(rows: Dim, height: int) -> tuple[Segment, ...]:
    """Tiles for a number of rows that is known only when it runs, and none that nobody asked for.

    What whole tiles leave over is in at most one tile of each power of two: 13 rows are 8, 4 and 1.
    """
    done = rows // height * height
    rest = rows - done
    segments = [Segment(0, height, rows // height)]
    size = 1 << (height - 1).bit_length() >> 1
    while size:
        start = done + rest // (2 * size) * (2 * size)
        segments.append(Segment(start, size, rest % (2 * size) // size, limit=1))
        size //= 2
    return tuple(segments)


@dataclass(frozen=True)
class Tiling:
    """How a product is cut into blocks and tiles."""

    rows: tuple[Segment, ...]
    """The tiles of all rows; empty if they are all alike, and the last may reach over the edge."""
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
    grain: Dim = 1
    whole: int = 0
    """Tiles up to which, when it runs, all rows are one block, and each panel one by itself."""
    narrow: bool = False
    """Whether panels keep the operand's own, narrower type: fewer bytes, more instructions."""
    prefetch: PanelPrefetch = PanelPrefetch.NOTHING

    def __str__(self) -> str:
        heights = "+".join(f"{each.count}·{each.rows}" for each in self.rows) or str(self.height)
        if not all(isinstance(each.count, int) for each in self.rows):
            heights = " and ".join(str(each.rows) for each in self.rows)
        parts = [
            f"tile({heights} rows, {self.columns} columns)",
            f"block({self.block_tiles * self.height} rows, "
            f"{self.block_panels * self.columns} columns, {self.depth or 'all'} of k)",
            f"left({self.left.value}) right({self.right.value})",
        ]
        if self.whole:
            parts.append(f"whole(up to {self.whole * self.height} rows)")
        if self.narrow:
            parts.append("narrow(right)")
        if self.prefetch is not PanelPrefetch.NOTHING:
            parts.append(f"prefetch({self.prefetch.value})")
        return " ".join(parts)
