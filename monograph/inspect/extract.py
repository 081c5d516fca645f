"""Parts of a graph as graphs of their own, with the values that entered them as inputs.

A program that gives a wrong answer is made small by leaving nodes out. What a node that is left out
computed is known, because the graph was interpreted; so any set of nodes can stand alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from monograph.dataclass import dataclass
from monograph.deadline import call_limit
from monograph.ir.graph import Graph, Node, Value, copy_node
from monograph.ir.interpret import bind_inputs, evaluate_node, run_nodes
from monograph.ir.specialize import specialize
from monograph.ir.types import TensorType


@dataclass(frozen=True)
class Case:
    """A graph, and inputs for it."""

    graph: Graph
    inputs: tuple[Any, ...]


def all_values(graph: Graph, inputs: Sequence[Any]) -> dict[Value, Any]:
    """Every value of the graph, as the interpreter computes it."""
    arrays, bindings = bind_inputs(graph, inputs)
    values: dict[Value, Any] = dict(zip(graph.inputs, arrays, strict=True))

    def evaluate(node: Node, operands: list[Any]) -> tuple[Any, ...]:
        results = evaluate_node(node, operands, bindings)
        values.update(zip(node.results, results, strict=True))
        return results

    with np.errstate(all="ignore"), call_limit():
        run_nodes(graph, arrays, evaluate)
    return values


def fix_sizes(case: Case) -> Case:
    """The case with its symbolic sizes replaced by those of its inputs."""
    _, bindings = bind_inputs(case.graph, case.inputs)
    return Case(specialize(case.graph, bindings), case.inputs)


def is_data(node: Node) -> bool:
    """Whether a node needs nothing: a weight or a constant, which comes along with its readers."""
    return not node.operands and not node.regions


def extract(graph: Graph, keep: Collection[Node], values: Mapping[Value, Any]) -> Case:
    """The nodes that are kept, as a graph; what the others gave them are its inputs.

    Its outputs are what anything outside reads of them.
    """
    kept = set(keep)
    part = Graph(graph.name)
    mapping: dict[Value, Value] = {}
    inputs: list[Any] = []
    for node in graph.nodes:
        if node not in kept:
            continue
        for operand in node.operands:
            if operand in mapping:
                continue
            producer = operand.producer
            if producer is not None and is_data(producer):
                copy = copy_node(producer, part, mapping)
                mapping.update(zip(producer.results, copy.results, strict=True))
                continue
            mapping[operand] = part.add_input(operand.name, operand.type)
            inputs.append(values[operand])
        copy = copy_node(node, part, mapping)
        mapping.update(zip(node.results, copy.results, strict=True))
    left = [value for node in graph.nodes if node in kept for value in node.results]
    outputs = [value for value in left if _leaves(value, kept)]
    part.set_outputs([mapping[value] for value in outputs])
    return Case(part, tuple(inputs))


def _leaves(value: Value, kept: set[Node]) -> bool:
    if not isinstance(value.type, TensorType):
        return False
    return any(use.node not in kept for use in value.uses)
