"""Checking that a graph is well formed.

``verify`` re-runs each op's type rule, the very one that built the node, and checks everything that
the mutation methods promise: order, use lists, ownership, names. It runs after every pass in tests
and under ``MONOGRAPH_VERIFY=1``. One visit of each node: linear in the size of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from monograph.errors import GraphError, MonographError
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node, Use, Value, check_graph, infer_types
from monograph.ir.op import Op
from monograph.ir.text.attributes import attribute_types, fits, spell_type
from monograph.ir.text.lexer import MAX_NESTING, shorten
from monograph.ir.text.printer import describe, print_node, spell_range
from monograph.ir.types import ValueType, symbols_of

Rules: TypeAlias = dict[tuple[Op, tuple[ValueType, ...]], tuple[ValueType, ...]]


def verify(graph: Graph) -> None:
    """Raise a GraphError unless the graph, its regions included, is well formed."""
    check_graph(graph)
    owners: dict[Graph, Node | None] = {graph: None}
    symbols = _Symbols()
    rules: Rules = {}
    pending = [(graph, 0)]
    while pending:
        current, depth = pending.pop()
        _verify_one(current, symbols, rules)
        check_updates(current)
        for node in current.nodes:
            for region in node.regions:
                _check_region(region, node, owners, depth + 1)
                pending.append((region, depth + 1))


def check_updates(graph: Graph) -> None:
    """Check what a graph says of state: outputs that update inputs, and donated inputs."""
    outputs, inputs = graph.outputs, graph.inputs
    updated: dict[int, int] = {}
    for output, input_ in graph.updates.items():
        if not 0 <= output < len(outputs):
            raise GraphError(
                f"@{graph.name} has no output {output} to update input {input_}",
                expected=_positions("an output", len(outputs)),
                found=str(output),
            )
        if not 0 <= input_ < len(inputs):
            raise GraphError(
                f"@{graph.name} has no input {input_} for output {output} to update",
                expected=_positions("an input", len(inputs)),
                found=str(input_),
            )
        if outputs[output].type != inputs[input_].type:
            raise GraphError(
                f"output {output} of @{graph.name} updates input {input_}, but their types differ",
                expected=repr(inputs[input_]),
                found=repr(outputs[output]),
            )
        if input_ in updated:
            raise GraphError(
                f"outputs {updated[input_]} and {output} of @{graph.name} update one input",
                expected="at most one update for each input",
                found=repr(inputs[input_]),
            )
        updated[input_] = output
    for position in sorted(graph.donated):
        if not 0 <= position < len(inputs):
            raise GraphError(
                f"@{graph.name} has no input {position} to donate",
                expected=_positions("an input", len(inputs)),
                found=str(position),
            )


def _positions(what: str, count: int) -> str:
    return f"{what} from 0 to {count - 1}" if count else f"{what}, but there are none"


def _check_region(region: Graph, node: Node, owners: dict[Graph, Node | None], depth: int) -> None:
    parent = region.parent
    other = owners.get(region)
    if other is None and parent is not None and parent is not node and region in parent.regions:
        other = parent
    if other is not None or region in owners:
        raise _error(
            f"the region @{region.name} is used twice",
            node,
            expected="a graph of its own for each region",
            found="the whole graph itself" if other is None else f"also in {print_node(other)}",
            hint="clone the region",
        )
    owners[region] = node
    if parent is not node:
        raise _error(
            f"the region @{region.name} has the wrong parent",
            node,
            expected=print_node(node),
            found="no parent" if parent is None else print_node(parent),
        )
    if depth > MAX_NESTING:
        raise _error(
            "regions nest too deeply",
            node,
            expected=f"at most {MAX_NESTING} levels",
            found=str(depth),
        )


def _verify_one(graph: Graph, symbols: _Symbols, rules: Rules) -> None:
    """Check one graph without what is inside its regions."""
    positions = _number_nodes(graph)
    values = list(_values(graph, positions))
    _check_names(values)
    for value in graph.inputs:
        symbols.add_type(value.type, None)
    for node, position in positions.items():
        _check_attributes(node)
        _check_operands(node, position, positions)
        _check_result_types(node, rules)
        symbols.add_node(node)
    _check_operands(graph.output_node, len(positions), positions)
    for value in values:
        _check_uses(value, positions)


# Structure.


def _number_nodes(graph: Graph) -> dict[Node, int]:
    """The nodes by position, straight from the links, which are checked on the way."""
    positions: dict[Node, int] = {}
    previous: Node | None = None
    node = graph._first
    while node is not None:
        if node in positions:
            raise _error("the list of nodes runs in a circle", node)
        if node.erased:
            raise _error(f"{_label(node)} was erased, but is still listed", node)
        if node.graph is not graph:
            raise _error(
                f"{_label(node)} is listed in a graph that is not its own",
                node,
                expected=f"a node of @{graph.name}",
                found=f"a node of @{node.graph.name}",
            )
        if node._previous is not previous:
            raise _error(
                f"{_label(node)} has the wrong neighbour before it",
                node,
                expected="none" if previous is None else print_node(previous),
                found="none" if node._previous is None else print_node(node._previous),
            )
        positions[node] = len(positions)
        previous, node = node, node._next
    if graph._last is not previous:
        raise GraphError(
            f"the last node of @{graph.name} is not the end of its list",
            expected="none" if previous is None else print_node(previous),
            found="none" if graph._last is None else print_node(graph._last),
        )
    if graph._count != len(positions):
        raise GraphError(
            f"@{graph.name} counts its nodes wrongly",
            expected=str(len(positions)),
            found=str(graph._count),
        )
    return positions


def _values(graph: Graph, positions: dict[Node, int]) -> Iterator[Value]:
    """Every value that the graph defines; each must know its place."""
    for index, value in enumerate(graph.inputs):
        if value.producer is not None or value.index != index or value.graph is not graph:
            raise GraphError(
                f"the input %{value.name} of @{graph.name} does not know its place",
                expected=f"input {index} of @{graph.name}",
                found=_place(value),
            )
        yield value
    for node in positions:
        for index, result in enumerate(node.results):
            if result.producer is not node or result.index != index or result.graph is not graph:
                raise _error(
                    f"the result %{result.name} does not know its producer",
                    node,
                    expected=f"result {index} of {_label(node)} in @{graph.name}",
                    found=_place(result),
                )
            yield result


def _place(value: Value) -> str:
    """Where a value thinks it comes from."""
    if value.producer is None:
        return f"input {value.index} of @{value.graph.name}"
    return f"result {value.index} of {_label(value.producer)} in @{value.graph.name}"


def _check_names(values: list[Value]) -> None:
    seen: dict[str, Value] = {}
    for value in values:
        other = seen.setdefault(value.name, value)
        if other is value:
            continue
        problem = f"two values are called %{value.name}"
        hint = "rename one of them with Graph.rename"
        if value.producer is None:
            raise GraphError(problem, expected="a name of its own for each value", hint=hint)
        raise _error(problem, value.producer, found=f"also {_place(other)}", hint=hint)


# Operands and uses.


def _check_operands(node: Node, position: int, positions: dict[Node, int]) -> None:
    for index, operand in enumerate(node.operands):
        if operand.graph is not node.graph:
            raise _error(
                f"{_label(node)} reads %{operand.name}, a value of another graph",
                node,
                expected=f"a value of @{node.graph.name}",
                found=f"a value of @{operand.graph.name}",
                hint="regions are closed: pass outer values to them as operands",
            )
        _check_defined(node, operand, position, positions)
        if Use(node, index) not in operand._uses:
            raise _error(
                f"%{operand.name} does not know that {_label(node)} uses it",
                node,
                expected=f"operand {index} of {_label(node)} among the uses of %{operand.name}",
                found=_uses(operand),
                hint="change operands with set_operand or replace_all_uses",
            )


def _check_defined(node: Node, operand: Value, position: int, positions: dict[Node, int]) -> None:
    producer = operand.producer
    if producer is None:
        inputs = node.graph._inputs
        if operand.index >= len(inputs) or inputs[operand.index] is not operand:
            raise _error(
                f"{_label(node)} reads %{operand.name}, which is not an input of the graph",
                node,
                expected=", ".join(map(repr, inputs)) or "no inputs",
                found=repr(operand),
            )
        return
    if producer.erased:
        raise _error(
            f"{_label(node)} reads %{operand.name}, whose node was erased",
            node,
            found=f"erased: {print_node(producer)}",
            hint="replace_all_uses before erasing",
        )
    defined = positions.get(producer)
    if defined is None:
        raise _error(
            f"{_label(node)} reads %{operand.name}, whose node is not in the graph",
            node,
            found=f"not listed: {print_node(producer)}",
        )
    if operand.index >= len(producer.results) or producer.results[operand.index] is not operand:
        raise _error(
            f"{_label(node)} reads %{operand.name}, which its producer does not have",
            node,
            expected=f"a result of {print_node(producer)}",
            found=_place(operand),
        )
    if defined >= position:
        _fail_order(node, operand)


def _fail_order(node: Node, operand: Value) -> None:
    """Tell a cycle from a mere wrong order: only in the first does no order do."""
    path = _path(operand, node)
    if path is None:
        raise _error(
            f"{_label(node)} reads %{operand.name} before it is defined",
            node,
            found=f"defined later: {print_node(operand.producer or node)}",
            hint="insert the node behind those that it reads",
        )
    names = " -> ".join(f"%{value.name}" for value in path)
    raise _error(
        f"the graph has a cycle through {_label(node)}",
        node,
        expected="values that depend on earlier ones only",
        found=names,
    )


def _path(operand: Value, node: Node) -> list[Value] | None:
    """The values from the node's result to ``operand`` and back, if that depends on the node."""
    readers: dict[Value, Value | None] = {operand: None}
    pending = [operand]
    while pending:
        value = pending.pop()
        if value.producer is node:
            path: list[Value] = []
            step: Value | None = value
            while step is not None:
                path.append(step)
                step = readers[step]
            return [*path, value]
        for earlier in value.producer.operands if value.producer is not None else ():
            if earlier not in readers:
                readers[earlier] = value
                pending.append(earlier)
    return None


