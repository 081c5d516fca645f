"""A writer of ONNX graphs by hand, for the habits of converters that cannot be run here.

TensorFlow's and Paddle's converters leave graphs that no torch exporter writes: activations laid
out with channels last between transposes, activations spelt in five nodes, sizes that come of
Shape, Slice and Concat. ``Writer`` adds nodes by name and draws weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks.shipped.model import SEED, Array

Shape = Sequence[int | str | None]


class Writer:
    """A graph in the making; each method returns the name of a value."""

    def __init__(self, name: str, opset: int, producer: str) -> None:
        self.name = name
        self.opset = opset
        self.producer = producer
        self.random = np.random.default_rng(SEED)
        self._nodes: list[NodeProto] = []
        self._weights: list[TensorProto] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._count = 0

    def input(self, name: str, shape: Shape, kind: int = TensorProto.FLOAT) -> str:
        """Declare an input; None is a size without a name."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, value: str, name: str, shape: Shape, kind: int = TensorProto.FLOAT) -> None:
        """Declare that a value is an output of this name."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name=f"out/{name}"))
        self._outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def op(self, kind: str, *operands: str, **attributes: Any) -> str:
        """Add a node of one result."""
        return self.ops(kind, *operands, results=1, **attributes)[0]

    def ops(self, kind: str, *operands: str, results: int, **attributes: Any) -> list[str]:
        """Add a node of several results."""
        names = [self._new(kind) for _ in range(results)]
        made = helper.make_node(kind, list(operands), names, name=f"n/{names[0]}", **attributes)
        self._nodes.append(made)
        return names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """A Constant node, as converters write small numbers."""
        name = self._new("const")
        tensor = numpy_helper.from_array(np.asarray(value, dtype), name)
        self._nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def weight(self, array: Array) -> str:
        """An initializer."""
        name = self._new("w")
        self._weights.append(numpy_helper.from_array(array, name))
        return name

    def drawn(self, *shape: int, gain: float = 1.0) -> str:
        """A weight under which results keep the size of what they are computed from."""
        inputs = math.prod(shape[1:]) if len(shape) > 1 else 1
        scale = gain / math.sqrt(max(1, inputs))
        return self.weight((scale * self.random.standard_normal(shape)).astype(np.float32))

    def around(self, size: int, centre: float, spread: float) -> str:
        """A vector of numbers near ``centre``: scales, shifts and statistics of norms."""
        drawn = centre + spread * self.random.uniform(-1, 1, size)
        return self.weight(drawn.astype(np.float32))

    def _new(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"

    def finished(self) -> ModelProto:
        """The model."""
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, self._weights
        )
        opset = helper.make_opsetid("", self.opset)
        return helper.make_model(
            graph, opset_imports=[opset], ir_version=8, producer_name=self.producer
        )
