"""Mixtures of experts of ``com.microsoft``.

Every expert computes every token, and the shares of those that were not chosen are 0: sizes stay
known, at the price of products that nobody needs.
"""

from __future__ import annotations

from collections.abc import Callable

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.frontends.onnx.microsoft.quantize import unpack_bits
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import f32

DOMAIN = "com.microsoft"


@dataclass(frozen=True)
class Layer:
    """The weights [experts, outputs, inputs] and the bias [experts, outputs] of one layer."""

    weight: Value
    bias: Value | None

    def apply(self, x: Value) -> Value:
        """[experts or 1, tokens, inputs] as [experts, tokens, outputs]."""
        y = F.matmul(x, F.swapaxes(self.weight, 1, 2))
        return y if self.bias is None else F.add(y, F.unsqueeze(self.bias, 1))


@converter("MoE", domain=DOMAIN)
def mixture_of_experts(node: OnnxNode) -> Value:
    """The outputs of the experts that a router prefers, by their shares."""
    layers = [
        None if node.optional(index) is None else Layer(node.input(index), node.optional(index + 1))
        for index in (2, 4, 6)
    ]
    return _mix(node, layers, None)


@converter("QMoE", domain=DOMAIN)
def quantized_mixture_of_experts(node: OnnxNode) -> Value:
    """``MoE`` whose weights have a few bits."""
    if node.string("quant_type", "int") != "int":
        raise node.error("only integers are supported", found=node.string("quant_type"))
    layers = [_read_quantized_layer(node, which) for which in range(3)]
    return _mix(node, layers, node.optional(14))


def _read_quantized_layer(node: OnnxNode, which: int) -> Layer | None:
    """One of three layers: its weights, scales and bias, and its zero points further on."""
    packed, scales, bias = (node.optional(2 + 3 * which + offset) for offset in range(3))
    if packed is None or scales is None:
        return None
    bits = node.integer(f"fc{which + 1}_expert_weight_bits", 0)
    bits = bits or node.integer("expert_weight_bits", 4)
    experts, outputs, _ = packed.shape
    numbers = _numbers(node, packed, bits)
    inputs = numbers.shape[2]
    scales = scales if scales.rank == 3 else F.unsqueeze(scales, 2)
    blocks = scales.shape[2]
    zero: Value | float = float(2 ** (bits - 1))
    given = node.optional(11 + which)
    if given is not None:
        zero = F.unsqueeze(_zeros(node, given, bits, outputs, blocks), 3)
    grouped = F.reshape(numbers, (experts, outputs, blocks, inputs // blocks))
    real = F.multiply(F.subtract(grouped, zero), F.unsqueeze(cast_to(scales, f32), 3))
    dtype = node.input(0).dtype
    return Layer(cast_to(F.reshape(real, (experts, outputs, inputs)), dtype), bias)


def _numbers(node: OnnxNode, packed: Value, bits: int) -> Value:
    """[..., bytes] as [..., numbers], in f32."""
    flat = unpack_bits(node, F.reshape(packed, (-1, packed.shape[-1])), bits)
    return cast_to(F.reshape(flat, (*packed.shape[:-1], flat.shape[1])), f32)


def _zeros(node: OnnxNode, given: Value, bits: int, outputs: Dim, blocks: Dim) -> Value:
    """Zero points of each block [experts, outputs, blocks], or of each output."""
    numbers = _numbers(node, given, bits)
    last = blocks if given.rank == 3 else outputs
    cut = F.slice(numbers, (0,), (last,), axes=(given.rank - 1,))
    return cut if given.rank == 3 else F.unsqueeze(cut, 2)


def _mix(node: OnnxNode, layers: list[Layer | None], weights: Value | None) -> Value:
    x, scores = node.input(0), node.input(1)
    first, second, third = layers
    if first is None or second is None:
        raise node.error("weights are missing")
    if node.integer("use_sparse_mixer", 0):
        raise node.error("the sparse mixer is not supported")
    tokens = F.reshape(x, (1, -1, x.shape[-1]))
    hidden = _activate(node, first, third, tokens)
    made = cast_to(second.apply(hidden), f32)  # [experts, tokens, hidden]
    shares = _shares(node, cast_to(scores, f32), None if weights is None else cast_to(weights, f32))
    total = F.sum(F.multiply(made, F.unsqueeze(F.transpose(shares), 2)), 0)
    return cast_to(F.reshape(total, x.shape), x.dtype)


def _shares(node: OnnxNode, scores: Value, weights: Value | None) -> Value:
    """The share of each expert in each token, [tokens, experts]; 0 of those not chosen.

    ONNX Runtime's ``QMoE`` shares out among the chosen alone, whatever its attribute says.
    """
    best, chosen = F.top_k(scores, node.integer("k", 1), 1)
    normalized = bool(node.integer("normalize_routing_weights", 0))
    if weights is not None:
        parts = F.take_along_axis(weights, chosen, 1)
        if normalized:
            parts = F.divide(parts, F.sum(parts, 1, keepdims=True))
    elif normalized or node.op_type == "QMoE":
        parts = F.softmax(best, 1)
    else:
        parts = F.take_along_axis(F.softmax(scores, 1), chosen, 1)
    return F.put_along_axis(F.zeros_like(scores), chosen, parts, 1)


def _activate(node: OnnxNode, first: Layer, third: Layer | None, x: Value) -> Value:
    """The hidden layer of every expert."""
    kind = node.string("activation_type", "relu")
    made = first.apply(x)
    if kind == "swiglu":
        return _gate(node, *_gate_and_value(node, made, third, x))
    functions: dict[str, Callable[[Value], Value]] = {
        "relu": F.relu,
        "gelu": lambda each: F.gelu(each, "tanh"),
        "silu": F.silu,
        "identity": lambda each: each,
    }
    if kind not in functions:
        raise node.error("an unknown activation", expected=", ".join(functions), found=kind)
    hidden = functions[kind](made)
    return hidden if third is None else F.multiply(hidden, third.apply(x))


def _gate_and_value(
    node: OnnxNode, made: Value, third: Layer | None, x: Value
) -> tuple[Value, Value]:
    """Both halves of a gated layer: of two layers, or of one that interleaves or joins them."""
    fusion = node.integer("swiglu_fusion", 0)
    if fusion == 0:
        if third is None:
            raise node.error("swiglu without fusion needs a third layer")
        return made, third.apply(x)
    if fusion == 1:
        pairs = F.reshape(made, (*made.shape[:-1], made.shape[-1] // 2, 2))
        gate, value = F.unstack(pairs, 3)
    else:
        gate, value = F.split(made, 2, 2)
    return gate, value


def _gate(node: OnnxNode, gate: Value, value: Value) -> Value:
    """G * sigmoid(alpha * G) * (L + beta), both held within a limit."""
    limit = node.number("swiglu_limit", float("inf"))
    alpha, beta = node.number("activation_alpha", 1.0), node.number("activation_beta", 0.0)
    if limit not in (0.0, float("inf")):
        gate = F.minimum(gate, limit)
        value = F.clip(value, -limit, limit)
    swished = F.multiply(gate, F.sigmoid(F.multiply(gate, alpha)))
    return F.multiply(swished, F.add(value, beta))
