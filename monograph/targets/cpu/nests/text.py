"""The text of loop nests, as pseudo-code: what a person reads and what a cache hashes."""

from __future__ import annotations

from monograph.kernel.text import buffer_text, dim_text, expr_text
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Assign,
    Combine,
    Declare,
    If,
    Let,
    Loop,
    LoopNest,
    MultiplyTiles,
    Prefetch,
    Statement,
    While,
    Write,
)


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
        case MultiplyTiles():
            left, right = statement.left.name, statement.right.name
            rows = ", ".join(f"{left}[{expr_text(each)}]" for each in statement.offsets)
            panel = f"{right}[{expr_text(statement.place)}], {statement.columns} columns"
            sums = f"{statement.sums.name}[0]"
            size = f"rows {statement.stride} apart, {statement.steps} steps"
            return [f"{indent}{sums} = tiles({rows}, {size}; {panel})"]
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
