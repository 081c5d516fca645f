"""The data of a graph's weights and constants, read again or copied all at once.

A graph shares memory with whoever made its weights (a torch module, a NumPy array, a file), who may
write to it. Before a graph is compiled or optimised, what is remembered of the contents is
therefore forgotten (``reread``); and what must not change any more is copied (``snapshot``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from monograph.ir.data import Data
from monograph.ir.graph import Graph, Node
from monograph.ir.op import make

HOLDERS = ("weight", "constant")
"""The ops that hold contents."""


def contents_of(node: Node) -> Data | None:
    """What a weight or constant holds; None of any other node."""
    if node.op.name not in HOLDERS:
        return None
    data: Data = node.op.attributes()["data"]
    return data


def give(node: Node, data: Data) -> None:
    """Let a weight or constant hold other data."""
    node.op = make(node.op.name, **{**node.op.attributes(), "data": data})


def reread(graph: Graph) -> Graph:
    """The graph as its weights are now: itself, or a copy if it remembers what they were."""
    found = (contents_of(node) for node in graph.walk())
    if all(data is None or data.reread() is data for data in found):
        return graph
    copy = graph.clone()
    _replace(copy.walk(), Data.reread)
    return copy


def snapshot(nodes: Iterable[Node]) -> None:
    """Let these nodes, and those inside them, hold contents that nobody else can write to."""
    _replace(nodes, Data.snapshot)


def _replace(nodes: Iterable[Node], change: Callable[[Data], Data]) -> None:
    """Give nodes other data; those that hold the same share the new one too."""
    changed: dict[int, tuple[Data, Data]] = {}  # with the old one, whose id no other may take
    for node in nodes:
        data = contents_of(node)
        if data is None:
            continue
        if id(data) not in changed:
            changed[id(data)] = (data, change(data))
        new = changed[id(data)][1]
        if new is not data:
            give(node, new)
