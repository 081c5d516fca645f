"""Graphs as Graphviz's language: ``dot -Tpdf model.dot``. Weights and constants are left out."""

from __future__ import annotations

import json

from monograph.ir.graph import Graph, Value
from monograph.ir.op import Family

SHAPES = {Family.SHAPE: "parallelogram", Family.CONTROL: "diamond"}
"""How nodes of a family look; boxes otherwise."""


def to_dot(graph: Graph) -> str:
    """A digraph, from inputs down to outputs; edges bear types."""
    lines = [f"digraph {_quote(graph.name)} {{", '  rankdir="TB";', '  node [fontname="sans"];']
    names: dict[Value, str] = {}
    for number, value in enumerate(graph.inputs):
        names[value] = f"input{number}"
        lines.append(f"  input{number} [label={_quote(f'%{value.name}')}, shape=ellipse];")
    for number, node in enumerate(graph.nodes):
        if node.op.family is Family.DATA:
            continue
        shape = SHAPES.get(node.op.family, "box")
        lines.append(f"  node{number} [label={_quote(node.op.name)}, shape={shape}];")
        lines += [
            _edge(names, operand, f"node{number}") for operand in node.operands if operand in names
        ]
        names.update(dict.fromkeys(node.results, f"node{number}"))
    for number, value in enumerate(graph.outputs):
        lines.append(f'  output{number} [label="output {number}", shape=ellipse];')
        if value in names:
            lines.append(_edge(names, value, f"output{number}"))
    return "\n".join([*lines, "}"]) + "\n"


def _edge(names: dict[Value, str], value: Value, to: str) -> str:
    return f"  {names[value]} -> {to} [label={_quote(str(value.type))}];"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
