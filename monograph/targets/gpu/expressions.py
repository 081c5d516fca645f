"""Expressions of a kernel as lines of Triton: each gets a name, once, in the scope it is read in.

A family of kernels says what each loop variable is (a program id, a range of lanes as a column or a
row, a counter of a loop) and which lanes lie outside; broadcasting does the rest. Positions are
index arithmetic, in 32 bits where every buffer is known to be small enough, else in 64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from monograph.errors import UnsupportedError
from monograph.ir.dims import Dim, FloorDiv, Max, Min, Mod, Opaque, Operation, Symbol, SymbolicDim
from monograph.ir.types import bool_, f32
from monograph.kernel import expr as e
from monograph.kernel import mathlib, narrow
from monograph.kernel.expr import Apply, Axis, Expr, Index, Literal, Load, Reduce, Variable
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.mathlib import remainder
from monograph.targets.gpu.plan import Configuration
from monograph.targets.gpu.scalars import (
    FAST_F32,
    literal_text,
    scalar_text,
    type_text,
    write_literal,
)
from monograph.targets.gpu.source import (
    ERROR_PARAMETER,
    HELPERS,
    SourceWriter,
    TritonKernel,
    parameter_names,
    size_name,
)

MAX_INT32 = 2**31 - 1
_COMPARISONS = {
    **{"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="},
    **{"equal": "==", "not_equal": "!="},
}
_SHIFTS = {"shift_left": "<<", "shift_right": ">>"}
UNITS = {1: ("[1]", "tl.arange(0, 1)"), 2: ("[1, 1]", "tl.arange(0, 1)[:, None]")}
"""By the rank of a kernel's blocks, the shape of a block of one element, and its lane.

