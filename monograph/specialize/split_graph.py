"""Splits a graph in two where its continuation depends on values of a call.

    before ─▶ what decides: contents that are read, or nodes that are interpreted ─▶ after

``before`` computes what the decision needs, natively, and nothing else. ``after`` is all the rest;
its inputs are those of the graph and what it needs of the values that are there by then, so nothing
is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from monograph.dataclass import dataclass
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node, Value, copy_node
from monograph.ir.types import symbols_of
from monograph.ops.data import Constant, Weight
from monograph.ops.joining import Concat, Stack
from monograph.ops.shape import Reshape, Squeeze, Unsqueeze
from monograph.program.native_support import why_not_native, why_not_storable
from monograph.specialize.padded_results import is_told, pad_results

_PUT_TOGETHER = (Concat, Stack, Reshape, Squeeze, Unsqueeze)
"""Ops that only arrange numbers."""


@dataclass(frozen=True)
class Cut:
    """Two graphs and what happens between them.

    ``before`` gives ``computed``, in order, after which the ``between`` nodes run. Those whose
    results ``pad_results`` can give need not: from the output of that number on, ``before`` gives
    them in full length, and then the length. ``handed`` are the values, beyond the graph's inputs,
    that ``after`` takes; the contents of its inputs of the numbers ``read`` decide how it goes on.
    """

    graph: Graph
    before: Graph
    computed: tuple[Value, ...]
    bounded: Mapping[Node, int]
    between: tuple[Node, ...]
    after: Graph
    handed: tuple[Value, ...]
    read: tuple[int, ...]


def native_inputs(graph: Graph) -> list[Value]:
    """The inputs that native code can take."""
    return [value for value in graph.inputs if why_not_storable(value) is None]


def not_native(graph: Graph) -> dict[Node, str]:
    """The nodes that native code leaves out, with the reasons.

    One that only mentions a size that another of them decides is not among them.
    """
    known = graph.bound_symbols()
    found = {}
    for node in graph.nodes:
        if _is_stored(node) and not any(value in graph.outputs for value in node.results):
            continue  # whoever reads it counts
        if reason := why_not_native(node, known):
            found[node] = reason
            known.update(symbol for value in node.results for symbol in symbols_of(value.type))
    return found


def _late(graph: Graph, others: Mapping[Node, str]) -> set[Node]:
    """The nodes that need the results, or the sizes, of nodes that native code leaves out."""
    known = graph.bound_symbols()
    found: set[Node] = set()
    for node in graph.nodes:
        mentioned = {*node.op.symbols(), *_symbols_of_results(node)} - node.binds()
        producers = (value.producer for value in node.operands)
        needs = any(each in found or each in others for each in producers if each is not None)
        if needs or not mentioned <= known:
            found.add(node)
    return found


def _symbols_of_results(node: Node) -> set[Symbol]:
    return {symbol for value in node.results for symbol in symbols_of(value.type)}


def cut(graph: Graph, others: Mapping[Node, str], asked: Mapping[Node, Sequence[Value]]) -> Cut:
    """Cut a graph at the contents that nodes ask for; if none can be known yet, at other nodes."""
    late = _late(graph, others)
    contents = dict.fromkeys(
        value
        for node, values in asked.items()
        if node in others
        for wanted in values
        for value in _pieces(wanted)
        if value.producer is None or (value.producer not in others and value.producer not in late)
    )
    if contents:
        return _make_cut(graph, (), tuple(contents))
    return _make_cut(graph, _first(graph, others, late), ())


def _pieces(value: Value) -> list[Value]:
    """The values to read for some contents: of what is put together, the parts that are data.

    The rest is then known as it is, be it a number or a size.
    """
    found: dict[Value, None] = {}
    stack = [value]
    while stack:
        each = stack.pop()
        node = each.producer
        if node is not None and isinstance(node.op, _PUT_TOGETHER) and each.dtype.is_integer:
            stack.extend(reversed(node.operands))
        elif is_data(each):
            found[each] = None
    return list(found) or [value]


def is_data(value: Value) -> bool:
    """Whether contents depend on an input, not on constants and sizes alone."""
    made = ancestors([value])
    return value.producer is None or any(each.producer is None for n in made for each in n.operands)


def _first(graph: Graph, others: Mapping[Node, str], late: set[Node]) -> tuple[Node, ...]:
    """Nodes for the interpreter that only native code, or one another, must precede."""
    chosen: dict[Node, None] = {}
    for node in graph.nodes:
        producers = {each.producer for each in node.operands if each.producer in late}
        if node in others and all(each in chosen for each in producers):
            chosen[node] = None
    return tuple(chosen)


def ancestors(values: Iterable[Value]) -> set[Node]:
    """The nodes that must run for these values."""
    found: set[Node] = set()
    stack = [value.producer for value in values]
    while stack:
        node = stack.pop()
        if node is not None and node not in found:
            found.add(node)
            stack.extend(value.producer for value in node.operands)
    return found


def _make_cut(graph: Graph, between: Sequence[Node], contents: Sequence[Value]) -> Cut:
    wanted = [*contents, *(value for node in between for value in node.operands)]
    early = ancestors(wanted).difference(between)
    done = {*between, *(node for node in early if not _is_stored(node))}
    crossing = [
        value
        for node in graph.nodes
        if node in done
        for value in node.results
        if any(use.node not in done for use in value.uses)
        or (node in between and node.binds() and is_told(value))
    ]
    computed = dict.fromkeys(
        value
        for value in (*wanted, *crossing)
        if value.producer in early and not (_is_stored(value.producer) and value not in contents)
    )
    before = Graph(f"{graph.name}_before")
    mapping = {value: before.add_input(value.name, value.type) for value in native_inputs(graph)}
    for node in graph.nodes:
        if node in early:
            copy_node(node, before, mapping)
    outputs = [mapping[value] for value in computed]
    sized: dict[Node, int] = {}
    for node in between:
        operands = [mapping[value] for value in node.operands if value in mapping]
        results = pad_results(node, operands) if len(operands) == len(node.operands) else None
        if results is not None:
            sized[node] = len(outputs)
            outputs += results
    before.set_outputs(outputs)
    handed = dict.fromkeys(value for value in (*contents, *crossing) if value.producer is not None)
    after = _rest(graph, done, tuple(handed))
    places = {value: number for number, value in enumerate((*graph.inputs, *handed))}
    read = tuple(places[value] for value in contents)
    return Cut(graph, before, tuple(computed), sized, tuple(between), after, tuple(handed), read)


def _rest(graph: Graph, done: set[Node], handed: Sequence[Value]) -> Graph:
    after = Graph(graph.name)
    mapping = {value: after.add_input(value.name, value.type) for value in graph.inputs}
    for value in handed:
        mapping[value] = after.add_input(value.name, value.type)
    for node in graph.nodes:
        if node not in done and not all(value in mapping for value in node.results):
            copy_node(node, after, mapping)
    after.set_outputs([mapping[value] for value in graph.outputs])
    return after


def _is_stored(node: Node | None) -> bool:
    return node is not None and isinstance(node.op, Constant | Weight)
