"""Contents that are known before a program runs: what is made of constants and weights alone.

Positions and masks are written as arithmetic on ``iota``, whose contents say more than its text: a
pass that wants to know what a mask hides, or which elements are gathered, has them computed here.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import EvaluationError
from monograph.ir.graph import Node, Value
from monograph.ir.interpret import evaluate_node
from monograph.ir.op import Family
from monograph.ir.types import Array, TensorType
from monograph.ops.data import Constant, Full, Weight

MAX_ELEMENTS = 1 << 25
"""Elements of a value, and of each that it is computed from, that are looked at."""


@dataclass
class Known:
    """What is computed from constants and weights alone; each value is looked at once."""

    found: dict[Value, Array | None] = field(default_factory=dict)

    def contents(self, value: Value) -> Array | None:
        """The elements of a value, if they are known."""
        if value not in self.found:
            self.found[value] = self._computed(value)
        return self.found[value]

    def _computed(self, value: Value) -> Array | None:
        node = value.producer
        if node is None or not _is_looked_at(node):
            return None
        if isinstance(node.op, Constant | Weight):
            return node.op.data.array()
        if isinstance(node.op, Full):
            element = np.asarray(node.op.value).astype(node.op.dtype.numpy)
            return np.broadcast_to(element, value.tensor.static_shape())
        operands = []
        for operand in node.operands:
            array = self.contents(operand)
            if array is None:
                return None
            operands.append(array)
        try:
            with np.errstate(all="ignore"):
                results = evaluate_node(node, operands, {})
        except EvaluationError:
            return None
        found: Array = results[value.index]
        return found


def _is_looked_at(node: Node) -> bool:
    """Whether a node may be computed here: pure, of static size, and not too large."""
    if node.regions or node.has_effect or node.op.family is Family.MEMORY:
        return False
    types = [value.type for value in (*node.operands, *node.results)]
    if not all(isinstance(type_, TensorType) and type_.is_static for type_ in types):
        return False
    sizes = [int(np.prod(result.tensor.static_shape())) for result in node.results]
    return sum(sizes) <= MAX_ELEMENTS
