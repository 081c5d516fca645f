"""Element by element. What IEEE leaves open, XLA and ours answer differently: it is spelled out."""

from __future__ import annotations

import math

import numpy as np

from monograph import functional as F
from monograph.exporters.stablehlo.emitter import TABLE, Emitter, Term, highest, lowest
from monograph.ir.graph import Node, Value
from monograph.ir.op import Op
from monograph.ir.types import DType, Kind, TensorType, bool_, f32, f64, i64, u8, u16, u32, u64
from monograph.ops.bitcast import Bitcast
from monograph.ops.elementwise.arithmetic import (
    Copysign,
    Divide,
    Fmod,
    Negate,
    Power,
    TruncateDivide,
)
from monograph.ops.elementwise.bits import ShiftRight
from monograph.ops.elementwise.comparison import IsFinite, IsInf, IsNan
from monograph.ops.elementwise.convert import Cast, Conj, Imag, Real, StopGradient
from monograph.ops.elementwise.rounding import Abs, Ceil, Floor, Round, Sign, Trunc
from monograph.ops.elementwise.select import Maximum, Minimum, Where
from monograph.ops.gamma import Polygamma
from monograph.ops.math import Exp2, Log2
from monograph.ops.trigonometry import Atan

UNARY = {
    "bitwise_not": "not",
    "cos": "cosine",
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "log": "log",
    "log1p": "log_plus_one",
    "logical_not": "not",
    "rsqrt": "rsqrt",
    "sigmoid": "logistic",
    "sin": "sine",
    "sqrt": "sqrt",
    "tan": "tan",
    "tanh": "tanh",
    "bessel_i1e": "chlo.bessel_i1e",
    "digamma": "chlo.digamma",
    "erf": "chlo.erf",
    "erfc": "chlo.erfc",
    "lgamma": "chlo.lgamma",
}
"""Ops of one operand, and their words in StableHLO, or in CHLO, which XLA turns into it."""

BINARY = {
    "add": "add",
    "atan2": "atan2",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "complex": "complex",
    "logical_and": "and",
    "logical_or": "or",
    "logical_xor": "xor",
    "multiply": "multiply",
    "shift_left": "shift_left",
    "subtract": "subtract",
    "zeta": "chlo.zeta",
}
COMPARISONS = {
    "equal": "EQ",
    "greater": "GT",
    "greater_equal": "GE",
    "less": "LT",
    "less_equal": "LE",
    "not_equal": "NE",
}


def _unary(emitter: Emitter, node: Node, op: Op) -> Term:
    return emitter.op(UNARY[op.name], emitter.operands(node), node.result.tensor)


def _binary(emitter: Emitter, node: Node, op: Op) -> Term:
    return emitter.op(BINARY[op.name], emitter.together(node), node.result.tensor)


def _compare(emitter: Emitter, node: Node, op: Op) -> Term:
    return emitter.compare(COMPARISONS[op.name], *emitter.together(node))


TABLE.writes_each(UNARY, _unary)
TABLE.writes_each(BINARY, _binary)
TABLE.writes_each(COMPARISONS, _compare)


@TABLE.writes(Where)
def _where(emitter: Emitter, node: Node, op: Where) -> Term:
    return emitter.op("select", emitter.together(node), node.result.tensor)


@TABLE.writes(Maximum, Minimum)
def _extremum(emitter: Emitter, node: Node, op: Op) -> Term:
    return emitter.op(op.name, emitter.together(node), node.result.tensor)


@TABLE.writes(Abs)
def _abs(emitter: Emitter, node: Node, op: Abs) -> Term:
    (x,) = emitter.operands(node)
    return x if x.type.dtype.kind is Kind.UNSIGNED else emitter.op("abs", [x], node.result.tensor)


@TABLE.writes(Negate)
def _negate(emitter: Emitter, node: Node, op: Negate) -> Term:
    return emitter.op("negate", emitter.operands(node), node.result.tensor)


@TABLE.writes(Sign)
def _sign(emitter: Emitter, node: Node, op: Sign) -> Term:
    (x,) = emitter.operands(node)
    if x.type.dtype.kind is not Kind.UNSIGNED:
        return emitter.op("sign", [x], node.result.tensor)
    return emitter.binary("minimum", x, emitter.filled(1, x.type))


@TABLE.writes(Floor, Ceil, Round)
def _round(emitter: Emitter, node: Node, op: Op) -> Term:
    (x,) = emitter.operands(node)
    if not x.type.dtype.is_float:
        return x
    word = "round_nearest_even" if op.name == "round" else op.name
    return emitter.op(word, [x], x.type)


