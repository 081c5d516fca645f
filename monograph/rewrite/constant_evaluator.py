"""Constant evaluation on demand: the contents of values that no input of the graph decides.

Positions and masks are written as arithmetic on ``iota``, whose contents say more than its text: a
pass that wants to know what a mask hides, or which elements are gathered, has them computed here.
So does whoever specializes a program, and the ONNX frontend, which lets elements be dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monograph.errors import MonographError
from monograph.ir.data import Data
from monograph.ir.graph import Node, Value
from monograph.ir.interpret import evaluate_node
from monograph.ir.types import Array, TensorType
from monograph.ops.data import Constant, Full, Weight

MAX_ELEMENTS = 1 << 25
"""Elements of a value, and of each that it is computed from, unless somebody wants fewer."""


class ConstantEvaluator:
    """Evaluates what depends on constants and weights alone, each value once."""

    def __init__(self, max_elements: int = MAX_ELEMENTS) -> None:
        self.max_elements = max_elements
        self._known: dict[Value, Array | None] = {}

    def contents(self, value: Value) -> Array | None:
        """The elements of a value; None if they depend on an input, or are too many."""
        stack = [value]
        while stack:
            current = stack[-1]
            if current in self._known:
                stack.pop()
                continue
            node = current.producer
            if node is None or not self._is_evaluable(current, node):
                self._known[current] = None
                continue
            operands = [self.origin(operand) for operand in node.operands]
            missing = [operand for operand in operands if operand not in self._known]
            if missing and not any(self._known.get(operand, 0) is None for operand in operands):
                stack.append(missing[0])
                continue
            self._known.update(dict.fromkeys(node.results))
            arrays = [array for each in operands if (array := self._known.get(each)) is not None]
            results = self.evaluate(node, arrays) if len(arrays) == len(operands) else ()
            if results:
                self._known.update(zip(node.results, results, strict=True))
        return self._known[value]

    def origin(self, value: Value) -> Value:
        """The value that this one stands for: itself, unless the graph is nested in another."""
        return value

    def evaluate(self, node: Node, arrays: Sequence[Array]) -> Sequence[Array]:
        """The results of a node on these operands; none if they cannot be told."""
        if any(True for _ in node.op.symbols()):
            return ()
        if isinstance(node.op, Constant | Weight | Full):
            stored = find_contents(node.results[0])
            return () if stored is None else (stored,)
        try:
            with np.errstate(all="ignore"):
                return evaluate_node(node, arrays, {})
        except MonographError:  # what fails here fails, with its message, when the graph runs
            return ()

    def _is_evaluable(self, value: Value, node: Node) -> bool:
        """Whether a node may be computed here: it has no effects and no regions, and is small."""
        size = value.type.size if isinstance(value.type, TensorType) else None
        is_small = isinstance(size, int) and size <= self.max_elements
        return is_small and not node.regions and not node.has_effect


def find_data(value: Value) -> Data | None:
    """The data of a constant or weight."""
    op = value.op
    return op.data if isinstance(op, Constant | Weight) else None


def find_contents(value: Value) -> Array | None:
    """The elements of a constant, a weight, or a ``full`` of static size."""
    op = value.op
    if not isinstance(op, Full):
        data = find_data(value)
        return None if data is None else data.array()
    if not value.tensor.is_static:
        return None
    return np.broadcast_to(op.element(), value.tensor.static_shape())
