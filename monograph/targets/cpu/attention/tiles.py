"""Attention of many queries: panels of queries meet keys and values where those lie.

    for each tile of queries (in parallel):
      for each tile of keys that it sees:
        for each panel of queries, a query in each lane, if it sees any of the keys:
          scores[key][query] = keys @ panel, masked, and the maximum of each query
          weights of the scores, and the fade of what was summed before
          result = result * fade + weightsᵀ @ values
      result / total

Queries are turned once, so that lanes are queries: each key is then a row that is read number by
number, maxima and sums need nothing from other lanes, and of values whole vectors are read. So
neither keys nor values have to be packed. Both products keep a tile of their result in registers,
as contractions do. A causal query sees a prefix of the keys: what no query of a panel sees is not
computed at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, dim_max, dim_min, shape_product
from monograph.ir.types import bool_, i32
from monograph.kernel import expr as e
from monograph.kernel.attention import Position, StreamedAttention
from monograph.kernel.expr import Buffer, Expr, Variable
from monograph.targets.cpu.attention.loops import AttentionLoops, Statements, ceiling, part, split
from monograph.targets.cpu.loops.unroll import unroll
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Assign,
    Combine,
    Declare,
    If,
    Let,
    Loop,
    LoopNest,
    Statement,
    Write,
)


@dataclass(frozen=True)
class AttentionTile:
    """How much is computed together: in registers (rows × columns), and in a core's cache."""

    rows: int
    columns: int
    """Queries of a panel: two vectors of them."""
    queries: int
    keys: int
    copied: bool = False
    """Whether keys and values lie too far apart in memory, and are gathered for each tile."""

    def __str__(self) -> str:
        tile = f"tile({self.queries} queries, {self.keys} keys)"
        copied = " gather(keys, values)" if self.copied else ""
        return f"{tile} registers({self.rows} rows, {self.columns} columns){copied}"

    @property
    def square(self) -> int:
        """Lanes of one vector: squares of so many elements are turned in registers."""
        return max(1, self.columns // 2)


def stream(attention: StreamedAttention, tile: AttentionTile) -> LoopNest:
    """The loops over tiles of queries and keys."""
    return _Tiles(attention, tile).build()


class _Tiles(AttentionLoops):
    """Builds the loops of one tile of queries."""

    def __init__(self, attention: StreamedAttention, tile: AttentionTile) -> None:
        height = -(-tile.queries // tile.columns) * tile.columns
        length = -(-tile.keys // tile.rows) * tile.rows
        super().__init__(attention, tile.columns, height, length * tile.columns)
        self.tile = tile
        keys = attention.keys
        self.is_stored_at_once = isinstance(keys, int) and keys <= tile.keys
        """Whether the result of a panel is complete after its only tile of keys."""
        self.result = Buffer("result", attention.dtype, (height * attention.value_depth,))
        if not self.is_stored_at_once:
            self.scratch.append(self.result)
        self.gathered_keys = Buffer("near_keys", attention.dtype, (tile.keys * attention.depth,))
        self.value_panels = -(-attention.value_depth // tile.columns)
        size = self.value_panels * tile.keys * tile.columns
        self.gathered_values = Buffer("near_values", attention.dtype, (size,))
        if tile.copied:
            self.scratch += [self.gathered_keys, self.gathered_values]
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
        self.panels = ceiling(self.rows, tile.columns)
        group = attention.heads // attention.shared
        self.shared = self.head if group == 1 else self.head // group

    def build(self) -> LoopNest:
        body: Statements = (*self.begin(), self.key_tiles())
        if not self.is_stored_at_once:
            body = (*body, self.finish())
        return self.nest(self.attention.name, self.parallel, body)

    def position(self, row: Dim, last: Dim) -> Position:
        """Where an element of a query, of the mask or of the result is."""
        places = (*self.batch, self.head, self.first + row, last)
        return tuple(e.index(place) for place in places)

    def shared_position(self, key: Dim, last: Dim) -> Position:
        """Where an element of a key or a value is."""
        return tuple(e.index(place) for place in (*self.batch, self.shared, key, last))

    def inside(self, panel: Dim) -> Dim:
        """How many queries of a panel there are."""
        return part(self.columns, self.rows, panel * self.columns)

    # Queries --------------------------------------------------------------------------------------

    def begin(self) -> Statements:
        """Turn the queries; nothing has been seen."""
        statements: list[Statement] = []
        if self.rows != self.panels * self.columns:
            statements.append(self.cleared(self.query, 0.0))
        statements.append(self.serial(self.panels, self.turned))
        if not self.is_stored_at_once:
            statements.append(self.cleared(self.result, 0.0))
        return *statements, *self.nothing_seen()

    def turned(self, panel: Symbol) -> Statements:
        """Copy a panel of queries, scaled: ``[depth][columns]``, a square after the other."""
        depth, square = self.attention.depth, self.tile.square
        factor = self.literal(self.attention.scale * self.attention.unit)

        def columns(start: Dim, count: int) -> Loop:
            def elements(lane: Symbol) -> Statements:
                return tuple(element(lane, start + k) for k in range(count))

            return self.vector(self.inside(panel), elements, width=square)

        def element(lane: Symbol, k: Dim) -> Statement:
            found = self.attention.query(self.position(panel * self.columns + lane, k))
            return Write(self.query, self.asked(panel, k, lane), e.apply("multiply", found, factor))

        whole = depth // square
        statements = [self.serial(whole, lambda number: (columns(number * square, square),))]
        if depth % square:
            statements.append(columns(whole * square, depth % square))
        return tuple(statements)

    def asked(self, panel: Dim, k: Dim, lane: Dim) -> Expr:
        """Where an element of a query lies."""
        return e.index((panel * self.attention.depth + k) * self.columns + lane)

    # Tiles of keys --------------------------------------------------------------------------------

    def key_tiles(self) -> Loop:
        """The tiles of keys that some query of this tile sees."""
        attention, tile = self.attention, self.tile
        seen = attention.keys
        if attention.causal:
            seen = dim_min(seen, self.first + self.rows)

        def body(number: Symbol) -> Statements:
            start = number * tile.keys
            keys = part(tile.keys, seen, start)
            first: Dim = 0
            if attention.causal:
                first = dim_max(0, start - self.first) // self.columns
            panels = self.panels - first
            gathered = self.gathered(start, keys) if tile.copied else ()
            attended = self.serial(panels, lambda p: self.attended(p, start, keys), first)
            return *gathered, attended

        return self.serial(ceiling(seen, tile.keys), body)

    def gathered(self, start: Dim, keys: Dim) -> Statements:
        """Copy the keys and values of a tile next to each other; values in panels of columns."""
        attention = self.attention

        def key(number: Symbol) -> Statements:
            def element(x: Symbol) -> Statements:
                found = attention.key(self.shared_position(start + number, x))
                place = e.index(number * attention.depth + x)
                return (Write(self.gathered_keys, place, found),)

            return (self.vector(attention.depth, element),)

        def value(number: Symbol) -> Statements:
            def columns(first: int) -> Loop:
                def element(lane: Symbol) -> Statements:
                    found = attention.value(self.shared_position(start + number, first + lane))
                    return (Write(self.gathered_values, self.valued(number, first, lane), found),)

                return self.vector(min(self.columns, attention.value_depth - first), element)

            return tuple(columns(first) for first in range(0, attention.value_depth, self.columns))

        return self.serial(keys, key), self.serial(keys, value)

    def valued(self, key: Dim, column: Dim, lane: Dim) -> Expr:
        """Where an element of a gathered value lies; ``column`` is the first of its panel."""
        return e.index((column // self.columns * self.tile.keys + key) * self.columns + lane)

    def key_element(self, start: Dim, key: Dim, k: Dim) -> Expr:
        """An element of a key of a tile."""
        if self.tile.copied:
            return e.load(self.gathered_keys, (e.index(key * self.attention.depth + k),))
        return self.attention.key(self.shared_position(start + key, k))

    def value_element(self, start: Dim, key: Dim, column: Dim, lane: Dim) -> Expr:
        """An element of a value of a tile."""
        if self.tile.copied:
            return e.load(self.gathered_values, (self.valued(key, column, lane),))
        return self.attention.value(self.shared_position(start + key, column + lane))

    def attended(self, panel: Symbol, start: Dim, keys: Dim) -> Statements:
        """What one panel of queries makes of one tile of keys."""
        seen = keys
        if self.attention.causal:
            seen = dim_min(keys, self.first + (panel + 1) * self.columns - start)
        scores = (self.unseen(panel), *self.multiply_keys(panel, start, seen))
        attended = (
            self.vector(self.columns, self.raised, panel * self.columns),
            self.weights(panel, seen),
            *self.multiply_values(panel, start, seen),
        )
        if self.attention.mask is None:
            return *scores, *attended
        if not self.attention.only_hides:
            return *scores, *self.mask(panel, start, seen), *attended
        count, shown, total = self.shown(panel, start, seen)
        statements = (
            *scores,
            If(_is("less", shown, total), self.mask(panel, start, seen)),
            If(_is("equal", shown, total), (self.unmasked(panel, seen),)),
            *attended,
        )
        if self.is_stored_at_once or not self.attention.leaves_out_hidden:
            return *count, *statements
        return *count, If(_is("less", self.literal(0.0), shown), statements)

    def unseen(self, panel: Symbol) -> Loop:
        """No score of this tile has been seen."""

        def element(x: Symbol) -> Statements:
            return (Write(self.highest, e.index(x), self.literal(-math.inf)),)

        return self.vector(self.columns, element, panel * self.columns)

    def score(self, key: Dim, lane: Dim) -> Expr:
        """Where a score lies: ``[keys][columns]``."""
        return e.index(key * self.columns + lane)

    # The first product ----------------------------------------------------------------------------

    def multiply_keys(self, panel: Symbol, start: Dim, seen: Dim) -> Statements:
        """Scores of a panel of queries, for some keys at a time; those at an edge come last."""
        rows = self.tile.rows
        everywhere = seen
        if self.attention.causal:
            first = self.first + panel * self.columns
            everywhere = dim_max(0, dim_min(seen, first + 1 - start))
        whole = everywhere // rows
        statements: list[Statement] = [
            self.serial(whole, lambda number: self.scored(panel, start, number * rows, rows))
        ]
        if isinstance(seen, int) and not self.attention.causal:
            rest = seen - seen // rows * rows
            if rest:
                statements += self.scored(panel, start, seen - rest, rest)
            return tuple(statements)

        def edge(number: Symbol) -> Statements:
            return self.scored(panel, start, number * rows, rows, seen)

        return *statements, self.serial(ceiling(seen, rows) - whole, edge, whole)

    def scored(
        self, panel: Symbol, start: Dim, first: Dim, rows: int, edge: Dim | None = None
    ) -> Statements:
        """Scores of ``rows`` keys; at the edge the last key stands for those behind it."""
        attention = self.attention

        def operands(lane: Symbol, k: Symbol, copy: int) -> tuple[Expr, Expr]:
            key = first + copy if edge is None else dim_min(first + copy, edge - 1)
            left = self.key_element(start, key, k)
            return left, e.load(self.query, (self.asked(panel, k, lane),))

        def stored(lane: Symbol, sums: Sequence[Expr]) -> Statements:
            scores = [self.variable() for _ in sums]
            values = list(sums)
            if attention.causal and edge is not None:
                past = start + first - self.first - panel * self.columns
                values = [self.hidden(past + copy, lane, each) for copy, each in enumerate(sums)]
            lets = tuple(Let(score, value) for score, value in zip(scores, values, strict=True))
            writes = tuple(
                Write(self.scores, self.score(first + copy, lane), score)
                for copy, score in enumerate(scores)
            )
            if attention.mask is not None:
                return *lets, *writes
            return *lets, *writes, *self.noticed(panel, lane, scores)

        return (self.register_tile(self.columns, attention.depth, rows, operands, stored),)

    def hidden(self, past: Dim, lane: Symbol, score: Expr) -> Expr:
        """A score, or minus infinity for the queries of the panel that the key comes after."""
        places = (e.cast(e.index(place), i32) for place in (lane, past))
        before = e.apply("less", *places, dtype=bool_)
        return e.select(before, self.literal(-math.inf), score)

    def noticed(self, panel: Symbol, lane: Dim, scores: Sequence[Expr]) -> Statements:
        """Take scores into the maximum of their query."""
        place = e.index(panel * self.columns + lane)
        held = self.variable()
        largest = reduce(self.larger, scores)
        return (
            Let(held, e.load(self.highest, (place,))),
            Write(self.highest, place, self.larger(held, largest)),
        )

    def larger(self, held: Expr, found: Expr) -> Expr:
        """The larger of two; a NaN is passed over."""
        return e.select(e.apply("less", held, found, dtype=bool_), found, held)

    def register_tile(
        self,
        columns: int,
        depth: Dim,
        rows: int,
        operands: Callable[[Symbol, Symbol, int], tuple[Expr, Expr]],
        stored: Callable[[Symbol, Sequence[Expr]], Statements],
    ) -> Loop:
        """Sums of products over ``depth`` for every row and column of a register tile."""

        def body(lane: Symbol) -> Statements:
            sums = [self.variable() for _ in range(rows)]

            def product(k: Symbol) -> Statements:
                return tuple(
                    Combine(each, "sum", e.apply("multiply", *operands(lane, k, copy)), e.index(k))
                    for copy, each in enumerate(sums)
                )

            return (
                *(Accumulator(each, "sum") for each in sums),
                *unroll(self.serial(depth, product)),
                *stored(lane, sums),
            )

        return self.vector(columns, body)

    # Weights --------------------------------------------------------------------------------------

    def mask(self, panel: Symbol, start: Dim, seen: Dim) -> Statements:
        """Mask the scores of a panel; a mask of each query is turned, a square at a time."""
        square = self.tile.square

        def keys(first: Dim, count: int) -> Statements:
            def elements(lane: Symbol) -> Statements:
                made = [self.masked(panel, start, first + k, lane) for k in range(count)]
                scores = [score for _, score in made]
                writes = tuple(
                    Write(self.scores, self.score(first + k, lane), score)
                    for k, score in enumerate(scores)
                )
                lets = tuple(let for steps, _ in made for let in steps)
                return *lets, *writes, *self.noticed(panel, lane, scores)

            return (self.vector(self.inside(panel), elements, width=square),)

        whole = seen // square
        statements = [self.serial(whole, lambda number: keys(number * square, square))]
        rest = seen - whole * square
        if rest != 0:
            statements.append(self.serial(rest, lambda key: keys(key, 1), whole * square))
        return tuple(statements)

    def shown(self, panel: Symbol, start: Dim, seen: Dim) -> tuple[Statements, Variable, Expr]:
        """Count the scores of a panel that the mask shows; how many there are."""
        assert self.attention.mask is not None
        mask, shown = self.attention.mask, self.variable()

        def row(query: Dim) -> Statements:
            def element(key: Symbol) -> Statements:
                found = mask(self.position(panel * self.columns + query, start + key))
                one = e.select(found, self.literal(1.0), self.literal(0.0))
                return (Combine(shown, "sum", one, e.index(key)),)

            return (self.vector(seen, element, width=2 * self.columns),)

        rows = self.inside(panel) if self.attention.masks_each_query else 1
        total = e.cast(e.index(shape_product((rows, seen))), shown.dtype)
        return (Accumulator(shown, "sum"), self.serial(rows, row)), shown, total

    def unmasked(self, panel: Symbol, seen: Dim) -> Loop:
        """Notice the scores of a panel, of which the mask hides none."""

        def lanes(lane: Symbol) -> Statements:
            place = e.index(panel * self.columns + lane)
            cell, last = self.variable(), self.variable()

            def noticed(key: Symbol) -> Statements:
                held, found = self.variable(), self.variable()
                return (
                    Let(found, e.load(self.scores, (self.score(key, lane),))),
                    Let(held, cell),
                    Assign(cell, self.larger(held, found)),
                )

            return (
                Declare(cell, self.literal(-math.inf)),
                self.serial(seen, noticed),
                Let(last, cell),
                Write(self.highest, place, last),
            )

        return self.vector(self.columns, lanes)

    def masked(self, panel: Symbol, start: Dim, key: Dim, lane: Symbol) -> tuple[Statements, Expr]:
        """A score to which the mask has been added, or that it hides."""
        found, score = self.variable(), self.variable()
        position = self.position(panel * self.columns + lane, start + key)
        load = e.load(self.scores, (self.score(key, lane),))
        value = self.masked_score(found, position)
        if self.attention.causal and self.attention.fill != -math.inf:
            value = self.hidden(start + key - self.first - panel * self.columns, lane, value)
        return (Let(found, load), Let(score, value)), score

    def weights(self, panel: Symbol, seen: Dim) -> Loop:
        """The weights of a panel in the place of its scores, and their sums."""

        def lanes(lane: Symbol) -> Statements:
            highest, largest, cell, last = (self.variable() for _ in range(4))
            place = e.index(panel * self.columns + lane)

            def taken(key: Symbol) -> Statements:
                held, found, weight = (self.variable() for _ in range(3))
                steps, power = self.weight(found, largest)
                return (
                    Let(found, e.load(self.scores, (self.score(key, lane),))),
                    *steps,
                    Let(weight, power),
                    Write(self.scores, self.score(key, lane), weight),
                    Let(held, cell),
                    Assign(cell, e.apply("add", held, weight)),
                )

            return (
                Let(highest, e.load(self.largest, (place,))),
                Let(largest, self.finite(highest)),
                Declare(cell, self.literal(0.0)),
                self.serial(seen, taken),
                Let(last, cell),
                *self.summed(place, last),
            )

        return self.vector(self.columns, lanes)

    def summed(self, place: Expr, weights: Expr) -> Statements:
        """Add to the sum of a query's weights; where it is complete, keep its inverse."""
        before, fade, total = (self.variable() for _ in range(3))
        if self.is_stored_at_once:
            return (Write(self.fade, place, self.inverse(weights)),)
        return (
            Let(before, e.load(self.total, (place,))),
            Let(fade, e.load(self.fade, (place,))),
            Let(total, e.apply("fma", before, fade, weights)),
            Write(self.total, place, total),
        )

    # The second product ---------------------------------------------------------------------------

    def multiply_values(self, panel: Symbol, start: Dim, seen: Dim) -> Statements:
        """Fade the result so far, and add the weighted values of the tile."""
        depth, columns = self.attention.value_depth, self.columns
        whole = depth // columns

        def column_panel(number: Symbol) -> Statements:
            return self.weighted(panel, start, seen, number * columns, columns)

        statements: list[Statement] = []
        if whole:
            statements.append(self.serial(whole, column_panel))
        if depth % columns:
            rest = depth % columns
            statements += self.weighted(panel, start, seen, whole * columns, rest)
        return tuple(statements)

    def weighted(
        self, panel: Symbol, start: Dim, seen: Dim, column: Dim, columns: int
    ) -> Statements:
        """Some columns of the result of every query of the panel."""
        inside = self.inside(panel)
        statements: list[Statement] = []
        first = 0
        for rows in _balance(self.columns, self.tile.rows):
            tile = self.weighted_rows(panel, start, seen, column, columns, first, rows)
            statements += self.if_any(inside - first, (tile,))
            first += rows
        return tuple(statements)

    def if_any(self, count: Dim, body: Statements) -> Statements:
        """Statements for queries of which there may be none."""
        exist = dim_min(1, dim_max(0, count))
        return body if exist == 1 else (Loop(self.symbol("i", 0), 0, exist, body),)

    def weighted_rows(
        self,
        panel: Symbol,
        start: Dim,
        seen: Dim,
        column: Dim,
        columns: int,
        first: int,
        rows: int,
    ) -> Loop:
        """A register tile of the result."""
        attention = self.attention

        def operands(lane: Symbol, k: Symbol, copy: int) -> tuple[Expr, Expr]:
            weight = e.load(self.scores, (self.score(k, first + copy),))
            return weight, self.value_element(start, k, column, lane)

        def stored(lane: Symbol, sums: Sequence[Expr]) -> Statements:
            statements: list[Statement] = []
            for copy, each in enumerate(sums):
                row = panel * self.columns + first + copy
                fade = e.load(self.fade, (e.index(row),))
                if self.is_stored_at_once:
                    value = e.apply("multiply", each, fade)
                    writes = self.write(self.position(row, column + lane), value)
                    statements += self.if_any(self.inside(panel) - first - copy, writes)
                    continue
                place = e.index(row * attention.value_depth + column + lane)
                before = e.load(self.result, (place,))
                statements.append(Write(self.result, place, e.apply("fma", before, fade, each)))
            return tuple(statements)

        return self.register_tile(columns, seen, rows, operands, stored)

    def finish(self) -> Loop:
        """Divide by the sum of the weights."""
        attention = self.attention

        def divided(row: Symbol) -> Statements:
            total, inverse = self.variable(), self.variable()

            def element(x: Symbol) -> Statements:
                found = e.load(self.result, (e.index(row * attention.value_depth + x),))
                value = e.apply("multiply", found, inverse)
                return self.write(self.position(row, x), value)

            return (
                Let(total, e.load(self.total, (e.index(row),))),
                Let(inverse, self.inverse(total)),
                self.vector(attention.value_depth, element),
            )

        return self.serial(self.rows, divided)


def _is(function: str, left: Expr, right: Expr) -> Expr:
    return e.apply(function, left, right, dtype=bool_)


def _balance(size: int, most: int) -> list[int]:
    """Parts of about the same size, none larger than ``most``."""
    parts = -(-size // most)
    return [size // parts + (number < size % parts) for number in range(parts)]
