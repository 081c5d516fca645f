"""Apply a schedule to a kernel: from formulas over an index space to loops.

A reduction is computed at the outermost place where everything it depends on is known. Those that
depend on a row alone become *visits* of the row, in order of their needs: softmax visits a row
for its maximum, again for the sum of the exponentials, and a last time to write. Visits over the
same range share one loop if neither needs the other, and name their axis alike, so that equal
formulas in different visits are one expression: with ``keep``, such a formula is computed in the
first visit and kept for the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from monograph.ir.dims import Dim, Symbol, dim_min, shape_product, substitute_dim
from monograph.kernel import expr as e
from monograph.kernel.borders import cut_loops
from monograph.kernel.expr import Apply, Axis, Buffer, Expr, Index, Load, Reduce, Variable
from monograph.kernel.flatten import coefficient
from monograph.kernel.index_space import blocked, jammed, with_partial_sums
from monograph.kernel.kernel import Kernel
from monograph.kernel.loops import (
    Accumulator,
    Combine,
    If,
    Let,
    Loop,
    LoopKind,
    LoopNest,
    Prefetch,
    Statement,
    Write,
)
from monograph.kernel.picking import with_picks
from monograph.kernel.scalar import cost
from monograph.kernel.schedule import Schedule
from monograph.kernel.shortening import with_short_formulas
from monograph.kernel.softmax import is_sum_of_decays, with_decays

PARALLEL = "_p"
KEEP_BYTES = 256 * 1024
"""The largest row, in bytes, that is worth keeping: it should stay in a core's own cache."""


def build_nest(kernel: Kernel, schedule: Schedule) -> LoopNest:
    """The loops of a flat kernel under a schedule."""
    kernel = with_short_formulas(with_decays(with_picks(kernel)))
    kernel = jammed(kernel, schedule)
    if schedule.partial:
        kernel = with_partial_sums(kernel, schedule.partial)
    if schedule.block is not None:
        kernel, schedule = blocked(kernel, schedule, *schedule.block)
    return cut_loops(_NestBuilder(kernel, schedule).build())


@dataclass
class _Visit:
    """One pass over ``axes``: reductions that are taken further and values that are written."""

    axes: tuple[Axis, ...]
    reductions: list[tuple[Variable, str, Expr]] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)

    def roots(self) -> tuple[Expr, ...]:
        combined = tuple(value for _, _, value in self.reductions)
        return combined + tuple(write.value for write in self.writes)

    def rewrite(self, replacements: Mapping[Expr, Expr]) -> None:
        self.reductions = [
            (variable, kind, e.replace(value, replacements))
            for variable, kind, value in self.reductions
        ]
        self.writes = [
            Write(w.buffer, w.offset, e.replace(w.value, replacements), w.streaming)
            for w in self.writes
        ]


