"""A loop nest as an LLVM function over a range of its parallel loop.

    define void @kernel(ptr %arguments, i64 %begin, i64 %end)

A vector loop runs in steps of its width; ``tails`` says how what is left over is computed.

A reduction along the vector axis keeps one partial result a lane, and the lanes are then combined
in halves: lane k with lane k + width/2, and so on down to one. In a long row the lanes of every 32
vectors are summed on their own and then added to those before, so that rounding hardly grows with
the row. The order depends on the schedule alone, never on the number of threads.

Nothing moves out of a condition, and nothing that reads memory out of a loop that may be empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

from monograph.ir.dims import Symbol, substitute_dim
from monograph.ir.types import DType
from monograph.kernel.expr import Buffer, Expr, Index, Variable
from monograph.kernel.flatten import coefficient
from monograph.targets.cpu.costs import CACHE_LINE_BYTES, GENERIC
from monograph.targets.cpu.llvm.assembly import (
    INDEX,
    Block,
    Builder,
    Function,
    Lanes,
    memory_type,
)
from monograph.targets.cpu.llvm.bfloat import are_pairs
from monograph.targets.cpu.llvm.combining import (
    find_accumulators,
    find_combined_dtypes,
    loads_of,
    match_summed_dot,
    match_summed_product,
    sums_of_sums,
)
from monograph.targets.cpu.llvm.joined_writes import join_writes
from monograph.targets.cpu.llvm.lanes import lanewise_variables
from monograph.targets.cpu.llvm.matrix_tiles import TileInstructions, advance, tile_address
from monograph.targets.cpu.llvm.positions import Scope, Vector, is_multiple
from monograph.targets.cpu.llvm.reductions import Partial, reduction_of
from monograph.targets.cpu.llvm.tails import Tail, TailKind, is_at_least, tail_mask, tail_of
from monograph.targets.cpu.llvm.values import ALIGNMENT, ValueEmitter
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
    MultiplyTiles,
    Prefetch,
    Statement,
    While,
    Write,
)
from monograph.targets.cpu.nests.walk import statements_in

MAX_STACK_BYTES = 4 << 20
"""Bytes of scratch that a kernel may keep on a thread's stack, which has at least twice as many."""
MAX_VECTORS_PER_SUM = 32
"""Vectors that one running sum takes before it is added to another."""
MAX_REGISTER_SUMS = 3
"""Sums of partial sums up to which they find room in registers beside those."""
MAX_REGISTER_LANES = 64
"""Lanes of a sum of partial sums from which on it leaves no registers for those."""


