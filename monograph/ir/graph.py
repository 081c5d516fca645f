"""The graph: nodes in order, the values that they exchange, and the few ways to change them.

A ``Graph`` is an ordered list of nodes between inputs and outputs; the order is always a valid
order of evaluation. What stands in it, ``Node``, ``Value`` and ``Use``, is in ``monograph.ir.node``
and imported from here. Bodies of control flow are graphs too (*regions*), closed: they see their
own inputs and nothing else.

Every mutation goes through a method that keeps the use lists true. All of them take constant time,
or time in the number of uses that they change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy.typing as npt

from monograph.errors import GraphError, InputError, MonographError, TypeRuleError
from monograph.ir.data import ArrayData, Data
from monograph.ir.dims import Symbol, solvable_symbols
from monograph.ir.location import Location, caller
from monograph.ir.node import Node, Use, Value
from monograph.ir.op import Family, Op, Trait, check_operand_count, lookup, make
from monograph.ir.types import DType, TensorType, ValueType, dtype_of, symbols_of

__all__ = [
    "Graph",
    "Node",
    "NodeList",
    "Output",
    "Use",
    "Value",
    "check_graph",
    "copy_node",
    "current_graph",
    "infer_types",
]


class Output(Op):
    """The end of a graph: its operands are the outputs. Held by the graph, not in its node list."""

    name = "return"
    family = Family.DATA
    traits = Trait.EFFECT
    region_names = ()
    operand_names = ()
    arity = (0, None)
    attribute_names = ()
    required_attributes = ()
    _symbolic_attributes = ()


_OUTPUT = Output()
_CURRENT: ContextVar[Graph | None] = ContextVar("current graph", default=None)


class NodeList:
    """A graph's nodes in order. Nodes may be inserted and erased while it is iterated."""

    __slots__ = ("_graph",)

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __iter__(self) -> Iterator[Node]:
        node = self._graph._first
        while node is not None:
            if not node.erased:
                yield node
            node = node._next

    def __reversed__(self) -> Iterator[Node]:
        node = self._graph._last
        while node is not None:
            if not node.erased:
                yield node
            node = node._previous

    def __len__(self) -> int:
        return self._graph._count

    def __getitem__(self, index: int) -> Node:
        return list(self)[index]


