"""Proves of a loop nest in place that each element is read before it is written, and written once.

A schedule may compute an iteration twice: the last ones of an unrolled axis, say. Where the result
lies in the memory of an operand, the second visit would read what the first one wrote. So a nest
may write over an input only if, after all of its schedule,

- every write of the output has the same loops around it, and no two of their iterations (nor two
  writes of one iteration) go to the same element: the offset is a mixed-radix number of the loop
  variables and of how the copies of an unrolled body differ;
- every load of the input is in those loops too, at the offset of a write that does not come before
  it: then no other iteration writes what it reads.

This holds for any number of lanes, since a vector loop takes one statement after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from monograph.dataclass import dataclass
from monograph.ir.dims import (
    Atom,
    Dim,
    FloorDiv,
    Min,
    Mod,
    Symbol,
    SymbolicDim,
    provably_at_least,
)
from monograph.ir.dims.polynomial import bounds_of, dim_sum
from monograph.kernel.expr import Expr, Index, Load, walk
from monograph.kernel.in_place import is_mixed_radix
from monograph.targets.cpu.nests.bounds import split_term
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Assign,
    Combine,
    Declare,
    If,
    Let,
    Loop,
    LoopNest,
    MultiplyTiles,
    Prefetch,
    Statement,
    While,
    Write,
)
from monograph.targets.cpu.nests.walk import loads_in, writes_in


@dataclass(frozen=True)
class _Place:
    """A read or write at an offset: in which loops and conditions, and as which statement."""

    offset: Expr
    loops: tuple[Loop | If, ...]
    statement: int


def overwrites_in_order(nest: LoopNest, inputs: Collection[str]) -> bool:
    """Whether it is proved that the only output may lie in the memory of these inputs."""
    if len(nest.outputs) != 1:
        return False
    (output,) = nest.outputs
    found = _Accesses(frozenset(inputs), output.name)
    return (
        found.visit(nest.body, ())
        and _is_one_to_one(nest, found.writes)
        and all(any(_is_before(read, write) for write in found.writes) for read in found.reads)
    )


def _is_before(read: _Place, write: _Place) -> bool:
    """Whether a read is of the element that a write of the same iteration goes to afterwards."""
    same = read.loops == write.loops and read.offset == write.offset
    return same and read.statement <= write.statement


class _Accesses:
    """Finds where some buffers are read and another is written."""

    def __init__(self, inputs: frozenset[str], output: str) -> None:
        self.inputs = inputs
        self.output = output
        self.reads: list[_Place] = []
        self.writes: list[_Place] = []

    def visit(self, statements: Sequence[Statement], loops: tuple[Loop | If, ...]) -> bool:
        """Note the accesses of statements; False where their order is not known."""
        for number, statement in enumerate(statements):
            match statement:
                case Loop(body=body):
                    if not self.visit(body, (*loops, statement)):
                        return False
                case If(condition, body):
                    self.note((condition,), loops, number)
                    if not self.visit(body, (*loops, statement)):
                        return False
                case While():
                    if self.touches(statement):
                        return False
                case Write(buffer, offset, value, _):
                    self.note((offset, value), loops, number)
                    if buffer.name == self.output:
                        self.writes.append(_Place(offset, loops, number))
                case Let(_, value) | Declare(_, value) | Assign(_, value):
                    self.note((value,), loops, number)
                case Combine(_, _, value, position):
                    self.note((value, position), loops, number)
                case MultiplyTiles():
                    return False
                case Accumulator() | Prefetch():
                    continue
        return True

    def note(self, roots: tuple[Expr, ...], loops: tuple[Loop | If, ...], number: int) -> None:
        """Note what some expressions read of the inputs, and of the output itself."""
        for expr in walk(roots):
            if isinstance(expr, Load) and expr.buffer.name in {*self.inputs, self.output}:
                self.reads.append(_Place(expr.operands[0], loops, number))

    def touches(self, statement: Statement) -> bool:
        """Whether a statement, or one in it, reads or writes one of the buffers."""
        names = {*self.inputs, self.output}
        return not names.isdisjoint(_buffers_of(statement))


def _buffers_of(statement: Statement) -> Iterator[str]:
    yield from (load.buffer.name for load in loads_in((statement,)))
    yield from (write.buffer.name for write in writes_in((statement,)))


# Offsets ------------------------------------------------------------------------------------------


_Digit: TypeAlias = tuple[Dim, Dim]
"""A stride, and how many values that which is multiplied with it takes, from 0 on."""


@dataclass(frozen=True)
class _Elements:
    """``base`` plus every sum of digits: the elements that the writes in some loops go to."""

    base: Dim
    digits: tuple[_Digit, ...]


def _is_one_to_one(nest: LoopNest, writes: Sequence[_Place]) -> bool:
    """Whether no two iterations, or writes, go to the same element.

    What the loops have in common steps over all that is written between two of its steps; there,
    writes that stand in loops of their own go to one stretch of elements after the other.
    """
    groups: dict[tuple[Loop | If, ...], list[Dim]] = {}
    for write in writes:
        if not isinstance(write.offset, Index):
            return False
        groups.setdefault(write.loops, []).append(write.offset.dim)
    found = [_elements(nest, loops, offsets) for loops, offsets in groups.items()]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return False
    shared = [each for each in known[0].digits if all(each in other.digits for other in known)]
    if len(known) == 1:
        return is_mixed_radix(shared)
    if not all(is_mixed_radix(each.digits) for each in known):
        return False
    own = [[digit for digit in each.digits if digit not in shared] for each in known]
    stretches = [
        (each.base - known[0].base, dim_sum([1, *(s * (count - 1) for s, count in digits)]))
        for each, digits in zip(known, own, strict=True)
    ]
    reach = _join_reach(stretches)
    return reach is not None and is_mixed_radix([(1, reach), *shared])


def _join_reach(stretches: list[tuple[Dim, Dim]]) -> Dim | None:
    """How many elements there are from the first stretch to the last; None if two may overlap."""
    ordered = sorted(stretches, key=lambda each: bounds_of(each[0])[0] or 0)
    for (first, reach), (second, _) in pairwise(ordered):
        if not provably_at_least(second - first - reach, 0):
            return None
    if not all(provably_at_least(reach, 0) for _, reach in ordered):
        return None
    return ordered[-1][0] + ordered[-1][1] - ordered[0][0]


def _elements(
    nest: LoopNest, path: Sequence[Loop | If], offsets: Sequence[Dim]
) -> _Elements | None:
    """Where the writes in some loops go; None if that is no sum of digits, each times a stride."""
    loops = [loop for loop in path if isinstance(loop, Loop)]
    ranges: list[tuple[Symbol, Dim, Dim]] = [(nest.parallel, 0, nest.extent)]
    ranges += [(loop.symbol, loop.start, loop.extent) for loop in loops]
    single = {symbol: start for symbol, start, extent in ranges if extent == 1}
    variables = {symbol for symbol, _, _ in ranges} - single.keys()
    places = [_from_starts(offset, ranges) for offset in offsets]
    digits: list[_Digit] = []
    for symbol, _, extent in ranges:
        if extent == 1:
            continue
        count = _without_loops(_substitute_all(extent, single), variables)
        found = _digits(places[0], symbol, count)
        if found is None:
            return None
        for atom, values in found:
            if not all(isinstance(place, SymbolicDim) for place in places):
                return None
            split = [split_term(place, atom) for place in places]
            slope = split[0][0]
            if slope is None or _mentions(slope, variables):
                return None
            if any(each != slope for each, _ in split):
                return None
            digits.append((slope, values))
            places = [rest for _, rest in split]
    copies = _progressions([place - places[0] for place in places])
    if copies is None or any(_mentions(place, variables) for place in places):
        return None
    return _Elements(places[0], (*digits, *copies))


def _from_starts(offset: Dim, ranges: Sequence[tuple[Symbol, Dim, Dim]]) -> Dim:
    """The offset in loop variables that count from 0, without those of a single iteration."""
    for symbol, start, extent in reversed(ranges):
        offset = _substitute_all(offset, {symbol: start if extent == 1 else symbol + start})
    return offset


def _substitute_all(dim: Dim, bindings: Mapping[Symbol, Dim]) -> Dim:
    return dim.substitute(bindings) if isinstance(dim, SymbolicDim) else dim


def _without_loops(extent: Dim, variables: Collection[Symbol]) -> Dim | None:
    """An upper bound of an extent that is the same in every iteration."""
    if not _mentions(extent, variables):
        return extent
    choices = extent.arguments if isinstance(extent, Min) else ()
    return next((each for each in choices if not _mentions(each, variables)), None)


def _mentions(dim: Dim, variables: Collection[Symbol]) -> bool:
    return isinstance(dim, SymbolicDim) and not set(variables).isdisjoint(dim.symbols())


def _digits(offset: Dim, symbol: Symbol, extent: Dim | None) -> list[tuple[Atom, Dim]] | None:
    """The digits that a loop variable is cut into, each with how many values it takes.

    With p % 8 and p // 8 in the offset, p takes as many values as both together.
    """
    if extent == 1:
        return []
    found: list[tuple[Atom, Dim]] = []
    rest: Dim = symbol
    while True:
        if extent is None or not isinstance(rest, SymbolicDim):
            return None
        atoms = [atom for atom in _atoms(offset) if symbol in atom.symbols()]
        if isinstance(rest, Symbol | FloorDiv) and rest in atoms:
            return [*found, (rest, extent)]
        remainders = (x for x in atoms if isinstance(x, Mod) and x.arguments[0] == rest)
        remainder = next(remainders, None)
        if remainder is None:
            return None
        size = remainder.arguments[1]
        found.append((remainder, size))
        rest, extent = rest // size, (extent + size - 1) // size
        if extent == 1:
            return found


def _atoms(dim: Dim) -> list[Atom]:
    """What a polynomial is made of."""
    terms = dim.terms() if isinstance(dim, SymbolicDim) else ()
    return [atom for atoms, _ in terms for atom in atoms]


def _progressions(offsets: Sequence[Dim]) -> list[_Digit] | None:
    """Offsets that begin with 0 as steps and counts: 0, 1, 8, 9 are 2 steps of 1, and 2 of 8."""
    if len(offsets) == 1:
        return []
    step = offsets[1]
    count = next((k for k, each in enumerate(offsets) if each != step * k), len(offsets))
    groups = [offsets[first : first + count] for first in range(0, len(offsets), count)]
    if any([each - group[0] for each in group] != list(offsets[:count]) for group in groups):
        return None
    outer = _progressions([group[0] for group in groups])
    return None if outer is None else [(step, count), *outer]
