"""Quantization: QuantizeLinear and DequantizeLinear of every opset, and the dynamic kind.

The shape of the scale says what shares one: a scalar the whole tensor, a vector each index of
``axis``, anything else each block of ``block_size`` indices. Zero points have the scale's shape.
"""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import DType, f32, f64, u8, wide
from monograph.ops.rules import normalize_axis


@converter("QuantizeLinear")
@converter("QuantizeLinear", domain="com.microsoft")
def quantize_linear(node: OnnxNode) -> Value:
    """Real numbers divided by a scale, rounded and held within the range of a small dtype."""
    x, scale, zero_point = node.input(0), node.input(1), node.optional(2)
    dtype = _storage_dtype(node, zero_point)
    if not x.dtype.is_float:
        x = cast_to(x, f64)
    if not scale.dtype.is_float:
        scale = cast_to(scale, f64)
    axis, block = granularity(node, x, scale)
    scale = _fit_parameter(scale, axis)
    zero_point = None if zero_point is None else _fit_parameter(zero_point, axis)
    saturates = node.integer("saturate", 1) or dtype.is_integer or dtype.name == "f4e2m1fn"
    if node.integer("precision", 0):
        precision = node.dtype("precision")
        x, scale = cast_to(x, precision), cast_to(scale, precision)
        x = F.divide(x, _spread(x, scale, axis, block))
        scale = F.ones(scale.shape, precision)
    if saturates:
        return F.quantize(x, scale, zero_point, dtype, axis, block)
    quotient = F.divide(cast_to(x, f32), cast_to(_spread(x, scale, axis, block), f32))
    return cast_to(quotient, dtype)


@converter("DequantizeLinear")
@converter("DequantizeLinear", domain="com.microsoft")
def dequantize_linear(node: OnnxNode) -> Value:
    """The real numbers that small ones stand for, in the dtype of the scale unless one is named."""
    x, scale, zero_point = node.input(0), node.input(1), node.optional(2)
    if zero_point is not None and zero_point.dtype is not x.dtype:
        raise node.error("the zero point has another dtype", found=f"{x.type}, {zero_point.type}")
    dtype = node.dtype("output_dtype") if node.integer("output_dtype", 0) else scale.dtype
    axis, block = granularity(node, x, scale)
    scale = _fit_parameter(scale, axis)
    zero_point = None if zero_point is None else _fit_parameter(zero_point, axis)
    return F.dequantize(x, scale, zero_point, dtype, axis, block)


@converter("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: OnnxNode) -> tuple[Value, Value, Value]:
    """Numbers quantized to u8 by a scale that makes room for all of them, and for 0."""
    return dynamic_quantize(node.input(0))


def dynamic_quantize(x: Value) -> tuple[Value, Value, Value]:
    """``x`` as u8, its scale and its zero point."""
    low, high = F.minimum(F.min(x), 0.0), F.maximum(F.max(x), 0.0)
    scale = F.divide(F.subtract(high, low), 255.0)
    # Zeros alone have no range: their scale is 0, and any other would do as well.
    divisor = F.where(F.equal(scale, 0.0), 1.0, scale)
    point = F.clip(F.round(F.divide(F.negate(low), divisor)), 0.0, 255.0)
    zero_point = cast_to(point, u8)
    return F.quantize(x, divisor, zero_point, u8), scale, zero_point


def granularity(node: OnnxNode, x: Value, scale: Value) -> tuple[int | None, int | None]:
    """The axis along which scales differ and the size of a block; None where there is none."""
    block = node.integer("block_size", 0)
    one = all(dim == 1 for dim in scale.shape) and not block
    if scale.rank == 0 or (one and scale.rank <= 1):
        return None, None
    axis = normalize_axis(node.op_type, node.integer("axis", 1), max(x.rank, 1))
    if block == 0 and scale.rank == 1:
        return axis, None
    if block == 0:
        size, count = x.shape[axis], scale.shape[axis]
        if not isinstance(size, int) or not isinstance(count, int) or count == 0:
            raise NotStatic(f"{node.name}: the size of a block is not known")
        block = -(-size // count)
    return axis, block


def _storage_dtype(node: OnnxNode, zero_point: Value | None) -> DType:
    named = node.dtype("output_dtype") if node.integer("output_dtype", 0) else None
    if zero_point is None:
        return named or u8
    if named is not None and named is not zero_point.dtype:
        raise node.error(
            "the zero point has another dtype", expected=str(named), found=str(zero_point.type)
        )
    return zero_point.dtype


def _fit_parameter(parameter: Value, axis: int | None) -> Value:
    """A scale or zero point that serves the whole tensor, as the scalar that it is."""
    if axis is not None or parameter.rank == 0:
        return parameter
    return F.reshape(parameter, ())


def _spread(x: Value, scale: Value, axis: int | None, block: int | None) -> Value:
    """One scale for every element of ``x``."""
    ones = F.ones(x.shape, "i8")
    return F.dequantize(ones, scale, None, wide(scale.dtype), axis, block)
