"""The text of expressions and kernels: what a person reads and what a cache hashes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count

from monograph.ir.dims import Dim
from monograph.ir.text.printer import spell_range
from monograph.ir.types import DType, bool_
from monograph.kernel.expr import Apply, Axis, Buffer, Expr, Index, Literal, Load, Reduce, Variable
from monograph.kernel.expr import axis as usual_axis
from monograph.kernel.kernel import Kernel
from monograph.kernel.layout import MemoryLayout
from monograph.kernel.scalar import TO_BOOL

INFIX = {
    **{"add": "+", "subtract": "-", "multiply": "*", "divide": "/"},
    **{"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="},
    **{"equal": "==", "not_equal": "!=", "logical_and": "&", "logical_or": "|"},
    **{"index_divide": "//", "index_remainder": "%"},
}


_LOOP_VARIABLE = re.compile(r"\b_(?=[irt])")
"""The mark of a loop variable's name, which listings leave out; a size's name stays as it is."""
_NAME = re.compile(r"[A-Za-z_]\w*")


def dim_text(dim: Dim) -> str:
    """Index arithmetic with loop variables as they are called in a listing."""
    return _LOOP_VARIABLE.sub("", str(dim))


def buffer_text(buffer: Buffer, write: Callable[[Dim], str] = dim_text) -> str:
    """``b0: f32[4, 8]``, with where its elements lie if it is not row-major."""
    shape = ", ".join(map(write, buffer.shape))
    where = "" if buffer.layout is None else f" {layout_text(buffer.layout, write)}"
    return f"{buffer.name}: {buffer.dtype}[{shape}]{where}"


def layout_text(layout: MemoryLayout, write: Callable[[Dim], str] = dim_text) -> str:
    """``strides (16, 2) from 5``, and the span and the border if it says any."""
    parts = [f"strides ({', '.join(map(write, layout.strides))})"]
    if layout.offset != 0:
        parts.append(f"from {write(layout.offset)}")
    if layout.span is not None:
        parts.append(f"span {write(layout.span)}")
    if layout.border:
        parts.append(f"border ({', '.join(map(str, layout.border))})")
        parts.append(f"order ({', '.join(map(str, layout.order))})")
    return " ".join(parts)


def expr_text(expr: Expr) -> str:
    """An expression as one line; every part is written, so equal texts are equal expressions."""
    return _Writer().text(expr)


def kernel_text(kernel: Kernel, name: str | None = None) -> str:
    """The algorithm, with shared subexpressions named once; ``parse_kernel`` reads it back."""
    writer = _KernelWriter(kernel)
    inputs = ", ".join(buffer_text(each, writer.dim) for each in kernel.inputs)
    outputs = ", ".join(buffer_text(each, writer.dim) for each in kernel.outputs)
    ranges = ", ".join(map(spell_range, kernel.sizes))
    where = f" where {ranges}" if ranges else ""
    lines = [f"kernel {name or kernel.name}({inputs}) -> ({outputs}){where}:"]
    axes = ", ".join(map(writer.axis, kernel.axes)) or "once"
    lines.append(f"  for {axes}:")
    for store in kernel.stores:
        position = ", ".join(map(writer.text, store.position))
        value = writer.text(store.value)
        guard = "" if store.guard is None else f" if {writer.text(store.guard)}"
        lines += writer.take_definitions()
        lines.append(f"    {writer.seen(store.buffer)}[{position}] = {value}{guard}")
    return "\n".join(lines) + "\n"


class _Writer:
    """Writes expressions; every part as often as it is used."""

    def dim(self, dim: Dim) -> str:
        """Index arithmetic."""
        return dim_text(dim)

    def axis(self, axis: Axis) -> str:
        """``i0 < 64``, and the range that its symbol declares if the extent does not say it."""
        text, symbol = f"{self.dim(axis.symbol)} < {self.dim(axis.extent)}", axis.symbol
        if symbol is usual_axis(symbol.name, axis.extent).symbol:
            return text
        return f"{text} in {symbol.lower}..{'' if symbol.upper is None else symbol.upper}"

    def seen(self, buffer: Buffer) -> str:
        """A buffer that is read or written."""
        return buffer.name

    def text(self, expr: Expr) -> str:
        """The expression; infix operators stand between spaces, which index arithmetic lacks."""
        match expr:
            case Literal():
                return f"{expr.value!r}:{expr.dtype}"
            case Index():
                return self.dim(expr.dim)
            case Variable():
                return expr.name
            case Load():
                return f"{self.seen(expr.buffer)}[{', '.join(map(self.text, expr.operands))}]"
            case Reduce():
                return (
                    f"{expr.kind}({', '.join(map(self.axis, expr.axes))}: {self.text(expr.body)})"
                )
        assert isinstance(expr, Apply)
        operands = [self.text(operand) for operand in expr.operands]
        is_usual = expr.dtype is usual_dtype(expr.function, expr.operands)
        if expr.function in INFIX and len(operands) == 2 and is_usual:
            return f"({operands[0]} {INFIX[expr.function]} {operands[1]})"
        dtype = "" if is_usual else f"<{expr.dtype}>"
        return f"{expr.function}{dtype}({', '.join(operands)})"


class _KernelWriter(_Writer):
    """Writes the expressions of a kernel, giving what is used more than once a name."""

    def __init__(self, kernel: Kernel) -> None:
        self.buffers = {each.name: each for each in kernel.buffers}
        self.uses: dict[Expr, int] = {}
        for expr in kernel.expressions():
            for operand in expr.operands:
                self.uses[operand] = self.uses.get(operand, 0) + 1
        self.names: dict[Expr, str] = {}
        self.definitions: list[str] = []
        self.sizes = {symbol.name for symbol in kernel.sizes}
        numbered = (f"v{number}" for number in count())
        self._free = (name for name in numbered if name not in self.sizes)

    def dim(self, dim: Dim) -> str:
        """Index arithmetic; a size keeps its name, and so does a variable that would have one's."""
        if not self.sizes or isinstance(dim, int):
            return dim_text(dim)
        return _NAME.sub(self._name, str(dim))

    def _name(self, found: re.Match[str]) -> str:
        name = found[0]
        bare = _LOOP_VARIABLE.sub("", name)
        return name if name in self.sizes or bare in self.sizes else bare

    def seen(self, buffer: Buffer) -> str:
        """A buffer, and how it is seen if that is not as the signature says."""
        if buffer == self.buffers.get(buffer.name):
            return buffer.name
        where = "" if buffer.layout is None else f" {layout_text(buffer.layout, self.dim)}"
        return f"{buffer.name}{{{', '.join(map(self.dim, buffer.shape))}{where}}}"

    def take_definitions(self) -> list[str]:
        """The definitions since the last call."""
        taken, self.definitions = self.definitions, []
        return taken

    def text(self, expr: Expr) -> str:
        """The expression, or the name of its definition."""
        if expr in self.names:
            return self.names[expr]
        written = super().text(expr)
        if self.uses.get(expr, 0) < 2 or not isinstance(expr, Apply | Reduce):
            return written
        name = next(self._free)
        self.names[expr] = name
        self.definitions.append(f"    {name} = {written}")
        return name


def usual_dtype(function: str, operands: Sequence[Expr]) -> DType | None:
    """The dtype that a function gives where no other is written."""
    if function in ("cast", "bitcast", "convert") or not operands:
        return None
    if function in TO_BOOL:
        return bool_
    return operands[1 if function in ("where", "rarely") else 0].dtype
