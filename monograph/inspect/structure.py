"""Features of a graph for drawings: op counts, skip connections, chains that could fuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from monograph.dataclass import dataclass
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.op import Family, Trait


@dataclass(frozen=True)
class Skip:
    """A value that reaches ``join`` directly and also through ``path``."""

    source: Value
    join: Node
    path: tuple[Node, ...]


def count_by_family(graph: Graph) -> Mapping[str, int]:
    """How many nodes of each family there are; inputs and outputs count as data."""
    counts = {family.value: 0 for family in Family}
    counts[Family.DATA.value] = len(graph.inputs) + len(graph.outputs)
    for node in graph.walk():
        counts[node.op.family.value] += 1
    return counts


def op_counts(graph: Graph) -> dict[str, int]:
    """How often each op occurs, most frequent first; inputs and outputs count as ops."""
    counts = Counter(node.op.name for node in graph.walk())
    ordered = {"input": len(graph.inputs), **dict(counts.most_common())}
    ordered["output"] = len(graph.outputs)
    return ordered


def skip_connections(graph: Graph) -> list[Skip]:
    """Joins of a value with something computed from that same value: residual connections."""
    found = []
    for node in graph.nodes:
        if len(node.operands) < 2 or not node.op.has(Trait.ELEMENTWISE):
            continue
        for near in node.operands:
            for far in node.operands:
                path = _path(near, far) if near is not far else None
                if path is not None:
                    found.append(Skip(near, node, path))
    return found


def _path(source: Value, target: Value) -> tuple[Node, ...] | None:
    """A shortest chain of nodes that leads from one value to another; None if there is none."""
    if target.producer is None:
        return None
    pending: list[tuple[Node, tuple[Node, ...]]] = [(target.producer, (target.producer,))]
    seen = {target.producer}
    for node, path in pending:
        if source in node.operands:
            return path
        for operand in node.operands:
            producer = operand.producer
            if producer is not None and producer not in seen:
                seen.add(producer)
                pending.append((producer, (producer, *path)))
    return None


def fusable_chains(graph: Graph) -> list[list[Node]]:
    """Maximal runs of elementwise nodes, each the only user of the one before.

    Such a run needs one loop and no intermediate tensor. Constants do not count as members.
    """
    chains: list[list[Node]] = []
    member: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if not node.op.has(Trait.ELEMENTWISE) or node.op.family is not Family.COMPUTE:
            continue
        chain = next((member[p] for p in _sole_feeders(node) if p in member), None)
        if chain is None:
            chain = []
            chains.append(chain)
        chain.append(node)
        member[node] = chain
    return [chain for chain in chains if len(chain) > 1]


def _sole_feeders(node: Node) -> list[Node]:
    """The producers of operands that nobody else uses."""
    return [
        operand.producer
        for operand in node.operands
        if operand.producer is not None and operand.users == (node,)
    ]


def epilogues(graph: Graph) -> list[tuple[Node, Node]]:
    """(contraction, elementwise node) pairs where the second could run on the first's result."""
    contractions = {"matmul", "linear", "conv", "dot_general", "einsum"}
    return [
        (producer, node)
        for node in graph.nodes
        if node.op.has(Trait.ELEMENTWISE)
        for producer in _sole_feeders(node)
        if producer.op.name in contractions
    ]