@TABLE.expands(Trunc)
def _trunc(op: Trunc, x: Value) -> Value:
    return (
        F.where(F.less(x, 0), F.ceil(x), F.floor(x)) if x.dtype.is_float else F.reshape(x, x.shape)
    )


@TABLE.expands(Atan)
def _atan(op: Atan, x: Value) -> Value:
    return F.atan2(x, F.ones_like(x))


@TABLE.expands(Exp2)
def _exp2(op: Exp2, x: Value) -> Value:
    return F.power(F.full(x.shape, 2.0, x.dtype), x)


@TABLE.expands(Log2)
def _log2(op: Log2, x: Value) -> Value:
    return F.log(x) / math.log(2.0)


@TABLE.writes(IsNan, IsInf, IsFinite)
def _classify(emitter: Emitter, node: Node, op: Op) -> Term:
    """Of a complex number, either part may be NaN or infinite, and both must be finite."""
    (x,) = emitter.operands(node)
    parts = [x]
    if x.type.dtype.is_complex:
        real = x.type.with_dtype(_part(x.type.dtype))
        parts = [emitter.op(word, [x], real) for word in ("real", "imag")]
    found = [_classify_real(emitter, part, op.name) for part in parts]
    if len(found) == 1:
        return found[0]
    return emitter.binary("and" if op.name == "is_finite" else "or", *found)


def _classify_real(emitter: Emitter, x: Term, name: str) -> Term:
    flags = x.type.with_dtype(bool_)
    if not x.type.dtype.is_float:
        return emitter.filled(name == "is_finite", flags)
    if name == "is_nan":
        return emitter.compare("NE", x, x)
    if name == "is_finite":
        return emitter.op("is_finite", [x], flags)
    return emitter.compare("EQ", emitter.op("abs", [x], x.type), emitter.filled(np.inf, x.type))


def _part(dtype: DType) -> DType:
    return f64 if dtype.name == "c128" else f32


@TABLE.writes(Real, Imag)
def _part_of(emitter: Emitter, node: Node, op: Op) -> Term:
    return emitter.op(op.name, emitter.operands(node), node.result.tensor)


@TABLE.writes(Conj)
def _conj(emitter: Emitter, node: Node, op: Conj) -> Term:
    (x,) = emitter.operands(node)
    part = x.type.with_dtype(_part(x.type.dtype))
    real, imag = (emitter.op(word, [x], part) for word in ("real", "imag"))
    return emitter.op("complex", [real, emitter.op("negate", [imag], part)], x.type)


@TABLE.writes(StopGradient)
def _stop_gradient(emitter: Emitter, node: Node, op: StopGradient) -> Term:
    return emitter.operands(node)[0]


@TABLE.writes(Divide, TruncateDivide)
def _divide(emitter: Emitter, node: Node, op: Op) -> Term:
    """XLA's quotient by the integer 0 is -1; ours is 0."""
    a, b = emitter.together(node)
    if a.type.dtype.is_integer:
        return _unless_zero(emitter, "divide", a, b)
    quotient = emitter.binary("divide", a, b)
    if op.name == "divide":
        return quotient
    zero = emitter.filled(0, a.type)
    down, up = (emitter.op(word, [quotient], a.type) for word in ("floor", "ceil"))
    return emitter.select(emitter.compare("LT", quotient, zero), up, down)


@TABLE.writes(Fmod)
def _fmod(emitter: Emitter, node: Node, op: Fmod) -> Term:
    a, b = emitter.together(node)
    if a.type.dtype.is_integer:
        return _unless_zero(emitter, "remainder", a, b)
    return emitter.binary("remainder", a, b)


def _unless_zero(emitter: Emitter, word: str, a: Term, b: Term) -> Term:
    zero, one = emitter.filled(0, a.type), emitter.filled(1, a.type)
    by_zero = emitter.compare("EQ", b, zero)
    made = emitter.binary(word, a, emitter.select(by_zero, one, b))
    return emitter.select(by_zero, zero, made)


def _refuse_u64(node: Node) -> str | None:
    """Unsigned powers are taken of signed numbers, which hold all but these."""
    return "its powers are computed in i64" if node.result.dtype is u64 else None


