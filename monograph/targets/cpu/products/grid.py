"""Cuts a product into blocks of rows and columns, so that each of many threads has its part.

Rows alone, or columns alone, may be too few for them; and a thread that has all columns reads all
weights. Blocks of both are chosen such that threads end together and read little.
"""

from __future__ import annotations

from collections.abc import Iterator

from monograph.dataclass import dataclass
from monograph.targets.cpu.machine import Machine

READ_BYTES_PER_CYCLE = 4
"""What a thread reads while it multiplies, if all of it comes from the last cache."""


@dataclass(frozen=True)
class ProductSize:
    """A product in tiles of registers."""

    tiles: int
    """Whole tiles of rows; the last block has those of ``tail_rows`` as well."""
    tail_rows: int
    height: int
    panels: int
    width: int
    """Columns of a panel."""
    steps: int
    """Steps of k."""
    outside: int
    """Products of a batch."""
    element: int
    """Bytes of a number."""


@dataclass(frozen=True)
class Grid:
    """The tiles and panels of a block."""

    tiles: int
    panels: int


def is_cache_crowded(machine: Machine) -> bool:
    """Whether threads, all at a time, read the last cache slower than they multiply."""
    return READ_BYTES_PER_CYCLE * machine.threads > machine.costs.product.last_cache_bytes_per_cycle


def choose_grid(size: ProductSize, machine: Machine, most_tiles: int, most_sums: int) -> Grid:
    """The blocks that threads are done with first.

    A block has at most ``most_tiles`` tiles of rows, and ``most_sums`` tiles of sums.
    """
    choices = [
        (_cycles(size, machine, tiles, panels), -tiles, -panels)
        for tiles in even_parts(size.tiles)
        for panels in even_parts(size.panels)
        if tiles <= most_tiles and tiles * panels <= most_sums
    ]
    _, tiles, panels = min(choices, default=(0.0, -1, -1))
    return Grid(-tiles, -panels)


def even_parts(count: int) -> Iterator[int]:
    """The sizes of parts that differ as little as can be, for each number of parts."""
    return iter(sorted({-(-count // parts) for parts in range(1, count + 1)}))


def _cycles(size: ProductSize, machine: Machine, tiles: int, panels: int) -> float:
    """About how long it takes, if each thread does one block after the other."""
    costs = machine.costs.product
    row_blocks, column_blocks = -(-size.tiles // tiles), -(-size.panels // panels)
    rounds = -(-row_blocks * column_blocks * size.outside // machine.threads)
    last = (size.tiles - (row_blocks - 1) * tiles) * size.height + size.tail_rows
    rows = max(tiles * size.height if row_blocks > 1 else 0, last)
    lanes = machine.vector_bytes // size.element
    products = (
        rows * panels * (size.width / lanes) * size.steps / costs.multiplied_vectors_per_cycle
    )
    read = (rows + panels * size.width) * size.steps * size.element
    fetched = read * machine.threads / costs.last_cache_bytes_per_cycle
    hidden = min(products, fetched)
    return rounds * (max(products, fetched) + costs.exposed_fetch_share * hidden)
