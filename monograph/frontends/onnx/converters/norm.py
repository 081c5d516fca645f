"""Normalisation: by statistics of the batch, of each example, of windows of channels, of a row."""

from __future__ import annotations

from math import ceil, floor

from monograph import functional as F
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply, cast_to
from monograph.ir.dims import Shape, provably_equal, shape_product
from monograph.ir.graph import Value
from monograph.ir.types import DType, f32, wide
from monograph.ops import pool
from monograph.ops.rules import broadcast_shapes, normalize_axes, normalize_axis

# By statistics of the batch.


@converter("BatchNormalization")
def batch_normalization(node: OnnxNode) -> Value | tuple[Value | None, ...]:
    """Normalised by given statistics or, in training, by those of the batch.

    Before opset 14 training is asked for by naming the outputs after the first: the new running
    statistics and those of the batch. Without ``spatial`` (before opset 9) every element of an
    example has statistics of its own.
    """
    x, *parameters = (node.input(index) for index in range(5))
    whole = x.shape
    if not node.integer("spatial", 1):
        x = F.reshape(x, (whole[0], shape_product(whole[1:])))
        parameters = [F.reshape(each, (shape_product(each.shape),)) for each in parameters]
    elif x.rank == 1:
        x = F.unsqueeze(x, 1)
    trained = bool(node.integer("training_mode", 0)) or (
        node.opset < 14 and any(node.proto.output[1:])
    )
    results = (
        _normalize_batch(node, x, parameters) if trained else (_normalize(node, x, parameters),)
    )
    return F.reshape(results[0], whole), *results[1:]


def _normalize(node: OnnxNode, x: Value, parameters: list[Value]) -> Value:
    scale, bias, mean, variance = parameters
    return F.batch_norm(x, scale, bias, mean, variance, node.number("epsilon", 1e-5))


def _normalize_batch(node: OnnxNode, x: Value, parameters: list[Value]) -> tuple[Value, ...]:
    """The result, the running statistics and those of the batch."""
    scale, bias, *running = parameters
    y, *batch = F.batch_norm_training(x, scale, bias, node.number("epsilon", 1e-5))
    momentum = node.number("momentum", 0.9)
    moved = [
        cast_to(
            F.add(F.multiply(cast_to(old, new.dtype), momentum), F.multiply(new, 1.0 - momentum)),
            old.dtype,
        )
        for old, new in zip(running, batch, strict=True)
    ]
    saved = [cast_to(new, old.dtype) for old, new in zip(running, batch, strict=True)]
    return y, *moved, *saved


# By statistics of each example.


@converter("InstanceNormalization")
def instance_normalization(node: OnnxNode) -> Value:
    """Each channel of each example by its own statistics."""
    x, scale, bias = (node.input(index) for index in range(3))
    return F.instance_norm(x, scale, bias, node.number("epsilon", 1e-5))


@converter("GroupNormalization")
def group_normalization(node: OnnxNode) -> Value:
    """Groups of channels by their own statistics; before opset 21 one scale serves a group."""
    x, scale, bias = (node.input(index) for index in range(3))
    groups, channels = node.integer("num_groups"), x.shape[1]
    if node.opset < 21:
        repeats = channels // groups
        scale, bias = (
            F.reshape(F.expand(F.unsqueeze(each, 1), (groups, repeats)), (groups * repeats,))
            for each in (scale, bias)
        )
    return F.group_norm(x, groups, scale, bias, node.number("epsilon", 1e-5))


@converter("LayerNormalization")
@converter("LayerNormalization", domain="com.microsoft")
def layer_normalization(node: OnnxNode) -> Value | tuple[Value | None, ...]:
    """The trailing axes by their own statistics, which are two more results."""
    x, scale, bias = node.input(0), node.input(1), node.optional(2)
    axis = normalize_axis("LayerNormalization", node.integer("axis", -1), x.rank)
    return layer_normalized(node, x, scale, bias, axis, node.number("epsilon", 1e-5))


def layer_normalized(
    node: OnnxNode,
    x: Value,
    scale: Value | None,
    bias: Value | None,
    axis: int,
    epsilon: float,
) -> tuple[Value | None, ...]:
    """The layer norm of ``x``; its mean and the inverse of its deviation where they are wanted."""
    given = [each for each in (scale, bias) if each is not None]
    inner = [fit_parameter(each, x.shape[axis:]) for each in given]
    if scale is not None and None not in inner:
        inner_bias = None if bias is None else inner[1]
        y = F.layer_norm(x, inner[0], inner_bias, axis, epsilon)
    else:
        y = F.layer_norm(x, axis=axis, epsilon=epsilon)
        y = y if scale is None else F.multiply(y, cast_to(scale, y.dtype))
        y = y if bias is None else F.add(y, cast_to(bias, y.dtype))
    if not node.wants(1) and not node.wants(2):
        return (y,)
    return y, *statistics(x, axis, epsilon, stash_dtype(node))


def fit_parameter(parameter: Value, shape: Shape) -> Value | None:
    """A parameter in exactly this shape; None if it does not merely broadcast to it."""
    if parameter.shape == shape:
        return parameter
    if parameter.rank > len(shape):
        return None
    stretched = broadcast_shapes("LayerNormalization", parameter.shape, shape)
    if not all(map(provably_equal, stretched, shape)):
        return None
    return F.expand(parameter, shape)