class _NestBuilder:
    def __init__(self, kernel: Kernel, schedule: Schedule) -> None:
        self.kernel = kernel
        self.schedule = schedule
        self.extents = {axis.symbol: axis.extent for axis in kernel.axes}
        self.scratch: list[Buffer] = []
        self.names = 0

    def build(self) -> LoopNest:
        schedule = self.schedule
        rows, inner = schedule.order[: schedule.rows], schedule.order[schedule.rows :]
        body = self.level(
            frozenset(rows),
            tuple(Axis(symbol, self.extents[symbol]) for symbol in inner),
            [
                Write(s.buffer, s.position[0], s.value, s.buffer.name in schedule.streaming)
                for s in self.kernel.stores
            ],
        )
        body = self.guarded(body)
        for symbol in reversed(rows[schedule.parallel :]):
            body = (self.loop(Axis(symbol, self.extents[symbol]), body),)
        return self.parallelized(body)

    def guarded(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """The stores that have a guard, under it; such kernels have no inner loops to store in."""
        guards = {s.position[0]: s.guard for s in self.kernel.stores if s.guard is not None}
        return tuple(
            If(guards[each.offset], (each,))
            if isinstance(each, Write) and each.offset in guards
            else each
            for each in body
        )

    # Levels -------------------------------------------------------------------------------------

    def level(
        self,
        bound: frozenset[Symbol],
        inner: tuple[Axis, ...],
        writes: Sequence[Write],
    ) -> tuple[Statement, ...]:
        """Statements for everything that can be computed once ``bound`` is known."""
        visits, known = self.visits(writes, bound, inner)
        here = [w for w in writes if not self._needs(w, inner)]
        rest = [w for w in writes if self._needs(w, inner)]
        last = _Visit(inner, writes=[_replaced(w, known) for w in rest])
        if rest:
            visits.append(last)
        kept = self.keep(visits) if self.schedule.keep else []
        if self.schedule.keep:
            sums = {known[x] for x in known if is_sum_of_decays(x)}
            for visit in visits:
                _multiply_by_reciprocals(visit, sums)
        statements: list[Statement] = []
        for k, visit in enumerate(visits):
            before: list[Statement] = [w for at, w in kept if at == k]
            if k == 1 and self.schedule.prefetch is not None:
                before += self.prefetches(visits[0], visit)
            if k == 0 and self.schedule.ahead:
                before += self.ahead(visit)
            statements += self.visit(bound, visit, before)
        statements += [_replaced(write, known) for write in here]
        return tuple(statements)

    def _needs(self, write: Write, inner: tuple[Axis, ...]) -> bool:
        symbols = {axis.symbol for axis in inner}
        return bool(symbols & (write.offset.symbols | write.value.symbols))

    def visits(
        self, writes: Sequence[Write], bound: frozenset[Symbol], inner: tuple[Axis, ...]
    ) -> tuple[list[_Visit], dict[Expr, Expr]]:
        """The reductions that are ready at this level, as visits, and the variables they fill."""
        roots = tuple(expr for write in writes for expr in (write.offset, write.value))
        loops = frozenset(self.extents)
        known: dict[Expr, Expr] = {}
        waves: dict[Expr, int] = {}
        visits: dict[tuple[int, tuple[Axis, ...]], _Visit] = {}
        for expr in _ready(roots):
            if not isinstance(expr, Reduce) or not (expr.symbols & loops) <= bound:
                continue
            if _reduction_symbols(expr):
                continue
            wave = 1 + max((waves[x] for x in e.walk((expr.body,)) if x in waves), default=-1)
            waves[expr] = wave
            axes, body = _aligned(expr, inner)
            variable = e.variable(self.fresh("v"), expr.dtype)
            visit = visits.setdefault((wave, axes), _Visit(axes))
            visit.reductions.append((variable, expr.kind, e.replace(body, known)))
            known[expr] = variable
        ordered = [visits[key] for key in sorted(visits, key=lambda key: key[0])]
        return ordered, known

    def visit(
        self, bound: frozenset[Symbol], visit: _Visit, kept: Sequence[Statement]
    ) -> list[Statement]:
        """Declare the accumulators, then loop."""
        statements: list[Statement] = [
            Accumulator(variable, kind) for variable, kind, _ in visit.reductions
        ]
        position = e.linear(visit.axes)
        inside = bound | {axis.symbol for axis in visit.axes}
        body: list[Statement] = list(kept)
        nested, known = self.nested(visit.roots(), inside)
        body += nested
        for variable, kind, value in visit.reductions:
            body.append(Combine(variable, kind, e.replace(value, known), position))
        for write in visit.writes:
            value = e.replace(write.value, known)
            body.append(Write(write.buffer, write.offset, value, write.streaming))
        loops: tuple[Statement, ...] = tuple(body)
        for axis in reversed(visit.axes):
            loops = (self.loop(axis, loops),)
        return statements + list(loops)

    def prefetches(self, first: _Visit, now: _Visit) -> list[Statement]:
        """What the first visit of the next row will read, while this row is computed with."""
        row = self.schedule.prefetch
        if row is None or first.axes != now.axes:
            return []
        own = {axis.symbol for axis in first.axes}
        following: dict[Symbol, Dim] = {row: row + 1}
        return [
            Prefetch(expr.buffer, e.substitute(expr.operands[0], following))
            for expr in e.walk(first.roots())
            if isinstance(expr, Load)
            and expr.buffer not in self.scratch
            and row in expr.symbols
            and own <= expr.symbols
            # Behind the last row there is no index to read, and none that could be in range.
            and not any(isinstance(inner, Load) for inner in e.walk(expr.operands))
        ]

    def ahead(self, visit: _Visit) -> list[Statement]:
        """What a visit will read some way further along the vector axis."""
        if not visit.axes or visit.axes[-1].symbol not in self.schedule.vector:
            return []
        along = visit.axes[-1].symbol
        found: list[Statement] = []
        for expr in e.walk(visit.roots()):
            if not isinstance(expr, Load) or not isinstance(expr.operands[0], Index):
                continue
            if expr.buffer in self.scratch or coefficient(expr.operands[0].dim, along) != 1:
                continue
            distance = self.schedule.ahead // expr.dtype.numpy.itemsize
            further: dict[Symbol, Dim] = {along: along + distance}
            found.append(Prefetch(expr.buffer, e.substitute(expr.operands[0], further)))
        return found

    def nested(
        self, roots: tuple[Expr, ...], bound: frozenset[Symbol]
    ) -> tuple[list[Statement], dict[Expr, Expr]]:
        """Reductions inside a loop body: computed there, each time, those that can in one loop."""
        known: dict[Expr, Expr] = {}
        waves: dict[Expr, int] = {}
        visits: dict[tuple[int, tuple[Axis, ...]], _Visit] = {}
        for expr in e.walk(roots):
            if not isinstance(expr, Reduce) or _is_inside(expr, bound):
                continue
            wave = 1 + max((waves[x] for x in e.walk((expr.body,)) if x in waves), default=-1)
            waves[expr] = wave
            variable = e.variable(self.fresh("v"), expr.dtype)
            visit = visits.setdefault((wave, expr.axes), _Visit(expr.axes))
            visit.reductions.append((variable, expr.kind, e.replace(expr.body, known)))
            known[expr] = variable
        statements: list[Statement] = []
        for key in sorted(visits, key=lambda key: key[0]):
            statements += self.visit(bound, visits[key], [])
        return statements, known

    def loop(self, axis: Axis, body: tuple[Statement, ...]) -> Loop:
        """A loop over an axis; the vector axis goes several at a time."""
        schedule = self.schedule
        if axis.symbol not in schedule.vector or schedule.width == 1:
            return Loop(axis.symbol, 0, axis.extent, body)
        start: Dim = 0
        extent = axis.extent
        if schedule.tile:
            start = Symbol("_t", 0, None) * schedule.tile
            extent = dim_min(schedule.tile, axis.extent - start)
        return Loop(axis.symbol, start, extent, body, LoopKind.VECTOR, schedule.width)

    # Kept rows ----------------------------------------------------------------------------------

    def keep(self, visits: list[_Visit]) -> list[tuple[int, Write]]:
        """Writes of values that a later visit needs again; the visits read them back."""
        kept: list[tuple[int, Write]] = []
        for k, first in enumerate(visits):
            later = [(visit, _renamed(first.axes, visit.axes)) for visit in visits[k + 1 :]]
            again = [(visit, names) for visit, names in later if names is not None]
            if not again or not _fits(first.axes, self.columns):
                continue
            for value in _worth_keeping(first, again):
                size = _size(first.axes) * self.columns
                buffer = Buffer(f"row{len(self.scratch)}", value.dtype, (size,))
                self.scratch.append(buffer)
                kept.append((k, Write(buffer, self.kept_place(first.axes), value)))
                for visit, names in again:
                    load = e.load(buffer, (self.kept_place(visit.axes),))
                    visit.rewrite({e.substitute(value, names): load})
        return kept

    @property
    def columns(self) -> int:
        """How many rows are visited side by side."""
        schedule = self.schedule
        row_symbols = schedule.order[: schedule.rows]
        return schedule.tile if set(schedule.vector) & set(row_symbols) and schedule.tile else 1

    def kept_place(self, axes: tuple[Axis, ...]) -> Expr:
        """Where an element of a row is kept: next to that of the row beside it."""
        position = e.linear(axes)
        if self.columns == 1:
            return position
        column = self.schedule.vector[0] - Symbol("_t", 0, None) * self.columns
        return position * self.columns + column

    # The parallel loop ---------------------------------------------------------------------------

    def parallelized(self, body: tuple[Statement, ...]) -> LoopNest:
        """One parallel variable for the leading axes (and the tiles of the vector axis)."""
        schedule = self.schedule
        leading = [Axis(s, self.extents[s]) for s in schedule.order[: schedule.parallel]]
        if schedule.tile:
            whole = self.extents[schedule.vector[0]]
            tiles = Axis(Symbol("_t", 0, None), (whole + schedule.tile - 1) // schedule.tile)
            place = len(leading) - 1 if schedule.along_tiles else len(leading)
            leading.insert(place, tiles)
        parallel = e.axis(PARALLEL, shape_product(axis.extent for axis in leading))
        bindings: dict[Symbol, Dim] = {}
        rest: Dim = parallel.symbol
        for axis in reversed(leading[1:]):
            bindings[axis.symbol] = rest % axis.extent
            rest = rest // axis.extent
        if leading:
            bindings[leading[0].symbol] = rest
        placed = tuple(substituted(statement, bindings) for statement in body)
        kernel = self.kernel
        return LoopNest(
            kernel.name,
            kernel.inputs,
            kernel.outputs,
            tuple(self.scratch),
            kernel.sizes,
            parallel.symbol,
            parallel.extent,
            schedule.grain,
            placed,
        )

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names - 1}"


def _ready(roots: tuple[Expr, ...]) -> list[Expr]:
    """Expressions, operands first."""
    return list(e.walk(roots))


def _is_inside(reduction: Reduce, bound: frozenset[Symbol]) -> bool:
    """Whether a reduction depends on the axes of one that is around it, and so belongs in there."""
    unbound = {symbol for symbol in reduction.symbols if symbol.name.startswith("_r")} - bound
    return bool(unbound)


def _reduction_symbols(expr: Expr) -> bool:
    return any(symbol.name.startswith("_r") for symbol in expr.symbols)


def _aligned(reduction: Reduce, inner: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], Expr]:
    """The reduction's axes and body, named as the inner axes where the extents are the same."""
    if tuple(axis.extent for axis in reduction.axes) != tuple(axis.extent for axis in inner):
        return reduction.axes, reduction.body
    names: dict[Symbol, Dim] = {
        own.symbol: axis.symbol for own, axis in zip(reduction.axes, inner, strict=True)
    }
    return inner, e.substitute(reduction.body, names)


