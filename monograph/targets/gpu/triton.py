"""A kernel as Triton source that a person can read.

Blocks and program ids are a schedule, as tiles and threads are on a processor: a pointwise kernel
gives each program a block of the flattened index space; a kernel with reductions gives each
program a row, all of it in one block.

    @triton.jit
    def softmax(b0, o0, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        i1 = tl.arange(0, BLOCK)
        inside = i1 < 128
        t0 = tl.load(b0 + (128 * row + i1), mask=inside, other=0.0)
        ...
"""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.errors import UnsupportedError
from monograph.ir.dims import Dim, FloorDiv, Max, Min, Mod, Opaque, Operation, Symbol, shape_product
from monograph.ir.types import DType, bf16, bool_, f16, f32, f64
from monograph.kernel import mathlib
from monograph.kernel.expr import Apply, Axis, Expr, Index, Literal, Load, Reduce, substitute
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.narrow import is_narrow

BLOCK = 1024
"""Elements of a pointwise kernel that one program computes."""
LONGEST_ROW = 1 << 16
"""Elements of a row that one block may hold."""

_INFIX = {
    **{"add": "+", "subtract": "-", "multiply": "*", "divide": "/"},
    **{"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="},
    **{"equal": "==", "not_equal": "!=", "index_divide": "//", "index_remainder": "%"},
    **{"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"},
    **{"logical_and": "&", "logical_or": "|", "logical_xor": "^"},
    **{"shift_left": "<<", "shift_right": ">>"},
}
_CALLS = {
    **{"exp": "tl.exp", "exp2": "tl.exp2", "log": "tl.log", "log2": "tl.log2"},
    **{"sin": "tl.sin", "cos": "tl.cos", "sqrt": "tl.sqrt", "erf": "tl.erf"},
    **{"floor": "tl.floor", "ceil": "tl.ceil", "abs": "tl.abs", "fma": "tl.fma"},
    **{"where": "tl.where", "rarely": "tl.where", "sigmoid": "tl.sigmoid"},
}
_EXACT_ONLY_IN_F32 = ("sigmoid", "exp", "exp2", "log", "log2", "sin", "cos", "erf")
_REDUCTIONS = {"sum": "tl.sum", "max": "tl.max", "min": "tl.min", "argmax": "tl.argmax"}
_REDUCTIONS |= {"argmin": "tl.argmin", "any": "tl.max", "all": "tl.min"}
_NEUTRAL = {"sum": "0", "max": "float('-inf')", "min": "float('inf')", "argmax": "float('-inf')"}
_NEUTRAL |= {"argmin": "float('inf')", "any": "0", "all": "1"}


@dataclass(frozen=True)
class TritonKernel:
    """Source, and how to launch it."""

    name: str
    source: str
    sizes: tuple[Symbol, ...]
    programs: Dim
    """How many programs there are."""
    block: Dim
    """How many elements the block must hold, before rounding up to a power of two."""


def triton_kernel(kernel: Kernel) -> TritonKernel:
    """A flat kernel (``kernel.flatten``) as Triton source."""
    return _Writer(kernel).write()


