"""Values of a loop nest: which instructions compute an expression, and where they stand.

A value is emitted in the outermost loop in which everything it depends on is known: what does not
change along a vector stays a scalar until it meets one. Loads and stores look at how far apart
neighbouring lanes are: the same element, the next one, or a square that is turned in registers;
anything else is gathered. What a nest changes as it goes (a declared variable, a volatile buffer)
is read where it is asked for, every time.
"""

from __future__ import annotations

from monograph.ir.types import DType, bf16, bool_, f32, i32
from monograph.kernel import mathlib, narrow
from monograph.kernel.expr import Apply, Buffer, Expr, Index, Literal, Load, Variable, walk
from monograph.kernel.flatten import coefficient
from monograph.kernel.loops import (
    LoopNest,
    Prefetch,
    Write,
)
from monograph.kernel.mathlib import remainder
from monograph.kernel.scalar import APPROXIMATED
from monograph.targets.cpu import bfloat, instructions
from monograph.targets.cpu.assembly import (
    INDEX,
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
from monograph.targets.cpu.joined_writes import PAIR, Join
from monograph.targets.cpu.positions import PositionEmitter, Scope, Vector, is_multiple
from monograph.targets.cpu.reductions import Partial, halves

LINE = 64
"""Bytes in a cache line."""
ALIGNMENT = 64
"""Scratch, and every output that is written past the cache, begins at a multiple of this."""
REGISTER = 256
"""Bits of a vector that are tested at once; where registers are smaller it is two of them."""
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
CHANGING = "!"
"""Stands among the names that an expression reads if its value changes as the nest runs."""


class ValueEmitter(PositionEmitter):
    """Emits the expressions of one loop nest; ``declarations`` gathers the intrinsics it needs."""

    function: Function
    entry: Builder

    def __init__(self, nest: LoopNest, declarations: set[str], aliased: bool = False) -> None:
        self.nest = nest
        self.declarations = declarations
        self.aliased = aliased
        self.scopes: list[Scope] = []
        self.vector: Vector | None = None
        self.partials: dict[str, Partial] = {}
        self.pointers: dict[str, str] = {}
        self.names: dict[Expr, frozenset[str]] = {}
        self.cells_of_lanes: frozenset[str] = frozenset()
        self.body_loads: list[Load] = []
        self.cells: dict[str, tuple[str, Lanes]] = {}
        self.lanewise: set[str] = set()
        self.joins: dict[int, Join] = {}
        """Writes of the vector loop that is being emitted that are stored together."""
        self.aligned: set[Expr] = set()
        """Positions at which the vector loop that is being emitted begins with a cache line."""
        self.has_checks = False
        self.streams = False

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
        if expr.function == "rarely":
            return self._rarely(expr)
        if expr.function in APPROXIMATED:
            return self.value(mathlib.expand(expr))
        if remainder.is_short_division(expr):
            return self.value(remainder.expand(expr))
        if narrow.involves_narrow(expr):
            return self.value(narrow.expand(expr))
        if expr.function in COMPARISONS:
            compared = self._compared_positions(expr)
            if compared is not None:
                return compared
        if expr.function == "cast" and expr.dtype.is_float:
            narrow_position = self.narrow_position(expr.operands[0])
            if narrow_position is not None:
                return instructions.cast(self.here, narrow_position, i32, expr.dtype)
        operands = [self.value(operand) for operand in expr.operands]
        in_pairs = self.vector is not None and self.vector.in_pairs and operands[0].lanes > 1
        if in_pairs and expr.function in bfloat.CONVERSIONS:
            return self._converted_pairs(operands[0], expr.operands[0].dtype, expr.dtype)
        lanes = max(operand.lanes for operand in operands)
        spread = tuple(self.here.splat(operand, lanes) for operand in operands)
        dtype = expr.operands[-1].dtype
        return instructions.FUNCTIONS[expr.function](self.here, dtype, expr.dtype, spread)

    def _converted_pairs(self, x: Lanes, dtype: DType, result: DType) -> Lanes:
        """A conversion in a loop whose lanes stand in pairs; bf16s lie as they do in memory."""
        b = self.here
        if dtype is bf16:
            x, dtype = bfloat.widened_pairs(b, x), f32
        if result is not bf16:
            return instructions.cast(b, x, dtype, result)
        return bfloat.narrowed_pairs(b, instructions.cast(b, x, dtype, f32))

    def _compared_positions(self, expr: Apply) -> Lanes | None:
        """Positions along the vector compared with one number, in 32 bits instead of 64.

        The number is first brought as near to the vector as makes no difference.
        """
        vector = self.vector
        if vector is None or vector.width == 1:
            return None
        sides = [self._step(operand) for operand in expr.operands]
        if sorted(sides, key=bool) != [0, sides[0] or sides[1]] or not any(sides):
            return None
        at = 0 if sides[0] else 1
        position, other = expr.operands[at], expr.operands[1 - at]
        step = sides[at]
        if not isinstance(position, Index) or step is None or not 0 < step < 1 << 16:
            return None
        b, number = self.here, self.value(other)
        if number.lanes > 1:
            return None
        first = self.dim(position.dim)
        lowest = b.binary("sub", first, Lanes("1", INDEX))
        highest = b.binary("add", first, Lanes(str(vector.width * step), INDEX))
        near = b.intrinsic("smin", b.intrinsic("smax", number, lowest), highest)
        distance = b.convert("trunc", b.binary("sub", near, first), "i32")
        lanes = ", ".join(f"i32 {k * step}" for k in range(vector.width))
        places = Lanes(f"<{lanes}>", "i32", vector.width)
        pair = (places, b.splat(distance, vector.width))
        ordered = pair if at == 0 else pair[::-1]
        return instructions.FUNCTIONS[expr.function](b, i32, bool_, ordered)

    def _rarely(self, expr: Apply) -> Lanes:
        """Branch around what no lane wants; where one does, compute both and choose.

        The usual value is written out on both ways: so nothing of it has to be kept in a register
        while the other one is computed.
        """
        condition = self.value(expr.operands[0])
        wanted = self._any(condition, expr.dtype.bits) if condition.lanes > 1 else condition
        seldom, usual, after = map(self.function.block, ("seldom", "usual", "after"))
        ways = f"label %{seldom.label}, label %{usual.label}"
        self.here.line(f"br {wanted}, {ways}, !prof !3")
        found = []
        for block, operands in ((seldom, expr.operands[1:]), (usual, expr.operands[2:])):
            b = Builder(self.function, self.function.place(block), self.declarations)
            self.scopes.append(Scope(b, {}, is_conditional=True))
            values = [b.splat(self.value(each), condition.lanes) for each in operands]
            value = values[0] if len(values) == 1 else b.select(condition, *values)
            self.scopes.pop()
            b.line(f"br label %{after.label}")
            found.append(f"[ {value.text}, %{b.block.label} ]")
        self.here.block = self.function.place(after)
        return self.here.assign(value.element, value.lanes, f"phi {value.type} {', '.join(found)}")

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

    def _any(self, mask: Lanes, bits: int = 0) -> Lanes:
        """Whether it holds in any lane; ``bits`` is the size of what was compared, if known.

        Registers full of such lanes are joined as they are: packing bits together takes longer.
        """
        b = self.here
        if bits and mask.lanes * bits > REGISTER:
            wide = b.convert("sext", mask, f"i{bits}")
            while wide.lanes * bits > REGISTER:
                wide = b.binary("or", *halves(b, wide))
            mask = b.compare(
                "icmp slt", wide, constant_vector(Lanes("0", wide.element), wide.lanes)
            )
        name = f"@llvm.vector.reduce.or.v{mask.lanes}i1"
        self.declarations.add(f"declare i1 {name}({mask.type})")
        return b.assign("i1", 1, f"call i1 {name}({mask})")

    # Memory ---------------------------------------------------------------------------------------

    def _load(self, load: Load) -> Lanes:
        b = self.here
        memory = memory_type(load.dtype)
        (offset,) = load.operands
        step = self._step(offset)
        alignment = load.dtype.numpy.itemsize
        if step == 0:
            address = self._address(load.buffer, self.value(offset))
            raw = b.assign(memory, 1, f"load {memory}, ptr {address.text}, align {alignment}")
        elif step == 1:
            raw = self._contiguous_load(load, self._first(offset), memory, alignment)
        elif step == -1 and self.vector is not None and self.vector.mask is None:
            raw = self._backward_load(load, memory, alignment)
        else:
            square = self._square(load, step)
            if square is not None:
                return square
            paired = self._paired(load, step, memory, alignment)
            if paired is not None:
                return paired
            every_few = self._every_few(load, step, memory, alignment)
            raw = every_few or self._gathered(load, memory, alignment)
        return self._to_register(raw, load.dtype)

    def _backward_load(self, load: Load, memory: str, alignment: int) -> Lanes:
        """A load whose lanes lie the other way round."""
        assert self.vector is not None
        b, width = self.here, self.vector.width
        last = b.binary("sub", self._first(load.operands[0]), Lanes(str(width - 1), INDEX))
        raw = self._contiguous_load(load, last, memory, alignment)
        if width == 1:
            return raw
        order = ", ".join(f"i32 {k}" for k in reversed(range(width)))
        return b.assign(
            memory, width, f"shufflevector {raw}, {raw.type} poison, <{width} x i32> <{order}>"
        )

    def _paired(self, load: Load, step: int | None, memory: str, alignment: int) -> Lanes | None:
        """A load of every second element, where the others are loaded too: both out of two loads.

        What belongs to the other is kept for it.
        """
        vector = self.vector
        if step != PAIR or vector is None or vector.mask is not None or vector.width < PAIR:
            return None
        loads = self._neighbours(load, PAIR)
        if loads is None:
            return None
        b, width = self.here, vector.width
        first = self._first(loads[0].operands[0])
        parts = []
        for start in (0, width):
            offset = b.binary("add", first, Lanes(str(start), INDEX))
            place = f"ptr {self._address(load.buffer, offset).text}, align {alignment}"
            parts.append(b.assign(memory, width, f"load {vector_type(memory, width)}, {place}"))
        for k, each in enumerate(loads):
            order = ", ".join(f"i32 {PAIR * lane + k}" for lane in range(width))
            text = f"shufflevector {parts[0]}, {parts[1]}, <{width} x i32> <{order}>"
            taken = b.assign(memory, width, text)
            self.scopes[-1].values[each] = self._to_register(taken, load.dtype)
        return self.scopes[-1].values[load]

    def _every_few(self, load: Load, step: int | None, memory: str, alignment: int) -> Lanes | None:
        """A load of every second to fourth element, out of loads that reach no further."""
        vector = self.vector
        if step not in (2, 3, 4) or vector is None or vector.mask is not None:
            return None
        b, width = self.here, vector.width
        if width < step:
            return None
        first = self._first(load.operands[0])
        starts = [part * width for part in range(step)]
        starts[-1] -= step - 1
        found: Lanes | None = None
        for part, start in enumerate(starts):
            offset = b.binary("add", first, Lanes(str(start), INDEX))
            place = f"ptr {self._address(load.buffer, offset).text}, align {alignment}"
            piece = b.assign(memory, width, f"load {vector_type(memory, width)}, {place}")
            if found is None:
                found, taken = piece, [step * lane for lane in range(width)]
                continue
            # Lanes that lie in an earlier part are there already, each in its place.
            last = [-(-starts[p] // step) for p in range(part + 1, step)]
            reach = last[0] if last else width
            order = [
                taken[lane] if lane < -(-start // step) else width + step * lane - start
                for lane in range(reach)
            ] + ["poison"] * (width - reach)
            text = ", ".join(f"i32 {each}" for each in order)
            joined = f"shufflevector {found}, {piece}, <{width} x i32> <{text}>"
            found, taken = b.assign(memory, width, joined), list(range(width))
        return found

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
            place = f"ptr {address.text}, align {load.dtype.numpy.itemsize}"
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
                if isinstance(difference, int):
                    found[difference] = other
        if found.get(0) is not load:  # of another loop, inside or outside
            return None
        low = 0
        while low - 1 in found:
            low -= 1
        low += -low // count * count  # of a longer run, the square that it is in
        if any(low + k not in found for k in range(count)):
            return None
        return [found[low + k] for k in range(count)]

    def _contiguous_load(self, load: Load, first: Lanes, memory: str, alignment: int) -> Lanes:
        assert self.vector is not None
        b, width = self.here, self.vector.width
        address = self._address(load.buffer, first)
        vector = vector_type(memory, width)
        mask = self.vector.mask
        if mask is None or load.buffer.name in self.nest.padded:
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
        alignment = write.buffer.dtype.numpy.itemsize
        value = self._to_memory(self.value(write.value), write.buffer.dtype)
        step = self._step(write.offset)
        if self.vector is None or step == 0:
            assert value.lanes == 1, "the lanes of a vector have one place to go"
            address = self._address(write.buffer, self.value(write.offset))
            b.line(f"store {value}, ptr {address.text}, align {alignment}")
            return
        value = b.splat(value, self.vector.width)
        mask = self.vector.mask
        join = self.joins.get(id(write))
        if join is not None and mask is None:
            if join.add(write, value):
                self._joined_write(join, alignment)
            return
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

    def _joined_write(self, join: Join, alignment: int) -> None:
        """The vectors of writes that lie together."""
        b, first = self.here, join.writes[0]
        start = self._first(first.offset)
        for distance, row in join.rows(b):
            place = b.binary("add", start, Lanes(str(distance), INDEX))
            address = self._address(first.buffer, place)
            b.line(f"store {row}, ptr {address.text}, align {alignment}")

    def _prefetch(self, statement: Prefetch) -> None:
        """One request a cache line; nothing where neighbours are far apart."""
        if self.vector is None or self.vector.mask is not None:
            return
        step = self._step(statement.offset)
        if step not in (0, 1):
            return
        self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        first = self._first(statement.offset)
        nbytes = self.vector.width * step * statement.buffer.dtype.numpy.itemsize
        per_line = LINE // statement.buffer.dtype.numpy.itemsize
        near = 1 if statement.far else 3
        for line in range(max(1, nbytes // LINE)):
            offset = self.here.binary("add", first, Lanes(str(line * per_line), INDEX))
            place = f"ptr {self._address(statement.buffer, offset, inbounds='').text}"
            self.here.line(f"call void @llvm.prefetch.p0({place}, i32 0, i32 {near}, i32 1)")

    def _streaming(self, write: Write, alignment: int) -> tuple[str, int]:
        """A hint to write past the cache, where the address is known to be aligned."""
        if not write.streaming or self.vector is None or not isinstance(write.offset, Index):
            return "", alignment
        if not self.vector.is_aligned:
            return "", alignment
        itemsize = write.buffer.dtype.numpy.itemsize
        aligned = min(64, self.vector.width * itemsize)
        elements = aligned // itemsize
        is_aligned = write.offset in self.aligned
        if not is_aligned and not is_multiple(write.offset.dim, elements, self.vector.symbol):
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