def _check_uses(value: Value, positions: dict[Node, int]) -> None:
    output = value.graph.output_node
    for use in value._uses:
        user = use.node
        listed = user in positions or user is output
        if listed and value in user.operands[use.position : use.position + 1]:
            continue
        raise GraphError(
            f"%{value.name} lists a use that does not exist",
            expected=f"only nodes that read %{value.name}",
            found=f"operand {use.position} of {_label(user)}, which {_problem(use, listed)}",
            where=None if value.producer is None else describe(value.producer),
            hint="change operands with set_operand or replace_all_uses",
        )


def _problem(use: Use, listed: bool) -> str:
    """What is wrong with a use."""
    operands = use.node.operands
    if use.node.erased:
        return "was erased"
    if not listed:
        return "is not in the graph"
    if use.position >= len(operands):
        return f"has {len(operands)} operands"
    return f"is %{operands[use.position].name}"


def _uses(value: Value) -> str:
    shown = [f"operand {use.position} of {_label(use.node)}" for use in value.uses[:4]]
    more = [f"{len(value.uses) - 4} more"] if len(value.uses) > 4 else []
    return ", ".join(shown + more) or "no uses"


# Attributes and types.


def _check_attributes(node: Node) -> None:
    op = node.op
    for name, hint in attribute_types(type(op)).items():
        value = getattr(op, name)
        if not fits(value, hint):
            advice = "attributes are immutable: make it a tuple" if _has_list(value) else None
            raise _error(
                f"the attribute {name} of {op.name} is not of its declared type",
                node,
                expected=spell_type(hint, "tuple"),
                found=f"{type(value).__name__} {shorten(repr(value))}",
                hint=advice,
            )