def statistics(x: Value, axis: int, epsilon: float, dtype: DType) -> tuple[Value, Value]:
    """The mean of the trailing axes, kept with size 1, and 1 / sqrt(variance + epsilon)."""
    axes = tuple(range(axis, x.rank))
    exact = cast_to(x, wide(x.dtype))
    mean = F.mean(exact, axes, keepdims=True)
    inverse = F.rsqrt(F.add(F.variance(exact, axes, keepdims=True), epsilon))
    return cast_to(mean, dtype), cast_to(inverse, dtype)


def stash_dtype(node: OnnxNode) -> DType:
    """The dtype in which statistics are kept."""
    return node.dtype("stash_type", f32)


@converter("RMSNormalization")
def rms_normalization(node: OnnxNode) -> Value:
    """The trailing axes over their root mean square, in the dtype of the scale."""
    x, scale = node.input(0), node.input(1)
    axis = normalize_axis("RMSNormalization", node.integer("axis", -1), x.rank)
    return cast_to(rms_normalized(x, scale, axis, node.number("epsilon", 1e-5)), scale.dtype)


def rms_normalized(x: Value, scale: Value, axis: int, epsilon: float) -> Value:
    """``x`` over its root mean square, times a scale that broadcasts to it."""
    inner = fit_parameter(scale, x.shape[axis:])
    y = F.rms_norm(x, inner, axis, epsilon)
    return y if inner is not None else F.multiply(y, cast_to(scale, y.dtype))


@converter("MeanVarianceNormalization")
def mean_variance_normalization(node: OnnxNode) -> Value:
    """(x - mean) / deviation over some axes."""
    x = node.input(0)
    axes = normalize_axes(node.op_type, node.ints("axes", (0, 2, 3)), x.rank)
    exact = cast_to(x, wide(x.dtype))
    centred = F.subtract(exact, F.mean(exact, axes, keepdims=True))
    deviation = F.sqrt(F.mean(F.square(centred), axes, keepdims=True))
    return cast_to(F.divide(centred, F.add(deviation, 1e-9)), x.dtype)


@converter("LpNormalization")
def lp_normalization(node: OnnxNode) -> Value:
    """Each row over its sum of magnitudes or its length; zeros stay zeros."""
    x, order = node.input(0), node.integer("p", 2)
    axis = normalize_axis(node.op_type, node.integer("axis", -1), x.rank)
    if order not in (1, 2):
        raise node.error("an unknown norm", expected="p = 1 or 2", found=f"p = {order}")
    exact = cast_to(x, wide(x.dtype))
    if order == 1:
        norm = F.sum(F.abs(exact), axis, keepdims=True)
    else:
        norm = F.sqrt(F.sum(F.square(exact), axis, keepdims=True))
    rows = F.divide(exact, F.where(F.equal(norm, 0.0), 1.0, norm))
    return cast_to(F.where(F.equal(norm, 0.0), 0.0, rows), x.dtype)


@converter("LRN")
def local_response_normalization(node: OnnxNode) -> Value:
    """Each element over a power of the mean square of the channels around it.

    That mean is a pool along the channels, which become the first of two spatial dimensions.
    """
    x, size = node.input(0), node.integer("size")
    before, after = floor((size - 1) / 2), ceil((size - 1) / 2)
    exact = cast_to(x, wide(x.dtype))
    squares = F.reshape(F.square(exact), (x.shape[0], 1, x.shape[1], shape_product(x.shape[2:])))
    mean = apply(pool.AvgPool((size, 1), (1, 1), ((before, after), (0, 0))), squares)
    scaled = F.multiply(F.reshape(mean, x.shape), node.number("alpha", 1e-4))
    divisor = F.power(F.add(scaled, node.number("bias", 1.0)), node.number("beta", 0.75))
    return cast_to(F.divide(exact, divisor), x.dtype)


# Along one axis.


@converter("Softmax")
@converter("LogSoftmax")
@converter("Hardmax")
def flattened_rows(node: OnnxNode) -> Value:
    """Before opset 13 a row is everything from ``axis`` on."""
    x = node.input(0)
    axis = node.integer("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise node.error("the axis is out of range", found=f"{axis} for {x.type}")
    start = axis + x.rank if axis < 0 else axis
    if start == x.rank - 1:
        return _along(node, x, start)
    matrix = (shape_product(x.shape[:start]), shape_product(x.shape[start:]))
    return F.reshape(_along(node, F.reshape(x, matrix), 1), x.shape)


@converter("Softmax", since=13)
@converter("LogSoftmax", since=13)
@converter("Hardmax", since=13)
def one_axis(node: OnnxNode) -> Value:
    """Since opset 13 a row is one axis."""
    x = node.input(0)
    return _along(node, x, normalize_axis(node.op_type, node.integer("axis", -1), x.rank))


def _along(node: OnnxNode, x: Value, axis: int) -> Value:
    if node.op_type == "Softmax":
        return F.softmax(x, axis)
    if node.op_type == "LogSoftmax":
        return F.log_softmax(x, axis)
    if 0 in x.shape:
        return x
    return F.one_hot(F.argmax(x, axis), x.shape[axis], axis, dtype=x.dtype)
