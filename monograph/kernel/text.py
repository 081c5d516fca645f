"""The text of expressions, kernels and loop nests: what a person reads and what a cache hashes."""

from __future__ import annotations

import re

from monograph.ir.dims import Dim
from monograph.kernel.expr import Apply, Axis, Buffer, Expr, Index, Literal, Load, Reduce, Variable
from monograph.kernel.kernel import Kernel
from monograph.kernel.loops import (
    Accumulator,
    Assign,
    Combine,
    Declare,
    If,
    Let,
    Loop,
    LoopNest,
    Prefetch,
    Statement,
    While,
    Write,
)

_INFIX = {
    **{"add": "+", "subtract": "-", "multiply": "*", "divide": "/"},
    **{"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="},
    **{"equal": "==", "not_equal": "!=", "logical_and": "&", "logical_or": "|"},
    **{"index_divide": "//", "index_remainder": "%"},
}


_LOOP_VARIABLE = re.compile(r"\b_(?=[irt])")
"""The mark of a loop variable's name, which listings leave out; a size's name stays as it is."""


def dim_text(dim: Dim) -> str:
    """Index arithmetic with loop variables as they are called in a listing."""
    return _LOOP_VARIABLE.sub("", str(dim))


def axis_text(axis: Axis) -> str:
    """A loop variable and its range: ``i0 < 64``."""
    return f"{dim_text(axis.symbol)} < {dim_text(axis.extent)}"


def buffer_text(buffer: Buffer) -> str:
    """``b0: f32[4, 8]``, with the strides (and the offset) if it is not row-major."""
    shape = ", ".join(map(dim_text, buffer.shape))
    text = f"{buffer.name}: {buffer.dtype}[{shape}]"
    if buffer.layout is not None:
        text += f" strides ({', '.join(map(str, buffer.layout.strides))})"
    return text if buffer.offset == 0 else f"{text} from {buffer.offset}"


def expr_text(expr: Expr) -> str:
    """An expression as one line; every part is written, so equal texts are equal expressions."""
    if isinstance(expr, Literal):
        value = repr(expr.value) if isinstance(expr.value, bool | int) else f"{expr.value!r}"
        return f"{value}:{expr.dtype}"
    if isinstance(expr, Index):
        return dim_text(expr.dim)
    if isinstance(expr, Variable):
        return expr.name
    if isinstance(expr, Load):
        return f"{expr.buffer.name}[{', '.join(map(expr_text, expr.operands))}]"
    if isinstance(expr, Reduce):
        axes = ", ".join(map(axis_text, expr.axes))
        return f"{expr.kind}({axes}: {expr_text(expr.body)})"
    assert isinstance(expr, Apply)
    operands = [expr_text(operand) for operand in expr.operands]
    if expr.function in _INFIX and len(operands) == 2:
        return f"({operands[0]} {_INFIX[expr.function]} {operands[1]})"
    if expr.function in ("cast", "bitcast", "convert"):
        return f"{expr.function}<{expr.dtype}>({operands[0]})"
    return f"{expr.function}({', '.join(operands)})"


def kernel_text(kernel: Kernel, name: str | None = None) -> str:
    """The algorithm, with shared subexpressions named once."""
    inputs = ", ".join(map(buffer_text, kernel.inputs))
    outputs = ", ".join(map(buffer_text, kernel.outputs))
    lines = [f"kernel {name or kernel.name}({inputs}) -> ({outputs}):"]
    axes = ", ".join(map(axis_text, kernel.axes)) or "once"
    lines.append(f"  for {axes}:")
    writer = _SharedWriter(kernel)
    for store in kernel.stores:
        position = ", ".join(map(writer.text, store.position))
        value = writer.text(store.value)
        lines += writer.take_definitions()
        lines.append(f"    {store.buffer.name}[{position}] = {value}")
    return "\n".join(lines) + "\n"


