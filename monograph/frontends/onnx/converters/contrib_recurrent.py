"""The recurrent op of ``com.microsoft``: an LSTM with quantized weights."""

from __future__ import annotations

from dataclasses import fields

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.frontends.onnx.converters.matmul import columns, quantized_product
from monograph.frontends.onnx.converters.quantize import dynamic_quantize
from monograph.frontends.onnx.converters.recurrent import (
    LSTM_FUNCTIONS,
    Direction,
    directions,
    run_lstm,
)
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.graph import Value

Parameters = tuple[Value, Value]
"""A scale and a zero point: of all weights, or of each column."""


@dataclass(frozen=True)
class QuantizedDirection(Direction):
    """A direction whose weights are small integers; what they meet is quantized as it comes."""

    of_weight: Parameters
    of_recurrence: Parameters

    def from_input(self, x: Value) -> Value:
        """All steps of the input are quantized by one scale."""
        return _product(x, self.weight, self.of_weight, self.input_bias)

    def from_state(self, h: Value) -> Value:
        """The state is quantized by a scale of its own in each step."""
        return _product(h, self.recurrence, self.of_recurrence, self.recurrent_bias)


def _product(x: Value, weight: Value, parameters: Parameters, bias: Value | None) -> Value:
    quantized, scale, zero = dynamic_quantize(x)
    scales, points = (columns(each) for each in parameters)
    product = quantized_product(quantized, (scale, zero), F.transpose(weight), (scales, points))
    return product if bias is None else F.add(product, bias)


@converter("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(node: OnnxNode) -> tuple[Value, ...]:
    """``LSTM`` with quantized weights, [directions, inputs, 4 * hidden]."""
    inputs = list(node.inputs)
    inputs[1], inputs[2] = (F.swapaxes(node.input(index), 1, 2) for index in (1, 2))
    usual = node.with_inputs(*inputs)
    parameters = [_by_direction(node.input(index)) for index in range(8, 12)]
    layers = [
        QuantizedDirection(
            **{field.name: getattr(layer, field.name) for field in fields(layer)},
            of_weight=(parameters[0][position], parameters[1][position]),
            of_recurrence=(parameters[2][position], parameters[3][position]),
        )
        for position, layer in enumerate(directions(usual, LSTM_FUNCTIONS))
    ]
    return run_lstm(usual, layers)


def _by_direction(parameter: Value) -> tuple[Value, ...]:
    """The scale or zero point of each direction."""
    return tuple(F.unstack(parameter, 0))
