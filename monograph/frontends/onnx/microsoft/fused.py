"""Fused ops of ``com.microsoft``: norms with skip connections, gelus, products with activations."""

from __future__ import annotations

from collections.abc import Callable

from monograph import functional as F
from monograph.frontends.onnx.converters.attention import apply_swish
from monograph.frontends.onnx.converters.conv import convolve
from monograph.frontends.onnx.converters.matmul import gemm, scale
from monograph.frontends.onnx.converters.norm import (
    layer_normalized,
    rms_normalized,
    stash_dtype,
)
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import i32, wide
from monograph.ops.rules import normalize_axis

DOMAIN = "com.microsoft"

SKIP_EPSILON = 1e-12
"""The epsilon of norms with a skip or embeddings, where a node gives none."""

# Norms.


@converter("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_normalization(node: OnnxNode) -> tuple[Value | None, ...]:
    """The layer norm of the sum of two operands and a bias; and that sum."""
    total = _skip_sum(node, node.optional(4))
    scale, bias = node.input(2), node.optional(3)
    epsilon = node.number("epsilon", SKIP_EPSILON)
    y, *statistics = layer_normalized(node, total, scale, bias, total.rank - 1, epsilon)
    mean, inverse = statistics or (None, None)
    return y, mean, inverse, total


@converter("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_simplified_layer_normalization(node: OnnxNode) -> tuple[Value | None, ...]:
    """The root-mean-square norm of the sum of two operands and a bias; and that sum."""
    total = _skip_sum(node, node.optional(3))
    epsilon = node.number("epsilon", SKIP_EPSILON)
    y = rms_normalized(total, node.input(2), total.rank - 1, epsilon)
    inverse = _inverse_root(node, total, total.rank - 1, epsilon) if node.wants(2) else None
    return y, None, inverse, total


def _skip_sum(node: OnnxNode, bias: Value | None) -> Value:
    total = F.add(node.input(0), node.input(1))
    return total if bias is None else F.add(total, bias)


@converter("SimplifiedLayerNormalization")
@converter("SimplifiedLayerNormalization", domain=DOMAIN)
def simplified_layer_normalization(node: OnnxNode) -> tuple[Value | None, ...]:
    """The root-mean-square norm, as it was called before ONNX had it."""
    x, scale = node.input(0), node.input(1)
    axis = normalize_axis(node.op_type, node.integer("axis", -1), x.rank)
    epsilon = node.number("epsilon", 1e-5)
    y = cast_to(rms_normalized(x, scale, axis, epsilon), scale.dtype)
    return y, _inverse_root(node, x, axis, epsilon) if node.wants(1) else None


def _inverse_root(node: OnnxNode, x: Value, axis: int, epsilon: float) -> Value:
    """1 / sqrt(mean(x²) + epsilon) of the trailing axes."""
    exact = cast_to(x, wide(x.dtype))
    squares = F.mean(F.square(exact), range(axis, x.rank), keepdims=True)
    return cast_to(F.rsqrt(F.add(squares, epsilon)), stash_dtype(node))


@converter("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(node: OnnxNode) -> tuple[Value | None, ...]:
    """Embeddings of words, positions and segments, added and normalised."""
    words, segments, positions = node.input(0), node.optional(1), node.optional(8)
    places = F.iota((words.shape[1],), 0, "i64") if positions is None else positions
    total = F.add(F.take(node.input(2), words, 0), F.take(node.input(3), places, 0))
    if segments is not None:
        total = F.add(total, F.take(node.input(4), segments, 0))
    epsilon = node.number("epsilon", SKIP_EPSILON)
    y = F.layer_norm(total, node.input(5), node.input(6), -1, epsilon)
    mask = node.optional(7)
    if mask is None:
        counts = F.zeros((words.shape[0],), i32)
    else:
        counts = F.sum(cast_to(F.equal(mask, 1), i32), 1)
    return y, cast_to(counts, i32), total


# Activations.


@converter("Gelu", domain=DOMAIN)
def gelu(node: OnnxNode) -> Value:
    """The exact gelu."""
    return F.gelu(node.input(0))


@converter("BiasGelu", domain=DOMAIN)
def bias_gelu(node: OnnxNode) -> Value:
    """The exact gelu of a sum."""
    return F.gelu(F.add(node.input(0), node.input(1)))


@converter("FastGelu", domain=DOMAIN)
def fast_gelu(node: OnnxNode) -> Value:
    """The gelu by tanh, of a sum if there is a bias."""
    x, bias = node.input(0), node.optional(1)
    return F.gelu(x if bias is None else F.add(x, bias), "tanh")


@converter("QuickGelu", domain=DOMAIN)
def quick_gelu(node: OnnxNode) -> Value:
    """x * sigmoid(alpha * x)."""
    return apply_swish(node.input(0), node.number("alpha", 1.702))


def activate(node: OnnxNode, x: Value, name: str, parameters: tuple[float, ...]) -> Value:
    """The function that a fused op applies to its result."""
    functions: dict[str, Callable[..., Value]] = {
        "": lambda: x,
        "Relu": lambda: F.relu(x),
        "Tanh": lambda: F.tanh(x),
        "Sigmoid": lambda: F.sigmoid(x),
        "LeakyRelu": lambda alpha=0.01: F.leaky_relu(x, alpha),
        "Clip": lambda low, high: F.clip(x, low, high),
        "HardSigmoid": lambda alpha=0.2, beta=0.5: F.clip(
            F.add(F.multiply(x, alpha), beta), 0.0, 1.0
        ),
        "Gelu": lambda: F.gelu(x),
    }
    if name not in functions:
        raise node.error("an unknown activation", found=repr(name))
    return functions[name](*parameters)


# Products.


@converter("FusedMatMul", "TransposeMatMul", domain=DOMAIN)
def fused_matmul(node: OnnxNode) -> Value:
    """A product of transposed matrices, times a number."""
    a, b = (
        _transpose_batch(
            node.input(index),
            last_two=bool(node.integer(f"trans{side}", 0)),
            batch=bool(node.integer(f"transBatch{side}", 0)),
        )
        for index, side in enumerate("AB")
    )
    return scale(F.matmul(a, b), node.number("alpha", 1.0))


def _transpose_batch(x: Value, *, last_two: bool, batch: bool) -> Value:
    """``x`` with its first axis moved behind the batch axes, and its last two swapped."""
    if batch and x.rank >= 3:
        x = F.moveaxis(x, 0, x.rank - 2)
    return F.swapaxes(x, -1, -2) if last_two and x.rank >= 2 else x


@converter("FusedGemm", domain=DOMAIN)
def fused_gemm(node: OnnxNode) -> Value:
    """Gemm with a function at its end."""
    product = gemm(node)
    assert isinstance(product, Value)
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    parameters = tuple(node.number(name) for name in names if node.has(name))
    return activate(node, product, node.string("activation", ""), parameters)


@converter("FusedConv", domain=DOMAIN)
def fused_conv(node: OnnxNode) -> Value:
    """A convolution, plus another tensor, with a function at its end."""
    y = convolve(node, node.input(0), node.input(1), node.optional(2))
    added = node.optional(3)
    y = y if added is None else F.add(y, added)
    parameters = node.floats("activation_params", ())
    return activate(node, y, node.string("activation", ""), parameters)


@converter("NhwcConv", "NhwcFusedConv", domain=DOMAIN)
def nhwc_conv(node: OnnxNode) -> Value:
    """A convolution over [batch, ..., channels]; the weights are as ever."""
    x = node.input(0)
    y = convolve(node, F.moveaxis(x, x.rank - 1, 1), node.input(1), node.optional(2))
    y = F.moveaxis(y, 1, y.rank - 1)
    added = node.optional(3)
    y = y if added is None else F.add(y, added)
    parameters = node.floats("activation_params", ())
    return activate(node, y, node.string("activation", ""), parameters)
