"""Gated norms, sums and mixes of ``com.microsoft``, which exporters of decoders emit."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.onnx.converters.attention import linear_attention
from monograph.frontends.onnx.converters.conv import causal_conv_with_state
from monograph.frontends.onnx.converters.norm import rms_normalized
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import Results, converter
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import f32

DOMAIN = "com.microsoft"


@converter("GatedAdd", domain=DOMAIN)
def gated_add(node: OnnxNode) -> Value:
    """x + y * gate."""
    return F.add(node.input(0), F.multiply(node.input(1), node.input(2)))


@converter("ScaledSiLU", domain=DOMAIN)
def scaled_silu(node: OnnxNode) -> Value:
    """The SiLU of a number times x."""
    x, scale = node.input(0), node.optional(1)
    factor = node.number("alpha", 1.0) if scale is None else F.reshape(cast_to(scale, f32), ())
    scaled = cast_to(F.multiply(cast_to(x, f32), factor), x.dtype)
    return F.multiply(scaled, F.sigmoid(scaled))


@converter("GatedRMSNorm", domain=DOMAIN)
def gated_rms_norm(node: OnnxNode) -> Value:
    """The root-mean-square norm of each group of elements, times a function of a gate."""
    x, scale, gate = (cast_to(node.input(index), f32) for index in range(3))
    size = scale.shape[0]
    groups = F.reshape(x, (*x.shape[:-1], x.shape[-1] // size, size))
    normed = rms_normalized(groups, scale, x.rank, node.number("epsilon", 1e-5))
    activation = node.string("activation", "silu")
    if activation not in ("silu", "swish", "sigmoid"):
        expected = "silu, swish or sigmoid"
        raise node.error("an unknown activation", expected=expected, found=activation)
    opened = F.sigmoid(gate) if activation == "sigmoid" else F.silu(gate)
    return cast_to(F.multiply(F.reshape(normed, x.shape), opened), node.input(0).dtype)


@converter("BranchwiseRMSNorm", domain=DOMAIN)
def branchwise_rms_norm(node: OnnxNode) -> Value:
    """The root-mean-square norm of each branch."""
    x, scale = _branches(node, node.input(0)), node.optional(1)
    exact = cast_to(x, f32)
    squares = F.mean(F.square(exact), -1, keepdims=True)
    normed = F.multiply(exact, F.rsqrt(F.add(squares, node.number("epsilon", 1e-5))))
    if scale is not None:
        factors = scale
        if scale.rank == 1 and scale.shape != x.shape[-1:]:
            factors = F.reshape(scale, x.shape[-2:])
        normed = F.multiply(normed, cast_to(factors, f32))
    return cast_to(F.reshape(normed, node.input(0).shape), x.dtype)


def _branches(node: OnnxNode, x: Value) -> Value:
    """Streams as [..., branches, features], whether they come so or flat."""
    count = node.integer("num_branches", 0)
    if not count:
        return x
    return F.reshape(x, (*x.shape[:-1], count, x.shape[-1] // count))


@converter("HyperConnectionPreMix", domain=DOMAIN)
def hyper_connection_pre_mix(node: OnnxNode) -> Value:
    """The sum of the branches, each times its gate."""
    x = cast_to(_branches(node, node.input(0)), f32)
    gates = _gates(cast_to(node.input(1), f32), x)
    total = F.sum(F.multiply(x, gates), -2)
    scaled = F.multiply(total, node.number("reduction_scale", 1.0))
    return cast_to(scaled, node.input(0).dtype)


@converter("HyperConnectionPostMix", domain=DOMAIN)
def hyper_connection_post_mix(node: OnnxNode) -> Value:
    """Branches mixed by a matrix, plus the output of a block times the gate of each."""
    x = cast_to(_branches(node, node.input(0)), f32)
    block, gates = cast_to(node.input(1), f32), _gates(cast_to(node.input(2), f32), x)
    matrix = node.optional(3)
    mixed = x if matrix is None else F.matmul(F.swapaxes(cast_to(matrix, f32), -1, -2), x)
    total = F.add(mixed, F.multiply(gates, F.unsqueeze(block, -2)))
    return cast_to(F.reshape(total, node.input(0).shape), node.input(0).dtype)


def _gates(gates: Value, x: Value) -> Value:
    """Gates of branches or of their features, so that they broadcast over [..., branches, n]."""
    if gates.rank == x.rank:
        return gates
    if gates.shape[-1] == x.shape[-2]:
        return F.unsqueeze(gates, -1)
    return F.reshape(gates, x.shape)


@converter("LinearAttentionGate", domain=DOMAIN)
def linear_attention_gate(node: OnnxNode) -> tuple[Value | None, ...]:
    """The decay and the update rate that ``LinearAttention`` takes."""
    a, bias, scale = (cast_to(node.input(index), f32) for index in range(3))
    decay = cast_to(F.multiply(scale, F.softplus(F.add(a, bias))), node.input(0).dtype)
    rate = node.optional(3)
    return decay, None if rate is None else F.sigmoid(rate)


@converter("LinearAttention", domain=DOMAIN)
def windowed_linear_attention(node: OnnxNode) -> Results:
    """ONNX's own op, which here may keep the states of several tokens."""
    if node.integer("state_window", 0) or node.integer("kv_num_heads") > node.integer(
        "q_num_heads"
    ):
        raise node.error("a window of states and more value heads than queries are not supported")
    return linear_attention(node)


@converter("CausalConvWithState", domain=DOMAIN)
def windowed_causal_conv_with_state(node: OnnxNode) -> Results:
    """ONNX's own op, which here has more layouts."""
    plain = node.integer("ndim", 1) == 1 and node.integer("dilation", 1) == 1
    if not plain or node.integer("channels_last", 0) or node.integer("state_window", 0):
        raise node.error("only one dimension, channels first, without dilation or window of states")
    return causal_conv_with_state(node)


@converter("EngramGate", domain=DOMAIN)
def engram_gate(node: OnnxNode) -> tuple[Value | None, ...]:
    """A value times how well a key and a query agree; and its norm, if that is wanted."""
    key, query, value, key_scale, query_scale = (cast_to(node.input(at), f32) for at in range(5))
    epsilon, hidden = node.number("epsilon", 1e-5), key.shape[3]
    agreement = F.sum(
        F.multiply(_rms_norm(key, key_scale, epsilon), _rms_norm(query, query_scale, epsilon)),
        3,
        keepdims=True,
    )
    dot = F.divide(agreement, F.sqrt(cast_to(F.dim(hidden), f32)))
    root = F.multiply(F.sign(dot), F.sqrt(F.maximum(F.abs(dot), 1e-6)))
    gated = F.multiply(F.sigmoid(root), F.unsqueeze(value, 2))
    dtype, scale = node.input(0).dtype, node.optional(5)
    if scale is None or not node.wants(1):
        return cast_to(gated, dtype), None
    normed = _rms_norm(gated, cast_to(scale, f32), epsilon)
    return cast_to(gated, dtype), cast_to(normed, dtype)


def _rms_norm(x: Value, scale: Value, epsilon: float) -> Value:
    """The root-mean-square norm of the last axis, with a scale for each branch."""
    squares = F.mean(F.square(x), -1, keepdims=True)
    return F.multiply(F.multiply(x, F.rsqrt(F.add(squares, epsilon))), scale)
