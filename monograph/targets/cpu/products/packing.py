"""Packing: the operands of a matrix product, stored in the order in which tiles read them.

An operand that is not read where it lies is first laid out in the order in which it will be read:
``left`` in rows or tiles, ``right`` in panels of a few vectors, zeros beyond the edge.

    packed_left[m][k, padded]              packed_right[n / columns][k][columns]

Packing computes an operand's formula once an element. Operands that are weights are packed when
the program is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, dim_min, shape_product
from monograph.ir.types import DType, bool_, u8
from monograph.kernel import expr as e
from monograph.kernel.contraction import (
    Contraction,
    ceiling,
    decode_position,
    flat_position,
    runs_along_k,
)
from monograph.kernel.expr import Apply, Axis, Buffer, Expr, Index, Load
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel, Store, write_kernel
from monograph.targets.cpu.products.in_words import pack_word
from monograph.targets.cpu.products.tiles import Segment, tile_count, tile_start

STEPS_PER_WORD = 4
"""Steps of k that a packed tile of the left operand holds side by side for each row."""


def steps_together(contraction: Contraction) -> int:
    """Steps of k that a packed tile holds side by side for each row, as they lie in memory."""
    return STEPS_PER_WORD if runs_along_k(contraction) else 1


def rows_of(contraction: Contraction) -> Kernel:
    """Store the left operand in rows: ``[batch][m][k]``, padded to ``row_stride``."""
    depth = contraction.size(contraction.k)
    stride = row_stride(depth)
    rows = contraction.size(contraction.m)
    row, k = e.axis("_i_row", rows), e.axis("_i_depth", depth)
    value = decode_position(contraction.left, contraction.m, row.symbol)
    value = decode_position(value, contraction.k, k.symbol)
    batch = contraction.batch
    place = (flat_position(batch) * rows + row.symbol) * stride + k.symbol
    size = shape_product((contraction.size(batch), rows, stride))
    buffer = Buffer("left", value.dtype, (size,))
    return _packing(contraction, buffer, (*batch, row, k), place, value)


def tiles_of(
    contraction: Contraction, height: int, depth: int, segments: Sequence[Segment] = ()
) -> Kernel:
    """Store the left operand as it is read: ``[batch][k / depth][tile][depth][height]``.

    Steps of k come in groups of ``STEPS_PER_WORD``, each row's side by side, so that packing copies
    vectors. A tile of fewer rows is followed by those of the next, and rows beyond the last repeat
    it. The operand must be an array that k, one axis of a multiple of ``STEPS_PER_WORD`` steps,
    walks through. Where the rows of each step lie side by side instead, they stay so, and the last
    tiles, if they are lower, begin with rows before their own: as many as are missing.
    """
    (along,) = contraction.k
    rows, together = contraction.size(contraction.m), steps_together(contraction)
    tile, group = (
        e.axis("_i_tile", tile_count(segments, height, rows)),
        e.axis("_i_group", along.extent // together),
    )
    row, steps = (
        e.axis("_i_row", height),
        (e.axis("_i_step", STEPS_PER_WORD),) * (together == STEPS_PER_WORD),
    )
    step = flat_position(steps)
    k = group.symbol * together + step
    first = tile_start(segments, height, tile.symbol)
    whole = isinstance(rows, int) and rows % height == 0 and len(segments) < 2
    place = first + row.symbol
    if not whole and together == STEPS_PER_WORD:
        place = dim_min(place, rows - 1)
    elif not whole:
        place = dim_min(first, rows - height) + row.symbol
    value = decode_position(contraction.left, contraction.m, place)
    value = e.substitute(value, {along.symbol: k})
    rounds = ceiling(along.extent, depth)
    groups = depth // together
    batch = flat_position(contraction.batch)
    begin = (batch * rounds + group.symbol // groups) * tile.extent + tile.symbol
    inside = tile_place(begin, depth, height, group.symbol % groups, row.symbol, step, together)
    size = shape_product((contraction.size(contraction.batch), rounds, tile.extent, depth, height))
    buffer = Buffer("left", value.dtype, (size,))
    space = (*contraction.batch, tile, group, row, *steps)
    return _packing(contraction, buffer, space, inside, value)


def tile_place(
    begin: Dim,
    depth: int,
    height: int,
    group: Dim,
    row: Dim,
    step: Dim,
    together: int = STEPS_PER_WORD,
) -> Dim:
    """Where the ``begin``-th of all tiles holds a step of one of its groups."""
    return begin * depth * height + (group * height + row) * together + step


@dataclass(frozen=True)
class Tiles:
    """How the rows of a whole array lie in tiles, as ``tiles_of`` stores them."""

    segments: tuple[Segment, ...]
    height: int
    rows: Dim
    steps: int
    depth: int
    """Steps of k in a round."""
    dtype: DType
    source: DType
    """What the array holds, which may be narrower."""

    @property
    def buffer(self) -> Buffer:
        """All tiles."""
        rounds = -(-self.steps // self.depth)
        size = shape_product((rounds, self.count, self.depth, self.height))
        return Buffer("tiles", self.dtype, (size,))

    @property
    def count(self) -> Dim:
        """How many tiles cover the rows."""
        return tile_count(self.segments, self.height, self.rows)

    def place(self, tile: Dim, row: int, column: Dim, lane: Symbol) -> Dim:
        """Where an element of a row of a tile lies: ``lane`` beyond a column that begins a group.

        No lane goes beyond the round in which the column is.
        """
        begin = column // self.depth * self.count + tile
        group = column % self.depth // STEPS_PER_WORD + lane // STEPS_PER_WORD
        return tile_place(begin, self.depth, self.height, group, row, lane % STEPS_PER_WORD)


def tiles_read(
    contraction: Contraction, height: int, depth: int, segments: tuple[Segment, ...]
) -> Tiles | None:
    """The tiles of a left operand that is all of an array, one row after the other."""
    rows, steps = contraction.size(contraction.m), contraction.size(contraction.k)
    left = contraction.left
    if isinstance(left, Apply) and left.function == "cast":
        (left,) = left.operands
    if not isinstance(steps, int) or not isinstance(left, Load):
        return None
    if contraction.batch or not segments or not _has_rows(left.operands[0], contraction, "k"):
        return None
    return Tiles(segments, height, rows, steps, depth, contraction.left.dtype, left.dtype)


def can_store_tiles(contraction: Contraction, tiles: Tiles, width: int) -> bool:
    """Whether a result that is computed ``width`` columns at a time can be stored so."""
    store, *others = contraction.kernel.stores
    if others or contraction.batch or contraction.outer or store.value.dtype is not tiles.source:
        return False
    sizes = contraction.size(contraction.m), contraction.size(contraction.n)
    if sizes != (tiles.rows, tiles.steps):
        return False
    if tiles.steps % width or tiles.depth % width or width % STEPS_PER_WORD:
        return False
    return _has_rows(store.position[0], contraction, "n")


def _has_rows(place: Expr, contraction: Contraction, along: str) -> bool:
    """Whether an array that is read or stored is rows of ``k`` or ``n``, one after the other."""
    axes = contraction.k if along == "k" else contraction.n
    row, column = Symbol("_row", 0, None), Symbol("_column", 0, None)
    found = decode_position(decode_position(place, contraction.m, row), axes, column)
    whole = row * contraction.size(axes) + column
    return isinstance(found, Index) and found.dim == whole


def panels_of(contraction: Contraction, columns: int, *, is_narrow: bool = False) -> Kernel:
    """Store the right operand in panels: ``[outside][n / columns][k][columns]``.

    If they are narrow, they hold what its elements are made of, several steps of k to a byte if
    they fit, and the rest is done when they are read.
    """
    operand = contraction.weights
    size, steps = contraction.size(contraction.n), contraction.size(contraction.k)
    together = operand.steps_per_byte if is_narrow else 1
    depth = ceiling(steps, together)
    panel, k = e.axis("_i_panel", ceiling(size, columns)), e.axis("_i_depth", depth)
    lane = e.axis("_i_lane", columns)
    column = panel.symbol * columns + lane.symbol
    whole = isinstance(size, int) and size % columns == 0
    inside = column if whole else dim_min(column, size - 1)
    formula = operand.stored if is_narrow else operand.formula
    value = decode_position(formula, contraction.n, inside)
    if together == 1:
        value = decode_position(value, contraction.k, k.symbol)
    else:
        places = [dim_min(k.symbol * together + step, steps - 1) for step in range(together)]
        value = pack_word([decode_position(value, contraction.k, place) for place in places], u8)
    if not whole:
        condition = e.apply("less", e.index(column), e.index(size), dtype=bool_)
        value = e.select(condition, value, e.literal(0, value.dtype))
    outside = (*contraction.batch, *contraction.outer)
    stored = (*outside, panel, k, lane)
    buffer = Buffer("right", value.dtype, (contraction.size(stored),))
    space = (*outside, k, panel, lane) if _is_along(value, lane.symbol) else stored
    return _packing(contraction, buffer, space, flat_position(stored), value)


def _is_along(value: Expr, symbol: Symbol) -> bool:
    """Whether neighbours along an axis are neighbours in memory."""
    return isinstance(value, Load) and (
        isinstance(value.operands[0], Index) and coefficient(value.operands[0].dim, symbol) == 1
    )


def _packing(
    contraction: Contraction, buffer: Buffer, space: tuple[Axis, ...], place: Dim, value: Expr
) -> Kernel:
    store = Store(buffer, (e.index(place),), value)
    name = f"{contraction.kernel.name}_pack_{buffer.name}"
    return write_kernel(name, space, store, inputs=contraction.kernel.inputs)


def row_stride(depth: Dim) -> Dim:
    """How far apart packed rows are: an odd number of cache lines, so that they share no set."""
    return (depth + 31) // 32 * 32 + 16
