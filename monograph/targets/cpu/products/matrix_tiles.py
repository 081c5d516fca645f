"""Products of bytes by a matrix unit: two tiles of rows by two tiles of columns at a time.

    parallel p < blocks:
      store the rows of the block in words, padded to whole tiles      # unless they lie so
      for panel, for 32 rows:
        sums = tiles(rows; panel of weights)                           # 32 × 32 sums of all k
        vector lane < 32: for row < 32:
          out[row, lane] = epilogue(sums[row, lane])

A tile of the left operand is 16 rows of 64 bytes, and one of weights 64 steps of k, four to a word,
by 16 columns: panels of words as other byte products pack them (``in_words``). The sums go through
a small buffer that stays in the first cache. Rows are read where they lie if all lie as far apart
and fill whole tiles. The windows of an image do not: they are copied, once for all panels of a
block, and words that a tile has beyond k are zeros there, whatever weights they meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from monograph.dataclass import dataclass
from monograph.fusion.group import Group
from monograph.ir.dims import Dim, Symbol, dim_min, shape_product
from monograph.ir.types import bool_, i32
from monograph.kernel import expr as e
from monograph.kernel.contraction import (
    Contraction,
    as_contraction,
    decode_position,
    flat_position,
    with_k_ordered,
)
from monograph.kernel.expr import Axis, Buffer, Expr, Index, Load
from monograph.kernel.flatten import coefficient, flatten
from monograph.kernel.kernel import Kernel
from monograph.kernel.shortening import with_short_formulas
from monograph.targets.cpu.loops.nest import substitute_statement
from monograph.targets.cpu.loops.unroll import unroll
from monograph.targets.cpu.machine import Machine, TileUnit
from monograph.targets.cpu.nests.loop_nest import (
    TILE_ROWS,
    TILE_WORDS,
    If,
    Loop,
    LoopNest,
    MultiplyTiles,
    Statement,
    Write,
)
from monograph.targets.cpu.nests.walk import loads_in
from monograph.targets.cpu.plans.plan import KernelRequest, Launchable
from monograph.targets.cpu.products.blocks import clip_axis
from monograph.targets.cpu.products.contract import find_weights, slots_read
from monograph.targets.cpu.products.grid import even_parts
from monograph.targets.cpu.products.in_words import MoreInputs, by_micro_kernel
from monograph.targets.cpu.products.packing import panels_of
from monograph.targets.cpu.products.readings import Weights
from monograph.targets.cpu.products.tile_terms import in_lanes, less
from monograph.targets.cpu.products.tiling import groups_of, is_worth_tiling
from monograph.targets.micro_kernel import TILE_BYTES
from monograph.targets.plan import KernelPlan, Refusal

if TYPE_CHECKING:
    from monograph.targets.cpu.assemble.program_builder import ProgramBuilder

HEIGHT = 2 * TILE_ROWS
"""Rows whose sums are held at a time."""
COLUMNS = 2 * TILE_WORDS
"""Columns whose sums are held at a time."""
ROWS = "rows"
"""The buffer of a block's rows in words."""
SUMS = "sums"
"""The buffer of the sums of a few tiles."""
ROWS_AT_ONCE = 2
"""Rows of results that are stored in a round of the loop over them."""


@dataclass(frozen=True)
class TileBlocks:
    """How a product is cut up: blocks of tiles, and how rows are read."""

    tiles: int
    """Times ``HEIGHT`` rows in a block."""
    panels: int
    """Times ``COLUMNS`` columns in a block."""
    in_place: bool
    """Whether rows are read where they lie."""

    def __str__(self) -> str:
        left = "in place" if self.in_place else "packed by block"
        return (
            f"matrix tiles({HEIGHT} rows, {COLUMNS} columns) "
            f"block({self.tiles * HEIGHT} rows, {self.panels * COLUMNS} columns) left({left})"
        )


