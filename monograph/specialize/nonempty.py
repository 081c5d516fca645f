"""Programs specialized on sizes being nonzero, with a fallback for those that are zero.

ONNX allows every free size to be zero, and a few nodes mean something else then: a slice from
``-length`` on is the last ``length`` elements, or all of them if that is none; ``(height-1)/32``
rounds towards zero. Such nodes wait for a call (``ir.settling``), though calls with empty arguments
hardly ever come. So where it settles nodes that certain sizes are not zero, that is what is
compiled, and a call in which one of them is zero runs a program of the graph as it was, which is
compiled when the first such call comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import MonographError
from monograph.ir.deferred import DeferredOp
from monograph.ir.dims import Symbol, SymbolicDim
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.types import TensorType
from monograph.ops.data import DimValue
from monograph.runtime.locks import ForkedLock

if TYPE_CHECKING:
    from monograph.runtime.compiled import Executable

MOST_NUMBERS = 64
"""Elements of an integer operand that may tell sizes."""


@dataclass(frozen=True)
class Nonempty:
    """A graph that holds where none of some sizes is zero; ``places`` are inputs and axes."""

    graph: Graph
    symbols: tuple[Symbol, ...]
    places: tuple[tuple[int, int], ...]


def assume_nonempty(graph: Graph) -> Nonempty | None:
    """The graph with fewer nodes that wait for a call, if sizes above zero settle some of them.

    What these tell others may make it worth while to assume more: a roll of both axes of an image
    slices the second one once the height of what the first one gave is known.
    """
    assumed = _assume_once(graph)
    more = None if assumed is None else assume_nonempty(assumed.graph)
    if assumed is None or more is None:
        return assumed
    return Nonempty(more.graph, assumed.symbols + more.symbols, assumed.places + more.places)


def _assume_once(graph: Graph) -> Nonempty | None:
    """The graph where the sizes are above zero that nodes wait for now."""
    waiting = [node for node in graph.walk() if isinstance(node.op, DeferredOp)]
    if not waiting:
        return None
    places = _places(graph, _sizes_told_to(waiting))
    if not places:
        return None
    from monograph.specialize.specialize_graph import (  # few programs need it
        specialize,
        substitute_sizes,
    )

    assumed = {symbol: Symbol(symbol.name, 1, symbol.upper) for symbol in places}
    try:
        settled = specialize(substitute_sizes(graph, assumed), [None] * len(graph.inputs), {})
    except MonographError:
        return None  # it may hold for some sizes alone, which the call will tell
    left = sum(isinstance(node.op, DeferredOp) for node in settled.graph.walk())
    is_flat = list(settled.outputs) == list(range(len(graph.outputs)))
    if left >= len(waiting) or not is_flat or not _has_same_inputs(graph, settled.graph):
        return None
    axes = tuple(place for each in places.values() for place in each)
    return Nonempty(settled.graph, tuple(assumed.values()), axes)


def _has_same_inputs(graph: Graph, other: Graph) -> bool:
    return [value.name for value in graph.inputs] == [value.name for value in other.inputs]


def _sizes_told_to(nodes: Iterable[Node]) -> set[Symbol]:
    """The symbols that the numbers are made of which nodes wait for."""
    found: set[Symbol] = set()
    seen: set[Value] = set()
    waiting = [value for node in nodes for value in node.operands]
    while waiting:
        value = waiting.pop()
        if value in seen or not _may_tell_sizes(value):
            continue
        seen.add(value)
        op, node = value.op, value.producer
        if isinstance(op, DimValue) and isinstance(op.value, SymbolicDim):
            found.update(op.value.symbols())
        if node is not None:
            waiting += node.operands
    return found


def _may_tell_sizes(value: Value) -> bool:
    if not isinstance(value.type, TensorType) or not value.dtype.is_integer:
        return False
    size = value.type.size
    return isinstance(size, int) and size <= MOST_NUMBERS


def _places(graph: Graph, wanted: set[Symbol]) -> dict[Symbol, list[tuple[int, int]]]:
    """Where inputs have these sizes; those that may not be zero anyway are left out."""
    found: dict[Symbol, list[tuple[int, int]]] = {}
    for number, value in enumerate(graph.inputs):
        shape: Sequence[Any] = value.shape if isinstance(value.type, TensorType) else ()
        for axis, dim in enumerate(shape):
            if isinstance(dim, Symbol) and dim in wanted and dim.lower == 0:
                found.setdefault(dim, []).append((number, axis))
    return found


class Otherwise:
    """What runs where an assumed size is zero, compiled when it is first needed."""

    def __init__(self, assumed: Nonempty, make: Callable[[], Executable]) -> None:
        self._names = [value.name for value in assumed.graph.inputs]
        self._places = assumed.places
        self._make = make
        self._made: Executable | None = None
        self._lock = ForkedLock()

    def serves(self, inputs: Sequence[Any] | Mapping[str, Any]) -> bool:
        """Whether one of the sizes that are assumed not to be zero is, in these inputs."""
        return any(self._size(inputs, *place) == 0 for place in self._places)

    def _size(
        self, inputs: Sequence[Any] | Mapping[str, Any], number: int, axis: int
    ) -> int | None:
        """A size of an input; None if there is none, which others find out."""
        if isinstance(inputs, Mapping):
            given = inputs.get(self._names[number])
        else:
            given = inputs[number] if number < len(inputs) else None
        shape = () if given is None else np.shape(given)
        return shape[axis] if axis < len(shape) else None

    def run(self, inputs: Sequence[Any] | dict[str, Any]) -> list[Any]:
        """The outputs of the graph as it was."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
        return self._made.run(inputs)
