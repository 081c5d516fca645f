"""Writing graphs as text: the form that ``parser`` reads back to an equal graph.

    graph @mlp(%x: f32[batch, 4], %w: f32[4, 3]) -> (f32[batch, 3]) where batch <= 64 {
      %matmul = matmul(%x, %w) : f32[batch, 3]
      %softmax = softmax(%matmul) {axis = 0} : f32[batch, 3]
      return %softmax
    }

Attributes are written where they differ from their default; so are the ranges of symbols.
"""

from __future__ import annotations

from collections.abc import Iterable

from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node, Output, Value
from monograph.ir.location import Location
from monograph.ir.text.attributes import spell_attributes
from monograph.ir.text.constants import spell_contents
from monograph.ir.text.lexer import quote, spell_name

_INDENT = "  "


def print_graph(graph: Graph, *, locations: bool = False) -> str:
    """The graph as text; with ``locations``, each node says which line of the user's made it."""
    lines: list[str] = []
    stack: list[tuple[Graph | Node | str, int]] = [(graph, 0)]
    while stack:
        item, depth = stack.pop()
        indent = _INDENT * depth
        if isinstance(item, str):
            lines.append(indent + item)
        elif isinstance(item, Graph):
            ranges = _ranges(item.symbols().values()) if item is graph else ""
            lines.append(f"{indent}{_header(item, ranges)} {{")
            stack.append(("}", depth))
            stack.append((_line(item.output_node), depth + 1))
            stack.extend((node, depth + 1) for node in reversed(item.nodes))
        else:
            line = indent + _line(item) + (_location(item.location) if locations else "")
            lines.append(line + " {" if item.regions else line)
            if item.regions:
                stack.append(("}", depth))
                stack.extend((region, depth + 1) for region in reversed(item.regions))
    return "\n".join(lines)


def print_node(node: Node) -> str:
    """One node in one line; regions and long constants are left out."""
    line = _line(node, elide=True)
    return line + " {...}" if node.regions else line


def describe(node: Node) -> str:
    """A node between its neighbours, marked: where in the graph an error is."""
    previous = node.graph._last if isinstance(node.op, Output) else node.previous
    lines = []
    if previous is not None:
        lines.append("  " + print_node(previous))
    lines.append("> " + print_node(node))
    if node.next is not None:
        lines.append("  " + print_node(node.next))
    return "\n".join(lines)


def _line(node: Node, *, elide: bool = False) -> str:
    """A node without its regions and location."""
    op = node.op
    if isinstance(op, Output):
        return f"return {_names(node.operands)}".rstrip()
    attributes: list[str] = []
    if op.name == "constant":
        inside = spell_contents(op.data, elide=elide)  # type: ignore[attr-defined]  # ops/data.py
    elif op.name == "weight":
        inside = f"{quote(op.label)}, {quote(op.data.digest)}"  # type: ignore[attr-defined]  # same
    else:
        inside = _names(node.operands)
        attributes = spell_attributes(op)
    text = f"{op.name}({inside})"
    if attributes:
        text += f" {{{', '.join(attributes)}}}"
    if not node.results:
        return text
    types = ", ".join(str(result.type) for result in node.results)
    return f"{_names(node.results)} = {text} : {types}"


def _names(values: Iterable[Value]) -> str:
    return ", ".join("%" + spell_name(value.name) for value in values)


def _header(graph: Graph, ranges: str) -> str:
    inputs = ", ".join(
        f"%{spell_name(value.name)}: {value.type}{' donated' if index in graph.donated else ''}"
        for index, value in enumerate(graph.inputs)
    )
    outputs = ", ".join(str(value.type) for value in graph.outputs)
    text = f"graph @{spell_name(graph.name)}({inputs}) -> ({outputs}){ranges}"
    if graph.updates:
        pairs = ", ".join(f"{output}: {input_}" for output, input_ in graph.updates.items())
        text += f" updates ({pairs})"
    return text


def _ranges(symbols: Iterable[Symbol]) -> str:
    """The ``where`` clause: every symbol whose range is not the usual one."""
    ranges = [
        spell_range(symbol) for symbol in symbols if (symbol.lower, symbol.upper) != (1, None)
    ]
    return f" where {', '.join(ranges)}" if ranges else ""


def spell_range(symbol: Symbol) -> str:
    """The range of a symbol: ``2 <= batch <= 64``; a lower bound of 1 goes without saying."""
    lower = f"{symbol.lower} <= " if symbol.lower != 1 or symbol.upper is None else ""
    upper = f" <= {symbol.upper}" if symbol.upper is not None else ""
    return f"{lower}{symbol.name}{upper}"


def _location(location: Location | None) -> str:
    if location is None:
        return " loc(unknown)"
    text = f"{quote(location.file)}:{location.line}"
    if location.function:
        text += f" in {quote(location.function)}"
    if location.scope:
        text += f" scope {quote(location.scope)}"
    return f" loc({text})"