def _replaced(write: Write, known: Mapping[Expr, Expr]) -> Write:
    return Write(
        write.buffer,
        e.replace(write.offset, known),
        e.replace(write.value, known),
        write.streaming,
    )


def _size(axes: tuple[Axis, ...]) -> Dim:
    return shape_product(axis.extent for axis in axes)


def _fits(axes: tuple[Axis, ...], columns: int) -> bool:
    size = _size(axes) * columns
    if not isinstance(size, int):
        upper = size.bounds()[1]
        return upper is not None and 4 * upper <= KEEP_BYTES
    return 4 * size <= KEEP_BYTES


def _renamed(first: tuple[Axis, ...], other: tuple[Axis, ...]) -> dict[Symbol, Dim] | None:
    """How an element of one visit is called in another that goes through the row in its order."""
    if first == other:
        return {}
    if len(first) != 1 or _size(first) != _size(other):
        return None
    position = e.linear(other)
    return {first[0].symbol: position.dim} if isinstance(position, Index) else None


def _worth_keeping(
    first: _Visit, later: Sequence[tuple[_Visit, Mapping[Symbol, Dim]]]
) -> list[Expr]:
    """The largest formulas that several visits compute, if reading back is cheaper."""
    own = {axis.symbol for axis in first.axes}
    again = [(set(e.walk(visit.roots())), names) for visit, names in later]
    chosen: list[Expr] = []
    covered: set[Expr] = set()
    for expr in reversed(list(e.walk(first.roots()))):
        if expr in covered or not isinstance(expr, Apply) or not own <= expr.symbols:
            continue
        if not any(e.substitute(expr, names) in found for found, names in again):
            continue
        parts = list(e.walk((expr,)))
        if any(isinstance(x, Reduce) for x in parts):
            continue
        covered.update(parts)
        along = [x for x in parts if own & x.symbols]
        if _work(along) >= 8 or sum(isinstance(x, Load) for x in along) > 1:
            chosen.append(expr)
    return chosen


