"""Types of eight bits and fewer, encoded and decoded by formulas on their bits.

Floats under 16 bits and integers under eight are kept one a byte and computed with in f32 and i32;
no machine here has instructions for them. Each cast to or from one is written as integer arithmetic
that every target has, and gives the bits that the interpreter gives: through f32, rounding to
nearest, ties to even, with what each format makes of infinities, NaN and what is too large.
"""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.types import (
    DType,
    Kind,
    bool_,
    f4e2m1fn,
    f8e4m3fn,
    f8e4m3fnuz,
    f8e5m2,
    f8e5m2fnuz,
    f8e8m0fnu,
    f32,
    i8,
    u8,
    u32,
)
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Expr

SINGLE_MANTISSA = 23
SINGLE_BIAS = 127
SINGLE_INFINITY = 0x7F800000
QUIET_NAN = 0x7FC00000


@dataclass(frozen=True)
class Format:
    """Where the parts of a narrow float are, and which codes (without the sign) are special."""

    exponent: int
    mantissa: int
    bias: int
    largest: int
    """The code of the largest finite number."""
    beyond: int
    """The code that what is larger becomes, infinity included."""
    nan: int | None
    """The code that a NaN becomes; None if the format has none."""
    has_infinity: bool = False
    is_unsigned_zero: bool = False
    """Whether the code of -0 is the one NaN instead."""

    @property
    def sign(self) -> int:
        """The place of the sign bit."""
        return self.exponent + self.mantissa


FORMATS = {
    f8e4m3fn: Format(4, 3, 7, 0x7E, 0x7F, 0x7F),
    f8e5m2: Format(5, 2, 15, 0x7B, 0x7C, 0x7E, has_infinity=True),
    f8e4m3fnuz: Format(4, 3, 8, 0x7F, 0x80, 0x80, is_unsigned_zero=True),
    f8e5m2fnuz: Format(5, 2, 16, 0x7F, 0x80, 0x80, is_unsigned_zero=True),
    f4e2m1fn: Format(2, 1, 1, 0x7, 0x7, None),
}


def is_narrow(dtype: DType) -> bool:
    """Whether elements are kept as codes, which only the casts here understand."""
    return dtype.is_packed or (dtype.is_float and dtype.bits < 16)


def involves_narrow(expr: Apply) -> bool:
    """Whether an expression is a cast that is a formula here."""
    if expr.function not in ("cast", "convert"):
        return False
    return is_narrow(expr.dtype) or is_narrow(expr.operands[0].dtype)


def expand(expr: Apply) -> Expr:
    """A cast to or from a narrow dtype as an expression of wider numbers."""
    (operand,) = expr.operands
    if is_narrow(operand.dtype):
        return e.cast(_widen(operand), expr.dtype)
    return e.apply("bitcast", _narrow(operand, expr.dtype), dtype=expr.dtype)


# Integers over bits -------------------------------------------------------------------------------


def _number(value: int, like: Expr) -> Expr:
    return e.literal(value, like.dtype)


def _shift(function: str, bits: Expr, distance: int) -> Expr:
    return e.apply(function, bits, _number(distance, bits))


def _mask(bits: Expr, mask: int) -> Expr:
    return e.apply("bitwise_and", bits, _number(mask, bits))


def _plus(bits: Expr, amount: Expr | int) -> Expr:
    added = _number(amount, bits) if isinstance(amount, int) else amount
    return e.apply("add", bits, added)


def _is(function: str, bits: Expr, bound: int) -> Expr:
    return e.apply(function, bits, _number(bound, bits), dtype=bool_)


# From a code --------------------------------------------------------------------------------------


def _widen(operand: Expr) -> Expr:
    """The number that a code stands for: an f32, or an integer of eight bits."""
    dtype = operand.dtype
    code = e.apply("bitcast", operand, dtype=u8)
    if dtype.kind is Kind.UNSIGNED:
        return _mask(code, (1 << dtype.bits) - 1)
    if dtype.kind is Kind.SIGNED:
        empty = 8 - dtype.bits
        whole = e.apply("bitcast", code, dtype=i8)
        return _shift("shift_right", _shift("shift_left", whole, empty), empty)
    bits = e.cast(code, u32)
    return _power_of_two(bits) if dtype is f8e8m0fnu else _float_of(bits, FORMATS[dtype])


def _power_of_two(code: Expr) -> Expr:
    """``2 ** (code - 127)``: the exponent's bits, but the least is a subnormal f32, and 255 NaN."""
    usual = _shift("shift_left", code, SINGLE_MANTISSA)
    least = e.select(_is("equal", code, 0), _number(1 << SINGLE_MANTISSA - 1, code), usual)
    bits = e.select(_is("equal", code, 0xFF), _number(QUIET_NAN, code), least)
    return e.apply("bitcast", bits, dtype=f32)


