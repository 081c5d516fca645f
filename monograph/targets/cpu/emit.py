"""A loop nest as an LLVM function over a range of its parallel loop.

    define void @kernel(ptr %arguments, i64 %begin, i64 %end)

A value is emitted in the outermost loop in which everything it depends on is known: what does not
change along a vector stays a scalar until it meets one. A vector loop runs in steps of its width;
what is left over runs once more under a mask, so every size takes the same instructions.

A reduction along the vector axis keeps one partial result a lane, and the lanes are then combined
in halves: lane k with lane k + width/2, and so on down to one. The order depends on the schedule
alone, never on the number of threads.

What a nest changes as it goes (a declared variable, a volatile buffer) is read where it is
asked for, every time; nothing moves out of a condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from monograph.ir.dims import Dim, FloorDiv, Max, Min, Mod, Operation, Symbol, SymbolicDim
from monograph.ir.types import DType, bool_, i64
from monograph.kernel import mathlib
from monograph.kernel.expr import Apply, Buffer, Expr, Index, Literal, Load, Variable, walk
from monograph.kernel.flatten import coefficient
from monograph.kernel.loops import (
    Accumulator,
    Assign,
    Combine,
    Declare,
    If,
    Let,
    Loop,
    LoopKind,
    LoopNest,
    Prefetch,
    Statement,
    While,
    Write,
)
from monograph.kernel.scalar import APPROXIMATED
from monograph.targets.cpu import instructions
from monograph.targets.cpu.assembly import (
    INDEX,
    Block,
    Builder,
    Function,
    Lanes,
    constant_vector,
    element_type,
    memory_type,
    number,
    transposed,
    type_suffix,
    vector_type,
)
from monograph.targets.cpu.reductions import Partial, reduction_of

MANY_SUMS = 3
"""Sums of partial sums up to which they find room in registers beside those."""
LINE = 64
"""Bytes in a cache line."""
ALIGNMENT = 64
"""Scratch, and every output that is written past the cache, begins at a multiple of this."""
CHANGING = "!"
"""Stands among the names that an expression reads if its value changes as the nest runs."""


@dataclass
class _Scope:
    """A loop body, or the code just before a loop: what is bound there and computed there."""

    builder: Builder
    symbols: dict[Symbol, Lanes]
    values: dict[Expr, Lanes] = field(default_factory=dict)
    variables: dict[str, Lanes] = field(default_factory=dict)
    dims: dict[Dim, Lanes] = field(default_factory=dict)
    is_open: bool = True
    """False while a loop inside it is emitted: nothing can be added before that loop then."""
    is_conditional: bool = False
    """Whether it may not run at all: nothing that belongs to it is computed outside."""


@dataclass(frozen=True)
class _Vector:
    """The vector loop that is being emitted: its axis, lanes, and the mask of the remainder."""

    symbol: Symbol
    width: int
    mask: Lanes | None


class NestEmitter:
    """Writes one loop nest; ``declarations`` gathers the intrinsics that it needs."""

    def __init__(self, nest: LoopNest, declarations: set[str], aliased: bool = False) -> None:
        self.nest = nest
        self.declarations = declarations
        self.aliased = aliased
        self.scopes: list[_Scope] = []
        self.vector: _Vector | None = None
        self.partials: dict[str, Partial] = {}
        self.pointers: dict[str, str] = {}
        self.names: dict[Expr, frozenset[str]] = {}
        self.body_loads: list[Load] = []
        self.cells: dict[str, tuple[str, Lanes]] = {}
        self.has_checks = False
        self.streams = False

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
        start = self.function.place(self.function.block("start"))
        self.scopes = [_Scope(Builder(self.function, start, self.declarations), symbols)]
        self._serial(nest.parallel, Lanes("%begin", INDEX), Lanes("%end", INDEX), nest.body)
        if self.streams:
            self.here.line("fence seq_cst")
        if self.has_checks:
            self._report_checks()
        self.here.line("ret void")
        entry.line(f"br label %{start.label}")
        return self.function.text() + self._unpacking()

    # Structure ----------------------------------------------------------------------------------

    @property
    def here(self) -> Builder:
        """Where the current scope's next instruction goes."""
        return self.scopes[-1].builder

    def _allocate(self, buffer: Buffer) -> str:
        """Scratch lives on the thread's stack; rows that are kept have a bounded size."""
        (size,) = buffer.shape
        upper = size if isinstance(size, int) else size.bounds()[1]
        assert upper is not None, "only rows of a bounded size are kept"
        name = self.function.name("row")
        memory = memory_type(buffer.dtype)
        padded = -(-upper // 64) * 64
        self.entry.line(f"{name} = alloca [{padded} x {memory}], align {ALIGNMENT}")
        return name

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
                case Declare(variable, value):
                    self._declare_cell(variable, value)
                case Assign(variable, value):
                    self._assign_cell(variable, value)
                case If():
                    self._conditional(statement)
                case While():
                    self._repeated(statement)
                case Loop(symbol, start, extent, inner, LoopKind.SERIAL, _):
                    first = self.dim(start)
                    last = self.here.binary("add", first, self.dim(extent))
                    self._serial(symbol, first, last, inner)
                case Loop():
                    self._vectorized(statement)
            if isinstance(statement, Loop):
                self._settle(body, statement)

    def _settle(self, body: Sequence[Statement], loop: Loop) -> None:
        """The loop is done: what its accumulators hold is known from here on."""
        done = set(_combined(loop.body))
        for statement in body:
            if isinstance(statement, Accumulator) and statement.variable.name in done:
                name = statement.variable.name
                self.scopes[-1].variables[name] = self.partials[name].result(self.here)

    @contextmanager
    def _scope(
        self, block: Block, symbols: dict[Symbol, Lanes], conditional: bool = False
    ) -> Iterator[_Scope]:
        builder = Builder(self.function, block, self.declarations)
        self.scopes.append(_Scope(builder, symbols, is_conditional=conditional))
        yield self.scopes[-1]
        self.scopes.pop()

    def _declare_cell(self, variable: Variable, value: Expr) -> None:
        """A variable in memory, one a lane; LLVM keeps it in registers."""
        held = self.value(value)
        if self.vector is not None:
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

    def _repeated(self, statement: While) -> None:
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
    ) -> None:
        """``for symbol in range(first, last, step)``; the builder moves on to what follows."""
        function = self.function
        before, head, exit_ = (function.block(hint) for hint in ("before", "loop", "after"))
        nonempty = self.here.compare("icmp slt", first, last)
        self.here.line(f"br {nonempty}, label %{before.label}, label %{exit_.label}")
        self.scopes[-1].is_open = False
        function.place(before)
        counter = function.name("i")
        with self._scope(before, {}) as outside:
            function.place(head)
            with self._scope(head, {symbol: Lanes(counter, INDEX)}) as inside:
                self._statements(body)
                following = inside.builder.assign(INDEX, 1, f"add nuw nsw i64 {counter}, {step}")
                again = inside.builder.compare("icmp slt", following, last)
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

    def _vectorized(self, loop: Loop) -> None:
        """Whole vectors first, then the rest under a mask."""
        assert self.vector is None, "vector loops do not nest"
        combined = _combined(loop.body)
        partials = {
            name: self.partials[name].begin_lanes(self.entry, self.here, loop.width)
            for name in combined
        }
        outer, self.partials = self.partials, {**self.partials, **partials}
        width = loop.width
        self.body_loads = _loads(loop.body)
        start, extent = self.dim(loop.start), self.dim(loop.extent)
        static = loop.extent if isinstance(loop.extent, int) else None
        b = self.here
        whole = b.binary("and", extent, Lanes(str(-width), INDEX))
        split = b.binary("add", start, whole)
        if static is None or static >= width:
            self.vector = _Vector(loop.symbol, width, None)
            self._serial(loop.symbol, start, split, loop.body, width)
        if static is None or static % width:
            self._remainder(loop, split, start, extent)
        self.vector = None
        self.partials = outer
        for name, lanes in partials.items():
            lanes.finish_into(self.here, outer[name])

    def _remainder(self, loop: Loop, split: Lanes, start: Lanes, extent: Lanes) -> None:
        function = self.function
        width = loop.width
        body, exit_ = function.block("rest"), function.block("done")
        end = self.here.binary("add", start, extent)
        left = self.here.binary("sub", end, split)
        nonempty = self.here.compare("icmp sgt", left, Lanes("0", INDEX))
        self.here.line(f"br {nonempty}, label %{body.label}, label %{exit_.label}")
        self.scopes[-1].is_open = False
        function.place(body)
        with self._scope(body, {loop.symbol: split}) as inside:
            b = inside.builder
            narrow = b.convert("trunc", left, "i32")
            lanes = ", ".join(f"i32 {k}" for k in range(width))
            numbers = Lanes(f"<{lanes}>", "i32", width)
            mask = b.compare("icmp slt", numbers, b.splat(narrow, width))
            self.vector = _Vector(loop.symbol, width, mask)
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
        rarely = variable.name in self.sums_of_sums and len(self.sums_of_sums) > MANY_SUMS
        self.partials[variable.name] = Partial(reduction, self.entry, self.here, lanes, rarely)

    @cached_property
    def sums_of_sums(self) -> set[str]:
        """Accumulators of what other accumulators hold."""
        return set(_sums_of_sums(self.nest.body))

    @cached_property
    def combined(self) -> dict[str, tuple[DType, int | None]]:
        """The dtype of what each accumulator combines, and the largest position, if known."""
        return dict(_combined_dtypes(self.nest.body))

    def _combine(self, statement: Combine) -> None:
        partial = self.partials[statement.variable.name]
        lanes = partial.lanes
        mask = None if self.vector is None else self.vector.mask
        position = None
        if partial.reduction.has_position:
            position = self.here.splat(self.value(statement.position), lanes)
        product = _product(statement) if statement.kind == "sum" else None
        if product is not None and mask is None:
            a, b = (self.here.splat(self.value(x), lanes) for x in product.operands)
            partial.fuse(self.here, a, b)
            return
        value = self.here.splat(self.value(statement.value), lanes)
        partial.combine(self.here, value, position, mask)

    # Values ---------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Lanes:
        """An expression's value: a scalar if it is the same in every lane."""
        for scope in reversed(self.scopes):
            if expr in scope.values:
                return scope.values[expr]
        if isinstance(expr, Variable):
            return self._variable(expr)
        if isinstance(expr, Literal):
            element = element_type(expr.dtype)
            return Lanes(number(expr.value, element), element)
        if CHANGING in self._names(expr):
            return self._emitted(expr)
        level = self._level(expr)
        kept, self.scopes = self.scopes, self.scopes[: level + 1]
        found = self._emitted(expr)
        self.scopes[-1].values[expr] = found
        self.scopes = kept
        return found

    def _level(self, expr: Expr) -> int:
        """The outermost scope in which everything that the expression depends on is known."""
        names = self._names(expr)
        symbols = set(expr.symbols)
        level = 0
        for k, scope in enumerate(self.scopes):
            bound = symbols & scope.symbols.keys() or names & scope.variables.keys()
            if bound or scope.is_conditional:
                level = k
        return next(k for k in range(level, len(self.scopes)) if self.scopes[k].is_open)

    def _names(self, expr: Expr) -> frozenset[str]:
        """The variables that an expression reads."""
        found = self.names.get(expr)
        if found is None:
            if isinstance(expr, Variable):
                found = frozenset((expr.name,))
            else:
                found = frozenset[str]().union(*map(self._names, expr.operands))
            if isinstance(expr, Load) and expr.buffer.name in self.nest.volatile:
                found |= {CHANGING}
            self.names[expr] = found
        return found

    def _variable(self, variable: Variable) -> Lanes:
        if variable.name in self.cells:
            place, held = self.cells[variable.name]
            return self.here.assign(held.element, held.lanes, f"load {held.type}, ptr {place}")
        for scope in reversed(self.scopes):
            if variable.name in scope.variables:
                return scope.variables[variable.name]
        raise AssertionError(f"{variable.name} is read before it is computed\n{self.nest}")

    def _emitted(self, expr: Expr) -> Lanes:
        if isinstance(expr, Index):
            return self._index_value(expr)
        if isinstance(expr, Load):
            return self._load(expr)
        assert isinstance(expr, Apply), expr
        if expr.function == "checked":
            return self._checked(expr)
        if expr.function in APPROXIMATED:
            return self.value(mathlib.expand(expr))
        operands = [self.value(operand) for operand in expr.operands]
        lanes = max(operand.lanes for operand in operands)
        spread = tuple(self.here.splat(operand, lanes) for operand in operands)
        dtype = expr.operands[-1].dtype
        return instructions.FUNCTIONS[expr.function](self.here, dtype, expr.dtype, spread)

    def _checked(self, expr: Apply) -> Lanes:
        """A position from data: out of range is noted, and reads element 0 instead."""
        b = self.here
        position, size = (self.value(operand) for operand in expr.operands)
        inside = b.compare("icmp ult", position, b.splat(size, position.lanes))
        zero = constant_vector(Lanes("0", INDEX), position.lanes)
        bad = b.binary("xor", inside, constant_vector(Lanes("true", "i1"), position.lanes))
        if self.vector is not None and self.vector.mask is not None and position.lanes > 1:
            bad = b.binary("and", bad, self.vector.mask)
        if position.lanes > 1:
            bad = self._any(bad)
        self._note(b, bad)
        return b.select(inside, position, zero)

    def _note(self, b: Builder, bad: Lanes) -> None:
        """Remember that a check failed; the thread tells it when it is done."""
        if not self.has_checks:
            self.has_checks = True
            self.entry.line("%bad = alloca i32")
            self.entry.line("store i32 0, ptr %bad")
        seen = b.assign("i32", 1, "load i32, ptr %bad")
        both = b.binary("or", seen, b.convert("zext", bad, "i32"))
        b.line(f"store {both}, ptr %bad")

    def _report_checks(self) -> None:
        seen = self.here.assign("i32", 1, "load i32, ptr %bad")
        self.here.assign("i32", 1, f"atomicrmw or ptr %status, {seen} monotonic")

    def _any(self, mask: Lanes) -> Lanes:
        b = self.here
        name = f"@llvm.vector.reduce.or.v{mask.lanes}i1"
        self.declarations.add(f"declare i1 {name}({mask.type})")
        return b.assign("i1", 1, f"call i1 {name}({mask})")

    # Memory ---------------------------------------------------------------------------------------

    def _load(self, load: Load) -> Lanes:
        b = self.here
        memory = memory_type(load.dtype)
        (offset,) = load.operands
        step = self._step(offset)
        alignment = load.dtype.bits // 8
        if step == 0:
            address = self._address(load.buffer, self.value(offset))
            raw = b.assign(memory, 1, f"load {memory}, ptr {address.text}, align {alignment}")
        elif step == 1:
            raw = self._contiguous_load(load, self._first(offset), memory, alignment)
        else:
            square = self._square(load, step)
            if square is not None:
                return square
            raw = self._gathered(load, memory, alignment)
        return self._to_register(raw, load.dtype)

    def _square(self, load: Load, step: int | None) -> Lanes | None:
        """A strided load whose neighbours are loaded too: read rows, and turn them in registers.

        Loads at ``p, p + 1, … p + n - 1``, each strided over the n lanes, are an n × n square. All
        of it is loaded with contiguous loads, and what belongs to the others is kept for them.
        """
        vector = self.vector
        if vector is None or vector.mask is not None or step is None:
            return None
        loads = self._neighbours(load, vector.width)
        if loads is None:
            return None
        b, memory = self.here, memory_type(load.dtype)
        first = self._first(loads[0].operands[0])
        rows = []
        for lane in range(vector.width):
            offset = b.binary("add", first, Lanes(str(lane * step), INDEX))
            address = self._address(load.buffer, offset)
            type_ = vector_type(memory, vector.width)
            place = f"ptr {address.text}, align {load.dtype.bits // 8}"
            rows.append(b.assign(memory, vector.width, f"load {type_}, {place}"))
        for each, column in zip(loads, transposed(b, rows), strict=True):
            self.scopes[-1].values[each] = self._to_register(column, load.dtype)
        return self.scopes[-1].values[load]

    def _neighbours(self, load: Load, count: int) -> list[Load] | None:
        """The loads of the loop body that, with this one, read ``count`` elements in a row."""
        (offset,) = load.operands
        if not isinstance(offset, Index) or count & (count - 1):
            return None
        if load.buffer.name in self.nest.volatile:
            return None
        found: dict[int, Load] = {}
        for other in self.body_loads:
            place = other.operands[0]
            if other.buffer == load.buffer and isinstance(place, Index):
                difference = place.dim - offset.dim
                if isinstance(difference, int) and abs(difference) < count:
                    found[difference] = other
        if found.get(0) is not load:  # of another loop, inside or outside
            return None
        low = min(found)
        if sorted(found) != list(range(low, low + count)):
            return None
        return [found[low + k] for k in range(count)]

    def _contiguous_load(self, load: Load, first: Lanes, memory: str, alignment: int) -> Lanes:
        assert self.vector is not None
        b, width = self.here, self.vector.width
        address = self._address(load.buffer, first)
        vector = vector_type(memory, width)
        mask = self.vector.mask
        if mask is None:
            return b.assign(memory, width, f"load {vector}, ptr {address.text}, align {alignment}")
        return self._masked(
            "load",
            vector,
            f"ptr align {alignment} {address.text}",
            mask,
            f"{vector} zeroinitializer",
        )

    def _masked(self, what: str, vector: str, place: str, mask: Lanes, default: str) -> Lanes:
        """A load or gather of the lanes under a mask."""
        element = vector.split(" x ")[1][:-1]
        short = Lanes("", element, mask.lanes)
        pointer = "p0" if what == "load" else f"v{mask.lanes}p0"
        kind = "ptr" if what == "load" else f"<{mask.lanes} x ptr>"
        name = f"@llvm.masked.{what}.{type_suffix(short)}.{pointer}"
        self.declarations.add(f"declare {vector} {name}({kind}, {mask.type}, {vector})")
        return self.here.assign(
            element, mask.lanes, f"call {vector} {name}({place}, {mask}, {default})"
        )

    def _gathered(self, load: Load, memory: str, alignment: int) -> Lanes:
        assert self.vector is not None
        b, width = self.here, self.vector.width
        offsets = b.splat(self.value(load.operands[0]), width)
        pointers = self._addresses(load.buffer, offsets)
        mask = self.vector.mask or constant_vector(Lanes("true", "i1"), width)
        vector = vector_type(memory, width)
        return self._masked(
            "gather",
            vector,
            f"<{width} x ptr> align {alignment} {pointers.text}",
            mask,
            f"{vector} zeroinitializer",
        )

    def _write(self, write: Write) -> None:
        b = self.here
        alignment = write.buffer.dtype.bits // 8
        value = self._to_memory(self.value(write.value), write.buffer.dtype)
        step = self._step(write.offset)
        if self.vector is None or step == 0:
            address = self._address(write.buffer, self.value(write.offset))
            b.line(f"store {value}, ptr {address.text}, align {alignment}")
            return
        value = b.splat(value, self.vector.width)
        mask = self.vector.mask
        if step == 1:
            address = self._address(write.buffer, self._first(write.offset))
            if mask is None:
                hint, aligned = self._streaming(write, alignment)
                b.line(f"store {value}, ptr {address.text}, align {aligned}{hint}")
                return
            self._masked_store("store", value, f"ptr align {alignment} {address.text}", "p0", mask)
            return
        offsets = b.splat(self.value(write.offset), self.vector.width)
        pointers = self._addresses(write.buffer, offsets)
        everywhere = mask or constant_vector(Lanes("true", "i1"), self.vector.width)
        place = f"{pointers.type} align {alignment} {pointers.text}"
        self._masked_store("scatter", value, place, f"v{value.lanes}p0", everywhere)

    def _prefetch(self, statement: Prefetch) -> None:
        """One request a cache line; nothing where neighbours are far apart."""
        if self.vector is None or self.vector.mask is not None or self._step(statement.offset) != 1:
            return
        self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        first = self._first(statement.offset)
        nbytes = self.vector.width * statement.buffer.dtype.bits // 8
        per_line = LINE * 8 // statement.buffer.dtype.bits
        for line in range(max(1, nbytes // LINE)):
            offset = self.here.binary("add", first, Lanes(str(line * per_line), INDEX))
            address = self._address(statement.buffer, offset, inbounds="")
            self.here.line(f"call void @llvm.prefetch.p0(ptr {address.text}, i32 0, i32 3, i32 1)")

    def _streaming(self, write: Write, alignment: int) -> tuple[str, int]:
        """A hint to write past the cache, where the address is known to be aligned."""
        if not write.streaming or self.vector is None or not isinstance(write.offset, Index):
            return "", alignment
        aligned = min(64, self.vector.width * write.buffer.dtype.bits // 8)
        elements = aligned * 8 // write.buffer.dtype.bits
        if not _is_multiple(write.offset.dim, elements, self.vector.symbol):
            return "", alignment
        self.streams = True
        return ", !nontemporal !1", aligned

    def _masked_store(self, what: str, value: Lanes, place: str, pointer: str, mask: Lanes) -> None:
        name = f"@llvm.masked.{what}.{type_suffix(value)}.{pointer}"
        kind = "ptr" if what == "store" else f"<{value.lanes} x ptr>"
        self.declarations.add(f"declare void {name}({value.type}, {kind}, {mask.type})")
        self.here.line(f"call void {name}({value}, {place}, {mask})")

    def _address(self, buffer: Buffer, offset: Lanes, inbounds: str = "inbounds ") -> Lanes:
        memory = memory_type(buffer.dtype)
        base = self.pointers[buffer.name]
        return self.here.assign("ptr", 1, f"getelementptr {inbounds}{memory}, ptr {base}, {offset}")

    def _addresses(self, buffer: Buffer, offsets: Lanes) -> Lanes:
        memory = memory_type(buffer.dtype)
        base = self.pointers[buffer.name]
        return self.here.assign(
            "ptr", offsets.lanes, f"getelementptr inbounds {memory}, ptr {base}, {offsets}"
        )

    def _to_register(self, raw: Lanes, dtype: DType) -> Lanes:
        if dtype is not bool_:
            return raw
        return self.here.compare("icmp ne", raw, constant_vector(Lanes("0", "i8"), raw.lanes))

    def _to_memory(self, value: Lanes, dtype: DType) -> Lanes:
        return self.here.convert("zext", value, "i8") if dtype is bool_ else value

    # Positions ------------------------------------------------------------------------------------

    def _step(self, offset: Expr) -> int | None:
        """How far apart neighbouring lanes are; None if that is not one known number."""
        if self.vector is None or self.vector.symbol not in offset.symbols:
            return 0 if not self._varies(offset) else None
        if isinstance(offset, Index):
            step = coefficient(offset.dim, self.vector.symbol)
            return step if isinstance(step, int) else None
        if isinstance(offset, Apply) and offset.function == "add":
            steps = [self._step(operand) for operand in offset.operands]
            known = [step for step in steps if step is not None]
            return sum(known) if len(known) == len(steps) else None
        return None

    def _varies(self, offset: Expr) -> bool:
        """Whether a variable in the position differs from lane to lane."""
        return any(self._variable(x).lanes > 1 for x in walk((offset,)) if isinstance(x, Variable))

    def _first(self, offset: Expr) -> Lanes:
        """The first lane's position."""
        if isinstance(offset, Apply) and offset.function == "add":
            return self.here.binary("add", *(self._first(x) for x in offset.operands))
        if isinstance(offset, Index):
            return self.dim(offset.dim)
        return self.value(offset)

    def _index_value(self, expr: Index) -> Lanes:
        """A position as a number; along the vector axis it differs from lane to lane."""
        vector = self.vector
        if vector is None or vector.symbol not in expr.symbols:
            return self.dim(expr.dim)
        step = coefficient(expr.dim, vector.symbol)
        if isinstance(step, int):
            lanes = ", ".join(f"i64 {k * step}" for k in range(vector.width))
            first = self.here.splat(self.dim(expr.dim), vector.width)
            return self.here.binary("add", first, Lanes(f"<{lanes}>", INDEX, vector.width))
        return self._vector_dim(expr.dim)

    def dim(self, dim: Dim) -> Lanes:
        """Index arithmetic on scalars (of the first lane, along the vector axis)."""
        if isinstance(dim, int):
            return Lanes(str(dim), INDEX)
        for scope in reversed(self.scopes):
            if dim in scope.dims:
                return scope.dims[dim]
        found = self._dim(dim, self._symbol, self.dim, 1)
        self.scopes[-1].dims[dim] = found
        return found

    def _vector_dim(self, dim: Dim) -> Lanes:
        """Index arithmetic lane by lane."""
        assert self.vector is not None
        width = self.vector.width
        if isinstance(dim, int):
            return constant_vector(Lanes(str(dim), INDEX), width)
        if self.vector.symbol not in dim.symbols():
            return self.here.splat(self.dim(dim), width)
        return self._dim(dim, self._symbol_lanes, self._vector_dim, width)

    def _symbol(self, symbol: Symbol) -> Lanes:
        for scope in reversed(self.scopes):
            if symbol in scope.symbols:
                return scope.symbols[symbol]
        raise AssertionError(f"{symbol} is not bound in {self.nest.name}\n{self.nest}")

    def _symbol_lanes(self, symbol: Symbol) -> Lanes:
        assert self.vector is not None
        width = self.vector.width
        first = self.here.splat(self._symbol(symbol), width)
        if symbol is not self.vector.symbol:
            return first
        lanes = ", ".join(f"i64 {k}" for k in range(width))
        return self.here.binary("add", first, Lanes(f"<{lanes}>", INDEX, width))

    def _dim(self, dim: SymbolicDim, of_symbol, recur, lanes: int) -> Lanes:  # type: ignore[no-untyped-def]
        b = self.here
        if isinstance(dim, Symbol):
            found: Lanes = of_symbol(dim)
            return found
        if isinstance(dim, Operation):
            return self._operation(dim, [recur(argument) for argument in dim.arguments])
        total: Lanes | None = None
        for atoms, factor in dim.terms():
            term: Lanes | None = None
            for atom in atoms:
                value = recur(atom)
                term = value if term is None else b.binary("mul nsw", term, value)
            scale = constant_vector(Lanes(str(factor), INDEX), lanes)
            if term is None:
                term = scale
            elif factor != 1:
                term = b.binary("mul nsw", term, scale)
            total = term if total is None else b.binary("add nsw", total, term)
        return total if total is not None else constant_vector(Lanes("0", INDEX), lanes)

    def _operation(self, dim: Operation, arguments: list[Lanes]) -> Lanes:
        b = self.here
        if isinstance(dim, Max | Min):
            word = "smax" if isinstance(dim, Max) else "smin"
            result = arguments[0]
            for argument in arguments[1:]:
                result = b.intrinsic(word, result, argument)
            return result
        numerator = dim.arguments[0]
        low = numerator if isinstance(numerator, int) else numerator.bounds()[0]
        positive = low is not None and low >= 0
        assert isinstance(dim, FloorDiv | Mod)
        if positive:
            word = "udiv" if isinstance(dim, FloorDiv) else "urem"
            return b.binary(word, arguments[0], instructions.positive_size(b, arguments[1]))
        name = "index_divide" if isinstance(dim, FloorDiv) else "index_remainder"
        return instructions.FUNCTIONS[name](b, i64, i64, tuple(arguments))


def _combined(body: Sequence[Statement]) -> list[str]:
    """The accumulators that are taken further in a loop and declared outside it."""
    declared = {s.variable.name for s in body if isinstance(s, Accumulator)}
    names: list[str] = []
    for statement in body:
        if isinstance(statement, Combine) and statement.variable.name not in declared:
            names.append(statement.variable.name)
        if isinstance(statement, Loop):
            names += [name for name in _combined(statement.body) if name not in declared]
    return list(dict.fromkeys(names))


def _loads(body: Sequence[Statement]) -> list[Load]:
    """What the statements of a loop body load, loops inside it excepted."""
    roots = tuple(s.value for s in body if isinstance(s, Let | Combine | Write))
    return [expr for expr in walk(roots) if isinstance(expr, Load)]


def _sums_of_sums(body: Sequence[Statement]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, Loop):
            yield from _sums_of_sums(statement.body)
        elif (
            isinstance(statement, Combine)
            and statement.kind == "sum"
            and isinstance(statement.value, Variable)
        ):
            yield statement.variable.name


def _combined_dtypes(
    body: Sequence[Statement],
) -> Iterator[tuple[str, tuple[DType, int | None]]]:
    for statement in body:
        if isinstance(statement, Combine):
            largest = None
            if isinstance(statement.position, Index):
                dim = statement.position.dim
                largest = dim if isinstance(dim, int) else dim.bounds()[1]
            yield statement.variable.name, (statement.value.dtype, largest)
        elif isinstance(statement, Loop):
            yield from _combined_dtypes(statement.body)


def _product(statement: Combine) -> Apply | None:
    """The product that is summed, if it is one of floats."""
    value = statement.value
    if isinstance(value, Apply) and value.function == "multiply" and value.dtype.is_float:
        return value
    return None


def _is_multiple(dim: Dim, elements: int, vector: Symbol) -> bool:
    """Whether a position is a multiple of ``elements`` whenever the vector's start is."""
    if isinstance(dim, int):
        return dim % elements == 0
    for atoms, factor in dim.terms():
        if factor % elements and not (factor == 1 and atoms == (vector,)):
            return False
    return True