class NestEmitter(ValueEmitter):
    """Writes one loop nest: its function, loops, conditions and reductions."""

    def emit(self) -> str:
        """The text of the function and of the one that unpacks its arguments."""
        nest = self.nest
        attributes = "" if self.aliased else " noalias"
        parameters = [f"ptr{attributes} readonly %{b.name}" for b in nest.inputs]
        parameters += [f"ptr{attributes} %{b.name}" for b in nest.outputs]
        parameters += [f"i64 %size.{symbol.name}" for symbol in nest.sizes]
        parameters += ["ptr %status", "i64 %begin", "i64 %end"]
        self.function = Function(
            f"define internal void @{nest.name}.range({', '.join(parameters)}) #0"
        )
        entry = Builder(self.function, self.function.entry, self.declarations)
        self.entry = entry
        symbols = {s: Lanes(f"%size.{s.name}", INDEX) for s in nest.sizes}
        self.pointers = {b.name: f"%{b.name}" for b in nest.buffers}
        for buffer in nest.scratch:
            self.pointers[buffer.name] = self._allocate(buffer)
        self.tiles = self._begin_tiles()
        start = self.function.place(self.function.block("start"))
        self.scopes = [Scope(Builder(self.function, start, self.declarations), symbols)]
        begin, end = Lanes("%begin", INDEX), Lanes("%end", INDEX)
        self._serial(nest.parallel, begin, end, nest.body, may_be_empty=True)
        if self.tiles is not None:
            self.tiles.release(self.here)
        if self.streams:
            self.here.line("fence seq_cst")
        if self.has_checks:
            self._report_checks()
        self.here.line("ret void")
        entry.line(f"br label %{start.label}")
        return self.function.text() + self._unpacking()

    # Structure ------------------------------------------------------------------------------------

    def _allocate(self, buffer: Buffer) -> str:
        """Scratch lives on the thread's stack; rows that are kept have a bounded size."""
        (size,) = buffer.shape
        upper = size if isinstance(size, int) else size.bounds()[1]
        assert upper is not None, "only rows of a bounded size are kept"
        name = self.function.name("row")
        memory = memory_type(buffer.dtype)
        padded = -(-upper // 64) * 64
        assert padded * buffer.dtype.bits <= 8 * MAX_STACK_BYTES, f"{buffer} overflows the stack"
        self.entry.line(f"{name} = alloca [{padded} x {memory}], align {ALIGNMENT}")
        return name

    def _begin_tiles(self) -> TileInstructions | None:
        """The instructions of the matrix unit, ready for the tiles of a nest that has some."""
        if not any(isinstance(each, MultiplyTiles) for each in statements_in(self.nest.body)):
            return None
        instructions = TileInstructions(self.tile_unit)
        instructions.configure(self.entry)
        return instructions

    def _multiply_tiles(self, statement: MultiplyTiles) -> None:
        """Tiles of sums first, then those of the left operand, and two of the right one."""
        assert self.tiles is not None and self.vector is None, "tiles are no lanes"
        tiles, columns = self.tiles, statement.columns
        wide, high = columns // TILE_WORDS, len(statement.offsets)
        lefts = [wide * high + row for row in range(high)]
        rights = [wide * high + high + column for column in range(wide)]
        offsets = [self.value(each) for each in statement.offsets]
        place = self.value(statement.place)
        for number in range(wide * high):
            tiles.zero(self.here, number)

        def step(counter: Lanes) -> None:
            b = self.here
            along = b.binary("mul", counter, Lanes(str(TILE_WORDS), INDEX))
            down = b.binary("mul", counter, Lanes(str(TILE_WORDS * columns), INDEX))
            begin = b.binary("add", place, down)
            for column, right in enumerate(rights):
                words = advance(b, begin, column * TILE_WORDS)
                tiles.load(
                    b,
                    right,
                    tile_address(self.pointers[statement.right.name], words, b),
                    4 * columns,
                )
            for row, left in enumerate(lefts):
                words = b.binary("add", offsets[row], along)
                tiles.load(
                    b,
                    left,
                    tile_address(self.pointers[statement.left.name], words, b),
                    4 * statement.stride,
                )
                for column, right in enumerate(rights):
                    tiles.multiply(b, row * wide + column, left, right)

        counter = Symbol("_r_tile", 0, statement.steps - 1)
        ends = Lanes("0", INDEX), Lanes(str(statement.steps), INDEX)
        self._emit_counted(counter, *ends, 1, step, may_be_empty=False)
        for row in range(high):
            for column in range(wide):
                words = row * TILE_ROWS * columns + column * TILE_WORDS
                sums = self.pointers[statement.sums.name]
                address = tile_address(sums, Lanes(str(words), INDEX), self.here)
                tiles.store(self.here, row * wide + column, address, 4 * columns)

    def _unpacking(self) -> str:
        """``@name(arguments, begin, end)``: read the arguments and run the range."""
        nest = self.nest
        function = Function(f"define void @{nest.name}(ptr %arguments, i64 %begin, i64 %end) #0")
        b = Builder(function, function.entry, self.declarations)
        passed: list[str] = []
        slots = [("ptr", buffer.name) for buffer in nest.buffers]
        slots += [("i64", symbol.name) for symbol in nest.sizes] + [("ptr", "status")]
        for k, (kind, _) in enumerate(slots):
            place = b.assign("ptr", 1, f"getelementptr i64, ptr %arguments, i64 {k}")
            passed.append(str(b.assign(kind, 1, f"load {kind}, ptr {place.text}, align 8")))
        passed += ["i64 %begin", "i64 %end"]
        b.line(f"call void @{nest.name}.range({', '.join(passed)})")
        b.line("ret void")
        return function.text()

    def _statements(self, body: Sequence[Statement]) -> None:
        for statement in body:
            for scope in self.scopes:
                scope.changing.clear()
            match statement:
                case Let(variable, value):
                    self.scopes[-1].variables[variable.name] = self.value(value)
                case Accumulator(variable, kind):
                    self._declare(variable, kind)
                case Combine():
                    self._combine(statement)
                case Write():
                    self._write(statement)
                case Prefetch():
                    self._prefetch(statement)
                case MultiplyTiles():
                    self._multiply_tiles(statement)
                case Declare(variable, value):
                    self._declare_cell(variable, value)
                case Assign(variable, value):
                    self._assign_cell(variable, value)
                case If():
                    self._conditional(statement)
                case While():
                    self._emit_while(statement)
                case Loop(symbol, start, extent, inner, LoopKind.SERIAL, _):
                    first = self.dim(start)
                    last = self.here.binary("add", first, self.dim(extent))
                    may_be_empty = not is_at_least(extent, 1)
                    self._serial(symbol, first, last, inner, may_be_empty=may_be_empty)
                case Loop():
                    self._emit_vectorized(statement)
            if isinstance(statement, Loop):
                self._settle(body, statement)

    def _settle(self, body: Sequence[Statement], loop: Loop) -> None:
        """The loop is done: what its accumulators hold is known from here on."""
        done = set(find_accumulators(loop.body))
        for statement in body:
            if isinstance(statement, Accumulator) and statement.variable.name in done:
                name = statement.variable.name
                self.scopes[-1].variables[name] = self.partials[name].result(self.here)

    @contextmanager
    def _scope(
        self,
        block: Block,
        symbols: dict[Symbol, Lanes],
        *,
        conditional: bool = False,
        may_be_empty: bool = False,
    ) -> Iterator[Scope]:
        builder = Builder(self.function, block, self.declarations)
        self.scopes.append(
            Scope(builder, symbols, is_conditional=conditional, may_be_empty=may_be_empty)
        )
        yield self.scopes[-1]
        self.scopes.pop()

    def _declare_cell(self, variable: Variable, value: Expr) -> None:
        """A variable in memory, one a lane if they differ; LLVM keeps it in registers."""
        held = self.value(value)
        if self.vector is not None and variable.name in self.cells_of_lanes:
            held = self.here.splat(held, self.vector.width)
        place = self.function.name("cell")
        self.entry.line(f"{place} = alloca {held.type}")
        self.cells[variable.name] = place, held
        self.here.line(f"store {held}, ptr {place}")

    def _assign_cell(self, variable: Variable, value: Expr) -> None:
        place, first = self.cells[variable.name]
        held = self.here.splat(self.value(value), first.lanes)
        self.here.line(f"store {held}, ptr {place}")

    def _conditional(self, statement: If) -> None:
        """``if``; the builder moves on to what follows."""
        condition = self.value(statement.condition)
        assert condition.lanes == 1, "the lanes of a vector go the same way"
        body, exit_ = self.function.block("then"), self.function.block("after")
        self.here.line(f"br {condition}, label %{body.label}, label %{exit_.label}")
        self._branch(body, exit_, statement.body, exit_)

    def _branch(
        self, block: Block, following: Block, body: Sequence[Statement], exit_: Block
    ) -> None:
        """Statements in a block that may not run, which then goes to ``following``."""
        self.scopes[-1].is_open = False
        self.function.place(block)
        with self._scope(block, {}, conditional=True) as inside:
            self._statements(body)
            inside.builder.line(f"br label %{following.label}")
        self.function.place(exit_)
        self.scopes[-1].is_open = True
        self.here.block = exit_

    def _emit_while(self, statement: While) -> None:
        """``while``: the test is a scope of its own around the body."""
        function = self.function
        test, body, exit_ = (function.block(hint) for hint in ("test", "body", "after"))
        self.here.line(f"br label %{test.label}")
        self.scopes[-1].is_open = False
        function.place(test)
        with self._scope(test, {}, conditional=True) as inside:
            self._statements(statement.test)
            condition = self.value(statement.condition)
            assert condition.lanes == 1, "the lanes of a vector go the same way"
            inside.builder.line(f"br {condition}, label %{body.label}, label %{exit_.label}")
            self._branch(body, test, statement.body, exit_)
        self.scopes[-1].is_open = True
        self.here.block = exit_

    def _serial(
        self,
        symbol: Symbol,
        first: Lanes,
        last: Lanes,
        body: Sequence[Statement],
        step: int = 1,
        *,
        may_be_empty: bool,
    ) -> None:
        """``for symbol in range(first, last, step)``; the builder moves on to what follows."""

        def statements(_: Lanes) -> None:
            self._statements(body)

        self._emit_counted(symbol, first, last, step, statements, may_be_empty=may_be_empty)

    def _emit_counted(
        self,
        symbol: Symbol,
        first: Lanes,
        last: Lanes,
        step: int,
        body: Callable[[Lanes], None],
        *,
        may_be_empty: bool,
    ) -> None:
        """A loop whose body is written by a function of the counter."""
        function = self.function
        before, head, exit_ = (function.block(hint) for hint in ("before", "loop", "after"))
        nonempty = self.here.compare("icmp slt", first, last)
        self.here.line(f"br {nonempty}, label %{before.label}, label %{exit_.label}")
        self.scopes[-1].is_open = False
        function.place(before)
        counter = function.name("i")
        with self._scope(before, {}, may_be_empty=may_be_empty) as outside:
            function.place(head)
            with self._scope(head, {symbol: Lanes(counter, INDEX)}) as inside:
                body(Lanes(counter, INDEX))
                following = inside.builder.assign(INDEX, 1, f"add nuw nsw i64 {counter}, {step}")
                test = "icmp ne" if step == 1 else "icmp slt"  # where it is exact, it is quicker
                again = inside.builder.compare(test, following, last)
                inside.builder.line(
                    f"br {again}, label %{head.label}, label %{exit_.label}, !llvm.loop !0"
                )
                latch = inside.builder.block.label
            outside.builder.line(f"br label %{head.label}")
            phi = f"{counter} = phi i64 [ {first.text}, %{outside.builder.block.label} ]"
            head.lines.insert(0, f"{phi}, [ {following.text}, %{latch} ]")
        function.place(exit_)
        self.scopes[-1].is_open = True
        self.here.block = exit_

    def _emit_vectorized(self, loop: Loop) -> None:
        """Whole vectors first, then the rest under a mask."""
        assert self.vector is None, "vector loops do not nest"
        names = find_accumulators(loop.body)
        partials = {
            name: self.partials[name].begin_lanes(self.entry, self.here, loop.width)
            for name in names
        }
        outer, self.partials = self.partials, {**self.partials, **partials}
        width = loop.width
        self.body_loads = loads_of(loop.body)
        self.cells_of_lanes = lanewise_variables(loop)
        self.joins = join_writes(loop.body, loop.symbol, width)
        start, extent = self.dim(loop.start), self.dim(loop.extent)
        static = loop.extent if isinstance(loop.extent, int) else None
        head = self._head(loop, extent)
        first, left = start, extent
        if head is not None:
            self._before_a_line(loop, start, head)
            first = self.here.binary("add", start, head)
            left = self.here.binary("sub", extent, head)
            static = None
        b = self.here
        if width & (width - 1):
            rest = b.binary("urem", left, Lanes(str(width), INDEX))
            whole = b.binary("sub", left, rest)
        else:
            whole = b.binary("and", left, Lanes(str(-width), INDEX))
        split = b.binary("add", first, whole)
        if static is None or static >= width:
            self.vector = Vector(loop.symbol, width, None, in_pairs=self._in_pairs(loop))
            self._whole_vectors(loop, first, split, partials)
        tail = tail_of(loop, self.body_loads, aliased=self.aliased, head=head is not None)
        if tail.kind is not TailKind.NONE:
            self._remainder(loop, tail, split, start, extent)
        self.vector = None
        self.joins = {}
        self.aligned.clear()
        self.partials = outer
        for name, lanes in partials.items():
            lanes.finish_into(self.here, outer[name])

    def _whole_vectors(
        self, loop: Loop, first: Lanes, last: Lanes, partials: dict[str, Partial]
    ) -> None:
        """The vectors of a loop; long sums in runs, whose sums are added up lane by lane.

        A sum's rounding then grows with the length of a run and the number of runs, not with the
        length of the row. A loop that also keeps values has no register to spare for them.
        """
        sums = {name: each for name, each in partials.items() if each.reduction.loses_digits}
        if any(isinstance(each, Write) and not each.streaming for each in loop.body):
            sums = {}
        length = MAX_VECTORS_PER_SUM * loop.width
        may_be_empty = not is_at_least(loop.extent, 1)

        def vectors(begin: Lanes, end: Lanes) -> None:
            self._serial(loop.symbol, begin, end, loop.body, loop.width, may_be_empty=may_be_empty)

        if not sums or not is_at_least(loop.extent, 2 * length, possibly=True):
            vectors(first, last)
            return

        def one_run(start: Lanes) -> None:
            end = self.here.binary("add", start, Lanes(str(length), INDEX))
            end = self.here.intrinsic("smin", end, last)
            own = {
                name: each.begin_lanes(self.entry, self.here, loop.width)
                for name, each in sums.items()
            }
            outer, self.partials = self.partials, {**self.partials, **own}
            vectors(start, end)
            self.partials = outer
            for name, each in own.items():
                sums[name].combine(self.here, each.result(self.here), None, None)

        run = Symbol("_run", 0, None)
        self._emit_counted(run, first, last, length, one_run, may_be_empty=may_be_empty)

    def _in_pairs(self, loop: Loop) -> bool:
        """Whether whole vectors of a loop keep even elements first, then odd ones."""
        return not self.joins and are_pairs(loop.body, loop.symbol, loop.width)

    def _head(self, loop: Loop, extent: Lanes) -> Lanes | None:
        """How many elements come before the first cache line that begins in a loop.

        A row may begin anywhere, but only whole lines can be written past the cache: the elements
        before them are written on their own. None where a loop writes nothing past the cache or
        begins with a line, or where that would not pay: in short rows, and if it also reduces.
        """
        if any(not isinstance(statement, Write | Let | Prefetch) for statement in loop.body):
            return None
        for write in loop.body:
            if not isinstance(write, Write) or not write.streaming:
                continue
            elements = CACHE_LINE_BYTES // write.buffer.dtype.numpy.itemsize
            if loop.width % elements or not is_at_least(
                loop.extent, GENERIC.min_streamed_lines * elements
            ):
                continue
            if not isinstance(write.offset, Index):
                continue
            offset = write.offset.dim
            is_contiguous = coefficient(offset, loop.symbol) == 1
            if not is_contiguous or is_multiple(offset, elements, loop.symbol):
                continue
            self.aligned.add(write.offset)
            first = self.dim(substitute_dim(offset, {loop.symbol: loop.start}))
            before = self.here.binary("sub", Lanes("0", INDEX), first)
            before = self.here.binary("and", before, Lanes(str(elements - 1), INDEX))
            return self.here.intrinsic("smin", before, extent)
        return None

    def _before_a_line(self, loop: Loop, start: Lanes, head: Lanes) -> None:
        """The elements before the first line."""
        nonempty = self.here.compare("icmp sgt", head, Lanes("0", INDEX))
        self._once(loop, nonempty, start, head)

    def _remainder(self, loop: Loop, tail: Tail, split: Lanes, start: Lanes, extent: Lanes) -> None:
        """What no whole vector is left for, from ``split`` on (``tails``)."""
        end = self.here.binary("add", start, extent)
        left = self.here.binary("sub", end, split)
        nonempty = self.here.compare("icmp sgt", left, Lanes("0", INDEX))
        if tail.kind is TailKind.SHORTER:
            self._shorter_vectors(loop, nonempty, split, tail.widths)
            return
        if tail.kind is TailKind.MASKED:
            self._once(loop, nonempty, split, left)
            return
        width = Lanes(str(loop.width), INDEX)
        last = self.here.binary("sub", end, width)
        fits = self.here.compare("icmp sge", extent, width)
        self._once(loop, self.here.binary("and", nonempty, fits), last, None)
        if tail.or_masked:
            short = self.here.compare("icmp slt", extent, width)
            self._once(loop, self.here.binary("and", nonempty, short), split, left)

    def _shorter_vectors(
        self, loop: Loop, nonempty: Lanes, first: Lanes, sizes: Sequence[int]
    ) -> None:
        """What is left over, in vectors of these sizes."""
        joins = self.joins
        for size in sizes:
            shorter = replace(loop, width=size)
            self.joins = join_writes(loop.body, loop.symbol, size)
            self._once(shorter, nonempty, first, None)
            first = self.here.binary("add", first, Lanes(str(size), INDEX))
        self.joins = joins

    def _once(self, loop: Loop, condition: Lanes, first: Lanes, left: Lanes | None) -> None:
        """One vector at ``first``, if the condition holds; only ``left`` lanes of it, if given."""
        function, width = self.function, loop.width
        body, exit_ = function.block("rest"), function.block("done")
        self.here.line(f"br {condition}, label %{body.label}, label %{exit_.label}")
        self.scopes[-1].is_open = False
        function.place(body)
        may_be_empty = not is_at_least(loop.extent, 1)
        with self._scope(body, {loop.symbol: first}, may_be_empty=may_be_empty) as inside:
            b = inside.builder
            mask = None
            if left is not None:
                mask = tail_mask(b, left, width)
            in_pairs = mask is None and self._in_pairs(loop)
            self.vector = Vector(loop.symbol, width, mask, is_aligned=False, in_pairs=in_pairs)
            if width == 1:
                self.vector = None
            self._statements(loop.body)
            inside.builder.line(f"br label %{exit_.label}")
        function.place(exit_)
        self.scopes[-1].is_open = True
        self.here.block = exit_

    # Reductions -----------------------------------------------------------------------------------

    def _declare(self, variable: Variable, kind: str) -> None:
        lanes = 1 if self.vector is None else self.vector.width
        value_dtype, positions = self.combined[variable.name]
        reduction = reduction_of(kind, value_dtype, positions)
        if self.vector is not None:
            self.lanewise.add(variable.name)
        is_sum = variable.name in self.sums_of_sums
        rarely = is_sum and (
            len(self.sums_of_sums) > MAX_REGISTER_SUMS or lanes > MAX_REGISTER_LANES
        )
        self.partials[variable.name] = Partial(reduction, self.entry, self.here, lanes, rarely)

    @cached_property
    def sums_of_sums(self) -> set[str]:
        """Accumulators of what other accumulators hold."""
        return set(sums_of_sums(self.nest.body))

    @cached_property
    def combined(self) -> dict[str, tuple[DType, int | None]]:
        """The dtype of what each accumulator combines, and the largest position, if known."""
        return dict(find_combined_dtypes(self.nest.body))

    def _combine(self, statement: Combine) -> None:
        partial = self.partials[statement.variable.name]
        lanes = partial.lanes
        mask = None if self.vector is None else self.vector.mask
        if statement.variable.name in self.lanewise:
            mask = None  # what lies beyond the edge is never looked at
        position = None
        if partial.reduction.has_position:
            position = self.here.splat(self.value(statement.position), lanes)
        product = match_summed_product(statement) if statement.kind == "sum" else None
        if product is not None and mask is None:
            a, b = (self.here.splat(self.value(x), lanes) for x in product.operands)
            partial.fuse(self.here, a, b)
            return
        dot = match_summed_dot(statement) if mask is None else None
        instruction = None if dot is None else self.dots.get(dot.function)
        if dot is not None and instruction is not None and instruction.takes_lanes(lanes):
            left, right = (self.value(each) for each in dot.operands)
            partial.add_dots(self.here, instruction, left, right)
            return
        value = self.here.splat(self.value(statement.value), lanes)
        partial.combine(self.here, value, position, mask)