def _has_list(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, tuple) and any(map(_has_list, value)))


def _infer(node: Node, rules: Rules) -> tuple[ValueType, ...]:
    """The types that the rule gives; asked once for each op on operands of the same types.

    Nodes without operands are constants and the like, whose identity is costly to compare.
    """
    types = tuple([value.type for value in node.operands])
    if not types or node.regions:
        return infer_types(node.op, types, node.regions)
    key = (node.op, types)
    known = rules.get(key)
    if known is None:
        known = rules[key] = infer_types(node.op, types, ())
    return known


def _check_result_types(node: Node, rules: Rules) -> None:
    try:
        inferred = _infer(node, rules)
    except MonographError as error:
        raise _error(
            error.message, node, expected=error.expected, found=error.found, hint=error.hint
        ) from None
    except Exception as error:  # a rule that did not foresee these attributes or operands
        raise _error(f"{node.op.name}: its type rule failed: {error}", node) from error
    if len(inferred) != len(node.results):
        raise _error(
            f"{_label(node)} has another number of results than its type rule gives",
            node,
            expected=", ".join(map(str, inferred)) or "none",
            found=", ".join(map(repr, node.results)) or "none",
        )
    for result, type_ in zip(node.results, inferred, strict=True):
        if result.type != type_:
            raise _error(
                f"%{result.name} has another type than {node.op.name} gives it",
                node,
                expected=str(type_),
                found=str(result.type),
            )


class _Symbols:
    """The symbols met so far: one name must mean one range throughout, and have a value by then."""

    def __init__(self) -> None:
        self._by_name: dict[str, Symbol] = {}
        self._types: set[ValueType] = set()

    def add_node(self, node: Node) -> None:
        """Know the symbols of a node; its attributes may mention only what has a value by then."""
        for symbol in node.op.symbols():
            if symbol.name not in self._by_name and symbol not in node.op.binds():
                raise _error(
                    f"{_label(node)} mentions {symbol.name}, which nothing before it decides",
                    node,
                    expected="a symbol of an input, or of a result before it",
                    found=", ".join(self._by_name) or "no symbols",
                )
            self._add(symbol, node)
        for result in node.results:
            self.add_type(result.type, node)

    def add_type(self, type_: ValueType, node: Node | None) -> None:
        if type_ in self._types:
            return
        self._types.add(type_)
        for symbol in symbols_of(type_):
            self._add(symbol, node)

    def _add(self, symbol: Symbol, node: Node | None) -> None:
        known = self._by_name.setdefault(symbol.name, symbol)
        if known is symbol:
            return
        raise GraphError(
            f"the symbol {symbol.name} has two ranges",
            expected=spell_range(known),
            found=spell_range(symbol),
            where=None if node is None else describe(node),
            source=None if node is None or node.location is None else str(node.location),
        )


# Errors.


def _label(node: Node) -> str:
    """A node in a word or two: its first result and op."""
    if not node.results:
        return node.op.name
    return f"%{node.results[0].name} ({node.op.name})"


def _error(
    message: str,
    node: Node,
    *,
    expected: str | None = None,
    found: str | None = None,
    hint: str | None = None,
) -> GraphError:
    return GraphError(
        message,
        expected=expected,
        found=found,
        where=describe(node),
        source=None if node.location is None else str(node.location),
        hint=hint,
    )