def _multiply_by_reciprocals(visit: _Visit, sums: Collection[Expr]) -> None:
    """Divide once a row instead of once an element, where the divisor is the same for all.

    Only by what has a reciprocal that is neither subnormal nor infinite (a softmax's sum, a square
    root): ``0 / 1e-40`` is 0, but ``0 * (1 / 1e-40)`` is NaN.
    """
    own = {axis.symbol for axis in visit.axes}
    replaced: dict[Expr, Expr] = {}
    for expr in e.walk(visit.roots()):
        if not isinstance(expr, Apply) or expr.function != "divide":
            continue
        numerator, divisor = expr.operands
        if own & divisor.symbols or not own & numerator.symbols:
            continue
        is_root = isinstance(divisor, Apply) and divisor.function == "sqrt"
        if not is_root and divisor not in sums:
            continue
        one = e.literal(1.0, expr.dtype)
        inverse = e.apply("divide", one, divisor)
        replaced[expr] = e.apply("multiply", e.replace(numerator, replaced), inverse)
    if replaced:
        visit.rewrite(replaced)


def _work(parts: Iterable[Expr]) -> int:
    """About what computing these takes, in vector instructions."""
    total = 0
    for each in parts:
        if isinstance(each, Apply):
            total += cost(each.function)
        elif isinstance(each, Load):
            total += 2
    return total


def substituted(statement: Statement, bindings: Mapping[Symbol, Dim]) -> Statement:
    """A statement with loop variables replaced."""
    match statement:
        case Let(variable, value):
            return Let(variable, e.substitute(value, bindings))
        case Accumulator():
            return statement
        case Combine(variable, kind, value, position):
            return Combine(
                variable, kind, e.substitute(value, bindings), e.substitute(position, bindings)
            )
        case Write(buffer, offset, value, streaming):
            return Write(
                buffer, e.substitute(offset, bindings), e.substitute(value, bindings), streaming
            )
        case Prefetch(buffer, offset, far):
            return Prefetch(buffer, e.substitute(offset, bindings), far)
        case If(condition, body):
            return If(
                e.substitute(condition, bindings),
                tuple(substituted(each, bindings) for each in body),
            )
        case Loop(symbol, start, extent, body, kind, width):
            return Loop(
                symbol,
                substitute_dim(start, bindings),
                substitute_dim(extent, bindings),
                tuple(substituted(each, bindings) for each in body),
                kind,
                width,
            )
    raise AssertionError(f"{statement} is not part of a kernel")
