"""Cache blocking of a product: blocks of rows, of panels and of k.

Sizes that are known only when a program runs are cut by the same formulas: a block's end is the
smaller of its size and what is left.
"""

from __future__ import annotations

from dataclasses import replace

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, dim_max, dim_min
from monograph.kernel import expr as e
from monograph.kernel.contraction import Contraction, ceiling
from monograph.kernel.expr import Axis, Index
from monograph.kernel.flatten import coefficient
from monograph.targets.cpu.products.tiles import Tiling

TRANSPOSED_SQUARE = 8
"""Steps of k and columns that are turned in registers together."""
MAX_SUM_BYTES = 1 << 20
"""Bytes of a thread's stack that the sums of a block may take."""


def depth_loops(
    axes: tuple[Axis, ...], depth: int
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], dict[Symbol, Dim]]:
    """The loops over blocks of k, those inside a block, and k's own axes in terms of them.

    The last axes that make no more than ``depth`` steps stay whole; the one before is cut.
    """
    if not depth:
        return (), axes, {}
    inner: list[Axis] = []
    steps = 1
    rest = list(axes)
    while rest and isinstance(rest[-1].extent, int) and steps * rest[-1].extent <= depth:
        inner.insert(0, rest.pop())
        steps *= largest_extent(inner[0])
    if not rest:
        return (), axes, {}
    size = depth // steps
    if size <= 1 or (inner and 2 * steps > depth):
        return tuple(rest), tuple(inner), {}
    cut = rest.pop()
    if isinstance(cut.extent, int):
        size = -(-cut.extent // -(-cut.extent // size))
        size = (
            -(-size // TRANSPOSED_SQUARE) * TRANSPOSED_SQUARE if size > TRANSPOSED_SQUARE else size
        )
    count = ceiling(cut.extent, size)
    if count == 1:  # a size that is known only later, and is never as large
        return tuple(rest), (cut, *inner), {}
    outer = e.axis(f"{cut.symbol.name}b", count)
    whole = isinstance(cut.extent, int) and cut.extent % size == 0
    extent = size if whole else dim_min(size, cut.extent - outer.symbol * size)
    part = Axis(Symbol(f"{cut.symbol.name}i", 0, size - 1), extent)
    places: dict[Symbol, Dim] = {cut.symbol: outer.symbol * size + part.symbol}
    return (*rest, outer), (part, *inner), places


def round_size(axes: tuple[Axis, ...], depth: int) -> int:
    """The most steps of a round of k."""
    size = 1
    for axis in depth_loops(axes, depth)[1]:
        size *= largest_extent(axis)
    return size


@dataclass(frozen=True)
class Blocks:
    """How many blocks of rows there are, and the most tiles and panels of one."""

    count: Dim
    tiles: Dim
    panels: Dim


def blocks_of(tiling: Tiling, tiles: Dim) -> Blocks:
    """The blocks of so many tiles; if nobody knows how many, they are as equal as can be."""
    count = ceiling(tiles, tiling.block_tiles)
    if not tiling.whole:
        return Blocks(dim_max(count, 1), tiling.block_tiles, tiling.block_panels)
    many = dim_min(1, tiles // (tiling.whole + 1))
    count = 1 + many * (count - 1)
    panels = 1 + many * (tiling.block_panels - 1)
    return Blocks(count, ceiling(tiles, count), panels)


def with_bounded_sums(tiling: Tiling, element: int) -> Tiling:
    """Smaller blocks, if the sums that wait between rounds of k would outgrow a thread's stack."""
    most = max(1, MAX_SUM_BYTES // (tiling.height * tiling.columns * element))
    if not tiling.depth or tiling.block_tiles * tiling.block_panels <= most:
        return tiling
    panels = min(tiling.block_panels, most)
    tiles = min(tiling.block_tiles, most // panels)
    return replace(tiling, block_tiles=tiles, block_panels=panels)


def clip_axis(name: str, count: Dim, first: Dim, size: Dim, most: int) -> Axis:
    """An axis over one block of ``count``, from ``first`` on; the last may be smaller."""
    whole = isinstance(count, int) and isinstance(size, int) and count % size == 0
    return Axis(Symbol(name, 0, most - 1), size if whole else dim_min(size, count - first))


def largest_extent(axis: Axis) -> int:
    """The most values that an axis of a round of k takes; `depth_loops` cuts those without end."""
    if isinstance(axis.extent, int):
        return axis.extent
    last, most = axis.symbol.upper, axis.extent.bounds()[1]
    known = [] if last is None else [last + 1]
    return min(known if most is None else [*known, most])


def lies_inside(contraction: Contraction) -> bool:
    """Whether a step of the batch is shorter than one of the rows: groups of an image's channels.

    Blocks of rows are then visited group by group, while they are near.
    """
    place = contraction.kernel.stores[0].position[0]
    if not isinstance(place, Index) or not contraction.batch or not contraction.m:
        return False
    batch, rows = contraction.batch[-1], contraction.m[-1]
    inner, outer = (coefficient(place.dim, axis.symbol) for axis in (batch, rows))
    return isinstance(inner, int) and (not isinstance(outer, int) or 0 < inner < outer)
