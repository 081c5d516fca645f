"""Quantized ops of ``com.microsoft``.

The QLinear ops are what their names say, between dequantize and quantize. Weights of a few bits are
unpacked as graph, so that a constant folds once and a backend may recognise the pattern.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.converters.conv import convolve_quantized
from monograph.frontends.onnx.converters.matmul import (
    columns,
    multiply_quantized,
    rows,
    subtract_zero_point,
)
from monograph.frontends.onnx.converters.pool import average_pooled
from monograph.frontends.onnx.converters.quantize import dynamic_quantize
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import Array, Kind, dtype_of, f32, i32, i64, u8, u32
from monograph.ops.blocked_linear import BLOCK_MULTIPLE
from monograph.ops.rules import normalize_axis

DOMAIN = "com.microsoft"
INT8_ACCURACY_LEVEL = 4
"""The accuracy level at which activations are rounded to eight bits."""

# Between dequantize and quantize.


def real(node: OnnxNode, index: int) -> Value:
    """The numbers that operands ``index`` (stored), ``+ 1`` (scale) and ``+ 2`` (zero) mean."""
    stored, scale, zero = node.input(index), node.input(index + 1), node.optional(index + 2)
    return F.dequantize(stored, _one(scale), None if zero is None else _one(zero))


def quantize_operand(node: OnnxNode, x: Value, index: int, like: Value) -> Value:
    """``x`` by the scale that is operand ``index`` and the zero point after it."""
    zero = node.optional(index + 1)
    dtype = like.dtype if zero is None else zero.dtype
    return F.quantize(x, _one(node.input(index)), None if zero is None else _one(zero), dtype)


def _one(parameter: Value) -> Value:
    return parameter if parameter.rank == 0 else F.reshape(parameter, ())


_BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "QLinearAdd": F.add,
    "QLinearMul": F.multiply,
}


@converter(*_BINARY, domain=DOMAIN)
def qlinear_binary(node: OnnxNode) -> Value:
    """Arithmetic on two quantized tensors."""
    made = _BINARY[node.op_type](real(node, 0), real(node, 3))
    return quantize_operand(node, made, 6, node.input(0))


@converter("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", domain=DOMAIN)
def qlinear_unary(node: OnnxNode) -> Value:
    """A function of a quantized tensor."""
    x = real(node, 0)
    if node.op_type == "QLinearSigmoid":
        y = F.sigmoid(x)
    elif node.op_type == "QLinearLeakyRelu":
        y = F.leaky_relu(x, node.number("alpha", 0.01))
    else:
        y = _softmax(node, x)
    return quantize_operand(node, y, 3, node.input(0))


def _softmax(node: OnnxNode, x: Value) -> Value:
    axis = normalize_axis(node.op_type, node.integer("axis", -1), x.rank)
    if node.integer("opset") >= 13 or axis == x.rank - 1:
        return F.softmax(x, axis)
    return F.reshape(F.softmax(F.flatten(x, axis, x.rank - 1), axis), x.shape)


@converter("QLinearAveragePool", "QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_average_pool(node: OnnxNode) -> Value:
    """Means of windows of a quantized tensor, or of each channel."""
    x = real(node, 0)
    last = bool(node.integer("channels_last", 0))
    x = F.moveaxis(x, x.rank - 1, 1) if last else x
    whole = node.op_type == "QLinearGlobalAveragePool"
    y = F.global_avg_pool(x) if whole else average_pooled(node, x)
    return quantize_operand(node, F.moveaxis(y, 1, y.rank - 1) if last else y, 3, node.input(0))


@converter("QLinearReduceMean", domain=DOMAIN)
def qlinear_reduce_mean(node: OnnxNode) -> Value:
    """The mean of a quantized tensor along axes."""
    keepdims = bool(node.integer("keepdims", 1))
    mean = F.mean(real(node, 0), node.ints("axes", ()) or None, keepdims)
    return quantize_operand(node, mean, 3, node.input(0))


@converter("QLinearConcat", domain=DOMAIN)
def qlinear_concat(node: OnnxNode) -> Value:
    """Quantized tensors, each with a scale and a zero point, one after the other."""
    parts = [real(node, index) for index in range(2, len(node.inputs), 3)]
    return quantize_operand(node, F.concat(parts, node.integer("axis")), 0, node.input(2))


@converter("QLinearWhere", domain=DOMAIN)
def qlinear_where(node: OnnxNode) -> Value:
    """Elements of one quantized tensor or the other."""
    chosen = F.where(node.input(0), real(node, 1), real(node, 4))
    return quantize_operand(node, chosen, 7, node.input(1))


@converter("QLinearConv", domain=DOMAIN)
def qlinear_conv(node: OnnxNode) -> Value:
    """ONNX's own op, which here may have the channels last."""
    x = node.input(0)
    if not node.integer("channels_last", 0):
        return convolve_quantized(node, x)
    y = convolve_quantized(node, F.moveaxis(x, x.rank - 1, 1))
    return F.moveaxis(y, 1, y.rank - 1)


