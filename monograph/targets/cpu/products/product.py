"""The loops of a matrix product: blocks for the caches, tiles for the registers.

    parallel p < blocks:                      # some columns and some rows of the result
      for kb < k / depth:
        pack the block of the right operand   # unless it lies in panels, or is read in place
        for panel < block columns / columns:
          for tile < block rows / rows:
            vector lane < columns:
              s0 … s5 = 0
              for k < depth:
                s0 += left[row 0, k] * right[k, lane]    # … and so for each row
              sums, or in the last round out, = epilogue(sums + s)

``left`` is read row by row, each row through an offset of its own, so that any layout in which k
is a fixed step will do: a matrix, its transpose, the pixels of an image. A tile's sums stay in
registers for ``depth`` steps and are then added to those of the block: a panel of the right operand
stays in the first cache, the rows in the second, and rounding does not grow with k.
Many columns are worth a copy of ``left`` in tiles, each of which is one run of memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, dim_min, shape_product, substitute_dim
from monograph.kernel import expr as e
from monograph.kernel.contraction import Contraction, ceiling, decode_position, flat_position
from monograph.kernel.expr import Axis, Buffer, Expr, Index, Variable
from monograph.targets.cpu.costs import CACHE_LINE_BYTES, ProductCosts
from monograph.targets.cpu.loops.nest import substitute_statement
from monograph.targets.cpu.loops.unroll import UNROLLED_STEPS, unroll
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Combine,
    If,
    Let,
    Loop,
    LoopNest,
    Prefetch,
    Statement,
    Write,
)
from monograph.targets.cpu.nests.walk import loads_in
from monograph.targets.cpu.products.blocks import (
    TRANSPOSED_SQUARE,
    blocks_of,
    clip_axis,
    depth_loops,
    largest_extent,
    lies_inside,
    with_bounded_sums,
)
from monograph.targets.cpu.products.packing import (
    STEPS_PER_WORD,
    Tiles,
    can_store_tiles,
    row_stride,
    steps_together,
)
from monograph.targets.cpu.products.tile_terms import (
    equal,
    in_lanes,
    is_turned,
    less,
    sum_pairwise,
)
from monograph.targets.cpu.products.tiles import PanelPrefetch, Reading, Tiling, tile_count


@dataclass(frozen=True)
class Product:
    """What the loops are made of; ``left`` and ``right`` are buffers of packed operands."""

    contraction: Contraction
    tiling: Tiling
    left: Buffer | None
    right: Buffer | None

    def can_store(self, tiles: Tiles) -> bool:
        """Whether the result can be stored as the next product reads it."""
        tiling = self.tiling
        if (tiling.rows, tiling.height) != (tiles.segments, tiles.height):
            return False
        return can_store_tiles(self.contraction, tiles, tiling.columns)


def product_nest(
    contraction: Contraction,
    tiling: Tiling,
    left: Buffer | None,
    right: Buffer | None,
    costs: ProductCosts,
    stored: Tiles | None = None,
) -> LoopNest:
    """The loops of a contraction; ``left`` and ``right`` are buffers of packed operands.

    The result may be ``stored`` in tiles, as the next product reads it.
    """
    return _ProductBuilder(contraction, tiling, left, right, costs, stored).build()


@dataclass(frozen=True)
class _Tile:
    """Some rows of the result, as the loops that compute them name them."""

    number: Dim
    """Which of all tiles it is."""
    row: Dim
    kept: Dim
    """Where its first row lies among those of the block."""
    rows: int
    is_guarded: bool = False
    """Whether it may reach over the edge."""
    is_usual: bool = False
    """Whether most tiles are like it: it asks for the next panel and takes several steps at a time.
    Others had better be short to compile."""


class _ProductBuilder:
    def __init__(
        self,
        contraction: Contraction,
        tiling: Tiling,
        left: Buffer | None,
        right: Buffer | None,
        costs: ProductCosts,
        stored: Tiles | None,
    ) -> None:
        tiling = with_bounded_sums(tiling, contraction.reduction.dtype.bits // 8)
        self.contraction = contraction
        self.tiling = tiling
        self.costs, self.stored = costs, stored
        self.left, self.right = left, right
        self.weights = contraction.weights
        self.steps_per_byte = self.weights.steps_per_byte if tiling.narrow else 1
        self.dtype = contraction.reduction.dtype
        self.m, self.n = contraction.size(contraction.m), contraction.size(contraction.n)
        self.k = contraction.k
        if left is not None and right is not None and not tiling.narrow:
            self.k = (e.axis("_r0_0", contraction.size(contraction.k)),)
        self.outer_k, self.inner_k, self.k_places = depth_loops(self.k, tiling.depth)
        self.scratch: list[Buffer] = []
        self.names = 0
        self.segments = tiling.rows
        tiles = self.segments[0].count if self.segments else ceiling(self.m, tiling.height)
        self.blocks = blocks_of(tiling, tiles)
        panels = ceiling(self.n, tiling.columns)
        self.column_block = e.axis("_i_block", ceiling(panels, self.blocks.panels))
        first = self.column_block.symbol * self.blocks.panels
        self.panel = clip_axis("_i_panel", panels, first, self.blocks.panels, tiling.block_panels)
        self.first_panel = first
        width = self.n - (first + self.panel.symbol) * tiling.columns
        whole = isinstance(self.n, int) and self.n % tiling.columns == 0
        self.lane = Axis(
            Symbol("_i_lane", 0, tiling.columns - 1),
            tiling.columns if whole else dim_min(tiling.columns, width),
        )
        self.column = (first + self.panel.symbol) * tiling.columns + self.lane.symbol
        self.row_block = e.axis("_i_rows", self.blocks.count)
        self.first_tile = self.row_block.symbol * self.blocks.tiles
        most = max(tiling.block_tiles, tiling.whole)
        self.tile = clip_axis("_i_tile", tiles, self.first_tile, self.blocks.tiles, most)
        self.tail_rows = sum(each.rows * each.most for each in self.segments[1:])
        self.kept_rows = self.blocks.tiles * tiling.height + self.tail_rows
        self.packed_block = self._block_buffer() if tiling.right is Reading.BLOCK else None
        self.sums = self._sums_buffer("sums") if self.outer_k else None
        self.run = MAX_TERMS_PER_SUM // tiling.depth if tiling.depth and self.dtype.is_float else 0
        many = self.sums is not None and self.run > 1
        self.totals = self._sums_buffer("totals") if many else None

    def build(self) -> LoopNest:
        """The nest: it reads packed operands first, then what else it needs."""
        contraction, tiling = self.contraction, self.tiling
        body: tuple[Statement, ...] = (self._panel_loop(),)
        if self.packed_block is not None:
            body = (*self._packing(self.packed_block), *body)
        for axis in reversed(self.outer_k):
            body = (Loop(axis.symbol, 0, axis.extent, body),)
        outside = (*contraction.batch, *contraction.outer)
        leading = (*outside, self.column_block, self.row_block)
        if lies_inside(contraction):
            leading = (*contraction.outer, self.row_block, *contraction.batch, self.column_block)
        parallel = e.axis("_p", shape_product(axis.extent for axis in leading))
        kernel = contraction.kernel
        packed = tuple(each for each in (self.left, self.right) if each is not None)
        read = {load.buffer.name for load in loads_in(body)}
        inputs = (*packed, *(each for each in kernel.inputs if each.name in read))
        return LoopNest(
            kernel.name,
            inputs,
            kernel.outputs if self.stored is None else (self.stored.buffer,),
            tuple(self.scratch),
            kernel.sizes,
            parallel.symbol,
            parallel.extent,
            tiling.grain,
            tuple(
                substitute_statement(each, e.unflatten(leading, parallel.symbol)) for each in body
            ),
            padded=frozenset(
                buffer.name for buffer in (self.right, self.packed_block) if buffer is not None
            ),
        )

    # Buffers ------------------------------------------------------------------------------------

    def _scratch(self, name: str, size: int) -> Buffer:
        self.scratch.append(Buffer(name, self.dtype, (size,)))
        return self.scratch[-1]

    def _block_buffer(self) -> Buffer:
        tiling = self.tiling
        steps = 1
        for axis in self.inner_k:
            steps *= largest_extent(axis)
        return self._scratch("block", tiling.block_panels * steps * tiling.columns)

    def _sums_buffer(self, name: str) -> Buffer:
        """The sums of a block, for all but the last round of k."""
        tiling = self.tiling
        rows = (tiling.block_tiles * tiling.height + self.tail_rows) * tiling.block_panels
        rows = max(rows, tiling.whole * tiling.height + self.tail_rows)
        return self._scratch(name, rows * tiling.columns)

    # Operands -----------------------------------------------------------------------------------

    def _load_left(self, row: Dim) -> Expr:
        """An element of the left operand in a row."""
        contraction = self.contraction
        if self.left is None:
            value = decode_position(contraction.left, contraction.m, row)
            return e.substitute(value, self.k_places)
        k = substitute_dim(flat_position(self.k), self.k_places)
        stride = row_stride(contraction.size(contraction.k))
        place = (flat_position(contraction.batch) * self.m + row) * stride + k
        return e.load(self.left, (e.index(place),))

    def _right(self) -> Expr:
        contraction = self.contraction
        if self.packed_block is not None:
            return e.load(self.packed_block, (e.index(self._block_place()),))
        if self.right is None:
            value = decode_position(contraction.right, contraction.n, self.column)
            return e.substitute(value, self.k_places)
        stored = e.load(self.right, (e.index(self._panel_place()),))
        if self.steps_per_byte > 1:
            value = self.weights.of_byte(stored, flat_position(self.k))
        else:
            value = self.weights.of_stored(stored)
        return e.substitute(decode_position(value, contraction.n, self.column), self.k_places)

    def _multiply(self, left: Expr, right: Expr) -> Expr:
        """What is summed, of these elements."""
        return self.contraction.reduction.body.rebuilt((left, right))

    def _panel_place(self) -> Dim:
        """Where the packed right operand holds an element: ``[outside][panel][k][lane]``."""
        contraction, tiling = self.contraction, self.tiling
        outside = (*contraction.batch, *contraction.outer)
        panels = ceiling(self.n, tiling.columns)
        panel = flat_position(outside) * panels + self.first_panel + self.panel.symbol
        k = substitute_dim(flat_position(self.k), self.k_places) // self.steps_per_byte
        depth = ceiling(contraction.size(contraction.k), self.steps_per_byte)
        return (panel * depth + k) * tiling.columns + self.lane.symbol

    def _block_place(self) -> Dim:
        """Where the packed block holds an element: ``[panel][k][lane]``."""
        place: Dim = self.panel.symbol
        for axis in self.inner_k:
            place = place * largest_extent(axis) + axis.symbol
        return place * self.tiling.columns + self.lane.symbol

    def _packing(self, block: Buffer) -> tuple[Statement, ...]:
        """Store a block of the right operand; none but its last panel has lanes to spare."""
        lane, panel, columns = self.lane, self.panel, self.tiling.columns
        if isinstance(lane.extent, int):
            return (self._pack_panels(block, 0, panel.extent, lane),)
        whole = dim_min(panel.extent, self.n // columns - self.first_panel)
        full = Axis(lane.symbol, columns)
        return (
            self._pack_panels(block, 0, whole, full),
            Loop(LAST, 0, panel.extent - whole, (self._pack_panels(block, whole, 1, lane),)),
        )

    def _pack_panels(self, block: Buffer, first: Dim, count: Dim, lane: Axis) -> Statement:
        """Store some panels of the right operand, in the order in which they lie in memory."""
        contraction = self.contraction
        formula = decode_position(contraction.right, contraction.n, self.column)
        formula = e.substitute(formula, self.k_places)
        write = Write(block, e.index(self._block_place()), formula)
        inner, panel = self.inner_k[-1], self.panel.symbol
        if is_turned(formula, lane.symbol, inner.symbol):
            loops = self._store_transposed(write, inner, lane)
            for axis in reversed(self.inner_k[:-1]):
                loops = (Loop(axis.symbol, 0, axis.extent, loops),)
            return Loop(panel, first, count, loops)
        later: dict[Symbol, Dim] = {inner.symbol: inner.symbol + self.costs.panel_prefetch_steps}
        ahead = [
            Prefetch(load.buffer, e.substitute(load.operands[0], later))
            for load in loads_in((write,))
            if isinstance(load.operands[0], Index)
        ]
        body: Statement = in_lanes(lane, (*ahead, write), self.tiling.columns)
        is_one = count == 1 or self.tiling.block_panels == 1
        body = body if is_one else Loop(panel, first, count, (body,))
        for axis in reversed(self.inner_k):
            body = Loop(axis.symbol, 0, axis.extent, (body,))
        return Loop(panel, first, count, (body,)) if is_one else body

    def _store_transposed(self, write: Write, inner: Axis, lane: Axis) -> tuple[Statement, ...]:
        """Store what is contiguous along k: squares of it are turned in registers."""
        side = min(TRANSPOSED_SQUARE, self.tiling.columns)
        squares = inner.extent // side
        places: list[dict[Symbol, Dim]] = [
            {inner.symbol: inner.symbol * side + copy} for copy in range(side)
        ]
        several = [substitute_statement(write, place) for place in places]
        loops: tuple[Statement, ...] = (
            Loop(inner.symbol, 0, squares, (in_lanes(lane, several, side),)),
        )
        rest = inner.extent - squares * side
        if rest != 0:
            left = in_lanes(lane, (write,), self.tiling.columns)
            loops += (Loop(inner.symbol, squares * side, rest, (left,)),)
        return loops

    # Tiles --------------------------------------------------------------------------------------

    def _panel_loop(self) -> Statement:
        tiling = self.tiling
        number, kept = self.first_tile + self.tile.symbol, self.tile.symbol * tiling.height
        guarded = not self.segments or self.segments[0].overhangs
        usual = _Tile(number, number * tiling.height, kept, tiling.height, guarded, is_usual=True)
        body = in_lanes(self.lane, self._tile(usual), tiling.columns)
        loops: list[Statement] = [Loop(self.tile.symbol, 0, self.tile.extent, (body,))]
        kept_rows = self.blocks.tiles * tiling.height
        for which, each in enumerate(self.segments[1:]):
            counter = e.axis(f"_i_tail{which}", each.count)
            last = _Tile(
                self.segments[0].count + counter.symbol,
                each.start + counter.symbol * each.rows,
                kept_rows + counter.symbol * each.rows,
                each.rows,
            )
            tail = in_lanes(self.lane, self._tile(last), tiling.columns)
            times = (self.row_block.symbol + 1) // self.row_block.extent * each.count
            loops.append(Loop(counter.symbol, 0, times, (tail,)))
            kept_rows = kept_rows + each.rows * each.most
        return Loop(self.panel.symbol, 0, self.panel.extent, tuple(loops))

    def _ahead(self, places: Sequence[Dim]) -> list[Statement]:
        """Ask for the panel that comes next, at some steps of its k.

        After a block's last panel comes its first, in the next round of k.
        """
        assert self.right is not None, "only what lies in panels is asked for"
        panel, inner = self.panel, self.inner_k[-1]
        following: dict[Symbol, Dim] = {panel.symbol: panel.symbol + 1}
        if self.outer_k:
            turn = self.outer_k[-1].symbol
            is_last = (panel.symbol + 1) // panel.extent
            following = {panel.symbol: (panel.symbol + 1) * (1 - is_last), turn: turn + is_last}
        offset = self._panel_place()
        return [
            Prefetch(
                self.right,
                e.index(substitute_dim(offset, {**following, inner.symbol: k})),
                far=True,
            )
            for k in places
        ]

    def _share(self) -> int:
        """Lines of the next panel that each tile of a block asks for; 0 if none does."""
        if self.tiling.prefetch is not PanelPrefetch.TILES or len(self.inner_k) != 1:
            return 0
        return -(-largest_extent(self.inner_k[0]) // self.tiling.block_tiles)

    def _ahead_of_tile(self, part: Dim) -> list[Statement]:
        """Each tile of a block asks for as much of the next panel as is its share, line by line."""
        share, sharing = self._share(), self.tiling.block_tiles
        number = self.tile.symbol % sharing if self.tiling.whole > sharing else self.tile.symbol
        return self._ahead([number * share + part]) if share else []

    def _tile(self, tile: _Tile) -> list[Statement]:
        """Statements that compute one tile."""
        variables = [self._fresh() for _ in range(tile.rows)]
        statements = self._prefetch_row(tile.row, variables)
        statements += [Accumulator(each, "sum") for each in variables]
        if self.tiling.left is Reading.TILES:
            statements.append(self._multiply_packed(tile, variables))
            return statements + self._finish_tile(tile, variables)
        *outer, last = self.inner_k
        turns = [variables, *self._other_sums(tile)]
        statements += [Accumulator(each, "sum") for others in turns[1:] for each in others]
        if tile.is_usual:
            loops = self._several_steps(last, self._step(tile, variables), asks=not outer)
        else:
            loops = self._in_turns(tile, last, turns)
        for axis in reversed(outer):
            loops = (Loop(axis.symbol, 0, axis.extent, loops),)
        statements += loops
        if len(turns) > 1:
            totals = [self._fresh() for _ in variables]
            sums = [sum_pairwise(each) for each in zip(*turns, strict=True)]
            statements += [Let(*each) for each in zip(totals, sums, strict=True)]
            variables = totals
        return [*statements, *self._finish_tile(tile, variables)]

    def _other_sums(self, tile: _Tile) -> list[list[Variable]]:
        """Further sums of the rows of a low tile, which take turns with the first ones.

        One after the other, its few additions would each wait for the one before.
        """
        count = 0 if tile.is_usual else self.costs.min_prefetching_rows // tile.rows - 1
        return [[self._fresh() for _ in range(tile.rows)] for _ in range(count)]

    def _in_turns(
        self, tile: _Tile, axis: Axis, turns: Sequence[Sequence[Variable]]
    ) -> tuple[Statement, ...]:
        """The steps of a tile, each added to the sums whose turn it is."""
        rest = Loop(axis.symbol, 0, axis.extent, tuple(self._step(tile, turns[0])))
        if len(turns) == 1:
            return (rest,)
        several = e.axis("_r_several", axis.extent // len(turns))
        body: list[Statement] = []
        for number, variables in enumerate(turns):
            at: dict[Symbol, Dim] = {axis.symbol: several.symbol * len(turns) + number}
            body += [substitute_statement(each, at) for each in self._step(tile, variables)]
        rounds, done = (
            Loop(several.symbol, 0, several.extent, tuple(body)),
            several.extent * len(turns),
        )
        if done == axis.extent:
            return (rounds,)
        return rounds, replace(rest, start=done, extent=axis.extent - done)

    def _step(self, tile: _Tile, variables: Sequence[Variable]) -> list[Statement]:
        """One step of k: a product for each row of a tile."""
        right, position = self._right(), e.index(0)
        body: list[Statement] = []
        if self.tiling.prefetch is PanelPrefetch.STEPS and (
            tile.is_usual or tile.rows >= self.costs.min_prefetching_rows
        ):
            body += self._ahead([self.inner_k[-1].symbol])
        for copy, variable in enumerate(variables):
            row = tile.row + copy
            left = self._load_left(dim_min(row, self.m - 1) if tile.is_guarded else row)
            body.append(Combine(variable, "sum", self._multiply(left, right), position))
        return body

    def _several_steps(
        self, axis: Axis, body: Sequence[Statement], asks: bool
    ) -> tuple[Statement, ...]:
        """The steps of a tile, some at a time, with which a line of the next panel is asked for.

        If a tile asked for its whole share at once, it would wait until most of that had come.
        """
        steps = UNROLLED_STEPS if largest_extent(axis) >= 2 * UNROLLED_STEPS else 1
        while steps > 1 and largest_extent(axis) < steps * max(1, asks * self._share()):
            steps //= 2
        loop = Loop(axis.symbol, 0, axis.extent, tuple(body))
        return unroll(loop, steps, self._ahead_of_tile(axis.symbol // steps) if asks else ())

    def _prefetch_row(self, row: Dim, variables: Sequence[Variable]) -> list[Statement]:
        """Ask for what the epilogue reads of each row, before the tile is summed.

        Every round of k does: from memory it takes longer than one.
        """
        contraction = self.contraction
        known: Mapping[Expr, Expr] = {contraction.reduction: variables[0]}
        values = tuple(e.replace(store.value, known) for store in contraction.kernel.stores)
        rows = {axis.symbol for axis in contraction.m}
        wanted = [load for load in e.find_loads(*values) if rows & load.symbols]
        return [
            Prefetch(load.buffer, self._place_row(load.operands[0], row + copy))
            for load in wanted
            if isinstance(load.operands[0], Index)
            for copy in range(len(variables))
        ]

    def _multiply_packed(self, tile: _Tile, variables: Sequence[Variable]) -> Statement:
        """The steps of a tile of the left operand that is packed, a group of them at a time."""
        assert self.left is not None, "the left operand is packed"
        (inner,) = self.inner_k
        height, depth = self.tiling.height, largest_extent(inner)
        turn: Dim = flat_position(self.outer_k) if self.outer_k else 0
        rounds = shape_product(axis.extent for axis in self.outer_k)
        tiles = tile_count(self.segments, height, self.m)
        together = steps_together(self.contraction)
        group = e.axis("_r_group", inner.extent // STEPS_PER_WORD)
        begin = (flat_position(self.contraction.batch) * rounds + turn) * tiles + tile.number
        place = (begin * depth + group.symbol * STEPS_PER_WORD) * height
        per_line = CACHE_LINE_BYTES * 8 // self.dtype.bits
        body: list[Statement] = [
            Prefetch(
                self.left,
                e.index(place + self.costs.tile_prefetch_lines * per_line + line * per_line),
            )
            for line in range(-(-STEPS_PER_WORD * height // per_line))
        ]
        body += self._ahead_of_tile(group.symbol) if tile.is_usual else []
        if together == 1 and len(variables) < height:
            place = place + tile.row - dim_min(tile.row, self.m - height)
        for step in range(STEPS_PER_WORD):
            at: dict[Symbol, Dim] = {inner.symbol: group.symbol * STEPS_PER_WORD + step}
            right = e.substitute(self._right(), at)
            for copy, variable in enumerate(variables):
                beside = (
                    copy * STEPS_PER_WORD + step
                    if together == STEPS_PER_WORD
                    else step * height + copy
                )
                left = e.load(self.left, (e.index(place + beside),))
                value = self._multiply(left, right)
                body.append(Combine(variable, "sum", value, e.index(0)))
        return Loop(group.symbol, 0, group.extent, tuple(body))

    def _finish_tile(self, tile: _Tile, variables: Sequence[Variable]) -> list[Statement]:
        """A tile is summed over one round of k: keep the sums, or store the result.

        The sums of many short rounds are summed by themselves before they join the total.
        """
        if self.sums is None:
            return self._store_tile(tile, variables)
        done = flat_position(self.outer_k)
        last = shape_product(axis.extent for axis in self.outer_k) - 1
        run = self.run
        statements: list[Statement] = []
        kept_sums: list[Statement] = []
        kept_totals: list[Statement] = []
        totals: list[Expr] = []
        for copy, variable in enumerate(variables):
            place = (self.panel.symbol * self.kept_rows + tile.kept + copy) * self.tiling.columns
            offset = e.index(place + self.lane.symbol)
            total = self._fresh()
            begun = equal(done if self.totals is None else done % run, 0)
            statements.append(Let(total, self._add_partial(self.sums, offset, begun, variable)))
            kept_sums.append(Write(self.sums, offset, total))
            totals.append(total)
            if self.totals is not None:
                totals[-1] = self._add_partial(self.totals, offset, less(done, run), total)
                kept_totals.append(Write(self.totals, offset, totals[-1]))
        stored = self._store_tile(tile, totals)
        statements.append(If(equal(done, last), tuple(stored)))
        if self.totals is None:
            return [*statements, If(less(done, last), tuple(kept_sums))]
        statements.append(If(less(done % run, run - 1), tuple(kept_sums)))
        return [*statements, If(equal(done % run, run - 1), tuple(kept_totals))]

    def _add_partial(self, buffer: Buffer, offset: Expr, is_first: Expr, value: Expr) -> Expr:
        """A value and what is kept, or the value alone if nothing is yet."""
        zero = e.literal(0, self.dtype)
        return e.apply("add", e.select(is_first, zero, e.load(buffer, (offset,))), value)

    def _store_tile(self, tile: _Tile, variables: Sequence[Expr]) -> list[Statement]:
        """The epilogue of a tile, row by row."""
        contraction, lane = self.contraction, self.lane.symbol
        statements: list[Statement] = []
        for copy, variable in enumerate(variables):
            row = tile.row + copy
            known: Mapping[Expr, Expr] = {contraction.reduction: variable}
            writes = []
            for store in contraction.kernel.stores:
                value = self._place_row(e.replace(store.value, known), row)
                if self.stored is None:
                    place = self._place_row(store.position[0], row)
                    writes.append(Write(store.buffer, place, value))
                    continue
                at = self.stored.place(tile.number, copy, self.column - lane, lane)
                value = e.cast(value, self.stored.dtype)
                writes.append(Write(self.stored.buffer, e.index(at), value))
            if tile.is_guarded:
                statements.append(If(less(row, self.m), tuple(writes)))
            else:
                statements += writes
        return statements

    def _place_row(self, expr: Expr, row: Dim) -> Expr:
        contraction = self.contraction
        return decode_position(
            decode_position(expr, contraction.m, row), contraction.n, self.column
        )

    def _fresh(self) -> Variable:
        self.names += 1
        return e.variable(f"v{self.names - 1}", self.dtype)


LAST = Symbol("_i_last", 0, 0)
"""The last panel, if it is narrower than others."""
MAX_TERMS_PER_SUM = 256
"""Products whose sums of short rounds are summed by themselves, so that rounding stays small."""