@TABLE.writes(Power, unless=_refuse_u64)
def _power(emitter: Emitter, node: Node, op: Power) -> Term:
    """Of integers in 64 bits, which narrower ones wrap from; by a negative one, 1 / a**-b."""
    a, b = emitter.together(node)
    own = a.type.dtype
    if own.is_complex:
        return _complex_power(emitter, a, b)
    if not own.is_integer:
        return emitter.binary("power", a, b)
    a, b = (emitter.convert(each, i64) for each in (a, b))
    zero, one, minus_one = (emitter.filled(each, a.type) for each in (0, 1, -1))
    negative = emitter.compare("LT", b, zero)
    plain = emitter.binary("power", a, emitter.select(negative, zero, b))
    odd = emitter.compare("NE", emitter.binary("and", b, one), zero)
    turned = emitter.select(odd, minus_one, one)
    of_minus_one = emitter.select(emitter.compare("EQ", a, minus_one), turned, zero)
    inverse = emitter.select(emitter.compare("EQ", a, one), one, of_minus_one)
    return emitter.convert(emitter.select(negative, inverse, plain), own)


def _complex_power(emitter: Emitter, a: Term, b: Term) -> Term:
    """Zero to a power whose real part is positive is 0; of complex ones, XLA makes NaN."""
    real = emitter.op("real", [b], b.type.with_dtype(_part(b.type.dtype)))
    grows = emitter.compare("GT", real, emitter.filled(0, real.type))
    zero = emitter.filled(0, a.type)
    vanishes = emitter.binary("and", emitter.compare("EQ", a, zero), grows)
    return emitter.select(vanishes, zero, emitter.binary("power", a, b))


@TABLE.writes(ShiftRight)
def _shift_right(emitter: Emitter, node: Node, op: ShiftRight) -> Term:
    a, b = emitter.together(node)
    signed = a.type.dtype.kind is Kind.SIGNED
    return emitter.binary(f"shift_right_{'arithmetic' if signed else 'logical'}", a, b)


@TABLE.writes(Copysign)
def _copysign(emitter: Emitter, node: Node, op: Copysign) -> Term:
    """By bits, so that zeros and NaNs have signs, too."""
    a, b = emitter.together(node)
    bits = a.type.with_dtype(_bits(a.type.dtype))
    sign = 1 << (bits.dtype.bits - 1)
    left, right = (emitter.op("bitcast_convert", [each], bits) for each in (a, b))
    size = emitter.binary("and", left, emitter.filled(sign - 1, bits))
    flag = emitter.binary("and", right, emitter.filled(sign, bits))
    return emitter.op("bitcast_convert", [emitter.binary("or", size, flag)], a.type)


def _bits(dtype: DType) -> DType:
    return {8: u8, 16: u16, 32: u32, 64: u64}[dtype.bits]


@TABLE.writes(Cast)
def _cast(emitter: Emitter, node: Node, op: Cast) -> Term:
    """Floats beyond an integer's range saturate; XLA leaves them to the processor."""
    (x,) = emitter.operands(node)
    own, dtype = x.type.dtype, op.dtype
    if dtype is bool_:
        zero = emitter.filled(0, x.type)
        return emitter.compare("NE", x, zero)
    if not (own.is_float and dtype.is_integer):
        return emitter.convert(x, dtype)
    wide = emitter.convert(x, f64)
    signed = dtype.kind is Kind.SIGNED
    end = 2.0 ** (dtype.bits - signed)
    high = emitter.compare("GE", wide, emitter.filled(end, wide.type))
    low = emitter.compare("LT", wide, emitter.filled(-end if signed else 0.0, wide.type))
    made = emitter.convert(wide, dtype)
    made = emitter.select(high, emitter.filled(highest(dtype), made.type), made)
    made = emitter.select(low, emitter.filled(lowest(dtype), made.type), made)
    is_nan = emitter.compare("NE", wide, wide)
    return emitter.select(is_nan, emitter.filled(0, made.type), made)


@TABLE.writes(Bitcast)
def _bitcast(emitter: Emitter, node: Node, op: Bitcast) -> Term:
    """A narrower dtype is one more dimension in StableHLO, which ours joins to the last."""
    (x,) = emitter.operands(node)
    result, own = node.result.tensor, x.type.dtype
    if own.bits == op.dtype.bits:
        return emitter.op("bitcast_convert", [x], result)
    if own.bits > op.dtype.bits:
        parts = (*x.type.shape, own.bits // op.dtype.bits)
        made = emitter.op("bitcast_convert", [x], TensorType(op.dtype, parts))
        return emitter.reshape(made, result.shape)
    parts = (*result.shape, op.dtype.bits // own.bits)
    return emitter.op("bitcast_convert", [emitter.reshape(x, parts)], result)


@TABLE.writes(Polygamma)
def _polygamma(emitter: Emitter, node: Node, op: Polygamma) -> Term:
    (x,) = emitter.operands(node)
    return emitter.op("chlo.polygamma", [emitter.filled(op.order, x.type), x], x.type)
