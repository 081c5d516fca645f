"""The recurrent op of ``com.microsoft``: an LSTM with quantized weights."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.onnx.converters.matmul import columns, multiply_quantized
from monograph.frontends.onnx.converters.quantize import dynamic_quantize
from monograph.frontends.onnx.converters.recurrent import (
    LSTM_FUNCTIONS,
    common_options,
    finish,
    time_first,
)
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.graph import Value
from monograph.ops.recurrent import Activation, Layer, run_lstm


class QuantizedLayer(Layer):
    """A layer whose weights are small integers; what they meet is quantized as it comes."""

    def __init__(self, node: OnnxNode) -> None:
        options = common_options(node, LSTM_FUNCTIONS)
        parameters = {"bias": node.optional(3), "peephole": node.optional(7)}
        states = [options["initial"], time_first(node, node.optional(6))]
        lengths, direction, functions = (
            options[name] for name in ("lengths", "direction", "activations")
        )
        size = node.input(2).shape[1]
        x = time_first(node, node.input(0))
        super().__init__(
            "lstm", "iofc", "iofc", x, parameters, states, lengths, direction, functions, size
        )
        weights = [node.input(index) for index in (1, 8, 9, 2, 10, 11)]
        self.quantized = [tuple(parts) for parts in zip(*map(_by_direction, weights), strict=True)]

    def from_input(self, side: int, bias: Value | None) -> Value:
        """All steps of the input are quantized by one scale."""
        product = _product(self.x, *self.quantized[side][:3])
        return product if bias is None else F.add(product, bias)

    def from_state(self, side: int) -> Activation:
        """The state is quantized by a scale of its own in each step."""
        weight, scale, point = self.quantized[side][3:]
        return lambda state: _product(state, weight, scale, point)


def _product(x: Value, weight: Value, weight_scale: Value, weight_point: Value) -> Value:
    quantized, scale, point = dynamic_quantize(x)
    parameters = columns(weight_scale), columns(weight_point)
    return multiply_quantized(quantized, (scale, point), weight, parameters)


def _by_direction(parameter: Value) -> tuple[Value, ...]:
    return tuple(F.unstack(parameter, 0))


@converter("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(node: OnnxNode) -> tuple[Value, ...]:
    """``LSTM`` with quantized weights, [directions, inputs, 4 * hidden]."""
    coupled = bool(node.integer("input_forget", 0))
    return finish(node, run_lstm(QuantizedLayer(node), node.number("clip", 0.0) or None, coupled))