What is the same in all lanes is such a block: Triton's interpreter confuses the dtypes of scalars.
"""
_PLAIN_LITERALS = frozenset(
    (
        *("add", "subtract", "multiply", "less", "less_equal", "greater", "greater_equal"),
        *("equal", "not_equal", "where", "rarely"),
        *("bitwise_and", "bitwise_or", "bitwise_xor"),
    )
)
"""Functions in which a plain number takes the dtype of its neighbour."""


class ExpressionWriter:
    """Writes the values of one kernel into its source."""

    def __init__(self, kernel: Kernel, source: SourceWriter, lanes: str, rank: int = 2) -> None:
        self.kernel = kernel
        self.lanes = lanes
        """The variable that counts lanes."""
        self.unit_shape, self.unit_lane = UNITS[rank]
        self.source = source
        self.index_type = index_type(kernel)
        self.scopes: list[dict[Expr, str]] = [{}]
        self.positions: dict[Symbol, str] = {s: size_name(s) for s in kernel.sizes}
        self.masks: list[tuple[frozenset[Symbol], str]] = []
        self.pieces: list[str] = []
        """The conditions under which what is written now is wanted, of every lane."""
        """Conditions on lanes, each with the loop variables that it is about."""
        self.reduce: Callable[[Reduce], str] = self._refuse_reduction
        """Writes a reduction; the family says how."""
        self.checks = False
        self.names = 0

    def _refuse_reduction(self, expr: Reduce) -> str:
        raise UnsupportedError(f"{self.kernel.name}: a reduction where none is expected")

    # Scopes ---------------------------------------------------------------------------------------

    def new_name(self, prefix: str = "t") -> str:
        """A name that is not used yet."""
        self.names += 1
        return f"{prefix}{self.names - 1}"

    @contextmanager
    def loop(
        self, header: str, moving: frozenset[Symbol], inside: Iterable[Expr]
    ) -> Iterator[None]:
        """The body of a loop; what does not change in it is computed before."""
        for expr in inside:
            self._hoist(expr, moving)
        with self.source.loop(header):
            self.scopes.append({})
            yield
            self.scopes.pop()

    def _hoist(self, root: Expr, moving: frozenset[Symbol]) -> None:
        """Compute the parts of an expression that a loop does not change."""
        seen: set[Expr] = set()
        stack = [root]
        while stack:
            expr = stack.pop()
            if expr in seen or isinstance(expr, Literal | Index):
                continue
            seen.add(expr)
            if expr.symbols & moving:
                stack.extend(expr.operands)
            elif all(symbol in self.positions for symbol in expr.symbols):
                self.value(expr)

    def decode(self, flat: str, axes: Sequence[Axis]) -> None:
        """Name the position along each axis of a flattened space."""
        rest = flat
        for k in range(len(axes) - 1, -1, -1):
            name = axes[k].symbol.name.lstrip("_")
            self.positions[axes[k].symbol] = name
            if k == 0:
                self.source.line(f"{name} = {rest}")
                continue
            extent = self.dim(axes[k].extent)
            self.source.line(f"{name} = {rest} % {extent}")
            self.source.line(f"{name}_rest = {rest} // {extent}")
            rest = f"{name}_rest"

    # Values ---------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> str:
        """The text of a value; what is computed gets a name."""
        if isinstance(expr, Literal):
            return write_literal(expr, self.unit_shape)
        for scope in self.scopes:
            if expr in scope:
                return scope[expr]
        if isinstance(expr, Variable):
            return expr.name
        if isinstance(expr, Index):
            text = self.dim(expr.dim)
            if isinstance(expr.dim, int):
                return f"tl.full({self.unit_shape}, {text}, tl.int64)"
            return text if self.index_type == "tl.int64" else f"({text}).to(tl.int64)"
        text = self._text(expr)
        name = self.new_name()
        self.scopes[-1][expr] = name
        self.source.line(f"{name} = {text}")
        return name

    def name_value(self, expr: Expr, name: str) -> None:
        """Say that a value has a name already."""
        self.scopes[-1][expr] = name

    def position(self, expr: Expr) -> str:
        """The text of an offset, in the integers that offsets are computed in."""
        if isinstance(expr, Index):
            return self.dim(expr.dim)
        if isinstance(expr, Apply) and expr.function == "where":
            condition, *both = expr.operands
            yes, no = map(self.position, both)
            return f"tl.where({self.value(condition)}, {yes}, {no})"
        if isinstance(expr, Apply) and expr.function in ("add", "multiply", "subtract"):
            x, y = (self.position(operand) for operand in expr.operands)
            sign = {"add": "+", "multiply": "*", "subtract": "-"}[expr.function]
            return f"({x} {sign} {y})"
        return self.value(expr)

    def _text(self, expr: Expr) -> str:
        if isinstance(expr, Load):
            return self._load(expr)
        if isinstance(expr, Reduce):
            return self.reduce(expr)
        assert isinstance(expr, Apply), expr
        return self._apply(expr)

    def mask(self, symbols: frozenset[Symbol], guard: str = "") -> str:
        """The condition on lanes of what depends on these loop variables; empty if none."""
        found = [text for about, text in self.masks if about & symbols]
        found += self.pieces if symbols else []
        return " & ".join([*found, *([guard] if guard else [])])

    def _load(self, load: Load, condition: Expr | None = None) -> str:
        """A load; where a condition does not hold, zeros instead."""
        type_text(load.dtype)  # an error if Triton has no such elements
        (place,) = load.operands
        mask = self.mask(load.symbols, "" if condition is None else self.value(condition))
        masked = f", mask={mask}, other=0" if mask else ""
        position = self.position(place)
        if not self.is_spread(place):
            position = f"({position} + {self.unit_lane})"
        text = f"tl.load({load.buffer.name} + {position}{masked})"
        return f"({text} != 0)" if load.dtype is bool_ else text

    def is_spread(self, expr: Expr) -> bool:
        """Whether lanes have different values of an expression, or something in it is loaded."""
        sizes = frozenset(self.kernel.sizes)
        return bool(expr.symbols - sizes) or any(e.find_loads(expr))

    def store(self, store: Store) -> None:
        """Write a store, under its guard and that of its lanes."""
        value = self.value(store.value)
        if store.value.dtype is bool_:
            value = f"{value}.to(tl.int8)"
        guard = "" if store.guard is None else self.value(store.guard)
        (place,) = store.position
        text, mask = self.position(place), self.mask(place.symbols, guard)
        if not any(axis.symbol in place.symbols for axis in self.kernel.axes):
            text = f"({text} + 0 * {self.lanes})"  # one element: the first lane writes it
            mask = " & ".join(filter(None, (f"({self.lanes} < 1)", guard)))
        masked = f", mask={mask}" if mask else ""
        target = f"{store.buffer.name} + {text}"
        self.source.line(f"tl.store({target}, {value}{masked})")

    def _apply(self, expr: Apply) -> str:
        if expr.function == "checked":
            return self._write_checked(expr)
        if expr.function == "where" and self._is_masked_load(expr):
            condition, load, _ = expr.operands
            assert isinstance(load, Load)
            return self._load(load, condition)
        if expr.function == "where" and self._is_piecewise(expr):
            return self._write_pieces(expr)
        if expr.function in _COMPARISONS and all(map(self._is_offset, expr.operands)):
            x, y = map(self.position, expr.operands)
            return f"({x} {_COMPARISONS[expr.function]} {y})"
        fast = self._fast(expr)
        if fast is not None:
            return fast
        if mathlib.is_formula(expr.function):
            return self._call(expr)
        if remainder.is_short_division(expr):
            return self.value(remainder.expand(expr))
        if narrow.involves_narrow(expr):
            return self.value(narrow.expand(expr))
        if expr.function in ("index_divide", "index_remainder"):
            return self._floor(expr.function == "index_divide", *map(self.value, expr.operands))
        if expr.function in ("fmod", "frem") and expr.dtype.is_float:
            helper = self.source.helper(f"remainder_{expr.dtype}")
            return f"{helper}({', '.join(map(self.value, expr.operands))})"
        operands = [self._operand(expr, operand) for operand in expr.operands]
        distance = expr.operands[-1]
        sign = _SHIFTS.get(expr.function)
        if sign and isinstance(distance, Literal) and 0 <= distance.value < expr.dtype.bits:
            return f"({operands[0]} {sign} {distance.value})"
        dtype = expr.operands[-1].dtype
        text = scalar_text(expr.function, dtype, expr.dtype, operands)
        if text is None:
            raise UnsupportedError(f"{self.kernel.name}: Triton has no {expr.function}")
        return text

    def _is_masked_load(self, expr: Apply) -> bool:
        """Whether it is an element where a condition on its own lanes holds, and zero elsewhere."""
        condition, load, other = expr.operands
        if not isinstance(load, Load) or not isinstance(other, Literal) or other.value != 0:
            return False
        sizes = frozenset(self.kernel.sizes)
        return load.dtype is not bool_ and condition.symbols - sizes <= load.symbols

    def _is_piecewise(self, expr: Apply) -> bool:
        """Whether it joins pieces by position, each read from memory: as ``concat`` does."""
        condition, *pieces = expr.operands
        if self.unit_shape != "[1]" or any(e.find_loads(condition)):
            return False
        inside = list(e.walk(tuple(pieces)))
        if any(isinstance(x, Apply) and x.function == "checked" for x in inside):
            return False
        return any(isinstance(x, Load) and x.symbols for x in inside)

    def _write_pieces(self, expr: Apply) -> str:
        """Each piece, read only where it is wanted: a lane that is left out reads nothing."""
        condition, *pieces = expr.operands
        name, found = self.value(condition), []
        for piece, text in zip(pieces, (name, f"({name} == 0)"), strict=True):
            self.scopes.append({})
            self.pieces.append(text)
            found.append(self.value(piece))
            self.pieces.pop()
            self.scopes.pop()
        return f"tl.where({name}, {found[0]}, {found[1]})"

    def _is_offset(self, expr: Expr) -> bool:
        """Whether it is a position that fits into the integers that offsets are computed in."""
        if not isinstance(expr, Index):
            return False
        low, high = (expr.dim, expr.dim) if isinstance(expr.dim, int) else expr.dim.bounds()
        if self.index_type == "tl.int64":
            return not isinstance(expr.dim, int)
        return low is not None and high is not None and low >= -MAX_INT32 and high <= MAX_INT32

    def _call(self, expr: Apply) -> str:
        """A function that has a formula: a helper function of the module, which every use calls."""
        dtype = expr.operands[0].dtype
        name = f"{expr.function}_{dtype}"
        if name in HELPERS:
            self.source.helper(name)
        elif name not in self.source.functions:
            names = ("x", "y")[: len(expr.operands)]
            self.source.functions[name] = ""  # its formula may call others, never itself
            body = SourceWriter(self.source)
            writer = ExpressionWriter(self.kernel, body, self.lanes, rank=1)
            parameters = tuple(e.variable(each, dtype) for each in names)
            formula = mathlib.expand(_as_apply(e.apply(expr.function, *parameters)))
            body.line(f"return {writer.value(formula)}")
            head = f"@triton.jit\ndef {name}({', '.join(names)}):"
            self.source.functions[name] = "\n".join([head, *body.lines, ""])
        return f"{name}({', '.join(map(self.value, expr.operands))})"

    def _operand(self, expr: Apply, operand: Expr) -> str:
        """An operand; a number is plain where the other operands say which dtype it has."""
        takes_plain = expr.function in _PLAIN_LITERALS or (
            expr.function == "fma" and expr.dtype is f32
        )
        if not isinstance(operand, Literal) or not takes_plain:
            return self.value(operand)
        others = [x for x in expr.operands if x is not operand and x.dtype is operand.dtype]
        plain = any(not isinstance(x, Literal) for x in others) and operand.dtype is not bool_
        return literal_text(operand) if plain else write_literal(operand, self.unit_shape)

    def _fast(self, expr: Apply) -> str | None:
        """A function of which few digits are kept, as one or two instructions."""
        name, _, kept = expr.function.rpartition("_")
        if kept not in ("bf16", "f16") or name not in FAST_F32 or expr.dtype is not f32:
            return None
        return FAST_F32[name].format(x=self.value(expr.operands[0]))

    def _write_checked(self, expr: Apply) -> str:
        """An index that must lie inside: one that does not is reported, and 0 is read instead."""
        self.checks = True
        place, size = (self.value(operand) for operand in expr.operands)
        name = self.new_name("inside")
        self.source.line(f"{name} = ({place} >= 0) & ({place} < {size})")
        mask = self.mask(expr.symbols, f"({name} == 0)")
        shape = f"tl.zeros_like({place}).to(tl.int32)"
        self.source.line(f"tl.store({ERROR_PARAMETER} + {shape}, 1, mask={mask})")
        return f"tl.where({name}, {place}, 0)"

    def finish(
        self,
        family: str,
        grid: tuple[Dim, ...],
        configuration: Configuration,
        comment: Sequence[str],
    ) -> TritonKernel:
        """The kernel that was written."""
        names = parameter_names(self.kernel, self.checks)
        text = self.source.module(self.kernel.name, names, tuple(configuration.blocks), comment)
        return TritonKernel(
            self.kernel.name,
            family,
            text,
            self.kernel,
            grid,
            configuration.blocks,
            configuration.warps,
            configuration.stages,
            self.checks,
        )

    # Positions ------------------------------------------------------------------------------------

    def dim(self, dim: Dim) -> str:
        """Index arithmetic."""
        if isinstance(dim, int):
            return str(dim)
        if isinstance(dim, Symbol):
            return self.positions[dim]
        if isinstance(dim, Operation):
            return self._operation(dim)
        terms = []
        for atoms, factor in dim.terms():
            parts = [self.dim(atom) for atom in atoms]
            if factor != 1 or not parts:
                parts.insert(0, str(factor))
            terms.append(" * ".join(parts))
        return terms[0] if len(terms) == 1 else "(" + " + ".join(terms) + ")"

    def _operation(self, dim: Operation) -> str:
        arguments = [self.dim(argument) for argument in dim.arguments]
        if isinstance(dim, Opaque):
            return arguments[0]
        if isinstance(dim, FloorDiv | Mod):
            return self._division(isinstance(dim, FloorDiv), dim.arguments[0], arguments)
        assert isinstance(dim, Max | Min)
        function = "tl.maximum" if isinstance(dim, Max) else "tl.minimum"
        text = arguments[0]
        for argument in arguments[1:]:
            text = f"{function}({text}, {argument})"
        return text

    def _division(self, quotient: bool, numerator: Dim, texts: Sequence[str]) -> str:
        """A quotient or a remainder; plain where the numerator is known not to be negative."""
        lower = numerator.bounds()[0] if isinstance(numerator, SymbolicDim) else numerator
        if lower is not None and lower >= 0:
            return f"({texts[0]} {'//' if quotient else '%'} {texts[1]})"
        return self._floor(quotient, *texts)

    def _floor(self, quotient: bool, x: str, y: str) -> str:
        helper = self.source.helper("floor_divide" if quotient else "floor_remainder")
        return f"{helper}({x}, {y})"


def _as_apply(expr: Expr) -> Apply:
    assert isinstance(expr, Apply)
    return expr


def index_type(kernel: Kernel) -> str:
    """The integer that offsets are computed in: 32 bits if no buffer can be larger."""
    for buffer in kernel.buffers:
        reach = buffer.reach()
        most = reach if isinstance(reach, int) else reach.bounds()[1]
        if most is None or most > MAX_INT32 // 2:
            return "tl.int64"
    return "tl.int32"


def reductions_of(kernel: Kernel) -> list[Reduce]:
    """Every reduction of a kernel, those that others are made of first."""
    return [expr for expr in kernel.expressions() if isinstance(expr, Reduce)]