def _float_of(code: Expr, format_: Format) -> Expr:
    magnitude = _mask(code, (1 << format_.sign) - 1)
    lost = SINGLE_MANTISSA - format_.mantissa
    offset = (SINGLE_BIAS - format_.bias) << SINGLE_MANTISSA
    normal = _plus(_shift("shift_left", magnitude, lost), offset)
    step = 2.0 ** (1 - format_.bias - format_.mantissa)
    small = e.apply("multiply", e.cast(magnitude, f32), e.literal(step, f32))
    is_small = _is("less", magnitude, 1 << format_.mantissa)
    bits = e.select(is_small, e.apply("bitcast", small, dtype=u32), normal)
    if format_.has_infinity:
        is_infinite = _is("equal", magnitude, format_.beyond)
        bits = e.select(is_infinite, _number(SINGLE_INFINITY, code), bits)
    if format_.nan is not None and not format_.is_unsigned_zero:
        first = format_.largest + (2 if format_.has_infinity else 1)
        is_nan = _is("greater_equal", magnitude, first)
        bits = e.select(is_nan, _number(QUIET_NAN, code), bits)
    sign = _shift("shift_left", _shift("shift_right", code, format_.sign), 31)
    signed = e.apply("bitwise_or", bits, sign)
    if format_.is_unsigned_zero:
        is_nan = _is("equal", code, 1 << format_.sign)
        signed = e.select(is_nan, _number(QUIET_NAN | 1 << 31, code), signed)
    return e.apply("bitcast", signed, dtype=f32)


# To a code ----------------------------------------------------------------------------------------


def _narrow(operand: Expr, dtype: DType) -> Expr:
    """The code of a number, as a u8."""
    if dtype.is_integer:
        return _narrow_integer(operand, dtype)
    bits = e.apply("bitcast", e.cast(operand, f32), dtype=u32)
    code = _exponent_code(bits) if dtype is f8e8m0fnu else _float_code(bits, FORMATS[dtype])
    return e.cast(code, u8)


def _narrow_integer(operand: Expr, dtype: DType) -> Expr:
    """The low bits of an integer; a float is first held within the range."""
    mask = (1 << dtype.bits) - 1
    if not operand.dtype.is_float:
        return _mask(e.cast(operand, u8), mask)
    signed = dtype.kind is Kind.SIGNED
    whole = e.cast(operand, i8 if signed else u8)
    high = mask >> 1 if signed else mask
    held = e.apply("minimum", whole, _number(high, whole))
    if signed:
        held = e.apply("maximum", held, _number(-high - 1, held))
        held = e.apply("bitcast", held, dtype=u8)
    return _mask(held, mask)


def _exponent_code(bits: Expr) -> Expr:
    """The nearest power of two, of two the larger; NaN for what is not a positive number."""
    is_subnormal = _is("less", bits, 1 << SINGLE_MANTISSA)
    half = 1 << SINGLE_MANTISSA - 1
    up = e.select(is_subnormal, _number(half - 1, bits), _number(half, bits))
    code = _shift("shift_right", _plus(bits, up), SINGLE_MANTISSA)
    is_positive = _is("less", _plus(bits, -1), SINGLE_INFINITY)  # 0 wraps around to the largest
    return e.select(is_positive, code, _number(0xFF, bits))


def _float_code(bits: Expr, format_: Format) -> Expr:
    magnitude = _mask(bits, 0x7FFFFFFF)
    lost = SINGLE_MANTISSA - format_.mantissa
    odd = _mask(_shift("shift_right", magnitude, lost), 1)
    rounded = _plus(_plus(magnitude, (1 << lost - 1) - 1), odd)
    offset = (SINGLE_BIAS - format_.bias) << format_.mantissa
    normal = _plus(_shift("shift_right", rounded, lost), -offset)
    code = e.select(_is_subnormal(magnitude, format_), _subnormal(magnitude, format_), normal)
    # A magnitude of infinity, and of every NaN, lies beyond the largest too.
    code = e.select(_is("greater", code, format_.largest), _number(format_.beyond, bits), code)
    is_nan = _is("greater", magnitude, SINGLE_INFINITY)
    sign = _shift("shift_left", _shift("shift_right", bits, 31), format_.sign)
    if format_.is_unsigned_zero:
        code = e.select(is_nan, _number(1 << format_.sign, bits), code)
        is_alone = _is("equal", _mask(code, (1 << format_.sign) - 1), 0)
        return e.select(is_alone, code, e.apply("bitwise_or", code, sign))
    if format_.nan is not None:
        code = e.select(is_nan, _number(format_.nan, bits), code)
        return e.apply("bitwise_or", code, sign)
    zero = e.apply("bitwise_xor", sign, _number(1 << format_.sign, bits))
    return e.select(is_nan, zero, e.apply("bitwise_or", code, sign))


def _is_subnormal(magnitude: Expr, format_: Format) -> Expr:
    smallest = (SINGLE_BIAS + 1 - format_.bias) << SINGLE_MANTISSA
    return _is("less", magnitude, smallest)


def _subnormal(magnitude: Expr, format_: Format) -> Expr:
    """The number in units of the smallest one: adding a large number rounds to such units."""
    units = SINGLE_MANTISSA + 1 - format_.bias - format_.mantissa
    large = e.literal(2.0**units, f32)
    total = e.apply("add", e.apply("bitcast", magnitude, dtype=f32), large)
    start = (SINGLE_BIAS + units) << SINGLE_MANTISSA
    return _plus(e.apply("bitcast", total, dtype=u32), -start)