class Graph:
    """A function on tensors: inputs, nodes in order of evaluation, outputs.

    ``updates`` maps an output's position to the position of the input whose state it replaces
    (batch-norm statistics, optimizer state, a cache); ``donated`` holds the positions of inputs
    whose memory the graph may overwrite. ``parent`` is the node that a region belongs to.
    """

    __slots__ = (
        "_count", "_cursor", "_first", "_inputs", "_last", "_location", "_names", "_output",
        "donated", "name", "parent", "updates",
    )  # fmt: skip

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.parent: Node | None = None
        self.updates: dict[int, int] = {}
        self.donated: set[int] = set()
        self._inputs: list[Value] = []
        self._first: Node | None = None
        self._last: Node | None = None
        self._count = 0
        self._names: dict[str, int] = {}
        self._cursor: Node | None = None
        self._location: Location | None = None
        self._output = Node(self, _OUTPUT, (), (), None)

    # What it holds.

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The input values, in order."""
        return tuple(self._inputs)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The output values, in order; one value may stand in several places."""
        return self._output._operands

    @property
    def output_node(self) -> Node:
        """The node that uses the outputs; it is not in ``nodes``."""
        return self._output

    @property
    def nodes(self) -> NodeList:
        """The nodes, in order of evaluation."""
        return NodeList(self)

    def __len__(self) -> int:
        return self._count

    def walk(self) -> Iterator[Node]:
        """Every node, those in regions too, each before the nodes inside it."""
        stack: list[Iterator[Node]] = [iter(self.nodes)]
        while stack:
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
                continue
            yield node
            stack.extend(iter(region.nodes) for region in reversed(node.regions))

    def symbols(self) -> dict[str, Symbol]:
        """The symbols that types and attributes mention, by name, in order of appearance."""
        found: dict[str, Symbol] = {}
        for value in self._inputs:
            for symbol in symbols_of(value.type):
                found.setdefault(symbol.name, symbol)
        for node in self.walk():
            for symbol in node.op.symbols():
                found.setdefault(symbol.name, symbol)
            inside = (value for region in node.regions for value in region._inputs)
            for value in (*node.results, *inside):
                for symbol in symbols_of(value.type):
                    found.setdefault(symbol.name, symbol)
        return found

    def bound_symbols(self) -> set[Symbol]:
        """The symbols whose sizes the shapes of the inputs tell, which may mention others."""
        types = (value.type for value in self._inputs)
        return solvable_symbols(
            dim for type_ in types if isinstance(type_, TensorType) for dim in type_.shape
        )

    # Looking at it.

    def svg(self) -> str:
        """A drawing of the graph: weights and constants are left out."""
        from monograph.report.svg import graph_svg

        return graph_svg(self)

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        from monograph.report.notebook import graph_html

        return graph_html(self)

    # Building.

    def add_input(self, name: str, type_: ValueType | str, *, donate: bool = False) -> Value:
        """Declare one more input; the type may be text: ``add_input("x", "f32[batch, 4]")``."""
        parsed = self._parse_type(type_) if isinstance(type_, str) else type_
        if name in self._names:
            raise InputError(f"two values are called %{name}", hint="give each input its own name")
        value = Value(parsed, self._new_name(name), self, None, len(self._inputs))
        if donate:
            self.donated.add(len(self._inputs))
        self._inputs.append(value)
        return value

    def add_constant(
        self, value: npt.ArrayLike | Data, dtype: DType | str | None = None, name: str = "c"
    ) -> Value:
        """A constant, printed in full; see ``add_weight`` for large, named ones."""
        data = value if isinstance(value, Data) else ArrayData(value, _maybe_dtype(dtype))
        return self.create(lookup("constant")(data), (), name=name).result  # type: ignore[call-arg]

    def add_weight(
        self, name: str, value: npt.ArrayLike | Data, dtype: DType | str | None = None
    ) -> Value:
        """A named weight: printed by name and digest, its data shared, never copied."""
        data = value if isinstance(value, Data) else ArrayData(value, _maybe_dtype(dtype))
        return self.create(lookup("weight")(name, data), (), name=name).result  # type: ignore[call-arg]

    def add(self, op: Op | str, *operands: Any, name: str | None = None, **attributes: Any) -> Any:
        """Apply an op, by name or as an instance, at the insertion point.

        Operands are values, or numbers and arrays, which become constants. Returns the result
        value, or the tuple of them if the op has several.
        """
        from monograph.ir.build import as_operands

        made = make(op, **attributes) if isinstance(op, str) else op
        node = self.create(made, as_operands(self, operands), name=name)
        return node.results[0] if len(node.results) == 1 else node.results

    def create(
        self,
        op: Op,
        operands: Sequence[Value],
        *,
        regions: Sequence[Graph] = (),
        before: Node | None = None,
        name: str | None = None,
        names: Sequence[str] | None = None,
        location: Location | None = None,
    ) -> Node:
        """Make a node, inferring its result types, and insert it (at the insertion point)."""
        location = location or self._location or caller()
        frozen = tuple(operands)
        try:
            for operand in frozen:
                self._check_own(operand, op.name)
            types = infer_types(op, tuple(value.type for value in frozen), tuple(regions))
            if names is not None and len(names) != len(types):
                raise GraphError(
                    f"{op.name}: wrong number of result names",
                    expected=str(len(types)),
                    found=str(len(names)),
                )
        except MonographError as error:
            call = f"{op.name}({', '.join(map(repr, frozen))})"
            raise error.with_context(
                where=call, source=None if location is None else str(location)
            ) from None
        node = Node(self, op, frozen, tuple(regions), location)
        hint = name or ("c" if op.name == "constant" else op.name)
        node.results = tuple(
            Value(type_, self._new_name(names[index] if names else hint), self, node, index)
            for index, type_ in enumerate(types)
        )
        self._link(node, before if before is not None else self._cursor)
        return node

    def set_outputs(self, values: Iterable[Value]) -> None:
        """Declare the outputs."""
        frozen = tuple(values)
        for value in frozen:
            self._check_own(value, "return")
        for index, old in enumerate(self._output._operands):
            old._uses.pop(Use(self._output, index), None)
        self._output._operands = frozen
        for index, value in enumerate(frozen):
            value._uses[Use(self._output, index)] = None

    @contextmanager
    def inserting_before(
        self, node: Node | None, location: Location | None = None
    ) -> Iterator[None]:
        """Insert new nodes before ``node`` (None: at the end), at ``location`` if one is given."""
        saved = self._cursor, self._location
        self._cursor, self._location = node, location
        try:
            with self.as_current():
                yield
        finally:
            self._cursor, self._location = saved

    @contextmanager
    def as_current(self) -> Iterator[None]:
        """Make this the graph that ops without operands (``iota``, ``full``) are added to."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    # Changing.

    def replace_all_uses(self, old: Value, new: Value) -> None:
        """Make every use of ``old``, outputs included, a use of ``new``, defined before it."""
        if old is new:
            return
        self._check_own(new, "replace_all_uses")
        for use in old.uses:
            use.node.set_operand(use.position, new)

    def replace(self, node: Node, values: Sequence[Value]) -> None:
        """Put ``values`` in place of the node's results and erase the node. Types must agree."""
        if len(values) != len(node.results):
            raise GraphError(
                f"{node.op.name} has {len(node.results)} results; {len(values)} replace them"
            )
        for old, new in zip(node.results, values, strict=True):
            if old.type != new.type:
                raise GraphError(
                    f"%{new.name} cannot replace %{old.name}: their types differ",
                    expected=str(old.type),
                    found=str(new.type),
                )
            self.replace_all_uses(old, new)
        self.erase(node)

    def erase(self, node: Node) -> None:
        """Remove a node whose results nobody uses."""
        for result in node.results:
            if result._uses:
                user = next(iter(result._uses)).node
                raise GraphError(
                    f"%{result.name} is still used",
                    where=repr(user),
                    found=f"{len(result._uses)} uses",
                    hint="replace_all_uses first",
                )  # fmt: skip
        if node.erased:
            raise GraphError(f"{node!r} was already erased")
        for index, operand in enumerate(node._operands):
            operand._uses.pop(Use(node, index), None)
        for result in node.results:
            self._names.pop(result.name, None)
        if self._cursor is node:
            self._cursor = node._next
        self._unlink(node)

    def rename(self, value: Value, hint: str) -> None:
        """Give a value another name (made unique)."""
        self._names.pop(value.name, None)
        value.name = self._new_name(hint)

    def clone(self) -> Graph:
        """A copy that shares nothing but ops, types and data."""
        copy = Graph(self.name)
        arguments = [copy.add_input(value.name, value.type) for value in self._inputs]
        outputs = self.copy_into(copy, arguments)
        copy.set_outputs(outputs)
        copy.updates = dict(self.updates)
        copy.donated = set(self.donated)
        return copy

    def copy_into(self, target: Graph, arguments: Sequence[Value]) -> list[Value]:
        """Append copies of the nodes to ``target``, reading ``arguments``; return the outputs."""
        mapping: dict[Value, Value] = dict(zip(self._inputs, arguments, strict=True))
        for node in self.nodes:
            copy_node(node, target, mapping)
        return [mapping[value] for value in self.outputs]

    def __str__(self) -> str:
        from monograph.ir.text.printer import print_graph

        return print_graph(self)

    def __repr__(self) -> str:
        return f"<Graph @{self.name}: {len(self._inputs)} inputs, {self._count} nodes>"

    # Inside.

    def _parse_type(self, text: str) -> ValueType:
        from monograph.ir.text.parser import parse_type

        return parse_type(text, self.symbols())

    def _check_own(self, value: Value, reader: str) -> None:
        if value._graph is not self:
            raise GraphError(
                f"{reader}: %{value.name} belongs to another graph",
                expected=f"a value of @{self.name}",
                found=f"a value of @{value._graph.name}",
                hint="regions are closed: pass outer values to them as operands",
            )
        if value.producer is not None and value.producer.erased:
            raise GraphError(f"{reader}: %{value.name} was erased")

    def _new_name(self, hint: str) -> str:
        """``hint``, with a number behind it if it is taken."""
        names = self._names
        if hint not in names:
            names[hint] = 0
            return hint
        count = names[hint]
        while True:
            count += 1
            candidate = f"{hint}_{count}"
            if candidate not in names:
                names[hint] = count
                names[candidate] = 0
                return candidate

    def _link(self, node: Node, before: Node | None) -> None:
        after = self._last if before is None else before._previous
        node._previous, node._next = after, before
        if after is None:
            self._first = node
        else:
            after._next = node
        if before is None:
            self._last = node
        else:
            before._previous = node
        self._count += 1

    def _unlink(self, node: Node) -> None:
        """Take a node out; it keeps its own pointers, so that a running iteration goes on."""
        if node._previous is None:
            self._first = node._next
        else:
            node._previous._next = node._next
        if node._next is None:
            self._last = node._previous
        else:
            node._next._previous = node._previous
        node.erased = True
        self._count -= 1


