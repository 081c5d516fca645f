"""Split-KV attention: few queries over many keys, each read once, split among threads.

    for each piece of the keys (in parallel):
      scores = queries @ piece of keysᵀ, masked
      weights of the scores
      partial result, largest score and total weight
    for each query (in parallel):
      the partial results, faded to the largest score of all, over the sum of their weights

Heads that share their keys are rows of one product. With one piece there is nothing to join, and
the result is stored at once. The pieces depend on the sizes alone, never on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, dim_max, dim_min, shape_product
from monograph.ir.types import bool_
from monograph.kernel import expr as e
from monograph.kernel.attention import Position, StreamedAttention
from monograph.kernel.expr import Buffer, Expr, Variable
from monograph.kernel.softmax import LARGEST_NUMBER
from monograph.targets.cpu.attention.loops import AttentionLoops, Statements, ceiling, part, split
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Assign,
    Combine,
    Declare,
    Let,
    Loop,
    LoopNest,
    Statement,
    Write,
)

_Along: TypeAlias = Callable[[Dim], Position]


@dataclass(frozen=True)
class AttentionPieces:
    """How much is computed together: rows, keys, and vectors' lanes for each of three loops."""

    heads: int
    """Heads that share their keys and are computed together: as many times ``queries`` rows."""
    queries: int
    keys: int
    """Keys of a piece."""
    columns: int
    """Lanes of a vector along keys."""
    depth: int
    """Lanes of a vector along the depth of a key."""
    value_depth: int
    """Lanes of a vector along the depth of a value."""

    def __str__(self) -> str:
        return f"pieces({self.heads} heads, {self.queries} queries, {self.keys} keys)"

    @property
    def rows(self) -> int:
        """Queries that are computed together, of all those heads."""
        return self.heads * self.queries


def attend_in_pieces(
    attention: StreamedAttention, pieces: AttentionPieces
) -> tuple[LoopNest, LoopNest | None]:
    """The loops over pieces, and those that join their results, unless there is one piece.

    What the first leaves for the second is its outputs and the other's first inputs.
    """
    keys = attention.keys
    if isinstance(keys, int) and keys <= pieces.keys:
        return _Pieces(attention, pieces, None).build(), None
    partial = Partial.of(attention, pieces)
    return _Pieces(attention, pieces, partial).build(), _Joining(attention, partial).build()


