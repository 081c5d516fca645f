"""Ops whose meaning is their decomposition.

Where the same computation in NumPy would only say again what ``decompose`` says, an op takes its
evaluation from there: it is a name for a part of a graph, which patterns and targets can find.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monograph.ir.graph import Graph
from monograph.ir.interpret import interpret
from monograph.ir.op import Op
from monograph.ir.types import Array, type_of_array


class Composite(Op):
    """An op that is evaluated by interpreting its decomposition."""

    def evaluate(self, *operands: Array) -> Any:
        """The results of the decomposition, in the dtypes of the operands as they arrive here."""
        arrays = [np.asarray(operand) for operand in operands]
        graph = Graph(self.name)
        inputs = [
            graph.add_input(f"operand_{position}", type_of_array(array))
            for position, array in enumerate(arrays)
        ]
        with graph.as_current():
            made = self.decompose(*inputs)
        several = isinstance(made, tuple)
        graph.set_outputs(list(made) if several else [made])
        results = interpret(graph, arrays)
        return tuple(results) if several else results[0]
