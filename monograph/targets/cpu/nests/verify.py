"""Check a scheduled kernel: every access inside its buffer, no two threads on one element.

A schedule cannot change what a kernel computes, but a wrong one can make it read past the end of a
buffer, or let two iterations of the parallel loop write the same element. ``verify_nest`` visits
every iteration at given sizes, notes who reads and writes what, and names the first fault:

    o0[i0] is written by iterations 0 and 1 of the parallel loop

The lanes of a vector loop take all steps together, so a loop inside it may not be longer in some.

It is exact, and as slow as counting: meant for tests and for whoever writes schedules.
``verify_sampled`` visits the first, last and middle iterations of every loop alone, which
is where accesses go astray; it checks bounds, and that what is computed in place is not read after
it was written (an iteration that is computed twice would), but no races.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.errors import MonographError
from monograph.ir.dims import Symbol, SymbolicDim, evaluate_dim
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Buffer, Expr, Index, Load, find_loads
from monograph.kernel.text import dim_text, expr_text
from monograph.targets.cpu.nests.loop_nest import (
    TILE_ROWS,
    TILE_WORDS,
    Accumulator,
    Assign,
    Combine,
    Declare,
    If,
    Let,
    Loop,
    LoopKind,
    LoopNest,
    MultiplyTiles,
    Prefetch,
    Statement,
    While,
    Write,
)

Simple: TypeAlias = Let | Combine | Write | Declare | Assign
COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
NOTHING_IN_PLACE: Mapping[str, str] = MappingProxyType({})
MOST_STEPS = 2_000_000
"""Statements that are visited at most."""


class ScheduleError(MonographError):
    """A schedule that would read or write where it must not."""


@dataclass
class Access:
    """What one buffer's elements have seen: who wrote each, who read each."""

    writers: dict[int, int] = field(default_factory=dict)
    readers: dict[int, int] = field(default_factory=dict)


def verify_nest(nest: LoopNest, sizes: Mapping[Symbol, int] | None = None) -> int:
    """Raise a ScheduleError for an access out of bounds or a data race; else, accesses checked.

    Positions that are read from memory are checked when the kernel runs, and not here.
    """
    _refuse_uneven_lanes(nest, nest.body, frozenset())
    return _Verifier(nest, dict(sizes or {})).run()


def verify_sampled(
    nest: LoopNest,
    sizes: Mapping[Symbol, int],
    most: int = 4096,
    in_place: Mapping[str, str] = NOTHING_IN_PLACE,
) -> int:
    """Raise a ScheduleError for an access out of bounds near the ends of any loop.

    ``in_place`` names inputs, each with the output that is written over it: what is read of them
    has not been written before. At most so many statements are visited; how many were is returned.
    """
    _refuse_uneven_lanes(nest, nest.body, frozenset())
    sampled = _Sampler(nest, dict(sizes), most, in_place)
    return sampled.run()


def _refuse_uneven_lanes(
    nest: LoopNest, statements: tuple[Statement, ...], lanes: frozenset[Symbol]
) -> None:
    """Loops in a vector loop begin and end at the same step in every lane."""
    for statement in statements:
        match statement:
            case Loop(symbol, start, extent, body, kind, _):
                ends = (each for each in (start, extent) if isinstance(each, SymbolicDim))
                if not all(lanes.isdisjoint(each.symbols()) for each in ends):
                    raise ScheduleError(
                        f"{nest.name}: the loop over {dim_text(symbol)} differs from lane to lane",
                        expected="an extent that does not depend on the vector axis",
                        found=dim_text(extent),
                    )
                inside = lanes | {symbol} if kind is LoopKind.VECTOR else lanes
                _refuse_uneven_lanes(nest, body, inside)
            case If(_, body) | While(body=body):
                _refuse_uneven_lanes(nest, body, lanes)


