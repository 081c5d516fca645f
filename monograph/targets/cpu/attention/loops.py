"""Attention as loops: what tiles of many queries and pieces of many keys have in common.

    softmax(query @ keyᵀ * scale + mask) @ value

The scores of some queries and some keys lie in a row each in a core's own cache, and no others
exist: memory grows with the length of the sequence, not with its square. Exponentials are powers
of two, log2(e) being part of the scale of the queries unless a mask is added. A row's weights are
relative to the largest score that it has seen so far; when a larger one comes, what was summed
before *fades*:

    largest' = max(largest, scores);  fade = 2^(largest - largest')
    total' = total * fade + sum of 2^(scores - largest')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeAlias

from monograph.ir.dims import Dim, Symbol, dim_min
from monograph.ir.types import bool_
from monograph.kernel import expr as e
from monograph.kernel.attention import Position, StreamedAttention
from monograph.kernel.expr import Axis, Buffer, Expr, Variable
from monograph.kernel.mathlib.exponential import LOG2_E, TABLES, power_of_two
from monograph.kernel.mathlib.number import Number, horner
from monograph.targets.cpu.nests.loop_nest import (
    Let,
    Loop,
    LoopKind,
    LoopNest,
    Statement,
    Write,
)
from monograph.targets.cpu.nests.walk import loads_in, sizes_in, statements_in, writes_in

Statements: TypeAlias = tuple[Statement, ...]


class AttentionLoops:
    """Builds loops over rows of scores; each row belongs to one query of one head."""

    def __init__(self, attention: StreamedAttention, columns: int, rows: int, scores: int) -> None:
        self.attention = attention
        self.columns = columns
        """Lanes of a vector loop."""
        self.names = count()
        dtype = attention.dtype
        self.query = Buffer("query", dtype, (rows * attention.depth,))
        self.scores = Buffer("scores", dtype, (scores,))
        self.largest = Buffer("largest", dtype, (rows,))
        self.highest = Buffer("highest", dtype, (rows,))
        self.fade = Buffer("fade", dtype, (rows,))
        self.total = Buffer("total", dtype, (rows,))
        self.scratch = [
            *(self.query, self.scores, self.largest, self.highest, self.fade, self.total)
        ]

    def nest(
        self, name: str, parallel: Axis, body: Statements, first: Sequence[Buffer] = ()
    ) -> LoopNest:
        """Loops around statements; the inputs begin with those in ``first``."""
        inside = {buffer.name for buffer in self.scratch}
        written = {write.buffer.name: write.buffer for write in writes_in(body)}
        read = {x.buffer.name: x.buffer for x in loads_in(body) if x.buffer.name not in written}
        inputs = tuple({**{buffer.name: buffer for buffer in first}, **read}.values())
        outputs = tuple(b for name, b in written.items() if name not in inside)
        bound = {each.symbol for each in statements_in(body) if isinstance(each, Loop)} | {
            parallel.symbol
        }
        sizes = sizes_in(body, parallel.extent, (*inputs, *outputs)) - bound
        return LoopNest(
            name,
            inputs,
            outputs,
            tuple(self.scratch),
            tuple(sorted(sizes, key=lambda symbol: symbol.name)),
            parallel.symbol,
            parallel.extent,
            1,
            body,
            volatile=frozenset(inside),
        )

    # Pieces ---------------------------------------------------------------------------------------

    def vector(
        self,
        extent: Dim,
        body: Callable[[Symbol], Statements],
        start: Dim = 0,
        width: int | None = None,
    ) -> Loop:
        """A loop over lanes."""
        symbol = self.symbol("x", None)
        return Loop(symbol, start, extent, body(symbol), LoopKind.VECTOR, width or self.columns)

    def serial(self, extent: Dim, body: Callable[[Symbol], Statements], start: Dim = 0) -> Loop:
        """A loop that goes one by one."""
        upper = extent - 1 if isinstance(extent, int) and start == 0 else None
        symbol = self.symbol("i", upper)
        return Loop(symbol, start, extent, body(symbol))

    def symbol(self, letter: str, upper: int | None) -> Symbol:
        """A new loop variable."""
        return Symbol(f"_{letter}{next(self.names)}", 0, None if upper is None else max(upper, 0))

    def variable(self) -> Variable:
        """A new variable of the dtype that is computed in."""
        return e.variable(f"v{next(self.names)}", self.attention.dtype)

    def literal(self, number: float) -> Expr:
        """A number of the dtype that is computed in."""
        return e.literal(number, self.attention.dtype)

    def write(self, position: Position, value: Expr) -> Statements:
        """Store an element of the result, as ``StreamedAttention.store`` says."""
        stores = self.attention.store(position, value)
        return tuple(Write(each.buffer, each.position[0], each.value) for each in stores)

    def cleared(self, buffer: Buffer, number: float) -> Loop:
        """The same number everywhere."""

        def element(x: Symbol) -> Statements:
            return (Write(buffer, e.index(x), self.literal(number)),)

        (size,) = buffer.shape
        return self.vector(size, element)

    def nothing_seen(self) -> Statements:
        """No row has seen a score yet."""
        return (
            self.cleared(self.total, 0.0),
            self.cleared(self.largest, -math.inf),
            self.cleared(self.highest, -math.inf),
        )

    def finite(self, largest: Expr) -> Expr:
        """A maximum that can be subtracted: zero for a query that has seen nothing yet."""
        nothing = e.apply("equal", largest, self.literal(-math.inf), dtype=bool_)
        return e.select(nothing, self.literal(0.0), largest)

    def inverse(self, total: Expr) -> Expr:
        """What a weighted sum is multiplied with; a query that saw nothing has no weights."""
        one = self.literal(1.0)
        if self.attention.gives_nan:  # 0 * (1 / 0)
            return e.apply("divide", one, total)
        nothing = e.apply("equal", total, self.literal(0.0), dtype=bool_)
        return e.apply("divide", one, e.select(nothing, one, total))

    def weight(self, score: Expr, largest: Expr) -> tuple[Statements, Expr]:
        """exp of how far a score is below the largest, both times ``unit``."""
        below = e.apply("subtract", score, largest)
        if self.attention.unit == LOG2_E:
            return self.power(below)
        return self.power(e.apply("multiply", below, self.literal(LOG2_E / self.attention.unit)))

    def masked_score(self, score: Expr, position: Position) -> Expr:
        """A score to which the mask has been added, or that it hides."""
        assert self.attention.mask is not None
        mask = self.attention.mask(position)
        if mask.dtype is bool_:
            return e.select(mask, score, self.literal(self.attention.hidden))
        return e.apply("add", score, e.cast(mask, score.dtype))

    def power(self, x: Expr) -> tuple[Statements, Expr]:
        """2^x for x ≤ 0, or 0 where that is too small for a full significand; a NaN stays one."""
        given, held, shifted, rest = (self.variable() for _ in range(4))
        bias = Number(given).format.bias
        shifter = Number(given).format.shifter + bias
        steps = (
            Let(given, x),
            Let(held, Number(given).at_least(-float(bias)).expr),
            Let(shifted, (Number(held) + shifter).expr),
            Let(rest, (Number(held) - (Number(shifted) - shifter)).expr),
        )
        significand = horner(Number(rest), (1.0, *TABLES[x.dtype].binary))
        scale = power_of_two(Number(shifted).unsigned_bits(), x.dtype)
        return steps, (significand * scale).expr

    # Rows -----------------------------------------------------------------------------------------

    def raised(self, row: Symbol) -> Statements:
        """The maximum so far of each row, and what its earlier weights are worth beside it."""
        place = e.index(row)
        old, new, now = (self.variable() for _ in range(3))
        larger = e.apply("less", old, new, dtype=bool_)
        steps, fade = self.weight(old, self.finite(now))
        return (
            Let(old, e.load(self.largest, (place,))),
            Let(new, e.load(self.highest, (place,))),
            Let(now, e.select(larger, new, old)),
            *steps,
            Write(self.fade, place, fade),
            Write(self.largest, place, now),
        )


def ceiling(size: Dim, width: int) -> Dim:
    """How many pieces of that width hold so many elements."""
    return (size + width - 1) // width


def part(size: int, whole: Dim, start: Dim) -> Dim:
    """How many of ``size`` elements from ``start`` on there are."""
    if isinstance(whole, int) and whole % size == 0:
        return size
    return dim_min(size, whole - start)


def split(rest: Dim, extent: Dim) -> tuple[Dim, Dim]:
    """The last of several positions that one number holds, and the others."""
    if extent == 1:
        return 0, rest
    return rest % extent, rest // extent
