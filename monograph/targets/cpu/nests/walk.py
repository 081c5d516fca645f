"""Visitors of loop nests: every statement, expression and load, inner loops included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from monograph.ir.dims import Dim, Symbol, SymbolicDim
from monograph.kernel.expr import Buffer, Expr, Load, find_loads
from monograph.targets.cpu.nests.loop_nest import (
    Assign,
    Combine,
    Declare,
    If,
    Let,
    Loop,
    MultiplyTiles,
    Prefetch,
    Statement,
    While,
    Write,
)


def inner_statements(statement: Statement) -> tuple[Statement, ...]:
    """The statements right inside another one."""
    match statement:
        case While(test, _, body):
            return (*test, *body)
        case Loop() | If():
            return statement.body
    return ()


def statements_in(body: Sequence[Statement]) -> Iterator[Statement]:
    """The statements of a body, each before those inside it."""
    for statement in body:
        yield statement
        yield from statements_in(inner_statements(statement))


def writes_in(body: Sequence[Statement]) -> Iterator[Write]:
    """Every write of a body."""
    return (statement for statement in statements_in(body) if isinstance(statement, Write))


def expressions_in(body: Sequence[Statement]) -> Iterator[Expr]:
    """The values, offsets and conditions of a body."""
    for statement in statements_in(body):
        match statement:
            case Let(_, value) | Declare(_, value) | Assign(_, value) | Combine(_, _, value, _):
                yield value
            case Write(_, offset, value, _):
                yield offset
                yield value
            case Prefetch(_, offset, _):
                yield offset
            case MultiplyTiles():
                yield from statement.offsets
                yield statement.place
            case If(condition, _) | While(_, condition, _):
                yield condition


def loads_in(body: Sequence[Statement]) -> Iterator[Load]:
    """Every distinct element that a body reads."""
    return find_loads(*expressions_in(body))


def sizes_in(body: Sequence[Statement], extent: Dim, buffers: Sequence[Buffer]) -> set[Symbol]:
    """Every symbol that a nest mentions: in its body, its extent, or the shape of a buffer."""
    found: set[Symbol] = set()
    for expr in expressions_in(body):
        found |= expr.symbols
    dims = [extent, *(dim for buffer in buffers for dim in buffer.shape)]
    for statement in statements_in(body):
        if isinstance(statement, Loop):
            dims += [statement.start, statement.extent]
    for dim in dims:
        if isinstance(dim, SymbolicDim):
            found.update(dim.symbols())
    return found
