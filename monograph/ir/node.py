"""What a graph is made of: nodes, the values that they exchange, and the uses of those.

A ``Node`` applies an op to operand values and owns its result values. A ``Value`` has one producer,
a type, a unique name and an ordered list of its uses. ``monograph.ir.graph`` makes them, puts them
in order and takes them out again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from monograph.errors import GraphError, TypeRuleError
from monograph.ir.op import Trait
from monograph.ir.operators import Operators
from monograph.ir.types import TensorType, symbols_of

if TYPE_CHECKING:
    from monograph.ir.dims import Dim, Symbol
    from monograph.ir.graph import Graph
    from monograph.ir.location import Location
    from monograph.ir.op import Op
    from monograph.ir.types import DType, ValueType


class Use(NamedTuple):
    """One place where a value is used: operand number ``position`` of ``node``."""

    node: Node
    position: int


class Value(Operators):
    """A tensor in the graph: the result of a node, or an input (then ``producer`` is None)."""

    __slots__ = ("_graph", "_uses", "index", "name", "producer", "type")

    def __init__(
        self, type_: ValueType, name: str, graph: Graph, producer: Node | None, index: int
    ) -> None:
        self.type = type_
        self.name = name
        self.producer = producer
        self.index = index
        self._graph = graph
        self._uses: dict[Use, None] = {}

    @property
    def graph(self) -> Graph:
        """The graph that it belongs to."""
        return self._graph

    @property
    def uses(self) -> tuple[Use, ...]:
        """Where it is used, in the order in which the uses were made; outputs count."""
        return tuple(self._uses)

    @property
    def users(self) -> tuple[Node, ...]:
        """The nodes that use it, each once, in order."""
        return tuple(dict.fromkeys(use.node for use in self._uses))

    @property
    def is_used(self) -> bool:
        """Whether anything uses it."""
        return bool(self._uses)

    @property
    def op(self) -> Op | None:
        """The op that produced it; None for an input."""
        return None if self.producer is None else self.producer.op

    @property
    def tensor(self) -> TensorType:
        """Its type, where a tensor is needed; an error for sequences and optionals."""
        if isinstance(self.type, TensorType):
            return self.type
        raise TypeRuleError(
            "a tensor is needed here", expected="a tensor", found=f"%{self.name}: {self.type}"
        )

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of the tensor."""
        return self.tensor.shape

    @property
    def dtype(self) -> DType:
        """The element type of the tensor."""
        return self.tensor.dtype

    @property
    def rank(self) -> int:
        """How many dimensions the tensor has."""
        return len(self.tensor.shape)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The methods and attributes of NumPy's arrays, ``x.sum(axis=1)``."""
            from monograph.frontends.numpy.methods import find_attribute

            return find_attribute(self, name)

    def __len__(self) -> int:
        """The first size, as of an array."""
        if not self.shape or not isinstance(self.shape[0], int):
            raise TypeError(f"%{self.name}: {self.type} has no length that is a number")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


class Node:
    """An op applied to operands. Made by ``Graph.create``; never moved between graphs."""

    __slots__ = (
        "_next",
        "_operands",
        "_previous",
        "erased",
        "graph",
        "location",
        "op",
        "regions",
        "results",
    )

    def __init__(
        self,
        graph: Graph,
        op: Op,
        operands: tuple[Value, ...],
        regions: tuple[Graph, ...],
        location: Location | None,
    ) -> None:
        self.graph = graph
        self.op = op
        self.regions = regions
        self.location = location
        self.results: tuple[Value, ...] = ()
        self.erased = False
        self._previous: Node | None = None
        self._next: Node | None = None
        self._operands = operands
        for index, operand in enumerate(operands):
            operand._uses[Use(self, index)] = None
        for region in regions:
            region.parent = self

    @property
    def operands(self) -> tuple[Value, ...]:
        """The values that it reads."""
        return self._operands

    @property
    def result(self) -> Value:
        """The only result; an error if there are several."""
        if len(self.results) != 1:
            raise GraphError(f"{self.op.name} has {len(self.results)} results, not one")
        return self.results[0]

    @property
    def previous(self) -> Node | None:
        """The node before it in the graph's order."""
        return self._previous

    @property
    def next(self) -> Node | None:
        """The node after it in the graph's order."""
        return self._next

    @property
    def is_used(self) -> bool:
        """Whether any result is used."""
        return any(result._uses for result in self.results)

    @property
    def is_removable(self) -> bool:
        """Whether nothing would notice if it were gone: no use, no effect, no symbol bound."""
        return not self.is_used and not self.has_effect and not self.binds()

    def binds(self) -> set[Symbol]:
        """The symbols that have a value only once it has run.

        Besides those that its op names (``nonzero``), these are what its results' types alone
        mention: a branch, a loop or an element of a sequence has sizes that no operand shows.
        """
        found = {symbol for result in self.results for symbol in symbols_of(result.type)}
        if not found:
            return found
        for operand in self._operands:
            found.difference_update(symbols_of(operand.type))
        found.difference_update(self.op.symbols())
        return found.union(self.op.binds())

    @property
    def has_effect(self) -> bool:
        """Whether it, or a node in its regions, does more than return results."""
        if self.op.has(Trait.EFFECT):
            return True
        if not self.regions:
            return False
        return any(node.has_effect for region in self.regions for node in region.nodes)

    def set_operand(self, index: int, value: Value) -> None:
        """Read ``value`` instead of the current operand ``index``."""
        self.graph._check_own(value, self.op.name)
        old = self._operands[index]
        if old is value:
            return
        use = Use(self, index)
        old._uses.pop(use, None)
        value._uses[use] = None
        self._operands = (*self._operands[:index], value, *self._operands[index + 1 :])

    def __repr__(self) -> str:
        results = ", ".join(f"%{result.name}" for result in self.results)
        operands = ", ".join(f"%{operand.name}" for operand in self._operands)
        return (
            f"{results} = {self.op.name}({operands})" if results else f"{self.op.name}({operands})"
        )
