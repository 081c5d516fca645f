"""Activation functions; each keeps its own op, so that patterns and kernels can see it."""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value


@converter("aten.relu.default")
def _relu(node: TorchNode) -> Value:
    x: Value = node["self"]
    return F.relu(x) if x.dtype.is_float else F.maximum(x, F.zeros_like(x))


@converter("aten.relu6.default")
def _relu6(node: TorchNode) -> Value:
    x: Value = node["self"]
    return F.relu6(x) if x.dtype.is_float else F.clip(x, 0, 6)


@converter("aten.gelu.default")
def _gelu(node: TorchNode) -> Value:
    return F.gelu(node["self"], node["approximate"])


@converter("aten.silu.default")
def _silu(node: TorchNode) -> Value:
    return F.silu(node["self"])


@converter("aten.mish.default")
def _mish(node: TorchNode) -> Value:
    return F.mish(node["self"])


@converter("aten.elu.default")
def _elu(node: TorchNode) -> Value:
    x: Value = node["self"]
    alpha, scale, inner = (float(node[name]) for name in ("alpha", "scale", "input_scale"))
    if scale == 1 and inner == 1:
        return F.elu(x, alpha)
    below = F.multiply(F.expm1(F.multiply(x, inner)), alpha * scale)
    return F.where(F.greater(x, 0.0), F.multiply(x, scale), below)


@converter("aten.selu.default")
def _selu(node: TorchNode) -> Value:
    return F.selu(node["self"])


@converter("aten.celu.default")
def _celu(node: TorchNode) -> Value:
    return F.celu(node["self"], float(node["alpha"]))


@converter("aten.leaky_relu.default")
def _leaky_relu(node: TorchNode) -> Value:
    return F.leaky_relu(node["self"], float(node["negative_slope"]))


@converter("aten.prelu.default", "aten._prelu_kernel.default")
def _prelu(node: TorchNode) -> Value:
    x, slope = node["self"], node["weight"]
    if slope.rank == 1 and x.rank > 1:
        slope = F.reshape(slope, (slope.shape[0],) + (1,) * (x.rank - 2))
    elif slope.rank > x.rank:
        slope = F.reshape(slope, x.shape)
    return F.prelu(x, slope)


@converter("aten.hardswish.default")
def _hardswish(node: TorchNode) -> Value:
    return F.hardswish(node["self"])


@converter("aten.hardsigmoid.default")
def _hardsigmoid(node: TorchNode) -> Value:
    return F.hardsigmoid(node["self"])


@converter("aten.hardtanh.default")
def _hardtanh(node: TorchNode) -> Value:
    x: Value = node["self"]
    low, high = node["min_val"], node["max_val"]
    if x.dtype.is_float:
        return F.hardtanh(x, float(low), float(high))
    return F.minimum(F.maximum(x, node.value(low, x.dtype)), node.value(high, x.dtype))


@converter("aten.softplus.default")
def _softplus(node: TorchNode) -> Value:
    return F.softplus(node["self"], float(node["beta"]), float(node["threshold"]))


@converter("aten.log_sigmoid.default")
def _log_sigmoid(node: TorchNode) -> Value:
    return F.log_sigmoid(node["self"])


@converter("aten.log_sigmoid_forward.default")
def _log_sigmoid_forward(node: TorchNode) -> tuple[Value, Value]:
    x: Value = node["self"]
    # The second result is scratch memory for torch's backward op: exp(-|x|).
    buffer = F.exp(F.negate(F.abs(x)))
    wanted = node.result_type(1)
    return F.log_sigmoid(x), buffer if wanted.rank == x.rank else F.zeros((0,), x.dtype)


@converter("aten.softshrink.default")
def _softshrink(node: TorchNode) -> Value:
    x, bound = node["self"], float(node["lambd"])
    above = F.subtract(x, bound)
    below = F.add(x, bound)
    inside = F.multiply(x, 0.0)  # a NaN stays one
    return F.where(F.greater(x, bound), above, F.where(F.less(x, -bound), below, inside))


@converter("aten.hardshrink.default")
def _hardshrink(node: TorchNode) -> Value:
    x, bound = node["self"], float(node["lambd"])
    inside = F.logical_and(F.greater_equal(x, -bound), F.less_equal(x, bound))
    return F.where(inside, 0.0, x)


@converter("aten.threshold.default")
def _threshold(node: TorchNode) -> Value:
    x: Value = node["self"]
    value = node.value(node["value"], x.dtype)
    return F.where(F.less_equal(x, node.value(node["threshold"], x.dtype)), value, x)


@converter("aten.glu.default")
def _glu(node: TorchNode) -> Value:
    first, second = F.split(node["self"], 2, node["dim"])
    return F.multiply(first, F.sigmoid(second))
