"""Operations that work element by element, and those that move elements about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.stablehlo.operation import Operation, complex_array, converter, dense_array
from monograph.frontends.xla import arithmetic as xla
from monograph.frontends.xla import slicing, sorting
from monograph.frontends.xla.complex_functions import COMPLEX
from monograph.ir.build import cast_to, constant
from monograph.ir.graph import Value
from monograph.ir.types import bool_, f32, i32, i64
from monograph.ops.data import Constant

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
    a, b = operation.operands
    return BINARY[operation.name](a, b)


@converter("stablehlo.compare")
def convert_compare(operation: Operation) -> Value:
    """A comparison; of floats, perhaps in their total order."""
    a, b = operation.operands
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
    condition, a, b = operation.operands
    return F.where(condition, a, b)


@converter("stablehlo.clamp")
def convert_clamp(operation: Operation) -> Value:
    """Held between two bounds."""
    low, x, high = operation.operands
    return xla.clamp(low, x, high)


@converter("stablehlo.convert")
def convert_dtype(operation: Operation) -> Value:
    """The same number in another dtype."""
    return xla.convert(operation.operand, operation.type.dtype)


@converter("stablehlo.bitcast_convert")
def convert_bitcast(operation: Operation) -> Value:
    """The same bits as another dtype."""
    return xla.bitcast(operation.operand, operation.type)


@converter("stablehlo.reduce_precision")
def convert_precision(operation: Operation) -> Value:
    """Rounded to fewer bits."""
    bits = operation.integer("exponent_bits"), operation.integer("mantissa_bits")
    return xla.reduce_precision(operation.operand, *bits)


@converter("stablehlo.constant")
def convert_constant(operation: Operation) -> Value:
    """A tensor that the module holds."""
    if operation.type.dtype.is_complex:
        return constant(complex_array(str(operation.source), operation.type))
    return constant(dense_array(operation.attribute("value")))


@converter("stablehlo.iota", "stablehlo.dynamic_iota")
def convert_iota(operation: Operation) -> Value:
    """Counts along an axis."""
    type_, axis = operation.type, operation.integer("iota_dimension")
    if type_.dtype.is_complex or type_.dtype is bool_:
        return xla.convert(F.iota(type_.shape, axis, i64), type_.dtype)
    if type_.dtype.is_float and type_.dtype.bits < f32.bits:
        return cast_to(F.iota(type_.shape, axis, f32), type_.dtype)
    return F.iota(type_.shape, axis, type_.dtype)


@converter("stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim")
def convert_broadcast(operation: Operation) -> Value:
    """Operand axes stand at given places of the result; the others are new."""
    x, target = operation.operand, operation.type.shape
    shape: list[Any] = [1] * len(target)
    for axis, place in enumerate(operation.integers("broadcast_dimensions")):
        shape[place] = x.shape[axis]
    return F.expand(F.reshape(x, shape), target)


@converter("stablehlo.reshape", "stablehlo.dynamic_reshape")
def convert_reshape(operation: Operation) -> Value:
    """The same elements in another shape."""
    return F.reshape(operation.operand, operation.type.shape)


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
    """The same, of amounts that are operands, and must be constants."""
    x, value, *amounts = operation.operands
    return slicing.pad(x, value, *map(_known, amounts))


def _known(value: Value) -> tuple[int, ...]:
    op = value.op
    if not isinstance(op, Constant):
        raise UnsupportedError(
            "sizes that are data have no meaning here", hint="export the program for known sizes"
        )
    return tuple(int(each) for each in op.data.array())


@converter("stablehlo.get_dimension_size")
def convert_dimension_size(operation: Operation) -> Value:
    """A size, which is known."""
    sizes = operation.operand.tensor.static_shape()
    return constant(np.int32(sizes[operation.integer("dimension")]))


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


@converter("stablehlo.custom_call")
def convert_custom_call(operation: Operation) -> list[Value]:
    """A call of the runtime's: only those that place their operands mean something here."""
    target = str(operation.attribute("call_target_name")).strip('"')
    if target in ("Sharding", "annotate_device_placement", "SPMDFullToShardShape"):
        return operation.operands
    raise UnsupportedError(
        f"a custom call of {target} has no meaning here",
        hint="compile the JAX function itself, whose primitives are known",
    )
