"""What native code cannot do: values without memory, and sizes that are not known."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from monograph.ir.deferred import DeferredOp
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import TensorType, string, symbols_of
from monograph.ops.sequence import OptionalHasElement


def why_not_storable(value: Value) -> str | None:
    """Why native code has no memory for a value."""
    if not isinstance(value.type, TensorType):
        return f"%{value.name} is a {value.type}, which only the interpreter holds"
    if value.dtype is string:
        return f"%{value.name} holds strings, which only the interpreter knows"
    return None


def why_not_native(node: Node, known: AbstractSet[Symbol]) -> str | None:
    """Why a node, or one in its regions, cannot be part of a native program of these sizes."""
    for each in _with_inner(node):
        for value in (*each.operands, *each.results):
            if reason := why_not_storable(value):
                return reason
        found = {symbol for value in each.results for symbol in symbols_of(value.type)}
        if not found <= known:
            return f"{each.op.name} decides the size of its result when it runs"
        if isinstance(each.op, DeferredOp | OptionalHasElement):
            return f"{each.op.name} waits for more to be known of its operands"
    return None


def only_interpretable(graph: Graph) -> str | None:
    """Why a graph has no native code as a whole."""
    for value in graph.inputs:
        if reason := why_not_storable(value):
            return reason
    known = graph.bound_symbols()
    for node in graph.nodes:
        if reason := why_not_native(node, known):
            return reason
    return None


def _with_inner(node: Node) -> Iterator[Node]:
    yield node
    for region in node.regions:
        yield from region.walk()
