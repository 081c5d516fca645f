"""Apply a schedule to a kernel: from formulas over an index space to loops.

A reduction is computed at the outermost place where everything it depends on is known. Those that
depend on a row alone become *visits* of the row, in order of their needs: softmax visits a row
for its maximum, again for the sum of the exponentials, and a last time to write. Visits over the
same range share one loop if neither needs the other, and name their axis alike, so that equal
formulas in different visits are one expression: with ``cache_row``, such a formula is computed in
the first visit and kept for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from monograph.ir.dims import Dim, Symbol, dim_min, shape_product, substitute_dim
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Buffer, Expr, Index, Load, Reduce
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel
from monograph.kernel.one_hot_sums import with_picks
from monograph.kernel.shortening import with_short_formulas
from monograph.kernel.softmax import is_sum_of_decays, with_decays
from monograph.targets.cpu.costs import CACHE_LINE_BYTES, GENERIC
from monograph.targets.cpu.loops.borders import cut_loops
from monograph.targets.cpu.loops.index_space import block_axis, unroll_and_jam, with_partial_sums
from monograph.targets.cpu.loops.online_softmax import row_in_parts
from monograph.targets.cpu.loops.pipelined_rows import PipelinedRows, can_pipeline
from monograph.targets.cpu.loops.row_passes import (
    Visit,
    multiply_by_reciprocals,
    rename_axes,
    size_of,
    worth_keeping,
)
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Combine,
    If,
    Let,
    Loop,
    LoopKind,
    LoopNest,
    MultiplyTiles,
    Prefetch,
    Statement,
    Write,
)

PARALLEL = "_p"


def build_nest(kernel: Kernel, schedule: Schedule) -> LoopNest:
    """The loops of a flat kernel under a schedule."""
    kernel = with_short_formulas(with_decays(with_picks(kernel)))
    kernel = unroll_and_jam(kernel, schedule)
    if schedule.partial:
        kernel = with_partial_sums(kernel, schedule.partial)
    if schedule.block is not None:
        kernel, schedule = block_axis(kernel, schedule, *schedule.block)
    return cut_loops(_NestBuilder(kernel, schedule).build())


class _NestBuilder:
    def __init__(self, kernel: Kernel, schedule: Schedule) -> None:
        self.kernel = kernel
        self.schedule = schedule
        self.extents = {axis.symbol: axis.extent for axis in kernel.axes}
        self.scratch: list[Buffer] = []
        self.volatile: frozenset[str] = frozenset()
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
        if visits and visits[0].axes == inner:
            visits[0].writes = [w for w in rest if _is_known_at_once(w, inner)]
            rest = [w for w in rest if w not in visits[0].writes]
        last = Visit(inner, writes=[_replace_in_write(w, known) for w in rest])
        if rest:
            visits.append(last)
        kept = self.cache_rows(visits) if self.schedule.cache_row else []
        if self.schedule.cache_row:
            sums = {known[x] for x in known if is_sum_of_decays(x)}
            small = {known[x] for x in known if is_sum_of_decays(x, has_one=False)}
            for visit in visits:
                multiply_by_reciprocals(visit, sums, small)
        if self.schedule.pipelined_rows and bound and not here and can_pipeline(visits, kept):
            return self.pipeline_rows(visits, kept)
        statements: list[Statement] = []
        done = 0
        if self.schedule.softmax_block and visits:
            size = self.schedule.softmax_block
            found = row_in_parts(
                visits, kept, self.further(visits[0], size), size, self.schedule.width
            )
            if found is not None:
                self.scratch += found.scratch
                statements += found.statements
                done = found.visits
        for k, visit in enumerate(visits):
            if k < done:
                continue
            before: list[Statement] = [w for at, w in kept if at == k]
            if k == 1 and self.schedule.prefetch is not None:
                before += self.prefetches(visits[0], visit)
            if k == 0 and self.schedule.prefetch_bytes:
                before += self.prefetch_along(visit)
            statements += self.visit(bound, visit, before)
        statements += [_replace_in_write(write, known) for write in here]
        return tuple(statements)

    def _needs(self, write: Write, inner: tuple[Axis, ...]) -> bool:
        symbols = {axis.symbol for axis in inner}
        return bool(symbols & (write.offset.symbols | write.value.symbols))

    def visits(
        self, writes: Sequence[Write], bound: frozenset[Symbol], inner: tuple[Axis, ...]
    ) -> tuple[list[Visit], dict[Expr, Expr]]:
        """The reductions that are ready at this level, as visits, and the variables they fill."""
        roots = tuple(expr for write in writes for expr in (write.offset, write.value))
        loops = frozenset(self.extents)
        known: dict[Expr, Expr] = {}
        waves: dict[Expr, int] = {}
        visits: dict[tuple[int, tuple[Axis, ...]], Visit] = {}
        for expr in _ready(roots):
            if not isinstance(expr, Reduce) or not (expr.symbols & loops) <= bound:
                continue
            if _reduction_symbols(expr):
                continue
            wave = 1 + max((waves[x] for x in e.walk((expr.body,)) if x in waves), default=-1)
            waves[expr] = wave
            axes, body = _align_reduction(expr, inner, flat=self.schedule.pipelined_rows > 0)
            variable = e.variable(self.fresh("v"), expr.dtype)
            visit = visits.setdefault((wave, axes), Visit(axes))
            visit.reductions.append((variable, expr.kind, e.replace(body, known)))
            known[expr] = variable
        ordered = [visits[key] for key in sorted(visits, key=lambda key: key[0])]
        return ordered, known

    def visit(
        self, bound: frozenset[Symbol], visit: Visit, kept: Sequence[Statement]
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
        lanes = self.lanes(bound, visit)
        for axis in reversed(visit.axes):
            in_lanes = axis.symbol is lanes
            loops = (self.loop(axis, loops) if in_lanes else _serial(axis, loops),)
        return statements + list(loops)

    def lanes(self, bound: frozenset[Symbol], visit: Visit) -> Symbol | None:
        """The axis of a visit that is a vector loop: one at most, and none inside another one.

        Two sums over the same axes may each have another one of them as their last.
        """
        vector = self.schedule.vector
        if not bound.isdisjoint(vector):
            return None
        found = (axis.symbol for axis in reversed(visit.axes) if axis.symbol in vector)
        return next(found, None)

    def pipeline_rows(
        self, visits: list[Visit], kept: Sequence[tuple[int, Write]]
    ) -> tuple[Statement, ...]:
        """Several rows, each written while the next one is read; they are one iteration then."""
        schedule, size = self.schedule, self.schedule.pipelined_rows
        row = schedule.order[schedule.rows - 1]
        extent = self.extents[row]
        group = e.axis(f"{row.name}g", (extent + size - 1) // size)
        start = group.symbol * size
        is_whole = isinstance(extent, int) and extent % size == 0
        pipeline = PipelinedRows(visits, kept, row, schedule.width)
        scratch = pipeline.scratch(size)
        self.scratch += scratch
        self.volatile = frozenset(buffer.name for buffer in scratch)
        order = tuple(group.symbol if symbol is row else symbol for symbol in schedule.order)
        self.schedule = replace(schedule, order=order)
        self.extents[group.symbol] = group.extent
        return pipeline.statements(
            start, size if is_whole else dim_min(size, extent - start), scratch
        )

    def prefetches(self, first: Visit, now: Visit) -> list[Statement]:
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
            and not any(e.find_loads(*expr.operands))
        ]

    def prefetch_along(self, visit: Visit) -> list[Statement]:
        """What a visit will read some bytes further along the vector axis."""
        return self.further(visit, 0)

    def further(self, visit: Visit, elements: int) -> list[Statement]:
        """What a visit will read so much further, in elements or else in the schedule's bytes."""
        if not visit.axes or visit.axes[-1].symbol not in self.schedule.vector:
            return []
        along = visit.axes[-1].symbol
        found: list[Statement] = []
        for expr in e.walk(visit.roots()):
            if not isinstance(expr, Load) or not isinstance(expr.operands[0], Index):
                continue
            if expr.buffer in self.scratch or coefficient(expr.operands[0].dim, along) != 1:
                continue
            distance = elements or self.schedule.prefetch_bytes // expr.dtype.numpy.itemsize
            further: dict[Symbol, Dim] = {along: along + distance}
            found.append(Prefetch(expr.buffer, e.substitute(expr.operands[0], further)))
        return found

    def nested(
        self, roots: tuple[Expr, ...], bound: frozenset[Symbol]
    ) -> tuple[list[Statement], dict[Expr, Expr]]:
        """Reductions inside a loop body: computed there, each time, those that can in one loop."""
        known: dict[Expr, Expr] = {}
        waves: dict[Expr, int] = {}
        visits: dict[tuple[int, tuple[Axis, ...]], Visit] = {}
        for expr in e.walk(roots):
            if not isinstance(expr, Reduce) or _is_inside(expr, bound):
                continue
            wave = 1 + max((waves[x] for x in e.walk((expr.body,)) if x in waves), default=-1)
            waves[expr] = wave
            variable = e.variable(self.fresh("v"), expr.dtype)
            visit = visits.setdefault((wave, expr.axes), Visit(expr.axes))
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
            return _serial(axis, body)
        start: Dim = 0
        extent = axis.extent
        if schedule.tile:
            start = Symbol("_t", 0, None) * schedule.tile
            extent = dim_min(schedule.tile, axis.extent - start)
        return Loop(axis.symbol, start, extent, body, LoopKind.VECTOR, schedule.width)

    # Kept rows ----------------------------------------------------------------------------------

    def cache_rows(self, visits: list[Visit]) -> list[tuple[int, Write]]:
        """Writes of values that a later visit needs again; the visits read them back."""
        kept: list[tuple[int, Write]] = []
        for k, first in enumerate(visits):
            later = [(visit, rename_axes(first.axes, visit.axes)) for visit in visits[k + 1 :]]
            again = [(visit, names) for visit, names in later if names is not None]
            if not again or not _fits(first.axes, self.columns):
                continue
            for value in worth_keeping(first, again):
                size = size_of(first.axes) * self.columns
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
        bindings = e.unflatten(leading, parallel.symbol)
        placed = tuple(substitute_statement(statement, bindings) for statement in body)
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
            volatile=self.volatile,
        )

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names - 1}"


