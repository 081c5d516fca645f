"""Writes a graph as Relay's text: one call a line, each with its type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from monograph.dataclass import dataclass
from monograph.exporters.writers import WriterTable
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.location import Location
from monograph.ir.types import Array, TensorType

DTYPES = {
    "bool": "bool",
    "bf16": "bfloat16",
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}


class Term(NamedTuple):
    """A value: how it is read, and its type."""

    name: str
    type: TensorType


@dataclass(frozen=True)
class RelayModule:
    """The text of a module, the arrays of its parameters, and where its calls come from."""

    text: str
    parameters: dict[str, Array]
    calls: tuple[tuple[str, Location | None], ...] = ()


def _refuse(node: Node) -> str | None:
    for value in (*node.operands, *node.results):
        if not isinstance(value.type, TensorType) or value.dtype.name not in DTYPES:
            return f"Relay has no {value.type}"
    return None


TABLE: WriterTable[Emitter, Term] = WriterTable("Relay", _refuse)
"""What each op is in Relay."""


def type_text(type_: TensorType) -> str:
    """``Tensor[(2, 3), float32]``; sizes that are free are ``?``."""
    sizes = [str(dim) if isinstance(dim, int) else "?" for dim in type_.shape]
    listed = f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"
    return f"Tensor[{listed}, {DTYPES[type_.dtype.name]}]"


class Emitter:
    """Calls in order, one a line."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.calls: list[str] = []
        self.locations: list[Location | None] = []
        self.location: Location | None = None
        self.names: dict[Value, Term] = {}
        self.parameters: dict[str, tuple[Array, TensorType]] = {}
        self.taken = {_identifier(value.name) for value in graph.inputs}

    def module(self) -> RelayModule:
        """The finished text."""
        for value in self.graph.inputs:
            self.names[value] = Term(f"%{_identifier(value.name)}", value.tensor)
        for node in self.graph.nodes:
            self.location = node.location
            terms = TABLE.write(self, node)
            self.names.update(zip(node.results, terms, strict=True))
        results = [self.names[value] for value in self.graph.outputs]
        names, types = [term.name for term in results], [type_text(term.type) for term in results]
        given = [f"%{_identifier(x.name)}: {type_text(x.tensor)}" for x in self.graph.inputs]
        given += [f"%{name}: {type_text(type_)}" for name, (_, type_) in self.parameters.items()]
        returned = names[0] if len(names) == 1 else f"({', '.join(names)})"
        type_ = types[0] if len(types) == 1 else f"({', '.join(types)})"
        lines = [f"  {call};" for call in self.calls]
        body = "\n".join([*lines, f"  {returned}"])
        head = f"def @main({', '.join(given)}) -> {type_} {{"
        arrays = {name: array for name, (array, _) in self.parameters.items()}
        calls = tuple(zip(self.calls, self.locations, strict=True))
        return RelayModule(f'#[version = "0.0.5"]\n{head}\n{body}\n}}\n', arrays, calls)

    def operands(self, node: Node) -> list[Term]:
        """The terms of a node's operands."""
        return [self.names[value] for value in node.operands]

    def call(
        self, word: str, operands: Sequence[Term | str], result: TensorType, **attributes: Any
    ) -> Term:
        """A call of an operator, bound to the next number."""
        given = [each if isinstance(each, str) else each.name for each in operands]
        given += [f"{key}={_attribute(value)}" for key, value in attributes.items()]
        name = f"%{len(self.calls)}"
        self.locations.append(self.location)
        self.calls.append(f"{name} = {word}({', '.join(given)}) /* ty={type_text(result)} */")
        return Term(name, result)

    def parameter(self, label: str, array: Array, type_: TensorType) -> Term:
        """A weight or a constant, as one more input of the function."""
        name, count = _identifier(label), 0
        while name in self.taken:
            count += 1
            name = f"{_identifier(label)}_{count}"
        self.taken.add(name)
        self.parameters[name] = (array, type_)
        return Term(f"%{name}", type_)


def _identifier(name: str) -> str:
    cleaned = re.sub(r"\W", "_", name)
    return f"v{cleaned}" if not cleaned or cleaned[0].isdigit() else cleaned


def _attribute(value: Any) -> str:
    """An attribute as Relay's parser takes it: ``axis=[0, 1]``, ``dtype="float32"``, ``1f``."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return f"{value!r}f"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_attribute, value)) + "]"
    return str(value)
