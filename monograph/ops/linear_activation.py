"""A layer with its activation as one op: what libraries of GPUs compute in one kernel.

``linear`` and what follows it are separate nodes everywhere else, for fusion to decide.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.ir.build import Operand, apply
from monograph.ir.graph import Value
from monograph.ir.op import Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType
from monograph.ops.activation import Gelu, gelu
from monograph.ops.elementwise import add
from monograph.ops.linalg import DotGeneral, apply_promoted, number_dtype
from monograph.ops.rectifier import Relu, relu
from monograph.ops.rules import require, same_dim

ACTIVATIONS = ("none", "relu", "gelu_tanh")


@op("linear_activation")
class LinearActivation(Op):
    """``activation(x @ weight.T + bias)``; the weight is [inputs, outputs] if ``inputs_first``."""

    activation: str = "none"
    inputs_first: bool = False

    def infer(self, x: TensorType, weight: TensorType, bias: TensorType) -> TensorType:
        dtype = number_dtype(self.name, x, weight, bias)
        require(
            self.activation in ACTIVATIONS,
            "linear_activation: there is no such activation",
            expected=", ".join(ACTIVATIONS),
            found=repr(self.activation),
        )
        require(
            x.rank >= 1 and weight.rank == 2 and bias.rank == 1,
            "linear_activation: wrong ranks",
            expected="x of [..., inputs], a matrix and a vector",
            found=f"{x}, {weight} and {bias}",
        )
        inputs, outputs = weight.shape if self.inputs_first else weight.shape[::-1]
        same_dim(self.name, "the inner dimensions", x.shape[-1], inputs)
        outputs = same_dim(self.name, "sizes of weight and bias", outputs, bias.shape[0])
        return TensorType(dtype, (*x.shape[:-1], outputs), device=x.device)

    def evaluate(self, x: Array, weight: Array, bias: Array) -> Array:
        linear = np.asarray(np.matmul(x, weight if self.inputs_first else weight.T) + bias)
        match self.activation:
            case "relu":
                return np.asarray(Relu().evaluate(linear))
            case "gelu_tanh":
                return np.asarray(Gelu("tanh").evaluate(linear))
        return linear

    def decompose(self, x: Value, weight: Value, bias: Value) -> Value:
        product = apply(DotGeneral((x.rank - 1,), (0 if self.inputs_first else 1,)), x, weight)
        linear = add(product, bias)
        match self.activation:
            case "relu":
                return relu(linear)
            case "gelu_tanh":
                return gelu(linear, approximate="tanh")
        return linear

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(0)

        def floats(*shape: int) -> Array:
            return generator.normal(size=shape).astype(np.float32)

        for activation in ACTIVATIONS:
            yield Sample(cls(activation), (floats(3, 4), floats(5, 4), floats(5)), activation)
        yield Sample(cls("relu", True), (floats(2, 3, 4), floats(4, 5), floats(5)), "inputs first")
        yield Sample(cls("gelu_tanh"), (floats(0, 4), floats(5, 4), floats(5)), "empty", False)


@function
def linear_activation(
    x: Operand,
    weight: Operand,
    bias: Operand,
    activation: str = "none",
    *,
    inputs_first: bool = False,
) -> Value:
    """``activation(x @ weight.T + bias)``; with ``inputs_first``, ``x @ weight``."""
    return apply_promoted(LinearActivation(activation, inputs_first), x, weight, bias)