def _serial(axis: Axis, body: tuple[Statement, ...]) -> Loop:
    """A loop over an axis that goes one by one."""
    return Loop(axis.symbol, 0, axis.extent, body)


def _ready(roots: tuple[Expr, ...]) -> list[Expr]:
    """Expressions, operands first."""
    return list(e.walk(roots))


def _is_inside(reduction: Reduce, bound: frozenset[Symbol]) -> bool:
    """Whether a reduction depends on the axes of one that is around it, and so belongs in there."""
    unbound = {symbol for symbol in reduction.symbols if symbol.name.startswith("_r")} - bound
    return bool(unbound)


def _reduction_symbols(expr: Expr) -> bool:
    return any(symbol.name.startswith("_r") for symbol in expr.symbols)


def _align_reduction(
    reduction: Reduce, inner: tuple[Axis, ...], flat: bool
) -> tuple[tuple[Axis, ...], Expr]:
    """The reduction's axes and body, named as the inner axes where the extents are the same.

    With ``flat``, also where one axis goes through all that the inner ones do.
    """
    if flat and len(reduction.axes) == 1 and reduction.axes[0].extent == size_of(inner):
        position = e.linear(inner)
        assert isinstance(position, Index)
        return inner, e.substitute(reduction.body, {reduction.axes[0].symbol: position.dim})
    if tuple(axis.extent for axis in reduction.axes) != tuple(axis.extent for axis in inner):
        return reduction.axes, reduction.body
    names: dict[Symbol, Dim] = {
        own.symbol: axis.symbol for own, axis in zip(reduction.axes, inner, strict=True)
    }
    return inner, e.substitute(reduction.body, names)


