"""The contents of small values that constants alone decide."""

from __future__ import annotations

import numpy as np

from monograph.errors import MonographError
from monograph.ir.graph import Node, Value
from monograph.ir.interpret import evaluate_node
from monograph.ir.op import Trait
from monograph.ir.types import Array, TensorType
from monograph.ops.data import Constant, Weight

MAX_ELEMENTS = 4096
"""How many elements a value may have to be looked into."""


class Known:
    """Evaluates values of a graph on demand, each once, where no input is needed for it."""

    def __init__(self) -> None:
        self._found: dict[Value, Array | None] = {}

    def array(self, value: Value) -> Array | None:
        """The contents of a value; None if they depend on an input, or are large."""
        stack = [value]
        while stack:
            current = stack[-1]
            if current in self._found:
                stack.pop()
                continue
            node = current.producer
            if node is None or not _is_small(current) or not _is_pure(node):
                self._found[current] = None
                continue
            missing = [each for each in node.operands if each not in self._found]
            if missing:
                stack.append(missing[0])
                continue
            self._evaluate(node)
        return self._found[value]

    def _evaluate(self, node: Node) -> None:
        operands = [self._found[each] for each in node.operands]
        self._found.update(dict.fromkeys(node.results))
        if isinstance(node.op, Constant | Weight):
            self._found[node.results[0]] = node.op.data.array()
            return
        if any(each is None for each in operands) or any(True for _ in node.op.symbols()):
            return
        try:
            with np.errstate(all="ignore"):
                results = evaluate_node(node, operands, {})
        except MonographError:  # what fails here fails, with its message, when the graph runs
            return
        self._found.update(zip(node.results, results, strict=True))


def _is_small(value: Value) -> bool:
    size = value.type.size if isinstance(value.type, TensorType) else None
    return isinstance(size, int) and size <= MAX_ELEMENTS


def _is_pure(node: Node) -> bool:
    return not node.regions and not node.op.has(Trait.EFFECT)
