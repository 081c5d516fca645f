"""Proves that every memory access of a loop nest stays inside its buffer, for all sizes.

``find_unproved_accesses`` tries to prove of every load and store whose position is a polynomial
that ``0 <= position < size``, for every iteration and every value of the symbolic sizes. Loop
variables are eliminated one by one, the innermost first: to bound ``i + 16*t`` from above, ``i`` is
replaced by the last value that its loop takes, ``min(16, n - 16*t) - 1``, of which either argument
will do (``n - 1`` is what remains). Quotients and remainders are treated as variables of their own,
with the ranges that division gives them. What cannot be proved is not wrong: a condition may guard
it, or sizes may depend on each other. It is returned, for ``verify_sampled`` to run at real sizes.

Positions that are read from memory are checked when the kernel runs. A prefetch may go anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from monograph.dataclass import dataclass
from monograph.errors import DimensionError
from monograph.ir.dims import (
    Atom,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    Symbol,
    SymbolicDim,
    provably_at_least,
)
from monograph.ir.dims.polynomial import bounds_of
from monograph.kernel.expr import Buffer, Expr, Index, Load, walk
from monograph.targets.cpu.nests.loop_nest import (
    Assign,
    Combine,
    Declare,
    If,
    Let,
    Loop,
    LoopKind,
    LoopNest,
    Statement,
    While,
    Write,
)

MAX_STEPS = 64
"""Substitutions that one proof may try before it gives up."""


@dataclass(frozen=True)
class Range:
    """The values of a loop variable: from ``first`` on, ``extent`` of them."""

    first: Dim
    extent: Dim

    def lowest(self) -> tuple[Dim, ...]:
        """Lower bounds, each of which holds."""
        return _alternatives(self.first, Max)

    def highest(self) -> tuple[Dim, ...]:
        """Upper bounds, each of which holds wherever the loop runs at all."""
        extent = self.extent
        if isinstance(extent, Max) and len(extent.arguments) == 2 and 0 in extent.arguments:
            (extent,) = (each for each in extent.arguments if each != 0)
        return tuple(self.first + each - 1 for each in _alternatives(extent, Min))


@dataclass(frozen=True)
class Access:
    """A read or write of ``buffer[position]`` inside some loops, the outermost first."""

    buffer: Buffer
    position: Dim
    ranges: Mapping[Symbol, Range]


def find_unproved_accesses(nest: LoopNest) -> list[Access]:
    """The accesses of a nest of which it is not proved that they are inside their buffers."""
    parallel = {nest.parallel: Range(0, nest.extent)}
    return [access for access in _Walk(nest).accesses(nest.body, parallel) if not is_inside(access)]


def is_inside(access: Access) -> bool:
    """Whether an access is proved to be inside its buffer."""
    (size,) = access.buffer.shape
    try:
        above = _is_natural(access.position, access.ranges)
        return above and _is_natural(size - 1 - access.position, access.ranges)
    except DimensionError:  # an expression too large to be written: nothing is known of it
        return False


class _Walk:
    """Goes through the statements of a nest and yields what they access, each access once."""

    def __init__(self, nest: LoopNest) -> None:
        self.padded = nest.padded
        self.seen: set[tuple[Buffer, Dim, tuple[Symbol, ...]]] = set()
        self.vector: tuple[Symbol, Range] | None = None
        """The vector loop that is being visited, as if its last vector were a whole one."""

    def accesses(
        self, statements: tuple[Statement, ...], ranges: Mapping[Symbol, Range]
    ) -> Iterator[Access]:
        for statement in statements:
            match statement:
                case Loop(symbol, start, extent, body, kind, width):
                    if kind is LoopKind.VECTOR:
                        whole = (extent + width - 1) // width * width
                        self.vector = symbol, Range(start, whole)
                    yield from self.accesses(body, {**ranges, symbol: Range(start, extent)})
                    if kind is LoopKind.VECTOR:
                        self.vector = None
                case If(condition, body):
                    yield from self.reads((condition,), ranges)
                    yield from self.accesses(body, ranges)
                case While(test, condition, body):
                    yield from self.accesses(test, ranges)
                    yield from self.reads((condition,), ranges)
                    yield from self.accesses(body, ranges)
                case Let(_, value) | Declare(_, value) | Assign(_, value):
                    yield from self.reads((value,), ranges)
                case Combine(_, _, value, position):
                    yield from self.reads((value, position), ranges)
                case Write(buffer, offset, value, _):
                    yield from self.reads((offset, value), ranges)
                    if isinstance(offset, Index):
                        yield from self.access(buffer, offset.dim, ranges)

    def reads(self, roots: tuple[Expr, ...], ranges: Mapping[Symbol, Range]) -> Iterator[Access]:
        for expr in walk(roots):
            if not isinstance(expr, Load) or not isinstance(expr.operands[0], Index):
                continue
            within = ranges
            if self.vector is not None and expr.buffer.name in self.padded:
                within = {**ranges, self.vector[0]: self.vector[1]}
            yield from self.access(expr.buffer, expr.operands[0].dim, within)

    def access(
        self, buffer: Buffer, position: Dim, ranges: Mapping[Symbol, Range]
    ) -> Iterator[Access]:
        key = (buffer, position, tuple(ranges))
        if key not in self.seen:
            self.seen.add(key)
            yield Access(buffer, position, ranges)


# Elimination --------------------------------------------------------------------------------------


def _is_natural(dim: Dim, ranges: Mapping[Symbol, Range]) -> bool:
    """Whether ``dim >= 0`` for all values of its loop variables."""
    order = {symbol: depth for depth, symbol in enumerate(ranges)}
    waiting, steps = [dim], 0
    while waiting:
        found = waiting.pop()
        if provably_at_least(_without_common_factors(found), 0):
            return True
        steps += 1
        if steps > MAX_STEPS:
            return False
        waiting += _without_innermost(found, ranges, order)
    return False


def _without_common_factors(dim: Dim) -> Dim:
    """``dim`` divided by what is a factor of all of its terms and never negative."""
    if not isinstance(dim, SymbolicDim):
        return dim
    first, *others = (list(atoms) for atoms, _ in dim.terms())
    for atom in first:
        low, _ = bounds_of(atom)
        if low is not None and low >= 0 and all(atom in atoms for atoms in others):
            slope, _ = split_term(dim, atom)
            return dim if slope is None else _without_common_factors(slope)
    return dim


def _without_innermost(
    dim: Dim, ranges: Mapping[Symbol, Range], order: Mapping[Symbol, int]
) -> list[Dim]:
    """Lower bounds of ``dim`` without its innermost variable; it is natural if one of them is."""
    atom = _innermost(dim, order)
    if atom is None:
        return []
    slope, rest = split_term(dim, atom)
    if slope is None:
        return []
    low, high = bounds_of(slope)
    if low is not None and low >= 0:
        ends = _lowest(atom, ranges)
    elif high is not None and high <= 0:
        ends = _highest(atom, ranges)
    else:
        return []
    return [rest + slope * end for end in ends]


def _innermost(dim: Dim, order: Mapping[Symbol, int]) -> Atom | None:
    """The atom that depends on the innermost loop, operations before the variables in them."""
    if not isinstance(dim, SymbolicDim):
        return None
    best: tuple[int, bool] | None = None
    found: Atom | None = None
    for atoms, _ in dim.terms():
        for atom in atoms:
            depths = [order[symbol] for symbol in atom.symbols() if symbol in order]
            if not depths and not isinstance(atom, Min | Max):
                continue
            key = (max(depths, default=-1), not isinstance(atom, Symbol))
            if best is None or key > best:
                best, found = key, atom
    return found


def split_term(dim: Dim, atom: Atom) -> tuple[Dim | None, Dim]:
    """``dim`` as ``slope * atom + rest``; no slope if the atom occurs in powers."""
    slope: Dim = 0
    rest: Dim = 0
    assert isinstance(dim, SymbolicDim)
    for atoms, factor in dim.terms():
        others = list(atoms)
        if atom in others:
            others.remove(atom)
            if atom in others:
                return None, rest
        term: Dim = factor
        for other in others:
            term = term * other
        if len(others) < len(atoms):
            slope = slope + term
        else:
            rest = rest + term
    return slope, rest


def _lowest(atom: Atom, ranges: Mapping[Symbol, Range]) -> tuple[Dim, ...]:
    """Lower bounds of an atom, each of which holds."""
    if isinstance(atom, Symbol):
        return ranges[atom].lowest()
    if isinstance(atom, Max):
        return atom.arguments
    if isinstance(atom, Mod):
        return (0,)
    if isinstance(atom, FloorDiv):
        low, _ = bounds_of(atom)
        return () if low is None else (low,)
    return ()


def _highest(atom: Atom, ranges: Mapping[Symbol, Range]) -> tuple[Dim, ...]:
    """Upper bounds of an atom, each of which holds."""
    if isinstance(atom, Symbol):
        return ranges[atom].highest()
    if isinstance(atom, Min):
        return atom.arguments
    if isinstance(atom, Mod):
        return (atom.arguments[1] - 1,)
    if isinstance(atom, FloorDiv):
        numerator, divisor = atom.arguments
        return tuple(end // divisor for end in _highest_of(numerator, ranges))
    return ()


def _highest_of(dim: Dim, ranges: Mapping[Symbol, Range]) -> tuple[Dim, ...]:
    """Upper bounds of a polynomial, by one variable of it."""
    if isinstance(dim, int):
        return (dim,)
    order = {symbol: depth for depth, symbol in enumerate(ranges)}
    atom = _innermost(dim, order)
    if atom is None:
        return (dim,)
    slope, rest = split_term(dim, atom)
    if slope is None:
        return ()
    low, high = bounds_of(slope)
    if low is not None and low >= 0:
        ends = _highest(atom, ranges)
    elif high is not None and high <= 0:
        ends = _lowest(atom, ranges)
    else:
        return ()
    return tuple(each for end in ends for each in _highest_of(rest + slope * end, ranges))


def _alternatives(dim: Dim, kind: type[Min] | type[Max]) -> tuple[Dim, ...]:
    """Bounds of a sum with minima (or maxima) in it: each of their arguments will do."""
    if not isinstance(dim, SymbolicDim):
        return (dim,)
    choices: list[tuple[Dim, ...]] = []
    for atoms, factor in dim.terms():
        is_choice = len(atoms) == 1 and isinstance(atoms[0], kind) and factor > 0
        options = atoms[0].arguments if is_choice and isinstance(atoms[0], kind) else ()
        term: Dim = factor
        for atom in atoms:
            term = term * atom
        choices.append(tuple(factor * each for each in options) or (term,))
    sums: list[Dim] = []
    for chosen in product(*choices):
        total: Dim = 0
        for each in chosen:
            total = total + each
        sums.append(total)
    return tuple(sums[:MAX_STEPS])
