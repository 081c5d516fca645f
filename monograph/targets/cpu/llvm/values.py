"""Values of a loop nest: which instructions compute an expression, and where they stand.

A value is emitted in the outermost loop in which everything it depends on is known: what does not
change along a vector stays a scalar until it meets one. What reads memory leaves only loops that
are known to have a turn: where there is none, there may be no such element. What a nest changes as
it goes (a declared variable, a volatile buffer) is read once in each statement that asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from monograph.ir.types import DType, bf16, bool_, f32, i32
from monograph.kernel import mathlib, narrow
from monograph.kernel.expr import Apply, Expr, Index, Literal, Load, Variable
from monograph.kernel.mathlib import remainder
from monograph.targets.cpu.llvm import bfloat, instructions
from monograph.targets.cpu.llvm.assembly import (
    INDEX,
    Builder,
    Function,
    Lanes,
    constant_vector,
    element_type,
    number,
)
from monograph.targets.cpu.llvm.joined_writes import Join
from monograph.targets.cpu.llvm.memory import MemoryEmitter
from monograph.targets.cpu.llvm.positions import Scope, Vector
from monograph.targets.cpu.llvm.reductions import Partial, halves
from monograph.targets.cpu.machine import DotInstruction, TileUnit
from monograph.targets.cpu.nests.loop_nest import (
    LoopNest,
)

ALIGNMENT = 64
"""Scratch, and every output that is written past the cache, begins at a multiple of this."""
TESTED_BITS = 256
"""Bits of a vector that are tested at once; where registers are smaller it is two of them."""
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
CHANGING = "!"
"""Stands among the names that an expression reads if its value changes as the nest runs."""
READING = "[]"
"""Stands among the names that an expression reads if it reads memory."""


class ValueEmitter(MemoryEmitter):
    """Emits the expressions of one loop nest; ``declarations`` gathers the intrinsics it needs."""

    function: Function
    entry: Builder

    def __init__(
        self,
        nest: LoopNest,
        declarations: set[str],
        aliased: bool = False,
        dots: Mapping[str, DotInstruction] | None = None,
        tile_unit: TileUnit = TileUnit.NONE,
    ) -> None:
        self.nest = nest
        self.declarations = declarations
        self.aliased = aliased
        self.dots = dots or {}
        self.tile_unit = tile_unit
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
        self.aligned: set[Expr] = set()
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
            return self._changing_value(expr)
        level = self._level(expr)
        kept, self.scopes = self.scopes, self.scopes[: level + 1]
        found = self._emit(expr)
        self.scopes[-1].values[expr] = found
        self.scopes = kept
        return found

    def _changing_value(self, expr: Expr) -> Lanes:
        """The value that an expression has for the statement that is being emitted.

        Memory changes between statements and not inside one, and a formula says its operand often:
        each time anew would be exponential.
        """
        for scope in reversed(self.scopes):
            if expr in scope.changing:
                return scope.changing[expr]
        found = self._emit(expr)
        self.scopes[-1].changing[expr] = found
        return found

    def _level(self, expr: Expr) -> int:
        """The outermost scope in which everything that the expression depends on is known."""
        names, symbols = self._names(expr), expr.symbols
        level = len(self.scopes) - 1
        while level and not self.scopes[level].is_conditional:
            scope = self.scopes[level]
            if scope.may_be_empty and READING in names:
                break
            free_of_symbols = scope.symbols.keys().isdisjoint(symbols)
            if not free_of_symbols or not scope.variables.keys().isdisjoint(names):
                break
            level -= 1
        return next(k for k in range(level, len(self.scopes)) if self.scopes[k].is_open)

    def _names(self, expr: Expr) -> frozenset[str]:
        """The variables that an expression reads."""
        found = self.names.get(expr)
        if found is None:
            if isinstance(expr, Variable):
                found = frozenset((expr.name,))
            else:
                found = frozenset()
                for operand in expr.operands:
                    names = self._names(operand)
                    found = found if names <= found else found | names
            if isinstance(expr, Load):
                found |= {READING}
                if expr.buffer.name in self.nest.volatile:
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

    def _emit(self, expr: Expr) -> Lanes:
        if isinstance(expr, Index):
            return self._index_value(expr)
        if isinstance(expr, Load):
            return self._load(expr)
        assert isinstance(expr, Apply), expr
        if expr.function == "checked":
            return self._check_position(expr)
        if expr.function == "rarely":
            return self._rarely(expr)
        if mathlib.is_formula(expr.function):
            return self.value(mathlib.expand(expr))
        if remainder.is_short_division(expr):
            return self.value(remainder.expand(expr))
        if narrow.involves_narrow(expr):
            return self.value(narrow.expand(expr))
        if expr.function in COMPARISONS:
            compared = self._compare_positions(expr)
            if compared is not None:
                return compared
        if expr.function == "cast" and expr.dtype.is_float:
            narrow_position = self.narrow_position(expr.operands[0])
            if narrow_position is not None:
                return instructions.cast(self.here, narrow_position, i32, expr.dtype)
        whole = instructions.match_rounding(expr)
        if whole is not None:
            x, added = whole
            return instructions.round_to_whole(self.here, self.value(x), added, expr.dtype)
        operands = [self.value(operand) for operand in expr.operands]
        in_pairs = self.vector is not None and self.vector.in_pairs and operands[0].lanes > 1
        if in_pairs and expr.function in bfloat.CONVERSIONS:
            return self._convert_pairs(operands[0], expr.operands[0].dtype, expr.dtype)
        if expr.function == "cast" and expr.dtype is bf16 and expr.operands[0].dtype is f32:
            return bfloat.narrow(self.here, operands[0], self.has_short_nans)
        lanes = max(operand.lanes for operand in operands)
        spread = tuple(self.here.splat(operand, lanes) for operand in operands)
        dtype = expr.operands[-1].dtype
        return instructions.FUNCTIONS[expr.function](self.here, dtype, expr.dtype, spread)

    def _convert_pairs(self, x: Lanes, dtype: DType, result: DType) -> Lanes:
        """A conversion in a loop whose lanes stand in pairs; bf16s lie as they do in memory."""
        b = self.here
        if dtype is bf16:
            x, dtype = bfloat.widen_pairs(b, x), f32
        if result is not bf16:
            return instructions.cast(b, x, dtype, result)
        x = instructions.cast(b, x, dtype, f32)
        return bfloat.narrow_pairs(b, x, self.has_short_nans)

    @cached_property
    def has_short_nans(self) -> bool:
        """Whether a NaN can be rounded to bf16 as any number is."""
        return bfloat.has_short_nans(self.nest)

    def _compare_positions(self, expr: Apply) -> Lanes | None:
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

    def _check_position(self, expr: Apply) -> Lanes:
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
        if bits and mask.lanes * bits > TESTED_BITS:
            wide = b.convert("sext", mask, f"i{bits}")
            while wide.lanes * bits > TESTED_BITS:
                wide = b.binary("or", *halves(b, wide))
            mask = b.compare(
                "icmp slt", wide, constant_vector(Lanes("0", wide.element), wide.lanes)
            )
        name = f"@llvm.vector.reduce.or.v{mask.lanes}i1"
        self.declarations.add(f"declare i1 {name}({mask.type})")
        return b.assign("i1", 1, f"call i1 {name}({mask})")