def plan_matrix_tiles(builder: ProgramBuilder, request: KernelRequest) -> Launchable | Refusal:
    """A product of bytes with weights, if the processor has a matrix unit and fills its tiles."""
    machine, flat = builder.machine, request.flat
    if machine.tile_unit is TileUnit.NONE:
        return Refusal("the processor has no matrix unit")
    contraction = as_contraction(with_short_formulas(flat))
    if contraction is None or contraction.summed is not i32:
        return Refusal("it is no sum of products of integers")
    slots = {b.name: slot for b, slot in zip(flat.inputs, request.read, strict=True)}
    if find_weights(builder, contraction, slots) is not Weights.RIGHT:
        return Refusal("its right operand is not made of weights")
    if not is_worth_tiling(contraction, Weights.RIGHT, machine):
        return Refusal("there is too little to multiply for tiles to pay")
    small = builder.small_inputs(contraction.kernel, request.read)
    words = by_micro_kernel(contraction, TILE_BYTES, small, is_weight=True)
    if words is None:
        return Refusal("its operands are no bytes")
    contraction = _in_order(words.contraction)
    blocks = choose_blocks(contraction, machine)
    if blocks is None:
        return Refusal("it would leave most of its tiles empty")
    scratch = tuple(b for each in words.more if isinstance(each, Kernel) for b in each.outputs)
    reason = f"a product of bytes, by the matrix unit ({machine.tile_unit.value})"
    plan = KernelPlan("matrix tiles", reason, blocks, scratch)
    names = tuple(buffer.name for buffer in flat.inputs)
    return MatrixTilesPlan(plan, request.group, names, words.more, contraction, blocks)


@dataclass(frozen=True)
class MatrixTilesPlan(Launchable):
    """A product by the matrix unit, and what is made for it first."""

    group: Group
    names: tuple[str, ...]
    """What the kernel reads."""
    more: MoreInputs
    contraction: Contraction
    blocks: TileBlocks

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """Make what else is read, pack the weights, and multiply."""
        contraction = self.contraction
        read = slots_read(builder, self.group, self.names, self.more, read)
        inputs = contraction.kernel.inputs
        known = {buffer.name: slot for buffer, slot in zip(inputs, read, strict=True)}
        packing = panels_in_tiles(contraction)
        (right,) = packing.outputs
        given = tuple(known[each.name] for each in packing.inputs)
        known[right.name] = builder.packed(self.group, flatten(packing), given)
        nest = tile_nest(contraction, self.blocks, right)
        built = builder.built_nest(self.group, nest, contraction.kernel, how=str(self.blocks))
        builder.launch_built(built, self.group, [known[b.name] for b in nest.inputs], written)


# Choices ------------------------------------------------------------------------------------------


