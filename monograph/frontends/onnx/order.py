"""Topological order: which names a node reads and defines, and an order that defines before use.

ONNX asks for sorted nodes; not every exporter obeys. Nodes that are sorted stay as they are, others
are sorted (stably), and what cannot be sorted is a cycle or lacks a value.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from onnx import AttributeProto, GraphProto, NodeProto

from monograph.errors import InputError

LONGEST_NAME = 80


class NodeFacts(NamedTuple):
    """A node with the names that it deals in, read from the protobuf once.

    ``reads`` are its inputs and what its bodies read from around them; omitted inputs are empty
    names in ``inputs`` and missing in ``reads``.
    """

    proto: NodeProto
    position: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reads: tuple[str, ...]


def facts_of(nodes: Iterable[NodeProto]) -> list[NodeFacts]:
    """The facts of each node of a graph or function."""
    facts = []
    for position, node in enumerate(nodes):
        inputs = tuple(node.input)
        reads = tuple(name for name in inputs if name)
        for graph in subgraphs(node):
            reads += tuple(free_names(graph))
        facts.append(NodeFacts(node, position, inputs, tuple(node.output), reads))
    return facts


def input_count(node: NodeProto) -> int:
    """How many inputs a node has, without omitted ones at the end."""
    count = len(node.input)
    while count and not node.input[count - 1]:
        count -= 1
    return count


def shorten(name: str) -> str:
    """A name that fits into a message."""
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def describe_node(node: NodeProto, position: int | None = None) -> str:
    """A node in words: its op and its name, or what it makes, or where it stands."""
    op = shorten(f"{node.domain}.{node.op_type}" if node.domain else node.op_type)
    if node.name:
        return f"{op} {shorten(node.name)!r}"
    made = next((name for name in node.output if name), None)
    if made is not None:
        return f"{op} that makes {shorten(made)!r}"
    return op if position is None else f"{op} (node {position})"


_NODE_IN_WORDS = re.compile(r"(?:^|[( ])(?:[\w.]+\.)?(?P<op>\w+) (?:that makes )?'")


def op_type_in(text: str) -> str | None:
    """The op of the first node that stands in a text in the words of ``describe_node``."""
    found = _NODE_IN_WORDS.search(text)
    return None if found is None else found["op"]


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The bodies that a node carries in its attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def walk_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Every node, those in bodies too."""
    stack = [iter(nodes)]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
            continue
        yield node
        if len(node.attribute):
            stack.extend(iter(graph.node) for graph in subgraphs(node))


def free_names(graph: GraphProto) -> list[str]:
    """The names that a body reads from the graphs around it, each once."""
    own = {value.name for value in graph.input}
    own.update(tensor.name for tensor in graph.initializer)
    own.update(tensor.values.name for tensor in graph.sparse_initializer)
    facts = facts_of(graph.node)
    own.update(name for each in facts for name in each.outputs)
    read = [name for each in facts for name in each.reads]
    read += [value.name for value in graph.output]
    return [name for name in dict.fromkeys(read) if name not in own]


def sort_nodes(
    nodes: Sequence[NodeFacts], own: Container[str], around: Container[str], where: str
) -> list[NodeFacts]:
    """The nodes in an order in which they can be evaluated.

    ``own`` are the names that their graph has before them, ``around`` those of the graphs around
    it. Names made twice, names that nothing makes, and cycles are errors.
    """
    makers: dict[str, int] = {}
    for node in nodes:
        for name in node.outputs:
            if name and (name in makers or name in own):
                raise InputError(
                    f"two values of {where} are called {shorten(name)!r}",
                    expected="each name to be made once",
                    found=f"a second maker, {describe_node(node.proto, node.position)}",
                )
            if name:
                makers[name] = node.position
    needed = [_makers_read(node, makers, own, around, where) for node in nodes]
    if all(not before or max(before) < position for position, before in enumerate(needed)):
        return list(nodes)
    return [nodes[position] for position in _topological(needed, nodes, where)]


def _makers_read(
    node: NodeFacts, makers: dict[str, int], own: Container[str], around: Container[str], where: str
) -> set[int]:
    before = set()
    for name in node.reads:
        maker = makers.get(name)
        if maker is not None:
            before.add(maker)
        elif name not in own and name not in around:
            described = describe_node(node.proto, node.position)
            raise InputError(
                f"{described} reads {shorten(name)!r}, which nothing makes",
                expected=f"an input, an initializer or a result of a node of {where}",
            )
    return before


def _topological(
    needed: Sequence[set[int]], nodes: Sequence[NodeFacts], where: str
) -> Iterator[int]:
    readers: list[list[int]] = [[] for _ in nodes]
    waiting = [len(before) for before in needed]
    for position, before in enumerate(needed):
        for maker in before:
            readers[maker].append(position)
    ready = [position for position, count in enumerate(waiting) if not count]
    heapify(ready)
    done = 0
    while ready:
        position = heappop(ready)
        done += 1
        yield position
        for reader in readers[position]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heappush(ready, reader)
    if done < len(nodes):
        stuck = next(position for position, count in enumerate(waiting) if count)
        raise InputError(
            f"the nodes of {where} read each other in a circle",
            expected="values that flow one way",
            found=f"a cycle at {describe_node(nodes[stuck].proto, stuck)}",
        )
