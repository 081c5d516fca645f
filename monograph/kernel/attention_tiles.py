"""Attention of many queries: packed keys and values stream past tiles of queries.

    for each tile of queries (in parallel):
      for each tile of keys that it sees:
        scores = query tile @ key tileᵀ, masked
        weights of the scores, and the fade of what was summed before
        result = result * fade + weights @ value tile
      result / total

Keys and values are packed in panels beforehand, each element once, whatever formula makes it; both
products keep a tile of their result in registers, as contractions do. A causal query sees a prefix
of the keys: panels beyond the diagonal are not computed at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from monograph.ir.dims import Dim, Symbol, dim_max, dim_min, shape_product
from monograph.ir.types import bool_
from monograph.kernel import expr as e
from monograph.kernel.attention import (
    AttentionLoops,
    Position,
    Statements,
    StreamedAttention,
    ceiling,
    part,
    split,
)
from monograph.kernel.expr import Axis, Buffer, Expr, Load
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.loops import Accumulator, Combine, Let, Loop, LoopNest, Statement, Write


@dataclass(frozen=True)
class AttentionTile:
    """How much is computed together: in registers (rows × columns), and in a core's cache."""

    rows: int
    columns: int
    queries: int
    keys: int


def pack_keys(attention: StreamedAttention, tile: AttentionTile) -> Kernel:
    """Store the keys in panels: ``[*batch][head][keys / columns][depth][columns]``."""
    lead = _leading(attention)
    panel = e.axis("_i_panel", ceiling(attention.keys, tile.columns))
    depth = e.axis("_i_depth", attention.depth)
    lane = e.axis("_i_lane", tile.columns)
    place = panel.symbol * tile.columns + lane.symbol

    def element(inside: Dim) -> Expr:
        return attention.key((*_positions(lead), e.index(inside), e.index(depth.symbol)))

    value = _within(place, attention.keys, tile.columns, element)
    return _packing(attention, "keys", (*lead, panel, depth, lane), value)


def pack_values(attention: StreamedAttention, tile: AttentionTile) -> Kernel:
    """Store the values in panels: ``[*batch][head][depth / columns][keys][columns]``."""
    lead = _leading(attention)
    panel = e.axis("_i_panel", ceiling(attention.value_depth, tile.columns))
    key = e.axis("_i_key", attention.keys)
    lane = e.axis("_i_lane", tile.columns)
    place = panel.symbol * tile.columns + lane.symbol

    def element(inside: Dim) -> Expr:
        return attention.value((*_positions(lead), e.index(key.symbol), e.index(inside)))

    value = _within(place, attention.value_depth, tile.columns, element)
    return _packing(attention, "values", (*lead, panel, key, lane), value)


def _leading(attention: StreamedAttention) -> tuple[Axis, ...]:
    shape = (*attention.batch, attention.shared)
    return tuple(e.axis(f"_i{k}", dim) for k, dim in enumerate(shape))


def _positions(axes: Sequence[Axis]) -> Position:
    return tuple(e.index(axis.symbol) for axis in axes)


def _within(place: Dim, size: Dim, columns: int, element: Callable[[Dim], Expr]) -> Expr:
    """The element at a place, or zero beyond the last one."""
    if isinstance(size, int) and size % columns == 0:
        return element(place)
    value = element(dim_min(place, size - 1))
    inside = e.apply("less", e.index(place), e.index(size), dtype=bool_)
    return e.select(inside, value, e.literal(0.0, value.dtype))


def _packing(
    attention: StreamedAttention, what: str, space: tuple[Axis, ...], value: Expr
) -> Kernel:
    total = shape_product(axis.extent for axis in space)
    buffer = Buffer(what, attention.dtype, (total,))
    store = Store(buffer, (e.linear(space),), value)
    read = {x.buffer.name: x.buffer for x in e.walk((value,)) if isinstance(x, Load)}
    return Kernel(f"{attention.name}_pack_{what}", tuple(read.values()), (buffer,), space, (store,))


def stream(attention: StreamedAttention, tile: AttentionTile) -> LoopNest:
    """The loops over packed keys and values, which are its first two inputs."""
    return _Tiles(attention, tile).build()


