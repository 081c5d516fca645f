"""Activations: each keeps its structure where our graph has an op for it."""

from __future__ import annotations

import math
from collections.abc import Callable

from monograph import functional as F
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply, cast_to
from monograph.ir.dims import provably_equal
from monograph.ir.graph import Value
from monograph.ir.op import Op
from monograph.ir.types import f32, f64, wide
from monograph.ops import activation, rectifier

# SELU's own constants, rounded to f32 as ONNX writes them down.
_ALPHA = 1.67326319217681884765625
_GAMMA = 1.05070102214813232421875

_PLAIN: dict[str, Op] = {
    "HardSwish": rectifier.Hardswish(),
    "Mish": activation.Mish(),
    "Softplus": activation.Softplus(1.0, math.inf),
    "Softsign": activation.Softsign(),
}


@converter(*_PLAIN)
def plain(node: OnnxNode) -> Value:
    """An activation without attributes."""
    return apply(_PLAIN[node.op_type], node.input(0))


@converter("LeakyRelu")
def leaky_relu(node: OnnxNode) -> Value:
    """``x``, less steep below zero."""
    return F.leaky_relu(node.input(0), node.number("alpha", 0.01))


@converter("PRelu")
def prelu(node: OnnxNode) -> Value:
    """``x``, below zero times a slope that broadcasts to it."""
    x, slope = node.input(0), node.input(1)
    if node.opset < 7 and slope.rank == 1 and x.rank > 1 and not provably_equal(slope.shape[0], 1):
        slope = F.unsqueeze(slope, range(1, x.rank - 1))  # one a channel, before broadcasting
    if x.dtype.is_float:
        return apply(rectifier.Prelu(), x, slope)
    return F.where(F.less(x, 0), F.multiply(x, slope), x)


@converter("Elu", "Celu")
def elu(node: OnnxNode) -> Value:
    """``x``, below zero an exponential that levels off."""
    function: Callable[[Value, float], Value] = F.elu if node.op_type == "Elu" else F.celu
    return function(node.input(0), node.number("alpha", 1.0))


@converter("Selu")
def selu(node: OnnxNode) -> Value:
    """A scaled ``Elu``, with constants that keep mean and variance unless others are given."""
    alpha, gamma = node.number("alpha", _ALPHA), node.number("gamma", _GAMMA)
    if math.isclose(alpha, _ALPHA, rel_tol=1e-6) and math.isclose(gamma, _GAMMA, rel_tol=1e-6):
        return F.selu(node.input(0))
    return _exactly(node, lambda x: F.elu(x, alpha) * gamma)


@converter("Gelu")
def gelu(node: OnnxNode) -> Value:
    """``x`` times the normal distribution up to it, or an approximation by tanh."""
    return F.gelu(node.input(0), node.string("approximate", "none"))


@converter("HardSigmoid")
def hard_sigmoid(node: OnnxNode) -> Value:
    """A line held between 0 and 1."""
    slope, middle = node.number("alpha", 0.2), node.number("beta", 0.5)
    return _exactly(node, lambda x: F.clip(x * slope + middle, 0.0, 1.0))


@converter("ThresholdedRelu")
def thresholded_relu(node: OnnxNode) -> Value:
    """``x`` above a threshold, zero elsewhere."""
    threshold = node.number("alpha", 1.0)
    return _exactly(node, lambda x: F.where(F.greater(x, threshold), x, 0.0))


@converter("Shrink")
def shrink(node: OnnxNode) -> Value:
    """``x`` moved towards zero by a bias, and zero where it is near."""
    limit, bias = node.number("lambd", 0.5), node.number("bias", 0.0)

    def shrunk(x: Value) -> Value:
        above = F.where(F.greater(x, limit), x - bias, 0.0)
        return F.where(F.less(x, -limit), x + bias, above)

    return _exactly(node, shrunk)


def _exactly(node: OnnxNode, function: Callable[[Value], Value]) -> Value:
    """A function computed in f32 or f64, and rounded once to the operand's dtype."""
    x = node.input(0)
    exact = wide(x.dtype) if x.dtype.is_float else f64 if x.dtype.bits > 16 else f32
    return cast_to(function(cast_to(x, exact)), x.dtype)
