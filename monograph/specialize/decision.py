"""The host step between two compiled parts of a staged program: slices padded results, runs nodes.

Everything that is there by then stands in one list: the arguments, what the part before computed,
and what is found here. Nodes and the part after refer to it by place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from monograph.ir.dims import Symbol
from monograph.ir.graph import Node, Value
from monograph.ir.interpret import bind_inputs, evaluate_node
from monograph.ir.types import TensorType, symbols_of
from monograph.ops.data import Constant, Weight
from monograph.specialize.padded_results import take_length
from monograph.specialize.split_graph import Cut

Step: TypeAlias = Callable[[list[Any], dict[Symbol, int]], Sequence[Any]]


class Decision:
    """Finds the results of the nodes between two parts, and what the second part takes."""

    def __init__(self, made: Cut) -> None:
        self._graph = made.graph
        evaluated = (node for node in made.between if node not in made.bounded)
        self._needs_sizes = any(map(_mentions_sizes, evaluated))
        count = len(made.graph.inputs)
        places = {value: k for k, value in enumerate((*made.graph.inputs, *made.computed))}
        end = count + len(made.before.outputs)
        self._steps: list[Step] = []
        for node in made.between:
            first = made.bounded.get(node)
            step = _evaluation(node, places) if first is None else _length(node, count + first)
            self._steps.append(step)
            places.update({value: end + k for k, value in enumerate(node.results)})
            end += len(node.results)
        self._handed = [places[value] for value in made.handed]

    def __call__(self, arguments: Sequence[Any], computed: Sequence[Any]) -> list[Any]:
        """What is handed on."""
        found = [*arguments, *computed]
        if self._steps:
            sizes = bind_inputs(self._graph, arguments)[1] if self._needs_sizes else {}
            for step in self._steps:
                found += step(found, sizes)
        return [found[k] for k in self._handed]


def _length(node: Node, first: int) -> Step:
    """Take as much of results that were computed in full length as there is."""
    last = first + len(node.results)

    def step(found: list[Any], _: dict[Symbol, int]) -> Sequence[Any]:
        return take_length(node, found[first:last], int(found[last]))

    return step


def _evaluation(node: Node, places: Mapping[Value, int]) -> Step:
    """Interpret a node."""
    stored = [
        value.op.data.array() if isinstance(value.op, Constant | Weight) else None
        for value in node.operands
    ]
    known = [places.get(value, -1) for value in node.operands]

    def step(found: list[Any], sizes: dict[Symbol, int]) -> Sequence[Any]:
        pairs = zip(stored, known, strict=True)
        operands = [found[k] if array is None else array for array, k in pairs]
        with np.errstate(all="ignore"):
            return evaluate_node(node, operands, sizes)

    return step


def _mentions_sizes(node: Node) -> bool:
    """Whether a node mentions sizes beside those that it decides itself."""
    mentioned = {*node.op.symbols(), *(s for v in node.results for s in symbols_of(v.type))}
    return bool(node.regions) or not mentioned <= set(node.op.binds())


def only_says_a_size(node: Node) -> bool:
    """Whether the results have no elements: all that they tell is a size that was read."""
    return all(isinstance(v.type, TensorType) and 0 in v.type.shape for v in node.results)