class _Writer:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.names: dict[Expr, str] = {}
        self.symbols: dict[Symbol, str] = {s: f"size_{s.name}" for s in kernel.sizes}
        self.mask = ""
        self.renamed: dict[Symbol, Dim] = {}
        """Axes of reductions that run along the columns, which already have a name."""

    def write(self) -> TritonKernel:
        reductions = [x for x in self.kernel.expressions() if isinstance(x, Reduce)]
        programs, block = self._rows(reductions) if reductions else self._pointwise()
        parameters = [buffer.name for buffer in self.kernel.buffers]
        parameters += [self.symbols[s] for s in self.kernel.sizes]
        source = "\n".join(
            [
                "import triton",
                "import triton.language as tl",
                "",
                "",
                "@triton.jit",
                f"def {self.kernel.name}({', '.join(parameters)}, BLOCK: tl.constexpr):",
                *(f"    {line}" for line in self.lines),
                "",
            ]
        )
        return TritonKernel(self.kernel.name, source, self.kernel.sizes, programs, block)

    def _pointwise(self) -> tuple[Dim, Dim]:
        total = shape_product(axis.extent for axis in self.kernel.axes)
        self.line("offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)")
        self.mask = "inside"
        self.line(f"inside = offset < {self.dim(total)}")
        self._decode("offset", self.kernel.axes)
        for store in self.kernel.stores:
            self._store(store, self.mask)
        return (total + BLOCK - 1) // BLOCK, BLOCK

    def _rows(self, reductions: list[Reduce]) -> tuple[Dim, Dim]:
        used = frozenset[Symbol]().union(*(each.symbols for each in reductions))
        rows = tuple(axis for axis in self.kernel.axes if axis.symbol in used)
        inner = tuple(axis for axis in self.kernel.axes if axis.symbol not in used)
        extents = {shape_product(a.extent for a in each.axes) for each in reductions}
        if inner:
            extents.add(shape_product(axis.extent for axis in inner))
        if len(extents) != 1 or any(_is_nested(each) for each in reductions):
            raise UnsupportedError(f"{self.kernel.name}: its rows have several lengths")
        (extent,) = extents
        if isinstance(extent, int) and extent > LONGEST_ROW:
            raise UnsupportedError(f"{self.kernel.name}: a row of {extent} is too long for a block")
        self.line("row = tl.program_id(0)")
        self._decode("row", rows)
        self.line("column = tl.arange(0, BLOCK)")
        self.line(f"inside = column < {self.dim(extent)}")
        self.mask = "inside"
        if inner:
            self._decode("column", inner)
        for axes in dict.fromkeys(each.axes for each in reductions):
            if tuple(a.extent for a in axes) == tuple(a.extent for a in inner):
                pairs = zip(axes, inner, strict=True)
                self.renamed.update({own.symbol: axis.symbol for own, axis in pairs})
            else:
                self._decode("column", axes)
        for store in self.kernel.stores:
            whole = frozenset(axis.symbol for axis in inner) & store.position[0].symbols
            self._store(store, self.mask if whole else "")
        return shape_product(axis.extent for axis in rows), extent

    def _decode(self, flat: str, axes: tuple[Axis, ...]) -> None:
        """Name the position along each axis of a flattened space."""
        rest = flat
        for k in range(len(axes) - 1, -1, -1):
            name = str(axes[k].symbol).lstrip("_")
            self.symbols[axes[k].symbol] = name
            if k == 0:
                self.line(f"{name} = {rest}")
            else:
                extent = self.dim(axes[k].extent)
                self.line(f"{name} = {rest} % {extent}")
                self.line(f"{name}_rest = {rest} // {extent}")
                rest = f"{name}_rest"

    def _store(self, store: Store, mask: str) -> None:
        value = self.value(store.value)
        place = f"{store.buffer.name} + {self.value(store.position[0])}"
        masked = f", mask={mask}" if mask else ""
        self.line(f"tl.store({place}, {value}{masked})")

    # Expressions ----------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append(text)

    def value(self, expr: Expr) -> str:
        """The text of a value; what is computed gets a name."""
        if expr in self.names:
            return self.names[expr]
        if isinstance(expr, Literal):
            return _literal(expr)
        if isinstance(expr, Index):
            return self.dim(expr.dim)
        text = self._text(expr)
        name = f"t{len(self.names)}"
        self.names[expr] = name
        self.line(f"{name} = {text}")
        return name

    def _text(self, expr: Expr) -> str:
        if isinstance(expr, Load):
            return self._load(expr)
        if isinstance(expr, Reduce):
            return self._reduce(expr)
        assert isinstance(expr, Apply)
        return self._apply(expr)

    def _load(self, load: Load) -> str:
        place = f"{load.buffer.name} + {self.value(load.operands[0])}"
        if not self._varies(load):
            text = f"tl.load({place})"
        else:
            text = f"tl.load({place}, mask={self.mask}, other=0)"
        return f"({text} != 0)" if load.dtype is bool_ else text

    def _varies(self, load: Load) -> bool:
        """Whether lanes read different elements, some of them outside."""
        rows = {s for s in load.symbols if self.symbols.get(s, "") in self._row_names()}
        return bool((load.symbols - rows) - frozenset(self.kernel.sizes))

    def _row_names(self) -> set[str]:
        if "row = tl.program_id(0)" not in self.lines:
            return set()
        end = self.lines.index("column = tl.arange(0, BLOCK)")
        return {line.split(" = ")[0] for line in self.lines[1:end]} | {"row"}

    def _reduce(self, expr: Reduce) -> str:
        if expr.kind not in _REDUCTIONS:
            raise UnsupportedError(f"{self.kernel.name}: Triton has no {expr.kind} of a block")
        neutral = _NEUTRAL[expr.kind]
        if not expr.body.dtype.is_float and "inf" in neutral:
            raise UnsupportedError(f"{self.kernel.name}: an extreme of integers")
        body = self.value(substitute(expr.body, self.renamed))
        if expr.kind in ("any", "all"):
            body = f"({body}).to(tl.int32)"
        masked = f"tl.where({self.mask}, {body}, {neutral})"
        call = f"{_REDUCTIONS[expr.kind]}({masked}, axis=0)"
        return f"({call} != 0)" if expr.kind in ("any", "all") else call

    def _apply(self, expr: Apply) -> str:
        function = expr.function
        if function in _CALLS and (
            function not in _EXACT_ONLY_IN_F32 or expr.operands[0].dtype is f32
        ):
            return f"{_CALLS[function]}({', '.join(map(self.value, expr.operands))})"
        operands = [self.value(operand) for operand in expr.operands]
        if function in _INFIX and len(operands) == 2:
            return f"{operands[0]} {_INFIX[function]} {operands[1]}"
        match function:
            case "negate":
                return f"-{operands[0]}"
            case "maximum" | "minimum":
                spread = "propagate_nan=tl.PropagateNan.ALL"
                return f"tl.{function}({operands[0]}, {operands[1]}, {spread})"
            case "cast" | "convert":
                return self._cast(operands[0], expr.operands[0].dtype, expr.dtype)
            case "bitcast":
                return f"({operands[0]}).to({_type(expr.dtype)}, bitcast=True)"
            case "logical_not":
                return f"({operands[0]}) == 0"
            case "bitwise_not":
                return f"~({operands[0]})"
            case "is_nan":
                return f"{operands[0]} != {operands[0]}"
            case "is_finite":
                return f"tl.abs({operands[0]}) < float('inf')"
            case "is_inf":
                return f"tl.abs({operands[0]}) == float('inf')"
            case "checked":
                return operands[0]
            case "copysign":
                bits = "tl.int64" if expr.dtype is f64 else "tl.int32"
                sign = f"({operands[1]}).to({bits}, bitcast=True) < 0"
                return f"tl.where({sign}, -tl.abs({operands[0]}), tl.abs({operands[0]}))"
            case "trunc":
                x = operands[0]
                return f"tl.where({x} < 0, tl.ceil({x}), tl.floor({x}))"
            case "fmod":
                return f"{operands[0]} % {operands[1]}"
            case "truncate_divide":
                if not expr.dtype.is_float:
                    return f"{operands[0]} // {operands[1]}"
        if function in mathlib.FORMULAS:
            return self.value(mathlib.expand(expr))
        raise UnsupportedError(f"{self.kernel.name}: Triton has no {function}")

    def _cast(self, operand: str, source: DType, target: DType) -> str:
        if target is bool_:
            return f"{operand} != 0"
        return f"({operand}).to({_type(target)})"

    def dim(self, dim: Dim) -> str:
        """Index arithmetic."""
        if isinstance(dim, int):
            return str(dim)
        if isinstance(dim, Symbol):
            return self.symbols[dim]
        if isinstance(dim, Operation):
            return self._operation(dim)
        terms = []
        for atoms, factor in dim.terms():
            parts = [self.dim(atom) for atom in atoms]
            if factor != 1 or not parts:
                parts.insert(0, str(factor))
            terms.append(" * ".join(parts))
        return " + ".join(terms) if len(terms) == 1 else "(" + " + ".join(terms) + ")"

    def _operation(self, dim: Operation) -> str:
        arguments = [self.dim(argument) for argument in dim.arguments]
        if isinstance(dim, Opaque):
            return arguments[0]
        if isinstance(dim, FloorDiv | Mod):
            return f"({arguments[0]} {'//' if isinstance(dim, FloorDiv) else '%'} {arguments[1]})"
        assert isinstance(dim, Max | Min)
        function = "tl.maximum" if isinstance(dim, Max) else "tl.minimum"
        text = arguments[0]
        for argument in arguments[1:]:
            text = f"{function}({text}, {argument})"
        return text


def _is_nested(reduction: Reduce) -> bool:
    return any(symbol.name.startswith("_r") for symbol in reduction.symbols)


def _literal(expr: Literal) -> str:
    value = expr.value
    if isinstance(value, float):
        if value != value:
            return "float('nan')"
        if value in (float("inf"), float("-inf")):
            return f"float('{'-' if value < 0 else ''}inf')"
    return repr(value)


def _type(dtype: DType) -> str:
    names = {f64: "float64", f32: "float32", f16: "float16", bf16: "bfloat16", bool_: "int1"}
    if dtype in names:
        return f"tl.{names[dtype]}"
    if is_narrow(dtype):
        raise UnsupportedError(f"Triton's kernels hold no {dtype}")
    sign = "uint" if dtype.kind.name == "UNSIGNED" else "int"
    return f"tl.{sign}{dtype.bits}"
