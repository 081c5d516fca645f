"""Placement: which activations are stored as integers, by a minimum cut.

Contractions want integers; ops that know only floats want floats; what lies between may be either.
Each activation is stored in the forms that its readers want, and every form costs the bytes that it
moves. Reshapes, pools and concatenations keep the form that they are given. The cheapest choice is
a minimum cut of a network with these vertices, those on the source's side being integers:

    a transparent or elementwise node      the form that it reads
    (q, activation), (f, activation)       on its own side if that form is wanted by anybody
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field

from monograph.dataclass import dataclass
from monograph.ir.dims import evaluate_dim
from monograph.ir.graph import Graph, Node, Value
from monograph.quantization.min_cut import INFINITE, Network
from monograph.quantization.observers import observable
from monograph.quantization.roles import VIEWS, Role, is_known, role_of, weight_of

FLOAT_BYTES = 4.0
ROUNDING_BYTES = 2.0
"""What an element that an elementwise op reads rounded costs beside its bytes: its precision."""


@dataclass(frozen=True)
class Placement:
    """Which nodes work on integers, and which activations are stored so."""

    contractions: frozenset[Node]
    passing: frozenset[Node]
    """Transparent nodes that move integers."""
    reading: frozenset[Node]
    """Elementwise nodes that read integers."""
    stored: frozenset[Value]
    """Activations of which there is an integer form."""
    cost: float
    """Bytes that are moved by this choice, as the network counts them."""
    groups: dict[Value, Value] = field(default_factory=dict)
    """For each stored activation the first of those that share its scale."""

    def reads_integers(self, node: Node, position: int) -> bool:
        """Whether a node reads the integer form of an operand."""
        if node in self.contractions:
            return position == 0 or (position == 1 and weight_of(node) is None)
        return node in self.passing or node in self.reading


def place(
    graph: Graph,
    contractions: Collection[Node],
    storable: Collection[Value],
    *,
    elementwise: bool,
    stored_bytes: float,
) -> Placement:
    """The cheapest placement that gives ``contractions`` their operands as integers.

    Only ``storable`` activations may be stored; ``stored_bytes`` is the size of an element then.
    """
    network = Network()
    chosen, allowed = frozenset(contractions), set(storable)
    for value in observable(graph):
        _add_value(network, value, chosen, allowed, elementwise, stored_bytes)
    cost, side = network.cut()
    nodes = [node for node in graph.nodes if node in side]
    passing = frozenset(node for node in nodes if role_of(node) is Role.TRANSPARENT)
    reading = frozenset(node for node in nodes if role_of(node) is Role.ELEMENTWISE)
    stored = frozenset(value for value in allowed if ("q", value) in side)
    return Placement(chosen, passing, reading, stored, cost, _scale_groups(passing, stored))


def _add_value(
    network: Network,
    value: Value,
    contractions: frozenset[Node],
    allowed: set[Value],
    elementwise: bool,
    stored_bytes: float,
) -> None:
    """The edges that say what the forms of one activation cost."""
    as_integers, as_floats = ("q", value), ("f", value)
    size = float(element_count(value))
    small, large = size * stored_bytes, size * FLOAT_BYTES
    producer = value.producer
    if value not in allowed:
        network.add_edge(as_integers, Network.SINK, INFINITE)
    if producer is None:  # an input exists as floats, which a conversion reads
        network.add_edge(as_integers, Network.SINK, small + large)
    elif role_of(producer) is not Role.TRANSPARENT:
        network.add_edge(as_integers, Network.SINK, small)
        network.add_edge(Network.SOURCE, as_floats, large)
    else:
        network.add_edge(producer, as_integers, INFINITE)
        network.add_edge(as_floats, producer, INFINITE)
        network.add_edge(producer, as_floats, small + large)  # a conversion of its own
        network.add_edge(as_integers, producer, small + large)
        if not isinstance(producer.op, VIEWS):
            network.add_edge(producer, Network.SINK, small)
            network.add_edge(Network.SOURCE, producer, large)
    for use in value.uses:
        node, role = use.node, Role.FLOAT
        if node is not value.graph.output_node:
            role = role_of(node)
        if node in contractions and not (use.position == 1 and is_known(value)):
            network.add_edge(Network.SOURCE, as_integers, INFINITE)
        elif role is Role.TRANSPARENT or (role is Role.ELEMENTWISE and elementwise):
            network.add_edge(node, as_integers, INFINITE)
            network.add_edge(as_floats, node, INFINITE)
            if role is Role.ELEMENTWISE:
                network.add_edge(Network.SOURCE, node, large)
                network.add_edge(node, Network.SINK, small + size * ROUNDING_BYTES)
        else:
            network.add_edge(as_floats, Network.SINK, INFINITE)


def element_count(value: Value) -> int:
    """How many elements a value has; symbolic sizes are the least that they can be, but 1."""
    total = 1
    for dim in value.shape:
        if not isinstance(dim, int):
            dim = evaluate_dim(dim, {symbol: max(1, symbol.lower) for symbol in dim.symbols()})
        total *= max(1, dim)
    return total


def _scale_groups(passing: frozenset[Node], stored: frozenset[Value]) -> dict[Value, Value]:
    """Activations on both sides of a node that moves integers share a scale."""
    first = {value: value for value in stored}

    def root(value: Value) -> Value:
        while first[value] is not value:
            value = first[value]
        return value

    for node in passing:
        for operand in node.operands:
            if operand in first and node.result in first:
                first[root(node.result)] = root(operand)
    return {value: root(value) for value in stored}
