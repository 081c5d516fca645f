"""Scalar functions as Triton expressions: each basic function, and conversions between dtypes.

They give what the op of the same name gives in the interpreter: NaN and signed zeros, shifts by
more than the width, division by zero, floats out of an integer's range. Quotients and roots of f32
are rounded correctly, as eager does; Triton's ``/`` and ``tl.sqrt`` are off by up to two ulp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monograph.errors import UnsupportedError
from monograph.ir.types import DType, Kind, bf16, bool_, f16, f32, f64
from monograph.kernel.expr import Literal
from monograph.kernel.narrow import is_narrow

Text = Callable[[DType, DType, Sequence[str]], str]
"""From the dtype of the last operand, that of the result, and operands to an expression."""

_INFIX = {
    **{"add": "+", "subtract": "-", "multiply": "*"},
    **{"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="},
    **{"equal": "==", "not_equal": "!="},
    **{"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"},
}
_LOGICAL = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
_ROUND_TO_INTEGER = {f32: 12582912.0, f64: 6755399441055744.0}
"""1.5 · 2^(digits - 1): added and subtracted, it leaves a whole number, ties to even."""


def type_text(dtype: DType) -> str:
    """Triton's name of a dtype."""
    names = {f64: "float64", f32: "float32", f16: "float16", bf16: "bfloat16", bool_: "int1"}
    if dtype in names:
        return f"tl.{names[dtype]}"
    if is_narrow(dtype) or not dtype.is_integer:
        raise UnsupportedError(f"Triton's kernels hold no {dtype}")
    sign = "uint" if dtype.kind is Kind.UNSIGNED else "int"
    return f"tl.{sign}{dtype.bits}"


def literal_text(expr: Literal) -> str:
    """A number as Python writes it."""
    value = expr.value
    if isinstance(value, float) and value != value:
        return "float('nan')"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f"float('{'-' if value < 0 else ''}inf')"
    return repr(value)


def write_literal(expr: Literal, shape: str) -> str:
    """A number with its dtype, where its neighbours do not say it."""
    return f"tl.full({shape}, {literal_text(expr)}, {type_text(expr.dtype)})"


def scalar_text(function: str, dtype: DType, result: DType, operands: Sequence[str]) -> str | None:
    """A basic function of operands of ``dtype``, or None if Triton has no such function."""
    if dtype is bool_ and function in _ON_BOOLS:
        return f"({operands[0]} {_ON_BOOLS[function]} {operands[1]})"
    if function in _INFIX:
        return f"({operands[0]} {_INFIX[function]} {operands[1]})"
    if function in _LOGICAL:
        x, y = (truth(dtype, operand) for operand in operands)
        return f"({x} {_LOGICAL[function]} {y})"
    found = _FUNCTIONS.get(function)
    return None if found is None else found(dtype, result, operands)


_ON_BOOLS = {"add": "|", "multiply": "&", "maximum": "|", "minimum": "&", "subtract": "^"}
"""Arithmetic of truth values."""


def truth(dtype: DType, operand: str) -> str:
    """Whether a number is not zero."""
    return operand if dtype is bool_ else f"({operand} != 0)"


def cast_text(operand: str, source: DType, target: DType) -> str:
    """A number in another dtype, as the op ``cast`` defines it: out of range is the end of it."""
    if source is target:
        return operand
    if target is bool_:
        return truth(source, operand)
    if source.is_float and target.is_integer:
        return _saturate(operand, source, target)
    return f"{operand}.to({type_text(target)})"


def _saturate(x: str, source: DType, target: DType) -> str:
    """A float as an integer; NaN is 0."""
    signed = target.kind is Kind.SIGNED
    high = (1 << (target.bits - 1 if signed else target.bits)) - 1
    low = -(1 << (target.bits - 1)) if signed else 0
    kind = type_text(target)
    wide = x if source in (f32, f64) else f"{x}.to(tl.float32)"
    inside = (
        f"tl.where(({wide} > {float(low - 1)!r}) & ({wide} < {float(high + 1)!r}), {wide}, 0.0)"
    )
    above = f"tl.where({wide} >= {float(high + 1)!r}, {high}, {inside}.to({kind}))"
    return f"tl.where({wide} <= {float(low)!r}, {low}, {above}).to({kind})"