class _Tiles(AttentionLoops):
    """Builds the loops of one tile of queries."""

    def __init__(self, attention: StreamedAttention, tile: AttentionTile) -> None:
        rows = -(-tile.queries // tile.rows) * tile.rows
        super().__init__(attention, tile.columns, rows, tile.keys)
        self.tile = tile
        dtype = attention.dtype
        lead = shape_product((*attention.batch, attention.shared))
        panels = ceiling(attention.keys, tile.columns)
        self.value_panels = -(-attention.value_depth // tile.columns)
        keys = shape_product((lead, panels, attention.depth, tile.columns))
        values = shape_product((lead, self.value_panels, attention.keys, tile.columns))
        self.packed_keys = Buffer("keys", dtype, (keys,))
        self.packed_values = Buffer("values", dtype, (values,))
        self.width = self.value_panels * tile.columns
        """Elements from one row of the result to the next."""
        self.result = Buffer("result", dtype, (rows * self.width,))
        self.scratch.append(self.result)
        self.bind()

    def bind(self) -> None:
        """What the parallel variable stands for: batch, head and tile of queries."""
        attention, tile = self.attention, self.tile
        tiles = ceiling(attention.queries, tile.queries)
        extent = shape_product((*attention.batch, attention.heads, tiles))
        self.parallel = e.axis("_p", extent)
        rest: Dim = self.parallel.symbol
        number, rest = split(rest, tiles)
        # The longest first, so that threads finish together.
        number = tiles - 1 - number if attention.causal and tiles != 1 else number
        self.head, rest = split(rest, attention.heads)
        batch: list[Dim] = []
        for dim in reversed(attention.batch):
            place, rest = split(rest, dim)
            batch.append(place)
        self.batch = tuple(reversed(batch))
        self.first = number * tile.queries
        """The first query of the tile."""
        self.rows = part(tile.queries, attention.queries, self.first)
        self.row_panels = ceiling(self.rows, tile.rows)
        group = attention.heads // attention.shared
        shared = self.head if group == 1 else self.head // group
        lead: Dim = 0
        for dim, place in zip(attention.batch, self.batch, strict=True):
            lead = lead * dim + place
        self.lead = lead * attention.shared + shared
        """Which matrix of keys and values."""

    def build(self) -> LoopNest:
        body = (*self.begin(), self.key_tiles(), self.finish())
        packed = (self.packed_keys, self.packed_values)
        return self.nest(self.attention.name, self.parallel, body, packed)

    def position(self, row: Dim, last: Dim) -> Position:
        """Where an element of a query, of the mask or of the result is."""
        places = (*self.batch, self.head, self.first + row, last)
        return tuple(e.index(place) for place in places)

    def begin(self) -> Statements:
        """Copy the queries; nothing has been seen."""
        depth = self.attention.depth

        def copied(row: Symbol) -> Statements:
            return (self.copied_query(row, lambda x: self.position(row, x)),)

        statements: list[Statement] = [self.serial(self.rows, copied)]
        whole = self.row_panels * self.tile.rows
        if self.rows != whole:

            def beyond(x: Symbol) -> Statements:
                return (Write(self.query, e.index(x), self.literal(0.0)),)

            left = (whole - self.rows) * depth
            statements.append(self.vector(left, beyond, self.rows * depth))
        return *statements, self.cleared(self.result, 0.0), *self.nothing_seen()

    def key_tiles(self) -> Loop:
        """The tiles of keys that some query of this tile sees."""
        attention, tile = self.attention, self.tile
        seen = attention.keys
        if attention.causal:
            seen = dim_min(seen, self.first + self.rows)

        def body(number: Symbol) -> Statements:
            start = number * tile.keys
            keys = part(tile.keys, seen, start)
            return (
                self.multiply_keys(start, keys),
                *self.weigh(start, keys),
                self.multiply_values(start, keys),
            )

        return self.serial(ceiling(seen, tile.keys), body)

    def seen(self, start: Dim, keys: Dim, rows: Dim) -> Dim:
        """How many keys of a tile are seen by some of the first ``rows`` queries of the tile."""
        if not self.attention.causal:
            return keys
        return dim_max(0, dim_min(keys, self.first + rows - start))

    # The first product ----------------------------------------------------------------------------

    def multiply_keys(self, start: Dim, keys: Dim) -> Loop:
        """Scores of the tile: a panel of keys with every panel of rows that sees some of it."""
        attention, tile = self.attention, self.tile
        panels = ceiling(attention.keys, tile.columns)
        base = self.lead * panels + start // tile.columns

        def column_panel(column: Symbol) -> Statements:
            first: Dim = 0
            if attention.causal:
                beyond = start + column * tile.columns - self.first
                first = dim_max(0, beyond) // tile.rows

            def row_panel(row: Symbol) -> Statements:
                def operands(lane: Symbol, k: Symbol, copy: int) -> tuple[Expr, Expr]:
                    left = (row * tile.rows + copy) * attention.depth + k
                    right = ((base + column) * attention.depth + k) * tile.columns + lane
                    return (
                        e.load(self.query, (e.index(left),)),
                        e.load(self.packed_keys, (e.index(right),)),
                    )

                def stored(lane: Symbol, copy: int, value: Expr) -> Statement:
                    place = (row * tile.rows + copy) * tile.keys + column * tile.columns + lane
                    return Write(self.scores, e.index(place), value)

                return (self.register_tile(attention.depth, operands, stored),)

            return (self.serial(self.row_panels - first, row_panel, first),)

        return self.serial(ceiling(keys, tile.columns), column_panel)

    def register_tile(
        self,
        depth: Dim,
        operands: Callable[[Symbol, Symbol, int], tuple[Expr, Expr]],
        stored: Callable[[Symbol, int, Expr], Statement],
    ) -> Loop:
        """Sums of products over ``depth`` for every row and column of a register tile."""

        def body(lane: Symbol) -> Statements:
            sums = [self.variable() for _ in range(self.tile.rows)]

            def product(k: Symbol) -> Statements:
                return tuple(
                    Combine(each, "sum", e.apply("multiply", *operands(lane, k, copy)), e.index(k))
                    for copy, each in enumerate(sums)
                )

            return (
                *(Accumulator(each, "sum") for each in sums),
                self.serial(depth, product),
                *(stored(lane, copy, each) for copy, each in enumerate(sums)),
            )

        return self.vector(self.tile.columns, body)

    # Weights --------------------------------------------------------------------------------------

    def weigh(self, start: Dim, keys: Dim) -> Statements:
        """From scores to weights: each row's maximum first, then its powers of two."""
        rows = self.tile.rows

        def panels(panel: Symbol) -> Dim:
            return ceiling(self.seen(start, keys, panel * rows + rows), self.columns)

        def maximum(panel: Symbol, row: Dim) -> Statements:
            seen = self.seen(start, keys, row + 1)
            return self.masked_maximum(
                row, lambda x: self.position(row, start + x), seen, panels(panel)
            )

        (size,) = self.total.shape
        return (
            self.each_row(maximum),
            self.vector(size, self.raised),
            self.each_row(lambda panel, row: self.weights(row, panels(panel))),
        )

    def each_row(self, body: Callable[[Symbol, Dim], Statements]) -> Loop:
        """A loop over rows that knows which panel each is in."""
        rows = self.tile.rows

        def panel(number: Symbol) -> Statements:
            inside = part(rows, self.rows, number * rows)
            return (self.serial(inside, lambda copy: body(number, number * rows + copy)),)

        return self.serial(self.row_panels, panel)

    # The second product ---------------------------------------------------------------------------

    def multiply_values(self, start: Dim, keys: Dim) -> Loop:
        """Fade the result so far, and add the weighted values of the tile."""
        attention, tile = self.attention, self.tile

        def column_panel(column: Symbol) -> Statements:
            base = (self.lead * self.value_panels + column) * attention.keys + start

            def row_panel(row: Symbol) -> Statements:
                def operands(lane: Symbol, k: Symbol, copy: int) -> tuple[Expr, Expr]:
                    left = self.score(row * tile.rows + copy, k)
                    right = (base + k) * tile.columns + lane
                    return (
                        e.load(self.scores, (left,)),
                        e.load(self.packed_values, (e.index(right),)),
                    )

                def stored(lane: Symbol, copy: int, value: Expr) -> Statement:
                    number = row * tile.rows + copy
                    place = e.index(number * self.width + column * tile.columns + lane)
                    before = e.load(self.result, (place,))
                    fade = e.load(self.fade, (e.index(number),))
                    return Write(self.result, place, e.apply("fma", before, fade, value))

                depth = self.seen(start, keys, row * tile.rows + tile.rows)
                return (self.register_tile(depth, operands, stored),)

            return (self.serial(self.row_panels, row_panel),)

        return self.serial(self.value_panels, column_panel)

    def finish(self) -> Loop:
        """Divide by the sum of the weights."""
        attention = self.attention

        def divided(row: Symbol) -> Statements:
            total, inverse = self.variable(), self.variable()

            def element(x: Symbol) -> Statements:
                found = e.load(self.result, (e.index(row * self.width + x),))
                value = e.apply("multiply", found, inverse)
                return tuple(attention.write(self.position(row, x), value))

            return (
                Let(total, e.load(self.total, (e.index(row),))),
                Let(inverse, self.inverse(total)),
                self.vector(attention.value_depth, element),
            )

        return self.serial(self.rows, divided)
