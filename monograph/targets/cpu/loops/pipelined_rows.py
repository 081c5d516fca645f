"""Software pipelining of rows: writes one row while the next is read.

    visit i: s = s + x[p, i] * x[p, i]         a row is read and summed, and nothing is written
    visit i: o[p, i] = x[p, i] * f(s)          it is in the cache now, and nothing is read

    visit i: s = s + x[8*p, i] * x[8*p, i]     eight rows: the first is summed
    for j < 7:
      visit i:                                 each is written while the one after it is summed
        o[8*p+j, i] = x[8*p+j, i] * f(sums[j])
        s = s + x[8*p+j+1, i] * x[8*p+j+1, i]
    visit i: o[8*p+7, i] = …                   the last is written

Visits between the first and the last, which find what they need in the cache, come after each turn.
What they all have found of a row is put down for the next turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monograph.ir.dims import Dim, Symbol
from monograph.kernel import expr as e
from monograph.kernel.expr import Buffer, Expr, Reduce, Variable
from monograph.targets.cpu.loops.row_passes import Visit
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Combine,
    Let,
    Loop,
    LoopKind,
    Statement,
    Write,
)

TURN = Symbol("_turn", 0, None)


def can_pipeline(visits: Sequence[Visit], kept: Sequence[tuple[int, Write]]) -> bool:
    """Whether a row is first only read, and last only written, along the same axes."""
    if len(visits) < 2:
        return False
    *found, last = visits
    if last.reductions or any(visit.writes for visit in found):
        return False
    if any(visit.axes != visits[0].axes for visit in visits) or any(at > 0 for at, _ in kept):
        return False
    roots = tuple(root for visit in visits for root in visit.roots())
    return not any(isinstance(x, Reduce) for x in e.walk(roots))


class PipelinedRows:
    """The statements of a group of rows, which lie along the axis ``row``."""

    def __init__(
        self, visits: Sequence[Visit], kept: Sequence[tuple[int, Write]], row: Symbol, width: int
    ) -> None:
        self.first, *self.middle, self.last = visits
        self.kept = [write for _, write in kept]
        self.row = row
        self.width = width
        self.found = [x for visit in visits for x, _, _ in visit.reductions]

    def scratch(self, rows: int) -> list[Buffer]:
        """Where what has been found of each row of a group is put down."""
        return [Buffer(f"turn_{x.name}", x.dtype, (rows,)) for x in self.found]

    def statements(self, start: Dim, rows: Dim, scratch: Sequence[Buffer]) -> tuple[Statement, ...]:
        """All that is done for that many rows from ``start`` on."""
        # Each place has names of its own: equal formulas would be taken for the same value.
        first, known, last = (self._name_rows(name) for name in ("first", "known", "last"))
        same: dict[Expr, Variable] = {x: x for x in self.found}
        following = start + TURN + 1
        both = (*self._write_row(start + TURN, known), *self._read(following, same))
        turn = (
            *self._restore_row(TURN, known, scratch),
            *_accumulators(self.first, same),
            self._loop(both),
            *self._complete_row(following, TURN + 1, same, scratch),
        )
        return (
            *_accumulators(self.first, first),
            self._loop(self._read(start, first)),
            *self._complete_row(start, 0, first, scratch),
            Loop(TURN, 0, rows - 1, turn),
            *self._restore_row(rows - 1, last, scratch),
            self._loop(self._write_row(start + rows - 1, last)),
        )

    def _name_rows(self, suffix: str) -> dict[Expr, Variable]:
        return {x: e.variable(f"{x.name}_{suffix}", x.dtype) for x in self.found}

    def _read(self, row: Dim, names: Mapping[Expr, Variable]) -> tuple[Statement, ...]:
        """What the first visit of a row does at each element."""
        kept = (
            Write(write.buffer, write.offset, e.substitute(write.value, {self.row: row}))
            for write in self.kept
        )
        return (*kept, *self._combine(self.first, row, names))

    def _combine(self, visit: Visit, row: Dim, names: Mapping[Expr, Variable]) -> list[Statement]:
        place = e.linear(visit.axes)
        return [
            Combine(
                names[variable],
                kind,
                e.replace(e.substitute(value, {self.row: row}), names),
                place,
            )
            for variable, kind, value in visit.reductions
        ]

    def _complete_row(
        self,
        row: Dim,
        place: Dim,
        names: Mapping[Expr, Variable],
        scratch: Sequence[Buffer],
    ) -> list[Statement]:
        """The visits after the first; then all that was found is put down."""
        statements: list[Statement] = []
        for visit in self.middle:
            statements += _accumulators(visit, names)
            statements.append(self._loop(self._combine(visit, row, names)))
        statements += [
            Write(buffer, e.index(place), names[variable])
            for variable, buffer in zip(self.found, scratch, strict=True)
        ]
        return statements

    def _restore_row(
        self, place: Dim, names: Mapping[Expr, Variable], scratch: Sequence[Buffer]
    ) -> list[Statement]:
        """What was put down for a row."""
        return [
            Let(names[variable], e.load(buffer, (e.index(place),)))
            for variable, buffer in zip(self.found, scratch, strict=True)
        ]

    def _write_row(self, row: Dim, names: Mapping[Expr, Variable]) -> list[Statement]:
        """What the last visit of a row does at each element."""
        at: dict[Symbol, Dim] = {self.row: row}
        return [
            Write(
                write.buffer,
                e.substitute(write.offset, at),
                e.replace(e.substitute(write.value, at), names),
                write.streaming,
            )
            for write in self.last.writes
        ]

    def _loop(self, body: Sequence[Statement]) -> Loop:
        *outer, last = self.first.axes
        loop = Loop(last.symbol, 0, last.extent, tuple(body), LoopKind.VECTOR, self.width)
        for axis in reversed(outer):
            loop = Loop(axis.symbol, 0, axis.extent, (loop,))
        return loop


def _accumulators(visit: Visit, names: Mapping[Expr, Variable]) -> list[Statement]:
    return [Accumulator(names[variable], kind) for variable, kind, _ in visit.reductions]