def _divide(dtype: DType, _: DType, operands: Sequence[str]) -> str:
    x, y = operands
    return f"tl.div_rn({x}, {y})" if dtype is f32 else f"({x} / {y})"


def _sqrt(dtype: DType, _: DType, operands: Sequence[str]) -> str:
    return f"tl.sqrt_rn({operands[0]})" if dtype is f32 else f"tl.sqrt({operands[0]})"


def _negate(dtype: DType, _: DType, operands: Sequence[str]) -> str:
    # Triton's unary minus is 0 - x, which loses the sign of a zero.
    return f"({operands[0]} * -1.0)" if dtype.is_float else f"(-{operands[0]})"


def _fma(dtype: DType, _: DType, operands: Sequence[str]) -> str:
    x, y, z = operands
    return f"tl.fma({x}, {y}, {z})" if dtype.is_float else f"({x} * {y} + {z})"


def _extremum(name: str) -> Text:
    def text(dtype: DType, _: DType, operands: Sequence[str]) -> str:
        x, y = operands
        spread = ", propagate_nan=tl.PropagateNan.ALL" if dtype.is_float else ""
        return f"tl.{name}({x}, {y}{spread})"

    return text


def _safe_divisor(dtype: DType, x: str, y: str) -> str:
    """A divisor that is not 0, and not -1 under the lowest number."""
    if dtype.kind is not Kind.SIGNED:
        return f"tl.where({y} == 0, 1, {y})"
    lowest = -(1 << (dtype.bits - 1))
    return f"tl.where(({y} == 0) | (({y} == -1) & ({x} == {lowest})), 1, {y})"


def _truncate_divide(dtype: DType, _: DType, operands: Sequence[str]) -> str:
    x, y = operands
    if dtype.is_float:
        return _trunc(dtype, dtype, [_divide(dtype, dtype, operands)])
    kind = type_text(dtype)
    quotient = f"({x} // {_safe_divisor(dtype, x, y)}.to({kind}))"
    return f"tl.where({y} == 0, 0, {quotient}).to({kind})"


def _fmod(dtype: DType, _: DType, operands: Sequence[str]) -> str:
    x, y = operands
    kind = type_text(dtype)
    remainder = f"({x} % {_safe_divisor(dtype, x, y)}.to({kind}))"
    return f"tl.where({y} == 0, 0, {remainder}).to({kind})"


def _abs(dtype: DType, _: DType, operands: Sequence[str]) -> str:
    return (
        operands[0] if dtype.kind is Kind.UNSIGNED or dtype is bool_ else f"tl.abs({operands[0]})"
    )


def _sign(dtype: DType, result: DType, operands: Sequence[str]) -> str:
    (x,) = operands
    if dtype is bool_:
        return x
    kind = type_text(dtype)
    sign = f"(({x} > 0).to({kind}) - ({x} < 0).to({kind}))"
    return f"tl.where({x} != {x}, {x}, {sign})" if dtype.is_float else sign


def _floor(dtype: DType, _: DType, operands: Sequence[str]) -> str:
    """Triton's is 0 below numbers that are too small to be normal."""
    (x,) = operands
    whole = f"tl.floor({x})"
    return f"tl.where({whole} > {x}, -1.0, {whole})" if dtype.is_float else x


def _ceil(dtype: DType, _: DType, operands: Sequence[str]) -> str:
    (x,) = operands
    whole = f"tl.ceil({x})"
    return f"tl.where({whole} < {x}, 1.0, {whole})" if dtype.is_float else x


def _trunc(dtype: DType, _: DType, operands: Sequence[str]) -> str:
    (x,) = operands
    return f"tl.where({x} < 0, tl.ceil({x}), tl.floor({x}))" if dtype.is_float else x


def _round(dtype: DType, _: DType, operands: Sequence[str]) -> str:
    """To the nearest whole number, ties to even; what is large is whole, and -0.3 is -0.0."""
    (x,) = operands
    if not dtype.is_float:
        return x
    magic = _ROUND_TO_INTEGER[dtype]
    whole = f"((tl.abs({x}) + {magic!r}) - {magic!r})"
    signed = _copysign(dtype, dtype, [whole, x])
    return f"tl.where(tl.abs({x}) < {magic / 3!r}, {signed}, {x})"