@dataclass(frozen=True)
class Partial:
    """What each piece leaves: ``[batch and heads][pieces][rows]``."""

    pieces: AttentionPieces
    count: Dim
    results: Buffer
    largest: Buffer
    totals: Buffer

    @staticmethod
    def of(attention: StreamedAttention, pieces: AttentionPieces) -> Partial:
        """The buffers for an attention."""
        count = ceiling(attention.keys, pieces.keys)
        tasks = shape_product((*attention.batch, attention.heads)) // pieces.heads
        rows = shape_product((tasks, count, pieces.rows))
        dtype = attention.dtype
        return Partial(
            pieces,
            count,
            Buffer("results", dtype, (rows * attention.value_depth,)),
            Buffer("maxima", dtype, (rows,)),
            Buffer("totals", dtype, (rows,)),
        )

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All of them, as outputs and inputs are ordered."""
        return self.results, self.largest, self.totals

    def row(self, lead: Dim, piece: Dim, row: Dim) -> Dim:
        """The number of a row."""
        return (lead * self.count + piece) * self.pieces.rows + row


class _Pieces(AttentionLoops):
    """Builds the loops of one piece of the keys and some heads."""

    def __init__(
        self, attention: StreamedAttention, pieces: AttentionPieces, partial: Partial | None
    ) -> None:
        super().__init__(attention, pieces.columns, pieces.rows, pieces.rows * pieces.keys)
        self.row_length = pieces.keys
        self.pieces = pieces
        self.partial = partial
        count = 1 if partial is None else partial.count
        groups = attention.heads // pieces.heads
        extent = shape_product((*attention.batch, groups, count))
        self.parallel = e.axis("_p", extent)
        rest: Dim = self.parallel.symbol
        self.piece, rest = split(rest, count)
        self.lead = rest
        heads, rest = split(rest, groups)
        batch: list[Dim] = []
        for dim in reversed(attention.batch):
            place, rest = split(rest, dim)
            batch.append(place)
        self.batch = tuple(reversed(batch))
        self.head = heads * pieces.heads
        group = attention.heads // attention.shared
        self.shared = self.head if group == 1 else self.head // group
        self.start = self.piece * pieces.keys
        self.keys = part(pieces.keys, attention.keys, self.start)
        if partial is None:
            self.keys = attention.keys

    def build(self) -> LoopNest:
        """The loops."""
        rows = range(self.pieces.rows)
        panels = ceiling(self.keys, self.columns)
        body: list[Statement] = [self.copied_query(row, self.asking(row)) for row in rows]
        body += self.nothing_seen()
        body.append(self.serial(self.keys, self.scored))
        for row in rows:
            body += self.masked_maximum(row, self.masking(row), self.seen(row), panels)
        body.append(self.vector(self.pieces.rows, self.raised))
        for row in rows:
            body += self.weights(row, panels)
        body += self.finish()
        name = self.attention.name if self.partial is None else f"{self.attention.name}_pieces"
        return self.nest(name, self.parallel, tuple(body))

    def position(self, row: int, last: Dim) -> Position:
        """Where an element of a query, of the mask or of the result is."""
        head, query = divmod(row, self.pieces.queries)
        return tuple(e.index(place) for place in (*self.batch, self.head + head, query, last))

    def asking(self, row: int) -> _Along:
        return lambda x: self.position(row, x)

    def masking(self, row: int) -> _Along:
        return lambda x: self.position(row, self.start + x)

    def seen(self, row: int) -> Dim:
        """How many keys of the piece a query sees."""
        if not self.attention.causal:
            return self.keys
        return dim_max(0, dim_min(self.keys, row % self.pieces.queries + 1 - self.start))

    def shared_position(self, key: Dim, last: Dim) -> Position:
        """Where an element of a key or a value is."""
        places = (*self.batch, self.shared, self.start + key, last)
        return tuple(e.index(place) for place in places)

    def scored(self, key: Symbol) -> Statements:
        """The scores of one key."""
        attention = self.attention
        sums = self.sums()

        def product(x: Symbol) -> Statements:
            element = attention.key(self.shared_position(key, x))
            return tuple(
                Combine(each, "sum", self.product(self.query_element(row, x), element), e.index(x))
                for row, each in enumerate(sums)
            )

        return (
            *(Accumulator(each, "sum") for each in sums),
            self.vector(attention.depth, product, width=self.pieces.depth),
            *(Write(self.scores, self.score(row, key), each) for row, each in enumerate(sums)),
        )

    def query_element(self, row: int, x: Symbol) -> Expr:
        return e.load(self.query, (e.index(row * self.attention.depth + x),))

    def product(self, left: Expr, right: Expr) -> Expr:
        return e.apply("multiply", left, right)

    def sums(self) -> list[Variable]:
        """One accumulator a row."""
        return [self.variable() for _ in range(self.pieces.rows)]

    def score(self, row: Dim, column: Dim) -> Expr:
        """Where a score lies."""
        return e.index(row * self.row_length + column)

    def copied_query(self, row: Dim, position: Callable[[Dim], Position]) -> Loop:
        """Copy a query to its row, scaled."""
        attention = self.attention
        factor = self.literal(attention.scale * attention.unit)

        def element(x: Symbol) -> Statements:
            scaled = e.apply("multiply", attention.query(position(x)), factor)
            return (Write(self.query, e.index(row * attention.depth + x), scaled),)

        return self.vector(attention.depth, element)

    def masked_maximum(
        self, row: Dim, position: Callable[[Dim], Position], seen: Dim, panels: Dim
    ) -> Statements:
        """Mask a row of scores, those behind the last that it sees too, and find its maximum.

        The row has whole ``panels`` of columns; ``position`` is where the mask has each.
        """
        statements: list[Statement] = []
        if self.attention.mask is not None:
            statements.append(self.vector(seen, lambda x: self.masked(row, x, position(x))))
        behind = panels * self.columns - seen
        if behind != 0:

            def hidden(x: Symbol) -> Statements:
                return (Write(self.scores, self.score(row, x), self.literal(-math.inf)),)

            statements.append(self.vector(behind, hidden, seen))
        best = self.variable()

        def lanes(lane: Symbol) -> Statements:
            cell, held, found, last = (self.variable() for _ in range(4))

            def taken(column: Symbol) -> Statements:
                place = self.score(row, column * self.columns + lane)
                larger = e.apply("less", held, found, dtype=bool_)
                return (
                    Let(held, cell),
                    Let(found, e.load(self.scores, (place,))),
                    Assign(cell, e.select(larger, found, held)),
                )

            return (
                Declare(cell, self.literal(-math.inf)),
                self.serial(panels, taken),
                Let(last, cell),
                Combine(best, LARGEST_NUMBER, last, e.index(0)),
            )

        statements += [
            Accumulator(best, LARGEST_NUMBER),
            self.vector(self.columns, lanes),
            Write(self.highest, e.index(row), best),
        ]
        return tuple(statements)

    def masked(self, row: Dim, x: Symbol, position: Position) -> Statements:
        """Add a mask to a score, or hide the score."""
        found, place = self.variable(), self.score(row, x)
        value = self.masked_score(found, position)
        return Let(found, e.load(self.scores, (place,))), Write(self.scores, place, value)

    def weights(self, row: Dim, panels: Dim) -> Statements:
        """The weights of a row in the place of its scores, and their sum."""
        largest, summed = self.variable(), self.variable()

        def lanes(lane: Symbol) -> Statements:
            cell, held, found, weight, last = (self.variable() for _ in range(5))

            def taken(column: Symbol) -> Statements:
                place = self.score(row, column * self.columns + lane)
                steps, power = self.weight(found, largest)
                return (
                    Let(found, e.load(self.scores, (place,))),
                    *steps,
                    Let(weight, power),
                    Write(self.scores, place, weight),
                    Let(held, cell),
                    Assign(cell, e.apply("add", held, weight)),
                )

            return (
                Declare(cell, self.literal(0.0)),
                self.serial(panels, taken),
                Let(last, cell),
                Combine(summed, "sum", last, e.index(0)),
            )

        place = e.index(row)
        before, fade, highest = self.variable(), self.variable(), self.variable()
        return (
            Let(highest, e.load(self.largest, (place,))),
            Let(largest, self.finite(highest)),
            Accumulator(summed, "sum"),
            self.vector(self.columns, lanes),
            Let(before, e.load(self.total, (place,))),
            Let(fade, e.load(self.fade, (place,))),
            Write(self.total, place, e.apply("fma", before, fade, summed)),
        )

    def finish(self) -> Statements:
        """The weighted sums of the values, for every row at once."""
        rows = range(self.pieces.rows)
        totals, inverses = self.sums(), self.sums()
        statements: list[Statement] = []
        for row in rows:
            statements.append(Let(totals[row], e.load(self.total, (e.index(row),))))
            if self.partial is None:
                statements.append(Let(inverses[row], self.inverse(totals[row])))
            else:
                statements += self.left_over(self.partial, row, totals[row])

        def weighted(x: Symbol) -> Statements:
            sums = self.sums()

            def product(key: Symbol) -> Statements:
                element = self.attention.value(self.shared_position(key, x))
                weights = (e.load(self.scores, (self.score(row, key),)) for row in rows)
                return tuple(
                    Combine(each, "sum", self.product(weight, element), e.index(key))
                    for each, weight in zip(sums, weights, strict=True)
                )

            return (
                *(Accumulator(each, "sum") for each in sums),
                self.serial(self.keys, product),
                *(write for row in rows for write in self.stored(row, x, sums, inverses)),
            )

        width = self.pieces.value_depth
        return *statements, self.vector(self.attention.value_depth, weighted, width=width)

    def left_over(self, partial: Partial, row: int, total: Expr) -> Statements:
        """Keep a row's maximum and total for the join."""
        place = e.index(partial.row(self.lead, self.piece, row))
        largest = self.variable()
        return (
            Let(largest, e.load(self.largest, (e.index(row),))),
            Write(partial.largest, place, largest),
            Write(partial.totals, place, total),
        )

    def stored(
        self, row: int, x: Symbol, sums: list[Variable], inverses: list[Variable]
    ) -> Statements:
        if self.partial is None:
            value = self.product(sums[row], inverses[row])
            return self.write(self.position(row, x), value)
        place = self.partial.row(self.lead, self.piece, row) * self.attention.value_depth + x
        return (Write(self.partial.results, e.index(place), sums[row]),)