class _Verifier:
    def __init__(self, nest: LoopNest, bindings: dict[Symbol, int]) -> None:
        self.nest = nest
        self.bindings = bindings
        self.accesses: dict[str, Access] = {}
        self.scratch = {buffer.name for buffer in nest.scratch}
        self.outputs = {buffer.name for buffer in nest.outputs}
        self.checked = 0
        self.loads: dict[Statement, tuple[Load, ...]] = {}

    def run(self) -> int:
        for iteration in self.visited(0, evaluate_dim(self.nest.extent, self.bindings)):
            self.bindings[self.nest.parallel] = iteration
            self.iteration = iteration
            self.body(self.nest.body)
        return self.checked

    def visited(self, first: int, extent: int) -> Iterable[int]:
        """The iterations of a loop."""
        return range(first, first + extent)

    def body(self, statements: tuple[Statement, ...]) -> None:
        for statement in statements:
            match statement:
                case Loop(symbol, start, extent, inner, _, _):
                    first = evaluate_dim(start, self.bindings)
                    for value in self.visited(first, evaluate_dim(extent, self.bindings)):
                        self.bindings[symbol] = value
                        self.body(inner)
                case Accumulator() | Prefetch():
                    continue
                case MultiplyTiles():
                    self.multiply_tiles(statement)
                case If(condition, inner):
                    if self.holds(condition) is not False:
                        self.body(inner)
                case While(test, _, inner):
                    self.body(test + inner)
                case Let() | Combine() | Write() | Declare() | Assign():
                    self.statement(statement)

    def holds(self, condition: Expr) -> bool | None:
        """Whether a condition on positions holds; None if it depends on what memory holds."""
        if not isinstance(condition, Apply):
            return None
        if condition.function in COMPARISONS:
            left, right = condition.operands
            if not isinstance(left, Index) or not isinstance(right, Index):
                return None
            places = (evaluate_dim(each.dim, self.bindings) for each in (left, right))
            return COMPARISONS[condition.function](*places)
        known = [self.holds(operand) for operand in condition.operands]
        if condition.function == "logical_not":
            return None if known[0] is None else not known[0]
        if condition.function == "logical_and":
            return False if False in known else None if None in known else True
        return None

    def statement(self, statement: Simple) -> None:
        """Check everything that one statement reads, then what it writes."""
        self.checked += 1
        if self.checked > MOST_STEPS:
            raise ScheduleError(
                f"{self.nest.name} is too large to be visited",
                hint="verify the same schedule at smaller sizes",
            )
        for load in self.reads(statement):
            self.read(load.buffer, load.operands[0])
        if isinstance(statement, Write):
            self.write(statement.buffer, statement.offset)

    def multiply_tiles(self, statement: MultiplyTiles) -> None:
        """Check the corners of what tiles read and write: the rest lies between them."""
        self.checked += 1
        words = statement.steps * TILE_WORDS
        for corner in (0, (TILE_ROWS - 1) * statement.stride + words - 1):
            for each in statement.offsets:
                self.read(statement.left, _beyond(each, corner))
        for corner in (0, words * statement.columns - 1):
            self.read(statement.right, _beyond(statement.place, corner))
        rows = len(statement.offsets) * TILE_ROWS
        self.write(statement.sums, e.index(rows * statement.columns - 1))

    def reads(self, statement: Simple) -> tuple[Load, ...]:
        if statement not in self.loads:
            roots: tuple[Expr, ...] = (statement.value,)
            if isinstance(statement, Write):
                roots += (statement.offset,)
            self.loads[statement] = tuple(find_loads(*roots))
        return self.loads[statement]

    def read(self, buffer: Buffer, place: Expr) -> None:
        offset = self.offset(buffer, place, "read")
        if offset is None or buffer.name not in self.outputs:
            return
        access = self.accesses.setdefault(buffer.name, Access())
        self.refuse_race(buffer, place, access.writers.get(offset), "read here and written")
        access.readers[offset] = self.iteration

    def write(self, buffer: Buffer, place: Expr) -> None:
        offset = self.offset(buffer, place, "written")
        if offset is None or buffer.name in self.scratch:
            return
        access = self.accesses.setdefault(buffer.name, Access())
        self.refuse_race(buffer, place, access.writers.get(offset), "written")
        self.refuse_race(buffer, place, access.readers.get(offset), "written here and read")
        access.writers[offset] = self.iteration

    def offset(self, buffer: Buffer, place: Expr, what: str) -> int | None:
        """Where an access goes; None if that is known only when the kernel runs."""
        if not isinstance(place, Index):
            return None
        found = evaluate_dim(place.dim, self.bindings)
        size = evaluate_dim(buffer.shape[0], self.bindings)
        if 0 <= found < size:
            return found
        raise ScheduleError(
            f"{self.nest.name}: {buffer.name}[{expr_text(place)}] is {what} outside its buffer",
            expected=f"0 <= offset < {size}",
            found=f"{found}, at {self.where()}",
        )

    def refuse_race(self, buffer: Buffer, place: Expr, other: int | None, what: str) -> None:
        if other is None or other == self.iteration:
            return
        raise ScheduleError(
            f"{self.nest.name}: {buffer.name}[{expr_text(place)}] is {what} by two iterations of "
            "the parallel loop",
            expected="iterations that do not depend on each other",
            found=f"iterations {other} and {self.iteration}, at {self.where()}",
        )

    def where(self) -> str:
        return ", ".join(self.positions())

    def positions(self) -> Iterator[str]:
        for symbol, value in self.bindings.items():
            yield f"{dim_text(symbol)} = {value}"


def _beyond(place: Expr, distance: int) -> Expr:
    """The place so many elements further on."""
    return e.index(place.dim + distance) if isinstance(place, Index) else place


class _Sampler(_Verifier):
    """Visits few iterations of every loop, and stops when it has seen enough."""

    def __init__(
        self, nest: LoopNest, bindings: dict[Symbol, int], most: int, in_place: Mapping[str, str]
    ) -> None:
        super().__init__(nest, bindings)
        self.most = most
        self.in_place = in_place
        self.written: dict[str, set[int]] = {}
        """The elements of outputs that were written so far."""

    def read(self, buffer: Buffer, place: Expr) -> None:
        offset = self.offset(buffer, place, "read")
        over = self.in_place.get(buffer.name)
        if over is not None and offset in self.written.get(over, ()):
            raise ScheduleError(
                f"{self.nest.name}: {buffer.name}[{expr_text(place)}] is read after {over}, which "
                "is computed in its place, was written there",
                expected="each element computed once, and read before it is written over",
                found=f"element {offset} read again, at {self.where()}",
            )

    def write(self, buffer: Buffer, place: Expr) -> None:
        offset = self.offset(buffer, place, "written")
        if offset is not None and buffer.name in self.in_place.values():
            self.written.setdefault(buffer.name, set()).add(offset)

    def visited(self, first: int, extent: int) -> Iterable[int]:
        if self.checked >= self.most:
            return ()
        few = {0, 1, extent // 2, extent - 2, extent - 1}
        return sorted((first + k for k in few if 0 <= k < extent), reverse=True)

    def refuse_race(self, buffer: Buffer, place: Expr, other: int | None, what: str) -> None:
        """Who else visits an element is not known of samples."""
