"""Replacing a composite by the ops that it is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monograph.ir.graph import Node, Value
from monograph.ir.op import make
from monograph.ir.types import TensorType


def decompose_node(node: Node) -> list[Node]:
    """Replace a composite by its decomposition, which takes over its names; the new nodes."""
    return replace_by(node, node.op.decompose)


def replace_by(node: Node, build: Callable[..., Any]) -> list[Node]:
    """Replace a node by what ``build`` makes of its operands; the new nodes take over its names."""
    graph = node.graph
    before = node.previous
    with graph.inserting_before(node, node.location):
        made = build(*node.operands)
        results = made if isinstance(made, tuple) else (made,)
        values = [_as_type(*pair) for pair in zip(results, node.results, strict=True)]
    new = []
    last = node.previous
    while last is not before and last is not None:
        new.append(last)
        last = last.previous
    names = [result.name for result in node.results]
    graph.replace(node, values)
    for value, name in zip(values, names, strict=True):
        if value.producer in new:
            graph.rename(value, name)
    return new[::-1]


def _as_type(value: Value, old: Value) -> Value:
    """``value`` in the shape that the value it replaces declares.

    A composite may know more of its shape than its parts do: ``split`` into ``[1, n-1]`` declares
    what a ``slice`` of ``n`` can only call ``min(n, 1)``.
    """
    shape = old.tensor.shape if isinstance(old.type, TensorType) else None
    if shape is None or value.shape == shape:
        return value
    return value.graph.create(make("reshape", shape=shape), (value,)).result