def _is_known_at_once(write: Write, inner: tuple[Axis, ...]) -> bool:
    """Whether what is written past the cache needs nothing that is found of the whole row.

    It is written while the row is read, then, so that memory does both at once; where a row does
    not begin with a cache line, only a loop that reduces nothing can write it so.
    """
    length = inner[-1].extent * write.buffer.dtype.numpy.itemsize
    if not write.streaming or not isinstance(length, int) or length % CACHE_LINE_BYTES:
        return False
    return not any(isinstance(x, Reduce) for x in e.walk((write.value,)))


def _replace_in_write(write: Write, known: Mapping[Expr, Expr]) -> Write:
    return Write(
        write.buffer,
        e.replace(write.offset, known),
        e.replace(write.value, known),
        write.streaming,
    )


def _fits(axes: tuple[Axis, ...], columns: int) -> bool:
    size = size_of(axes) * columns
    if not isinstance(size, int):
        upper = size.bounds()[1]
        return upper is not None and 4 * upper <= GENERIC.kept_row_bytes
    return 4 * size <= GENERIC.kept_row_bytes


def substitute_statement(statement: Statement, bindings: Mapping[Symbol, Dim]) -> Statement:
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
        case MultiplyTiles():
            return replace(
                statement,
                offsets=tuple(e.substitute(each, bindings) for each in statement.offsets),
                place=e.substitute(statement.place, bindings),
            )
        case If(condition, body):
            return If(
                e.substitute(condition, bindings),
                tuple(substitute_statement(each, bindings) for each in body),
            )
        case Loop(symbol, start, extent, body, kind, width):
            return Loop(
                symbol,
                substitute_dim(start, bindings),
                substitute_dim(extent, bindings),
                tuple(substitute_statement(each, bindings) for each in body),
                kind,
                width,
            )
    raise AssertionError(f"{statement} is not part of a kernel")