def choose_blocks(contraction: Contraction, machine: Machine) -> TileBlocks | None:
    """The blocks that threads are done with first; None if tiles would be mostly empty."""
    costs = machine.costs.matrix_tiles
    sides = (contraction.m, contraction.n, contraction.k)
    sizes = [contraction.size(axes) for axes in sides]
    outside = contraction.size((*contraction.batch, *contraction.outer))
    if not all(isinstance(each, int) for each in (*sizes, outside)):
        return None
    assert isinstance(outside, int)
    m, n, k = (each for each in sizes if isinstance(each, int))
    tiles, panels, steps = groups_of(m, HEIGHT), groups_of(n, COLUMNS), groups_of(k, TILE_WORDS)
    filled = m * n * k / (tiles * HEIGHT * panels * COLUMNS * steps * TILE_WORDS)
    if filled < costs.min_filled_share or any(store.guard for store in contraction.kernel.stores):
        return None
    in_place = _row_distance(contraction) is not None
    row_cycles = steps * (costs.read_row_cycles if in_place else costs.pack_row_cycles)
    most = max(1, machine.l2 // 2 // (HEIGHT * row_words(k) * 4))

    def cycles(tiles_each: int, panels_each: int) -> float:
        blocks = outside * groups_of(tiles, tiles_each) * groups_of(panels, panels_each)
        of_tile = steps * costs.step_cycles + costs.epilogue_cycles
        block = tiles_each * (panels_each * of_tile + row_cycles)
        block += panels_each * steps * costs.panel_cycles + costs.block_cycles
        return groups_of(blocks, machine.threads) * block

    choices = [
        (cycles(rows, columns), -rows, -columns)
        for rows in even_parts(tiles)
        for columns in even_parts(panels)
        if rows <= most
    ]
    _, rows, columns = min(choices)
    return TileBlocks(-rows, -columns, in_place)


def _in_order(contraction: Contraction) -> Contraction:
    """The contraction with k in the order in which words lie, as few axes as they allow."""
    loads = [each for each in e.walk((contraction.left,)) if isinstance(each, Load)]
    words = [each for each in loads if each.dtype is i32]
    return with_k_ordered(contraction, words[0], merge=True) if len(words) == 1 else contraction


def _row_distance(contraction: Contraction) -> int | None:
    """How far apart rows of the left operand lie, if tiles can be read where they lie."""
    left, rows = contraction.left, contraction.size(contraction.m)
    if not isinstance(left, Load) or len(contraction.k) != 1:
        return None
    (along,) = contraction.k
    row = Symbol("_i_row", 0, None)
    (place,) = left.operands
    found = decode_position(place, contraction.m, row)
    if not isinstance(rows, int) or not isinstance(along.extent, int):
        return None
    if rows % TILE_ROWS or along.extent % TILE_WORDS or not isinstance(found, Index):
        return None
    if coefficient(found.dim, along.symbol) != 1:
        return None
    distance = coefficient(found.dim, row)
    return distance if isinstance(distance, int) and distance > 0 else None


def row_words(depth: int) -> int:
    """Words between packed rows: whole tiles, an odd number of cache lines."""
    steps = groups_of(depth, TILE_WORDS)
    return (steps | 1) * TILE_WORDS


# Loops --------------------------------------------------------------------------------------------


def panels_in_tiles(contraction: Contraction) -> Kernel:
    """Store the right operand in panels, with room after the last one for the rest of a tile."""
    packing = panels_of(contraction, COLUMNS)
    depth = contraction.size(contraction.k)
    (buffer,), (store,) = packing.outputs, packing.stores
    (size,) = buffer.shape
    assert isinstance(depth, int), "no other is planned"
    room = Buffer(buffer.name, buffer.dtype, (size + -depth % TILE_WORDS * COLUMNS,))
    return replace(packing, outputs=(room,), stores=(replace(store, buffer=room),))


def tile_nest(contraction: Contraction, blocks: TileBlocks, right: Buffer) -> LoopNest:
    """The loops of a contraction of words by a matrix unit; ``right`` are its packed weights."""
    return _TileNest(contraction, blocks, right).build()


class _TileNest:
    def __init__(self, contraction: Contraction, blocks: TileBlocks, right: Buffer) -> None:
        self.contraction, self.blocks, self.right = contraction, blocks, right
        sizes = (contraction.size(axes) for axes in (contraction.m, contraction.n, contraction.k))
        self.m, self.n, self.k = (each for each in sizes if isinstance(each, int))
        self.steps = groups_of(self.k, TILE_WORDS)
        tiles, panels = groups_of(self.m, HEIGHT), groups_of(self.n, COLUMNS)
        self.row_block = e.axis("_i_rows", groups_of(tiles, blocks.tiles))
        self.column_block = e.axis("_i_block", groups_of(panels, blocks.panels))
        first_tile = self.row_block.symbol * blocks.tiles
        first_panel = self.column_block.symbol * blocks.panels
        self.tile = clip_axis("_i_tile", tiles, first_tile, blocks.tiles, blocks.tiles)
        self.panel = clip_axis("_i_panel", panels, first_panel, blocks.panels, blocks.panels)
        self.first_row = first_tile * HEIGHT
        self.row = self.first_row + self.tile.symbol * HEIGHT
        self.panel_number = first_panel + self.panel.symbol
        width = self.n - self.panel_number * COLUMNS
        self.lane = Axis(
            Symbol("_i_lane", 0, COLUMNS - 1),
            COLUMNS if self.n % COLUMNS == 0 else dim_min(COLUMNS, width),
        )
        self.column = self.panel_number * COLUMNS + self.lane.symbol
        self.sums = Buffer(SUMS, i32, (HEIGHT * COLUMNS,))
        self.scratch = [self.sums]
        distance = _row_distance(contraction) if blocks.in_place else None
        if distance is None:
            distance = row_words(self.k)
            self.rows: Buffer | None = Buffer(ROWS, i32, (blocks.tiles * HEIGHT * distance,))
            self.scratch.append(self.rows)
        else:
            self.rows = None
        self.distance = distance

    def build(self) -> LoopNest:
        """The nest: it reads packed weights first, then what else it needs."""
        contraction = self.contraction
        tile = (*self._multiply(), self._store())
        inner = Loop(self.tile.symbol, 0, self.tile.extent, tile)
        body: tuple[Statement, ...] = (Loop(self.panel.symbol, 0, self.panel.extent, (inner,)),)
        if self.rows is not None:
            body = (self._pack(self.rows), *body)
        leading = (*contraction.batch, *contraction.outer, self.column_block, self.row_block)
        parallel = e.axis("_p", shape_product(axis.extent for axis in leading))
        places = e.unflatten(leading, parallel.symbol)
        read = {load.buffer.name for load in loads_in(body)}
        if self.rows is None:
            assert isinstance(contraction.left, Load)
            read.add(contraction.left.buffer.name)
        kernel = contraction.kernel
        return LoopNest(
            kernel.name,
            (self.right, *(each for each in kernel.inputs if each.name in read)),
            kernel.outputs,
            tuple(self.scratch),
            kernel.sizes,
            parallel.symbol,
            parallel.extent,
            1,
            tuple(substitute_statement(each, places) for each in body),
            volatile=frozenset(each.name for each in self.scratch),
        )

    def _pack(self, rows: Buffer) -> Statement:
        """Store the rows of a block in words; those beyond the last repeat it."""
        contraction = self.contraction
        row = e.axis("_i_row", self.tile.extent * HEIGHT)
        row = Axis(Symbol(row.symbol.name, 0, self.blocks.tiles * HEIGHT - 1), row.extent)
        given = dim_min(self.first_row + row.symbol, self.m - 1)
        value = decode_position(contraction.left, contraction.m, given)
        begin = row.symbol * self.distance
        *outer, inner = contraction.k
        offset = e.index(begin + flat_position(contraction.k))
        copied: Statement = in_lanes(inner, (Write(rows, offset, value),), TILE_WORDS)
        for axis in reversed(outer):
            copied = Loop(axis.symbol, 0, axis.extent, (copied,))
        body = [copied]
        beyond = self.steps * TILE_WORDS - self.k
        if beyond:
            word = e.axis("_i_word", beyond)
            place = e.index(begin + self.k + word.symbol)
            body.append(in_lanes(word, (Write(rows, place, e.literal(0, i32)),), TILE_WORDS))
        return Loop(row.symbol, 0, row.extent, tuple(body))

    def _multiply(self) -> tuple[Statement, ...]:
        """The sums of the rows; those of one tile alone, where no others are left."""
        both = self._tiles((0, TILE_ROWS))
        if self.m % HEIGHT == 0 or self.m % HEIGHT > TILE_ROWS:
            return (both,)
        last = e.index(self.m - TILE_ROWS)
        is_whole = less(self.row, self.m - TILE_ROWS)
        is_half = e.apply("greater_equal", e.index(self.row), last, dtype=bool_)
        return (If(is_whole, (both,)), If(is_half, (self._tiles((0,)),)))

    def _tiles(self, firsts: Sequence[int]) -> MultiplyTiles:
        contraction = self.contraction
        outside = (*contraction.batch, *contraction.outer)
        panel = flat_position(outside) * groups_of(self.n, COLUMNS) + self.panel_number
        place = e.index(panel * self.k * COLUMNS)
        left, offsets = self._find_left(firsts)
        return MultiplyTiles(
            self.sums, left, offsets, self.distance, self.right, place, COLUMNS, self.steps
        )

    def _find_left(self, firsts: Sequence[int]) -> tuple[Buffer, tuple[Expr, ...]]:
        """Where tiles of rows begin."""
        if self.rows is not None:
            begin = self.tile.symbol * HEIGHT
            return self.rows, tuple(e.index((begin + each) * self.distance) for each in firsts)
        contraction = self.contraction
        assert isinstance(contraction.left, Load)
        (along,) = contraction.k
        place = e.substitute(contraction.left.operands[0], {along.symbol: 0})
        return contraction.left.buffer, tuple(
            decode_position(place, contraction.m, self.row + each) for each in firsts
        )

    def _store(self) -> Statement:
        """The epilogue of the sums, row by row."""
        contraction = self.contraction
        left: Dim = self.m - self.row
        row = Axis(
            Symbol("_i_row", 0, HEIGHT - 1),
            HEIGHT if self.m % HEIGHT == 0 else dim_min(HEIGHT, left),
        )
        total = e.load(self.sums, (e.index(row.symbol * COLUMNS + self.lane.symbol),))

        def placed(expr: Expr) -> Expr:
            at_row = decode_position(expr, contraction.m, self.row + row.symbol)
            return decode_position(at_row, contraction.n, self.column)

        writes = tuple(
            Write(
                store.buffer,
                placed(store.position[0]),
                e.replace(placed(store.value), {placed(contraction.reduction): total}),
            )
            for store in contraction.kernel.stores
        )
        loop = Loop(row.symbol, 0, row.extent, writes)
        return in_lanes(self.lane, unroll(loop, ROWS_AT_ONCE), COLUMNS)