def _copysign(dtype: DType, _: DType, operands: Sequence[str]) -> str:
    x, y = operands
    bits = "tl.int64" if dtype is f64 else "tl.int32"
    return f"tl.where({y}.to({bits}, bitcast=True) < 0, tl.abs({x}) * -1.0, tl.abs({x}))"


def _shift(name: str) -> Text:
    """A shift by the width or more leaves nothing but the sign."""
    sign = "<<" if name == "shift_left" else ">>"

    def text(dtype: DType, _: DType, operands: Sequence[str]) -> str:
        x, y = operands
        kind = type_text(dtype)
        fits = f"(({y} >= 0) & ({y} < {dtype.bits}))"
        distance = f"tl.where({fits}, {y}, 0).to({kind})"
        rest = f"({x} >> {dtype.bits - 1})"
        beyond = rest if name == "shift_right" and dtype.kind is Kind.SIGNED else "0"
        return f"tl.where({fits}, {x} {sign} {distance}, {beyond}).to({kind})"

    return text


def _bitwise_not(dtype: DType, _: DType, operands: Sequence[str]) -> str:
    if dtype is bool_:
        return f"({operands[0]} == 0)"
    ones = -1 if dtype.kind is Kind.SIGNED else (1 << dtype.bits) - 1
    return f"({operands[0]} ^ {ones})"


def _where(dtype: DType, _: DType, operands: Sequence[str]) -> str:
    return f"tl.where({', '.join(operands)})"


def _bitcast(dtype: DType, result: DType, operands: Sequence[str]) -> str:
    return f"{operands[0]}.to({type_text(result)}, bitcast=True)"


def _cast(dtype: DType, result: DType, operands: Sequence[str]) -> str:
    return cast_text(operands[0], dtype, result)


def _convert(dtype: DType, result: DType, operands: Sequence[str]) -> str:
    """A cast of what is known to be in range."""
    return (
        truth(dtype, operands[0]) if result is bool_ else f"{operands[0]}.to({type_text(result)})"
    )


def _test(on_floats: str, otherwise: str) -> Text:
    def text(dtype: DType, _: DType, operands: Sequence[str]) -> str:
        x = operands[0]
        return f"({on_floats.format(x=x)})" if dtype.is_float else f"({otherwise.format(x=x)})"

    return text


_FUNCTIONS: dict[str, Text] = {
    "divide": _divide,
    "sqrt": _sqrt,
    "negate": _negate,
    "fma": _fma,
    "maximum": _extremum("maximum"),
    "minimum": _extremum("minimum"),
    "truncate_divide": _truncate_divide,
    "fmod": _fmod,
    "frem": _fmod,
    "abs": _abs,
    "sign": _sign,
    "floor": _floor,
    "ceil": _ceil,
    "trunc": _trunc,
    "round": _round,
    "copysign": _copysign,
    "shift_left": _shift("shift_left"),
    "shift_right": _shift("shift_right"),
    "where": _where,
    "rarely": _where,
    "bitcast": _bitcast,
    "cast": _cast,
    "convert": _convert,
    "logical_not": lambda dtype, _, operands: f"({operands[0]} == 0)",
    "bitwise_not": _bitwise_not,
    "is_nan": _test("{x} != {x}", "{x} != {x}"),
    "is_finite": _test("tl.abs({x}) < float('inf')", "{x} == {x}"),
    "is_inf": _test("tl.abs({x}) == float('inf')", "{x} != {x}"),
}

FAST_F32: dict[str, str] = {
    "exp": "tl.exp({x})",
    "decay": "tl.exp({x})",
    "exp2": "tl.exp2({x})",
    "log": "tl.log({x})",
    "log2": "tl.log2({x})",
    "sigmoid": "tl.sigmoid({x})",
    "silu": "({x} * tl.sigmoid({x}))",
    "gelu_tanh": "({x} * tl.sigmoid(1.5957691216057308 * ({x} + 0.044715 * {x} * {x} * {x})))",
}
"""Functions of f32 by the special function unit, for results that keep fewer digits than f32."""
