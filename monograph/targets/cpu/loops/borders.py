"""Loop splitting at borders: each part of an axis needs no condition inside.

    o0[i] = where(i < 100, b0[i], b1[where(i >= 100, i - 100, 0)])      for i < 150

    o0[i] = b0[i]                                                       for i < 100
    o0[i + 100] = b1[i]                                                 for i < 50

A border is where a comparison of positions turns, or where a remainder starts over. What is left
inside a piece are plain positions, which are contiguous again: a concatenation, a padded or rolled
array is then copied instead of gathered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from monograph.dataclass import dataclass
from monograph.ir.dims import (
    Dim,
    FloorDiv,
    Mod,
    Operation,
    Symbol,
    SymbolicDim,
    provably_at_least,
)
from monograph.ir.types import bool_
from monograph.kernel import expr as e
from monograph.kernel import whole_numbers
from monograph.kernel.expr import Apply, Axis, Expr, Index, Literal
from monograph.kernel.flatten import coefficient, operations
from monograph.targets.cpu.nests.loop_nest import (
    Loop,
    LoopKind,
    LoopNest,
    Prefetch,
    Statement,
    Write,
)

MOST_BORDERS = 7
"""Borders along one axis up to which a loop for each piece is worth its code."""
_MIN_POSITION = {
    # What a difference is at least, if it compares so with zero: else the contrary.
    "less": (0, False),
    "less_equal": (1, False),
    "greater": (1, True),
    "greater_equal": (0, True),
}


@dataclass(frozen=True)
class Turn:
    """A comparison that has one value below ``at`` and the other from there on."""

    at: Dim
    holds_below: bool


@dataclass(frozen=True)
class AxisPiece:
    """A part of an axis, and which comparisons hold all along it."""

    start: Dim
    extent: Dim
    settled: Mapping[Expr, bool]


def pieces(
    roots: tuple[Expr, ...],
    axis: Axis,
    moving: Collection[Symbol],
    most: int = MOST_BORDERS,
    *,
    is_coarse: bool = False,
) -> list[AxisPiece]:
    """The axis cut at its borders; one piece if there are none, or too many, or in no known order.

    ``moving`` are the loop variables: a border that moves with another loop is none. If there are
    too many, a coarse cut still parts a long stretch without any from what lies before and behind.
    """
    turns = dict(_turns(roots, axis.symbol, moving))
    borders = {turn.at for turn in turns.values()} | set(_restarts(roots, axis, most))
    inside = [at for at in borders if not _is_outside(at, axis.extent)]
    ordered = _in_order(inside, axis.extent)
    if ordered is not None and len(ordered) > most and is_coarse:
        ordered = _around_widest(ordered, axis.extent)
    if ordered is None or not 0 < len(ordered) <= most:
        return [AxisPiece(0, axis.extent, {})]
    ends = [*ordered, axis.extent]
    found = []
    for start, end in zip([0, *ordered], ends, strict=True):
        settled = {
            comparison: turn.holds_below == provably_at_least(turn.at, end)
            for comparison, turn in turns.items()
            if provably_at_least(turn.at, end) or provably_at_least(start, turn.at)
        }
        found.append(AxisPiece(start, end - start, settled))
    return found


def on_piece(root: Expr, axis: Axis, inside: Symbol, piece: AxisPiece) -> Expr:
    """An expression on a piece of the axis, with ``inside`` for the position inside the piece."""
    known: dict[Expr, Expr] = {
        comparison: e.literal(holds, bool_) for comparison, holds in piece.settled.items()
    }
    return replace_and_fold(
        e.substitute(replace_and_fold(root, known), {axis.symbol: inside + piece.start}), {}
    )


def replace_and_fold(root: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """An expression with parts replaced, and what then is decided, decided."""
    done: dict[Expr, Expr] = dict(known)

    def visit(expr: Expr) -> Expr:
        found = done.get(expr)
        if found is None:
            operands = tuple(map(visit, expr.operands))
            new = expr if operands == expr.operands else expr.rebuilt(operands)
            found = _fold(new) if isinstance(new, Apply) else new
            done[expr] = found
        return found

    return visit(root)


def _fold(expr: Apply) -> Expr:
    match expr.function, expr.operands:
        case "where", (condition, yes, no):
            return e.select(condition, yes, no)
        case "cast", (only,):  # what was widened to be chosen from is as it was
            return e.cast(only, expr.dtype)
        case "logical_not", (Literal() as only,):
            return e.literal(not only.value, bool_)
        case ("logical_and" | "logical_or") as function, (left, right):
            return _both_or_either(expr, function == "logical_and", left, right)
        case (("add" | "subtract" | "multiply"), (Index() as left, Index() as right)):
            return _position(expr.function, left, right)
        case (
            ("less" | "less_equal" | "greater" | "greater_equal"),
            (Index() as left, Index() as right),
        ):
            return _compare_with_zero(expr, left.dim - right.dim)
        case (("less" | "less_equal" | "greater" | "greater_equal"), (_, _)):
            known = whole_numbers.apply_to_positions(expr.function, expr.operands)
            return expr if known is None else known
    return expr


def _both_or_either(expr: Apply, is_and: bool, left: Expr, right: Expr) -> Expr:
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Literal):
            return other if bool(one.value) == is_and else one
    return expr


def _position(function: str, left: Index, right: Index) -> Expr:
    if function == "add":
        return left + right
    return left - right if function == "subtract" else left * right


def _compare_with_zero(expr: Apply, difference: Dim) -> Expr:
    """The comparison with zero of a difference, if its bounds decide it."""
    low, high = difference.bounds() if isinstance(difference, SymbolicDim) else (difference,) * 2
    strict = expr.function in ("less", "greater_equal")
    up = 0 if strict else 1
    above = low is not None and low >= up
    below = high is not None and high < up
    if not above and not below:
        return expr
    return e.literal(above == (expr.function in ("greater", "greater_equal")), bool_)


# Borders ----------------------------------------------------------------------------------------


def _turns(
    roots: tuple[Expr, ...], symbol: Symbol, moving: Collection[Symbol]
) -> Iterator[tuple[Expr, Turn]]:
    """The comparisons of positions that turn at one place."""
    for expr in e.walk(roots):
        if not isinstance(expr, Apply) or symbol not in expr.symbols or len(expr.operands) != 2:
            continue
        left, right = expr.operands
        if not isinstance(left, Index) or not isinstance(right, Index):
            continue
        difference = left.dim - right.dim
        step = coefficient(difference, symbol)
        if not isinstance(step, int) or step == 0 or expr.function not in _MIN_POSITION:
            continue
        rest = difference - symbol * step
        if not _is_fixed(rest, moving):
            continue
        least, holds_from_there = _MIN_POSITION[expr.function]
        if step > 0:  # the difference is at least that from here on
            yield expr, Turn(-((rest - least) // step), not holds_from_there)
        else:
            yield expr, Turn((rest - least) // -step + 1, holds_from_there)


def _restarts(roots: tuple[Expr, ...], axis: Axis, most: int) -> Iterator[Dim]:
    """Where a remainder starts over (and a quotient steps), of known positions."""
    if not isinstance(axis.extent, int):
        return
    for atom in set(_divisions(roots, axis.symbol)):
        numerator, divisor = atom.arguments
        step = coefficient(numerator, axis.symbol)
        first = numerator - axis.symbol if step == 1 else None
        if not isinstance(first, int) or not isinstance(divisor, int) or divisor <= 0:
            continue
        lowest, highest = first // divisor, (first + axis.extent - 1) // divisor
        if highest - lowest <= most:
            yield from (k * divisor - first for k in range(lowest + 1, highest + 1))


def _divisions(roots: tuple[Expr, ...], symbol: Symbol) -> Iterator[Operation]:
    for expr in e.walk(roots):
        if isinstance(expr, Index) and symbol in expr.symbols:
            yield from (
                atom for atom in operations(expr.dim, symbol) if isinstance(atom, FloorDiv | Mod)
            )


def _is_fixed(dim: Dim, moving: Collection[Symbol]) -> bool:
    return not isinstance(dim, SymbolicDim) or not any(s in moving for s in dim.symbols())


def _is_outside(at: Dim, extent: Dim) -> bool:
    return provably_at_least(0, at) or provably_at_least(at, extent)


def _in_order(borders: list[Dim], extent: Dim) -> list[Dim] | None:
    """Borders from the first to the last, if they are known to lie so inside the axis."""
    if isinstance(extent, int) and all(isinstance(each, int) for each in borders):
        known = sorted(each for each in borders if isinstance(each, int) and 0 <= each <= extent)
        return [*known] if len(known) == len(borders) else None
    ordered: list[Dim] = []
    for border in borders:
        if not provably_at_least(border, 0) or not provably_at_least(extent, border):
            return None
        place = sum(provably_at_least(border, other) for other in ordered)
        if not all(provably_at_least(other, border) for other in ordered[place:]):
            return None
        ordered.insert(place, border)
    return ordered


def _around_widest(ordered: list[Dim], extent: Dim) -> list[Dim]:
    """The ends of the widest stretch without a border, if most of the axis lies there."""
    if not isinstance(extent, int):
        return ordered
    known = [0, *(at for at in ordered if isinstance(at, int)), extent]
    start, end = max(pairwise(known), key=lambda each: each[1] - each[0])
    if len(known) < len(ordered) + 2 or 2 * (end - start) < extent:
        return ordered
    return [at for at in (start, end) if 0 < at < extent]


# Loops ------------------------------------------------------------------------------------------


def cut_loops(nest: LoopNest) -> LoopNest:
    """A nest whose vector loops are cut at their borders, where all they do is write."""
    moving = {nest.parallel, *_loop_symbols(nest.body)}
    return replace(nest, body=_cut(nest.body, moving))


def _cut(body: tuple[Statement, ...], moving: Collection[Symbol]) -> tuple[Statement, ...]:
    found: list[Statement] = []
    for statement in body:
        if not isinstance(statement, Loop):
            found.append(statement)
        elif statement.kind is LoopKind.VECTOR:
            found += _cut_loop(statement, moving)
        else:
            found.append(replace(statement, body=_cut(statement.body, moving)))
    return tuple(found)


def _cut_loop(loop: Loop, moving: Collection[Symbol]) -> list[Statement]:
    body = [each for each in loop.body if isinstance(each, Write | Prefetch)]
    if loop.start != 0 or len(body) != len(loop.body) or _is_short(loop):
        return [loop]
    axis = Axis(loop.symbol, loop.extent)
    writes = [each for each in body if isinstance(each, Write)]
    roots = tuple(expr for write in writes for expr in (write.offset, write.value))
    found = pieces(roots, axis, moving, is_coarse=True)
    if len(found) == 1:
        return [loop]
    loops: list[Statement] = []
    for number, piece in enumerate(found):
        part = e.axis(f"{loop.symbol.name}p{number}", piece.extent)
        inner = tuple(_statement_on(each, axis, part.symbol, piece) for each in body)
        width = _width_for(piece.extent, loop.width)
        kind = loop.kind if width > 1 else LoopKind.SERIAL
        loops.append(Loop(part.symbol, 0, piece.extent, inner, kind, width))
    return loops


def _statement_on(
    statement: Write | Prefetch, axis: Axis, inside: Symbol, piece: AxisPiece
) -> Write | Prefetch:
    """A statement of a loop, on a piece of its axis."""
    offset = on_piece(statement.offset, axis, inside, piece)
    if isinstance(statement, Prefetch):
        return replace(statement, offset=offset)
    return replace(statement, offset=offset, value=on_piece(statement.value, axis, inside, piece))


def _is_short(loop: Loop) -> bool:
    """Whether so little is done that more loops would only take longer."""
    return isinstance(loop.extent, int) and loop.extent < loop.width


def _width_for(extent: Dim, width: int) -> int:
    """The lanes of a piece: no more than it has elements."""
    while isinstance(extent, int) and width > max(extent, 1):
        width //= 2
    return width


def _loop_symbols(body: tuple[Statement, ...]) -> Iterator[Symbol]:
    for statement in body:
        if isinstance(statement, Loop):
            yield statement.symbol
            yield from _loop_symbols(statement.body)