def infer_types(
    op: Op, types: Sequence[ValueType], regions: tuple[Graph, ...]
) -> tuple[ValueType, ...]:
    """Run an op's type rule: tracing, checking and parsing all come here."""
    check_operand_count(op, len(types))
    if not op.has(Trait.SEQUENCES):
        for position, type_ in enumerate(types):
            if not isinstance(type_, TensorType):
                raise TypeRuleError(
                    f"{op.name}: operand {position} is not a tensor",
                    expected="a tensor",
                    found=str(type_),
                )
    if len(regions) != len(op.region_names):
        raise TypeRuleError(
            f"{op.name}: wrong number of regions",
            expected=", ".join(op.region_names) or "none",
            found=str(len(regions)),
        )
    inferred = op.infer(regions, *types) if op.region_names else op.infer(*types)
    return inferred if isinstance(inferred, tuple) else (inferred,)


def copy_node(node: Node, target: Graph, mapping: dict[Value, Value]) -> Node:
    """Copy one node to the end of ``target``, extending ``mapping`` with its results."""
    copy = Node(
        target,
        node.op,
        tuple(mapping[operand] for operand in node._operands),
        tuple(region.clone() for region in node.regions),
        node.location,
    )
    copy.results = tuple(
        Value(result.type, target._new_name(result.name), target, copy, result.index)
        for result in node.results
    )
    target._link(copy, target._cursor)
    mapping.update(zip(node.results, copy.results, strict=True))
    return copy


def check_graph(given: object) -> None:
    """Refuse what is no graph, where people may take a function for one."""
    if not isinstance(given, Graph):
        raise InputError(
            "this is not a graph",
            expected="a Graph",
            found=type(given).__name__,
            hint="monograph.trace makes one of a function, from_torch and from_onnx of models",
        )


def current_graph() -> Graph:
    """The graph being built, for ops that have no operand to say which one."""
    graph = _CURRENT.get()
    if graph is None:
        raise InputError(
            "no graph is being built here",
            hint="call it inside monograph.trace, or under `with graph.as_current():`",
        )
    return graph


def _maybe_dtype(dtype: DType | str | None) -> DType | None:
    return None if dtype is None else dtype_of(dtype)
