"""Primitives that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import lax

from monograph import functional as F
from monograph.frontends.complex_functions import COMPLEX
from monograph.frontends.jax.equation import Equation
from monograph.frontends.jax.registry import converter
from monograph.frontends.xla import arithmetic as xla
from monograph.ir.build import cast_to, constant
from monograph.ir.graph import Value
from monograph.ir.types import bool_, f32, i64

UNARY: dict[str, Callable[[Value], Value]] = {
    "abs": xla.absolute,
    "acos": F.acos,
    "acosh": F.acosh,
    "asin": F.asin,
    "asinh": F.asinh,
    "atan": F.atan,
    "atanh": F.atanh,
    "bessel_i0e": F.bessel_i0e,
    "bessel_i1e": F.bessel_i1e,
    "cbrt": xla.cube_root,
    "ceil": F.ceil,
    "clz": xla.count_leading_zeros,
    "cos": F.cos,
    "cosh": F.cosh,
    "digamma": F.digamma,
    "erf": F.erf,
    "erf_inv": F.erf_inv,
    "erfc": F.erfc,
    "exp": F.exp,
    "exp2": F.exp2,
    "expm1": F.expm1,
    "floor": F.floor,
    "imag": F.imag,
    "is_finite": xla.is_finite,
    "lgamma": F.lgamma,
    "log": F.log,
    "log1p": F.log1p,
    "log2": F.log2,
    "logistic": F.sigmoid,
    "neg": F.negate,
    "not": F.bitwise_not,
    "one_minus_square": lambda x: F.subtract(xla.like(1.0, x), F.square(x)),
    "population_count": xla.population_count,
    "real": F.real,
    "rsqrt": F.rsqrt,
    "sign": xla.sign,
    "sin": F.sin,
    "sinh": F.sinh,
    "sqrt": F.sqrt,
    "square": F.square,
    "tan": F.tan,
    "tanh": F.tanh,
}

BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "add": F.add,
    "add_any": F.add,
    "and": F.bitwise_and,
    "atan2": F.atan2,
    "complex": F.complex,
    "div": xla.divide,
    "eq": F.equal,
    "ge": lambda a, b: xla.less_equal(b, a),
    "gt": lambda a, b: xla.less(b, a),
    "igamma": F.igamma,
    "igammac": F.igammac,
    "le": xla.less_equal,
    "lt": xla.less,
    "max": xla.maximum,
    "min": xla.minimum,
    "mul": F.multiply,
    "ne": F.not_equal,
    "nextafter": xla.next_after,
    "or": F.bitwise_or,
    "pow": xla.power,
    "rem": xla.remainder,
    "shift_left": F.shift_left,
    "shift_right_arithmetic": xla.shift_right_arithmetic,
    "shift_right_logical": xla.shift_right_logical,
    "sub": F.subtract,
    "xor": F.bitwise_xor,
    "zeta": F.zeta,
}


@converter(*UNARY)
def convert_unary(equation: Equation) -> Value:
    """A function of one operand; ``accuracy`` asks for no more than ours have."""
    name, x = equation.name, equation.operand
    return COMPLEX[name](x) if x.dtype.is_complex and name in COMPLEX else UNARY[name](x)


@converter(*BINARY)
def convert_binary(equation: Equation) -> Value:
    """A function of two operands, which broadcast where a size is 1."""
    a, b = equation.operands
    return BINARY[equation.name](a, b)


@converter("conj")
def convert_conjugate(equation: Equation) -> Value:
    """The complex conjugate; a real number becomes complex."""
    return F.conj(xla.convert(equation.operand, equation.type.dtype))


TOTAL_ORDER = {"eq_to": F.equal, "le_to": F.less_equal, "lt_to": F.less}


@converter(*TOTAL_ORDER)
def convert_total_order(equation: Equation) -> Value:
    """Comparisons in IEEE 754's total order."""
    a, b = map(xla.total_order_key, equation.operands)
    return TOTAL_ORDER[equation.name](a, b)


@converter("integer_pow")
def convert_integer_power(equation: Equation) -> Value:
    """x ** y for a y that is known."""
    return xla.integer_power(equation.operand, int(equation["y"]))


@converter("round")
def convert_round(equation: Equation) -> Value:
    """Halves go away from zero, or to the even number."""
    if equation["rounding_method"] == lax.RoundingMethod.AWAY_FROM_ZERO:
        return xla.round_away(equation.operand)
    return F.round(equation.operand)


@converter("convert_element_type")
def convert_dtype(equation: Equation) -> Value:
    """The same number in another dtype."""
    return xla.convert(equation.operand, equation.type.dtype)


@converter("bitcast_convert_type")
def convert_bitcast(equation: Equation) -> Value:
    """The same bits as another dtype."""
    return xla.bitcast(equation.operand, equation.type.dtype)


@converter("reduce_precision")
def convert_reduce_precision(equation: Equation) -> Value:
    """Rounded to fewer bits."""
    return xla.reduce_precision(
        equation.operand, int(equation["exponent_bits"]), int(equation["mantissa_bits"])
    )


@converter("clamp")
def convert_clamp(equation: Equation) -> Value:
    """Held between two bounds."""
    low, x, high = equation.operands
    return xla.clamp(low, x, high)


@converter("select_n")
def convert_select(equation: Equation) -> Value:
    """The case that ``which`` numbers, element by element."""
    which, *cases = equation.operands
    chosen = cases[-1]
    if which.dtype is bool_:
        return F.where(which, cases[1], cases[0]) if len(cases) > 1 else cases[0]
    for number in reversed(range(len(cases) - 1)):
        chosen = F.where(F.less_equal(which, number), cases[number], chosen)
    return chosen


@converter(
    "copy", "copy_p", "device_put", "optimization_barrier", "sharding_constraint", "pvary",
    "stop_gradient", "mesh_cast", "layout_constraint", "reshard",
)  # fmt: skip
def convert_identity(equation: Equation) -> list[Value]:
    """What asks for a place, a layout or an order, none of which changes a number."""
    return equation.operands


@converter("iota")
def convert_iota(equation: Equation) -> Value:
    """Counts along an axis."""
    shape, axis = equation.type.shape, int(equation["dimension"])
    dtype = equation.type.dtype
    if dtype.is_complex or dtype is bool_:
        return xla.convert(F.iota(shape, axis, i64), dtype)
    if dtype.is_float and dtype.bits < 32:
        return cast_to(F.iota(shape, axis, f32), dtype)
    return F.iota(shape, axis, dtype)


@converter("dim_as_value")
def convert_dim(equation: Equation) -> Value:
    """A symbolic size as a number."""
    return cast_to(F.dim(equation.importer.symbols.dim(equation["dim"])), equation.type.dtype)


@converter("empty", "empty2")
def convert_empty(equation: Equation) -> Value:
    """Memory whose contents do not matter."""
    return fill_result(equation, 0)


def fill_result(equation: Equation, number: Any) -> Value:
    """The result's type filled with a number."""
    return F.expand(constant(number, equation.type.dtype), equation.type.shape)


@converter("create_token", "after_all")
def convert_token(equation: Equation) -> list[Value]:
    """A token orders effects; it carries nothing."""
    return [constant(False, bool_) for _ in equation.types]


@converter("split")
def convert_split(equation: Equation) -> list[Value]:
    """Consecutive parts of an axis."""
    sizes = [int(size) for size in equation["sizes"]]
    return list(F.split(equation.operand, sizes, int(equation["axis"])))