# Products.


@converter("QGemm", domain=DOMAIN)
def qgemm(node: OnnxNode) -> Value:
    """alpha * A @ B + C of quantized matrices: real, or quantized again if there is a scale."""
    a, b = node.input(0), node.input(3)
    a = F.transpose(a) if node.integer("transA", 0) else a
    b = F.transpose(b) if node.integer("transB", 0) else b
    product = F.matmul(
        subtract_zero_point(a, _one(node.input(2)), i32),
        subtract_zero_point(b, columns(node.input(5)), i32),
    )
    added = node.optional(6)
    if added is not None:
        product = F.add(product, added)
    scale = F.multiply(_one(node.input(1)), node.number("alpha", 1.0))
    by_column = columns(node.input(4))
    assert by_column is not None
    total = F.multiply(cast_to(product, scale.dtype), F.multiply(scale, by_column))
    return total if node.optional(7) is None else quantize_operand(node, total, 7, a)


@converter("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(node: OnnxNode) -> Value:
    """A product with quantized weights, for which the other operand is quantized as it comes."""
    a, scale, zero = dynamic_quantize(node.input(0))
    weights = (columns(node.input(2)), columns(node.optional(3)))
    product = multiply_quantized(a, (scale, zero), node.input(1), weights)
    return _with_bias(product, node.optional(4))


@converter("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(node: OnnxNode) -> Value:
    """The real product of quantized matrices."""
    a, b = node.input(0), node.input(1)
    left = (rows(node.input(2), a), rows(node.optional(4), a))
    right = (columns(node.input(3)), columns(node.optional(5)))
    product = cast_to(multiply_quantized(a, left, b, right), node.input(2).dtype)
    return _with_bias(product, node.optional(6))


@converter("MatMulInteger16", domain=DOMAIN)
def matmul_integer_16(node: OnnxNode) -> Value:
    """The product of integers of 16 bits, in 32."""
    a, b = node.input(0), node.input(1)
    dtype = u32 if a.dtype.kind is b.dtype.kind is Kind.UNSIGNED else i32
    return F.matmul(cast_to(a, dtype), cast_to(b, dtype))


def _with_bias(x: Value, bias: Value | None) -> Value:
    return x if bias is None else F.add(x, bias)


# Weights of a few bits.


@converter("MatMulNBits", domain=DOMAIN)
def matmul_n_bits(node: OnnxNode) -> Value:
    """A product with weights of a few bits, a block of which shares a scale and a zero point."""
    a, bias = node.input(0), node.optional(5)
    inputs, outputs = node.integer("K"), node.integer("N")
    block, bits = node.integer("block_size"), node.integer("bits", 4)
    if node.integer("weight_prepacked", 0):
        raise node.error("prepacked weights are not supported")
    blocks = -(-inputs // block)
    if node.integer("accuracy_level", 0) == INT8_ACCURACY_LEVEL and _has_whole_blocks(
        node, inputs, block, bits
    ):
        return _multiply_blocks(node, inputs, outputs, block, bits)
    packed = F.reshape(node.input(1), (outputs, -1))
    numbers = F.reshape(unpack_bits(node, packed, bits), (outputs, blocks, block))
    zero = _zero_points(node, bits, (outputs, blocks))
    scales = F.reshape(cast_to(node.input(2), f32), (outputs, blocks, 1))
    groups = node.optional(4)
    if groups is not None:  # which block's parameters each row has, padded to whole blocks
        numbers = F.reshape(numbers, (outputs, blocks * block, 1))
        padded = F.pad(groups, (0,), (blocks * block - groups.shape[0],))
        scales = F.take(scales, padded, 1)
        zero = zero if isinstance(zero, float) else F.take(zero, padded, 1)
    centred_ = F.subtract(cast_to(numbers, f32), zero)
    whole = F.reshape(F.multiply(centred_, scales), (outputs, blocks * block))
    weight = F.slice(whole, (0,), (inputs,), axes=(1,))
    return F.linear(a, cast_to(weight, a.dtype), bias)


def _has_whole_blocks(node: OnnxNode, inputs: int, block: int, bits: int) -> bool:
    """Whether it is a product of blocks of bytes, of weights that are known."""
    given = all(node.constant(k) is not None for k in (1, 2) if node.optional(k) is not None)
    points = node.optional(3)
    known = points is None or (points.dtype is u8 and node.constant(3) is not None)
    is_whole = inputs % block == 0 and block % BLOCK_MULTIPLE == 0 and bits in (4, 8)
    return is_whole and given and known and node.optional(4) is None


def _multiply_blocks(node: OnnxNode, inputs: int, outputs: int, block: int, bits: int) -> Value:
    """The product with activations rounded to eight bits, as its accuracy level allows."""
    a, bias, dtype = node.input(0), node.optional(5), dtype_of("u4" if bits == 4 else "u8")
    blocks = inputs // block

    def unpack(packed: Array, count: int) -> Array:
        table = packed.reshape(outputs, -1).view(np.uint8)
        if bits == 4:
            table = np.stack([table & 15, table >> 4], 2).reshape(outputs, -1)
        return table[:, :count].astype(dtype.numpy)

    name = node.input(1).name
    numbers = a.graph.add_weight(f"{name}_numbers", unpack(node.need_constant(1), inputs))
    scales = F.reshape(cast_to(node.input(2), f32), (outputs, blocks))
    packed = node.constant(3)
    middle = np.full((outputs, blocks), 2 ** (bits - 1)).astype(dtype.numpy)
    points = a.graph.add_weight(
        f"{name}_points", middle if packed is None else unpack(packed, blocks)
    )
    y = F.blocked_linear(cast_to(a, f32), numbers, scales, points, block=block)
    return cast_to(y if bias is None else F.add(y, cast_to(bias, f32)), a.dtype)


def _zero_points(node: OnnxNode, bits: int, shape: tuple[int, int]) -> float | Value:
    """The zero point of each block [outputs, blocks, 1]; by default the middle of the range."""
    given = node.optional(3)
    if given is None:
        return float(2 ** (bits - 1))
    if given.dtype is u8:
        every = unpack_bits(node, F.reshape(given, (shape[0], -1)), bits)
        given = F.slice(every, (0,), (shape[1],), axes=(1,))
    return F.reshape(cast_to(given, f32), (*shape, 1))


def unpack_bits(node: OnnxNode, packed: Value, bits: int) -> Value:
    """The numbers of ``bits`` bits in each row of bytes, low bits first."""
    if bits == 8:
        return packed
    if bits not in (1, 2, 4):
        raise node.error("this width is not supported", expected="2, 4 or 8 bits", found=str(bits))
    count = 8 // bits
    shifts = [F.shift_right(packed, F.full_like(packed, bits * place)) for place in range(count)]
    parts = F.stack([F.bitwise_and(each, F.full_like(each, 2**bits - 1)) for each in shifts], 2)
    return F.reshape(parts, (packed.shape[0], packed.shape[1] * count))


@converter("GatherBlockQuantized", domain=DOMAIN)
def gather_block_quantized(node: OnnxNode) -> Value:
    """Rows of a quantized table, dequantized."""
    data, indices, scales, zero = node.input(0), node.input(1), node.input(2), node.optional(3)
    axis = normalize_axis(node.op_type, node.integer("gather_axis", 0), data.rank)
    along = normalize_axis(node.op_type, node.integer("quantize_axis", 1), data.rank)
    block = node.integer("block_size", 128)
    table, points = cast_to(data, f32), None if zero is None else cast_to(zero, f32)
    if data.dtype is u8:
        bits = node.integer("bits", 4)
        table = cast_to(_unpack_table(node, data, bits), f32)
        points = (
            F.full_like(cast_to(scales, f32), float(2 ** (bits - 1)))
            if zero is None
            else _unpack_zero_points(node, zero, bits, scales)
        )
    size = table.shape[along]
    spread = [
        None if each is None else _spread(cast_to(each, f32), along, block, size)
        for each in (scales, points)
    ]
    assert spread[0] is not None
    moved = table if spread[1] is None else F.subtract(table, spread[1])
    whole = cast_to(F.multiply(moved, spread[0]), scales.dtype)
    return F.take(whole, cast_to(indices, i64), axis)


def _unpack_table(node: OnnxNode, data: Value, bits: int) -> Value:
    leading = data.shape[:-1]
    flat = F.reshape(data, (-1, data.shape[-1]))
    return F.reshape(unpack_bits(node, flat, bits), (*leading, data.shape[-1] * (8 // bits)))


def _unpack_zero_points(node: OnnxNode, zero: Value, bits: int, scales: Value) -> Value:
    whole = _unpack_table(node, zero, bits)
    last = whole.rank - 1
    return cast_to(F.slice(whole, (0,), (scales.shape[last],), axes=(last,)), f32)


def _spread(parameter: Value, axis: int, block: int, size: Dim) -> Value:
    """A parameter of each block as one of each element."""
    if not isinstance(size, int):
        raise NotStatic("the size of a quantized table is not known before it runs")
    places = F.floor_divide(F.iota((size,), 0, i64), block)
    return F.take(parameter, places, axis)
