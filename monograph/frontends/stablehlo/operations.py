"""Elementwise operations, and data movement."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.complex_functions import COMPLEX
from monograph.frontends.stablehlo.attributes import constant_array
from monograph.frontends.stablehlo.operation import Operation, converter
from monograph.frontends.xla import arithmetic as xla
from monograph.frontends.xla import slicing, sorting
from monograph.ir.build import cast_to, constant
from monograph.ir.dims import Shape
from monograph.ir.graph import Value
from monograph.ir.types import bool_, f32, i32, i64

LARGEST_SPLAT = 4096
"""How many elements a constant of one number may have to be stored whole."""
UNARY: dict[str, Callable[[Value], Value]] = {
    "stablehlo.abs": xla.absolute,
    "stablehlo.cbrt": xla.cube_root,
    "stablehlo.ceil": F.ceil,
    "stablehlo.cosine": F.cos,
    "stablehlo.count_leading_zeros": xla.count_leading_zeros,
    "stablehlo.exponential": F.exp,
    "stablehlo.exponential_minus_one": F.expm1,
    "stablehlo.floor": F.floor,
    "stablehlo.imag": F.imag,
    "stablehlo.is_finite": F.is_finite,
    "stablehlo.log": F.log,
    "stablehlo.log_plus_one": F.log1p,
    "stablehlo.logistic": F.sigmoid,
    "stablehlo.negate": F.negate,
    "stablehlo.not": F.bitwise_not,
    "stablehlo.popcnt": xla.population_count,
    "stablehlo.real": F.real,
    "stablehlo.round_nearest_afz": xla.round_away,
    "stablehlo.round_nearest_even": F.round,
    "stablehlo.rsqrt": F.rsqrt,
    "stablehlo.sign": xla.sign,
    "stablehlo.sine": F.sin,
    "stablehlo.sqrt": F.sqrt,
    "stablehlo.tan": F.tan,
    "stablehlo.tanh": F.tanh,
    "chlo.acos": F.acos,
    "chlo.acosh": F.acosh,
    "chlo.asin": F.asin,
    "chlo.asinh": F.asinh,
    "chlo.atan": F.atan,
    "chlo.atanh": F.atanh,
    "chlo.bessel_i1e": F.bessel_i1e,
    "chlo.conj": F.conj,
    "chlo.cosh": F.cosh,
    "chlo.digamma": F.digamma,
    "chlo.erf": F.erf,
    "chlo.erf_inv": F.erf_inv,
    "chlo.erfc": F.erfc,
    "chlo.lgamma": F.lgamma,
    "chlo.sinh": F.sinh,
    "chlo.square": F.square,
    "chlo.tan": F.tan,
}
OF_COMPLEX = {
    "stablehlo.exponential_minus_one": "expm1",
    "stablehlo.log_plus_one": "log1p",
    **{f"stablehlo.{name}": name for name in ("logistic", "rsqrt", "tan")},
    **{
        f"chlo.{name}": name
        for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan")
    },
}
"""Functions that ours have for real numbers alone."""

BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "stablehlo.add": F.add,
    "stablehlo.and": F.bitwise_and,
    "stablehlo.atan2": F.atan2,
    "stablehlo.complex": F.complex,
    "stablehlo.divide": xla.divide,
    "stablehlo.maximum": xla.maximum,
    "stablehlo.minimum": xla.minimum,
    "stablehlo.multiply": F.multiply,
    "stablehlo.or": F.bitwise_or,
    "stablehlo.power": xla.power,
    "stablehlo.remainder": xla.remainder,
    "stablehlo.shift_left": F.shift_left,
    "stablehlo.shift_right_arithmetic": xla.shift_right_arithmetic,
    "stablehlo.shift_right_logical": xla.shift_right_logical,
    "stablehlo.subtract": F.subtract,
    "stablehlo.xor": F.bitwise_xor,
    "chlo.next_after": xla.next_after,
    "chlo.zeta": F.zeta,
}


@converter(*UNARY)
def convert_unary(operation: Operation) -> Value:
    """A function of one operand."""
    x = operation.operand
    if x.dtype.is_complex and operation.name in OF_COMPLEX:
        return COMPLEX[OF_COMPLEX[operation.name]](x)
    return UNARY[operation.name](x)


@converter(*BINARY)
def convert_binary(operation: Operation) -> Value:
    """A function of two operands."""
    a, b = operation.alike(0, 1)
    return BINARY[operation.name](a, b)


@converter("stablehlo.compare")
def convert_compare(operation: Operation) -> Value:
    """A comparison; of floats, perhaps in their total order."""
    a, b = operation.alike(0, 1)
    if operation.has("compare_type") and operation.word("compare_type") == "TOTALORDER":
        a, b = xla.total_order_key(a), xla.total_order_key(b)
    compare: dict[str, Callable[[], Value]] = {
        "EQ": lambda: F.equal(a, b),
        "NE": lambda: F.not_equal(a, b),
        "LT": lambda: xla.less(a, b),
        "LE": lambda: xla.less_equal(a, b),
        "GT": lambda: xla.less(b, a),
        "GE": lambda: xla.less_equal(b, a),
    }
    return compare[operation.word("comparison_direction")]()


@converter("stablehlo.select")
def convert_select(operation: Operation) -> Value:
    """One of two operands, element by element."""
    a, b = operation.alike(1, 2)
    return F.where(operation.operand, a, b)


@converter("stablehlo.clamp")
def convert_clamp(operation: Operation) -> Value:
    """Held between two bounds."""
    low, x, high = operation.operands
    return xla.clamp(low, x, high)


@converter("stablehlo.convert")
def convert_dtype(operation: Operation) -> Value:
    """The same number in another dtype."""
    return xla.convert(operation.operand, operation.dtype)


@converter("stablehlo.bitcast_convert")
def convert_bitcast(operation: Operation) -> Value:
    """The same bits as another dtype."""
    return xla.bitcast(operation.operand, operation.dtype)


@converter("stablehlo.reduce_precision")
def convert_precision(operation: Operation) -> Value:
    """Rounded to fewer bits."""
    bits = operation.integer("exponent_bits"), operation.integer("mantissa_bits")
    return xla.reduce_precision(operation.operand, *bits)


@converter("stablehlo.constant")
def convert_constant(operation: Operation) -> Value:
    """A tensor that the module holds."""
    array = constant_array(operation.source)
    shape = operation.type.static_shape()
    if math.prod(shape) <= LARGEST_SPLAT:
        return constant(np.broadcast_to(array, shape))
    return constant(array) if array.shape == shape else F.expand(constant(array), shape)


@converter("stablehlo.iota")
def convert_iota(operation: Operation) -> Value:
    """Counts along an axis."""
    return _iota(operation, operation.type.shape)


@converter("stablehlo.dynamic_iota")
def convert_dynamic_iota(operation: Operation) -> Value:
    """The same in a shape that is an operand."""
    return _iota(operation, operation.dims(0))


def _iota(operation: Operation, shape: Shape) -> Value:
    dtype, axis = operation.dtype, operation.integer("iota_dimension")
    if dtype.is_complex or dtype is bool_:
        return xla.convert(F.iota(shape, axis, i64), dtype)
    if dtype.is_float and dtype.bits < f32.bits:
        return cast_to(F.iota(shape, axis, f32), dtype)
    return F.iota(shape, axis, dtype)


@converter("stablehlo.broadcast_in_dim")
def convert_broadcast(operation: Operation) -> Value:
    """Operand axes stand at given places of the result; the others are new."""
    return _broadcast(operation, operation.type.shape)


@converter("stablehlo.dynamic_broadcast_in_dim")
def convert_dynamic_broadcast(operation: Operation) -> Value:
    """The same to a shape that is an operand."""
    return _broadcast(operation, operation.dims(1))


def _broadcast(operation: Operation, target: Shape) -> Value:
    x = operation.operand
    shape: list[Any] = [1] * len(target)
    for axis, place in enumerate(operation.integers("broadcast_dimensions")):
        shape[place] = x.shape[axis]
    return F.expand(F.reshape(x, shape), target)


@converter("stablehlo.reshape")
def convert_reshape(operation: Operation) -> Value:
    """The same elements in another shape."""
    return F.reshape(operation.operand, operation.type.shape)


@converter("stablehlo.dynamic_reshape")
def convert_dynamic_reshape(operation: Operation) -> Value:
    """The same in a shape that is an operand."""
    return F.reshape(operation.operand, operation.dims(1))


@converter("stablehlo.transpose")
def convert_transpose(operation: Operation) -> Value:
    """Axes in another order."""
    return F.transpose(operation.operand, operation.integers("permutation"))


@converter("stablehlo.reverse")
def convert_reverse(operation: Operation) -> Value:
    """Elements in reverse order along some axes."""
    axes = operation.integers("dimensions")
    return F.flip(operation.operand, axes) if axes else operation.operand


@converter("stablehlo.concatenate")
def convert_concatenate(operation: Operation) -> Value:
    """Operands one after the other."""
    if len(operation.operands) == 1:
        return operation.operand
    return F.concat(operation.operands, operation.integer("dimension"))


@converter("stablehlo.slice")
def convert_slice(operation: Operation) -> Value:
    """A part with known bounds."""
    names = ("start_indices", "limit_indices", "strides")
    return F.slice(operation.operand, *(operation.integers(name) for name in names))


@converter("stablehlo.pad")
def convert_pad(operation: Operation) -> Value:
    """A value before, after and between elements."""
    x, value = operation.operands
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return slicing.pad(x, value, *(operation.integers(name) for name in names))


@converter("stablehlo.dynamic_pad")
def convert_dynamic_pad(operation: Operation) -> Value:
    """The same, of amounts that are operands."""
    x, value = operation.operands[:2]
    low, high = operation.dims(2), operation.dims(3)
    return slicing.pad(x, value, low, high, operation.numbers(4))


@converter("stablehlo.real_dynamic_slice")
def convert_real_dynamic_slice(operation: Operation) -> Value:
    """A part whose bounds are operands; where they are data, so long as its sizes are not."""
    x, starts = operation.operands[:2]
    source, steps = operation.source, operation.numbers(3)
    known = operation.reader.sizes.dims(source.operands[1])
    if known is not None:
        return F.slice(x, known, operation.dims(2), steps)
    end = source.operands[2].owner
    sizes = None
    if isinstance(end, ir.OpView | ir.Operation) and end.name == "stablehlo.add":
        first, second = end.operands
        sizes = operation.reader.sizes.dims(second) if first == source.operands[1] else None
    if sizes is None or any(step != 1 for step in steps):
        raise UnsupportedError(
            "a slice whose sizes are data has no meaning here",
            hint="its limits must be its starts plus sizes that are known",
        )
    each = [F.squeeze(F.slice(starts, (k,), (k + 1,)), 0) for k in range(x.rank)]
    return slicing.dynamic_slice(x, each, sizes)


@converter("stablehlo.get_dimension_size")
def convert_dimension_size(operation: Operation) -> Value:
    """A size as a number."""
    size = operation.operand.shape[operation.integer("dimension")]
    return constant(np.int32(size)) if isinstance(size, int) else cast_to(F.dim(size), i32)


@converter("stablehlo.dynamic_slice")
def convert_dynamic_slice(operation: Operation) -> Value:
    """A part whose start is data."""
    x, *starts = operation.operands
    return slicing.dynamic_slice(x, starts, operation.integers("slice_sizes"))


@converter("stablehlo.dynamic_update_slice")
def convert_dynamic_update_slice(operation: Operation) -> Value:
    """A part whose start is data, replaced."""
    x, update, *starts = operation.operands
    return slicing.dynamic_update_slice(x, update, starts)


@converter("stablehlo.optimization_barrier")
def convert_barrier(operation: Operation) -> list[Value]:
    """An order for the compiler, which changes no number."""
    return operation.operands


@converter("chlo.top_k")
def convert_top_k(operation: Operation) -> Any:
    """The largest elements of the last axis, and their places."""
    x = operation.operand
    return sorting.top_k(x, operation.integer("k"), x.rank - 1, i32)