class _SharedWriter:
    """Writes expressions, giving what is used more than once a name."""

    def __init__(self, kernel: Kernel) -> None:
        self.uses: dict[Expr, int] = {}
        for expr in kernel.expressions():
            for operand in expr.operands:
                self.uses[operand] = self.uses.get(operand, 0) + 1
        self.names: dict[Expr, str] = {}
        self.definitions: list[str] = []

    def take_definitions(self) -> list[str]:
        """The definitions since the last call."""
        taken, self.definitions = self.definitions, []
        return taken

    def text(self, expr: Expr) -> str:
        """The expression, or the name of its definition."""
        if expr in self.names:
            return self.names[expr]
        written = self._written(expr)
        if self.uses.get(expr, 0) < 2 or not isinstance(expr, Apply | Reduce):
            return written
        name = f"v{len(self.names)}"
        self.names[expr] = name
        self.definitions.append(f"    {name} = {written}")
        return name

    def _written(self, expr: Expr) -> str:
        if isinstance(expr, Reduce):
            axes = ", ".join(map(axis_text, expr.axes))
            return f"{expr.kind}({axes}: {self.text(expr.body)})"
        if isinstance(expr, Load):
            return f"{expr.buffer.name}{_view(expr)}[{', '.join(map(self.text, expr.operands))}]"
        if isinstance(expr, Apply):
            operands = [self.text(operand) for operand in expr.operands]
            if expr.function in _INFIX and len(operands) == 2:
                return f"({operands[0]} {_INFIX[expr.function]} {operands[1]})"
            if expr.function in ("cast", "bitcast", "convert"):
                return f"{expr.function}<{expr.dtype}>({operands[0]})"
            return f"{expr.function}({', '.join(operands)})"
        return expr_text(expr)


def _view(expr: Load) -> str:
    """A shape seen through a view is part of what is read."""
    return f"<{', '.join(map(dim_text, expr.buffer.shape))}>"


def nest_text(nest: LoopNest) -> str:
    """A loop nest, as pseudo-code."""
    signature = ", ".join(buffer_text(buffer) for buffer in nest.buffers)
    lines = [f"nest {nest.name}({signature}):"]
    lines += [f"  scratch {buffer_text(buffer)}" for buffer in nest.scratch]
    grain = f" in steps of {dim_text(nest.grain)}" if nest.grain != 1 else ""
    lines.append(f"  parallel {dim_text(nest.parallel)} < {dim_text(nest.extent)}{grain}:")
    for statement in nest.body:
        lines += _statement_lines(statement, "    ")
    return "\n".join(lines) + "\n"


def _statement_lines(statement: Statement, indent: str) -> list[str]:
    match statement:
        case Let(variable, value):
            return [f"{indent}{variable.name} = {expr_text(value)}"]
        case Accumulator(variable, kind):
            return [f"{indent}{variable.name}: {variable.dtype} = nothing yet of {kind}"]
        case Combine(variable, kind, value, position):
            at = f" at {expr_text(position)}" if kind in ("argmax", "argmin") else ""
            return [f"{indent}{variable.name} = {kind}({variable.name}, {expr_text(value)}{at})"]
        case Write(buffer, offset, value, streaming):
            mark = "  (streaming)" if streaming else ""
            return [f"{indent}{buffer.name}[{expr_text(offset)}] = {expr_text(value)}{mark}"]
        case Prefetch(buffer, offset, far):
            mark = "  (far)" if far else ""
            return [f"{indent}prefetch {buffer.name}[{expr_text(offset)}]{mark}"]
        case Declare(variable, value):
            return [f"{indent}{variable.name}: {variable.dtype} = {expr_text(value)}"]
        case Assign(variable, value):
            return [f"{indent}{variable.name} := {expr_text(value)}"]
        case If(condition, body):
            return [f"{indent}if {expr_text(condition)}:", *_block_lines(body, indent)]
        case While(test, condition, body):
            tested = [f"{indent}while:", *_block_lines(test, indent)]
            holds = f"{indent}holds {expr_text(condition)}, do:"
            return [*tested, holds, *_block_lines(body, indent)]
        case Loop(symbol, start, extent, body, kind, width):
            by = f" by {width}" if width > 1 else ""
            first = "" if start == 0 else f" from {dim_text(start)}"
            head = f"{indent}{kind.value} {dim_text(symbol)}{first} < {dim_text(extent)}{by}:"
            return [head, *_block_lines(body, indent)]


def _block_lines(body: tuple[Statement, ...], indent: str) -> list[str]:
    return [line for s in body for line in _statement_lines(s, indent + "  ")]