class _Joining(AttentionLoops):
    """Builds the loops that join the partial results of a query."""

    def __init__(self, attention: StreamedAttention, partial: Partial) -> None:
        super().__init__(attention, partial.pieces.columns, 1, 1)
        self.scratch = []
        self.partial = partial
        queries, heads = partial.pieces.queries, partial.pieces.heads
        extent = shape_product((*attention.batch, attention.heads, queries))
        self.parallel = e.axis("_p", extent)
        rest: Dim = self.parallel.symbol
        query, rest = split(rest, queries)
        within, self.lead = split(rest, heads)
        self.row = within * queries + query
        places = [query]
        for dim in (attention.heads, *reversed(attention.batch)):
            place, rest = split(rest, dim)
            places.append(place)
        self.places = tuple(reversed(places))

    def build(self) -> LoopNest:
        """The loops."""
        largest, total = self.variable(), self.variable()
        finite, inverse = self.variable(), self.variable()

        def highest(piece: Symbol) -> Statements:
            return (Combine(largest, "max", self.kept(self.partial.largest, piece), e.index(0)),)

        def summed(piece: Symbol) -> Statements:
            steps, fade = self.faded(piece, finite)
            weight = e.apply("multiply", fade, self.kept(self.partial.totals, piece))
            return *steps, Combine(total, "sum", weight, e.index(0))

        def element(x: Symbol) -> Statements:
            result = self.variable()

            def joined(piece: Symbol) -> Statements:
                steps, fade = self.faded(piece, finite)
                place = self.partial.row(self.lead, piece, self.row) * self.attention.value_depth
                found = e.load(self.partial.results, (e.index(place + x),))
                term = e.apply("multiply", fade, found)
                return *steps, Combine(result, "sum", term, e.index(0))

            value = e.apply("multiply", result, inverse)
            position = tuple(e.index(place) for place in (*self.places, x))
            return (
                Accumulator(result, "sum"),
                self.serial(self.partial.count, joined),
                *self.write(position, value),
            )

        body: Statements = (
            Accumulator(largest, "max"),
            self.serial(self.partial.count, highest),
            Let(finite, self.finite(largest)),
            Accumulator(total, "sum"),
            self.serial(self.partial.count, summed),
            Let(inverse, self.inverse(total)),
            self.vector(self.attention.value_depth, element),
        )
        return self.nest(f"{self.attention.name}_join", self.parallel, body, self.partial.buffers)

    def kept(self, buffer: Buffer, piece: Symbol) -> Expr:
        return e.load(buffer, (e.index(self.partial.row(self.lead, piece, self.row)),))

    def faded(self, piece: Symbol, largest: Expr) -> tuple[Statements, Expr]:
        """What the weights of a piece are worth beside the largest score of all."""
        return self.weight(self.kept(self.partial.largest, piece), largest)
