"""Splits a vector axis whose length is no power of two into whole vectors.

Three vectors a row fill the registers as well as two, and leave no lane empty where a product has
24 columns. No instruction set has vectors of 24 lanes, though, and a compiler takes them apart lane
by lane. So what a loop does for all of them is done for each part in turn:

    vector l < 24:                    vector l < 8:
      s = 0                             s_0 = 0; s_1 = 0; s_2 = 0
      for k:                    ─▶      for k:
        s += a[k] * b[24*k + l]           s_0 += a[k] * b[24*k + l]
                                          s_1 += a[k] * b[24*k + l + 8]; …
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol
from monograph.kernel import expr as e
from monograph.kernel.expr import Expr, Variable
from monograph.targets.cpu.loops.nest import substitute_statement
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Combine,
    If,
    Let,
    Loop,
    LoopKind,
    Prefetch,
    Statement,
    Write,
)

PREFETCHED_LANES = 16
"""Lanes that are asked for together: a cache line of the usual four bytes each."""


def in_vector_parts(loop: Loop) -> Loop:
    """The loop over the lanes of one part.

    It stays as it is if their number is a power of two, or if not all of them are wanted.
    """
    size = loop.width & -loop.width
    if size == loop.width or loop.extent != loop.width:
        return loop
    variables = tuple(_list_declared(loop.body))
    parts = [_Part(loop.symbol, first, variables) for first in range(0, loop.width, size)]
    body = _side_by_side(loop.body, parts)
    return Loop(loop.symbol, loop.start, size, body, LoopKind.VECTOR, size)


@dataclass(frozen=True)
class _Part:
    """Some of the lanes, from ``first`` on, and the variables that each of the parts has."""

    lane: Symbol
    first: int
    variables: tuple[Variable, ...]

    def of(self, statement: Statement) -> Statement:
        """What is done for these lanes."""
        place: dict[Symbol, Dim] = {self.lane: self.lane + self.first}
        return _rename_variables(substitute_statement(statement, place), self._names())

    def _names(self) -> Mapping[Expr, Expr]:
        return {
            each: e.variable(f"{each.name}_{self.first}", each.dtype) for each in self.variables
        }


def _side_by_side(statements: Sequence[Statement], parts: Sequence[_Part]) -> tuple[Statement, ...]:
    """The statements for every part; what encloses others does so for all parts together."""
    found: list[Statement] = []
    for each in statements:
        match each:
            case Loop() | If():
                found.append(replace(each, body=_side_by_side(each.body, parts)))
            case Prefetch():
                found += [part.of(each) for part in parts if part.first % PREFETCHED_LANES == 0]
            case _:
                found += [part.of(each) for part in parts]
    return tuple(found)


def _list_declared(statements: Sequence[Statement]) -> Iterator[Variable]:
    """The variables that statements give a value."""
    for each in statements:
        match each:
            case Loop(body=body) | If(body=body):
                yield from _list_declared(body)
            case Accumulator(variable=variable) | Let(variable=variable):
                yield variable


def _rename_variables(statement: Statement, names: Mapping[Expr, Expr]) -> Statement:
    """A plain statement with other variables."""

    def own(variable: Variable) -> Variable:
        found = names[variable]
        assert isinstance(found, Variable)
        return found

    match statement:
        case Accumulator(variable, kind):
            return Accumulator(own(variable), kind)
        case Let(variable, value):
            return Let(own(variable), e.replace(value, names))
        case Combine(variable, kind, value, position):
            return Combine(own(variable), kind, e.replace(value, names), position)
        case Write(buffer, offset, value, streaming):
            return Write(buffer, offset, e.replace(value, names), streaming)
        case Prefetch():
            return statement
    raise AssertionError(f"{statement} is not part of a product")
