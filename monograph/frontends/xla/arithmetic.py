"""Arithmetic as XLA defines it: division of integers, shifts, rounding, conversions.

Division by zero gives -1 (all bits set, if unsigned) and a remainder by zero the dividend; a shift
by the width or more moves every bit out; a float that becomes an integer saturates.
"""

from __future__ import annotations

from monograph import functional as F
from monograph.ir.build import cast_to, constant
from monograph.ir.graph import Value
from monograph.ir.types import DTYPES, DType, Kind, bool_, c128, f32, f64


def like(number: bool | int | float | complex, x: Value) -> Value:
    """A scalar constant of the dtype of ``x``."""
    return constant(number, x.dtype)


def to_unsigned_dtype(dtype: DType) -> DType:
    """The unsigned integer that is as wide."""
    return DTYPES[f"u{dtype.bits}"]


def to_signed_dtype(dtype: DType) -> DType:
    """The signed integer that is as wide."""
    return DTYPES[f"i{dtype.bits}"]


def divide(a: Value, b: Value) -> Value:
    """a / b; of integers, towards zero, and -1 where b is 0."""
    if not a.dtype.is_integer:
        return F.divide(a, b)
    by_zero = F.equal(b, 0)
    ones = like(-1 if a.dtype.kind is Kind.SIGNED else 2**a.dtype.bits - 1, a)
    return F.where(by_zero, ones, F.truncate_divide(a, F.where(by_zero, 1, b)))


def remainder(a: Value, b: Value) -> Value:
    """What ``divide`` leaves, with the sign of a; a itself where an integer b is 0."""
    if not a.dtype.is_integer:
        return F.fmod(a, b)
    by_zero = F.equal(b, 0)
    return F.where(by_zero, a, F.fmod(a, F.where(by_zero, 1, b)))


def maximum(a: Value, b: Value) -> Value:
    """The larger of two: of bools, whether either is true; complex numbers by real part first."""
    if a.dtype is bool_:
        return F.logical_or(a, b)
    if a.dtype.is_complex:
        return F.where(complex_less(b, a), a, b)
    return F.maximum(a, b)


def minimum(a: Value, b: Value) -> Value:
    """The smaller of two: of bools, whether both are true; complex numbers by real part first."""
    if a.dtype is bool_:
        return F.logical_and(a, b)
    if a.dtype.is_complex:
        return F.where(complex_less(a, b), a, b)
    return F.minimum(a, b)


def complex_less(a: Value, b: Value, or_equal: bool = False) -> Value:
    """Whether a comes before b: by the real part, and by the imaginary one where those agree."""
    ahead = F.less(F.real(a), F.real(b))
    compare = F.less_equal if or_equal else F.less
    tied = F.logical_and(F.equal(F.real(a), F.real(b)), compare(F.imag(a), F.imag(b)))
    return F.logical_or(ahead, tied)


def less(a: Value, b: Value) -> Value:
    """a < b; false comes before true."""
    if a.dtype is bool_:
        return F.logical_and(F.logical_not(a), b)
    return complex_less(a, b) if a.dtype.is_complex else F.less(a, b)


def less_equal(a: Value, b: Value) -> Value:
    """a <= b; false comes before true."""
    if a.dtype is bool_:
        return F.logical_or(F.logical_not(a), b)
    return complex_less(a, b, or_equal=True) if a.dtype.is_complex else F.less_equal(a, b)


def total_order_key(x: Value) -> Value:
    """Integers in IEEE 754's total order of floats: -NaN, -inf, …, -0, +0, …, inf, NaN."""
    if not x.dtype.is_float:
        return x
    signed = to_signed_dtype(x.dtype)
    bits = F.bitcast(x, signed)
    largest = like(2 ** (x.dtype.bits - 1) - 1, bits)
    return F.where(F.less(bits, 0), F.bitwise_xor(bits, largest), bits)


def shift_right_logical(a: Value, b: Value) -> Value:
    """Bits moved to the low end, filled with zeros whatever the sign."""
    unsigned = to_unsigned_dtype(a.dtype)
    return cast_to(F.shift_right(cast_to(a, unsigned), cast_to(b, unsigned)), a.dtype)


def shift_right_arithmetic(a: Value, b: Value) -> Value:
    """Bits moved to the low end, filled with the highest one, also of unsigned numbers."""
    signed = to_signed_dtype(a.dtype)
    return cast_to(F.shift_right(cast_to(a, signed), cast_to(b, signed)), a.dtype)


def clamp(low: Value, x: Value, high: Value) -> Value:
    """min(max(x, low), high); the bounds may be scalars."""
    return minimum(maximum(x, low), high)


def sign(x: Value) -> Value:
    """-1, 0 or 1; zeros keep their sign, and NaN stays NaN."""
    if not x.dtype.is_float:
        return F.sign(x)
    return F.where(F.equal(x, 0), x, F.sign(x))


def round_away(x: Value) -> Value:
    """The nearest whole number, halves away from zero."""
    whole = F.trunc(x)
    is_half = F.greater_equal(F.abs(F.subtract(x, whole)), 0.5)
    return F.where(is_half, F.add(whole, F.copysign(like(1.0, x), x)), whole)


def cube_root(x: Value) -> Value:
    """The real cube root, also of negative numbers: a power, then a step of Newton's.

    Narrow floats are rounded once, from f32; zeros, infinities and NaN are their own roots.
    """
    precise = F.cast(x, f32) if x.dtype.bits < 32 else x
    size = F.abs(precise)
    guess = F.power(size, like(1 / 3, precise))
    square = F.multiply(guess, guess)
    error = F.divide(F.subtract(F.multiply(square, guess), size), F.multiply(square, 3.0))
    ordinary = F.logical_and(F.is_finite(size), F.greater(size, 0))
    root = F.where(ordinary, F.subtract(guess, error), size)
    return cast_to(F.copysign(root, precise), x.dtype)


def integer_power(x: Value, exponent: int) -> Value:
    """x multiplied by itself, by repeated squaring; 1 over that for a negative exponent."""
    if exponent == 0:
        return F.ones_like(x)
    remaining, base, result = abs(exponent), x, None
    while remaining:
        if remaining & 1:
            result = base if result is None else F.multiply(result, base)
        remaining >>= 1
        if remaining:
            base = F.multiply(base, base)
    assert result is not None
    return F.divide(like(1.0, x), result) if exponent < 0 else result


def power(x: Value, y: Value) -> Value:
    """x to the y; an integer exponent of a float is converted, one of another integer too."""
    return F.power(x, cast_to(y, x.dtype))


def convert(x: Value, dtype: DType) -> Value:
    """The same number in another dtype; a complex one loses its imaginary part."""
    if x.dtype.is_complex and not dtype.is_complex and dtype is not bool_:
        return cast_to(F.real(x), dtype)
    if x.dtype.is_complex and dtype is bool_:
        return F.not_equal(x, 0)
    if dtype.is_complex and not x.dtype.is_complex:
        part = cast_to(x, f64 if dtype is c128 else f32)
        return F.complex(part, F.zeros_like(part))
    return cast_to(x, dtype)


def absolute(x: Value) -> Value:
    """|x|; unsigned numbers are their own."""
    return x if x.dtype.kind is Kind.UNSIGNED else F.abs(x)


def is_finite(x: Value) -> Value:
    """Whether it is neither NaN nor infinite; integers are finite."""
    return F.is_finite(x)


def population_count(x: Value) -> Value:
    """How many bits are set, by adding neighbours: pairs, then fours, then eights."""
    unsigned = to_unsigned_dtype(x.dtype)
    bits = x.dtype.bits
    count = cast_to(x, unsigned)
    width = 1
    while width < bits:
        pattern = (2**bits - 1) // (2 ** (2 * width) - 1) * (2**width - 1)
        mask = like(pattern, count)
        low = F.bitwise_and(count, mask)
        high = F.bitwise_and(F.shift_right(count, like(width, count)), mask)
        count = F.add(low, high)
        width *= 2
    return cast_to(count, x.dtype)


def count_leading_zeros(x: Value) -> Value:
    """How many bits above the highest one that is set: those that are not, once it is smeared."""
    smeared = cast_to(x, to_unsigned_dtype(x.dtype))
    width = 1
    while width < x.dtype.bits:
        smeared = F.bitwise_or(smeared, F.shift_right(smeared, like(width, smeared)))
        width *= 2
    return cast_to(population_count(F.bitwise_not(smeared)), x.dtype)


def next_after(a: Value, b: Value) -> Value:
    """The float beside a in the direction of b: one step in the order of its bits."""
    unsigned = to_unsigned_dtype(a.dtype)
    bits = F.bitcast(a, unsigned)
    sign_bit = like(2 ** (a.dtype.bits - 1), bits)
    size = F.bitwise_and(bits, F.bitwise_not(sign_bit))
    away = F.equal(F.less(a, 0), F.less(b, a))
    step = F.where(away, F.add(bits, 1), F.subtract(bits, 1))
    smallest = F.bitwise_or(F.bitwise_and(F.bitcast(b, unsigned), sign_bit), 1)
    moved = F.bitcast(F.where(F.equal(size, 0), smallest, step), a.dtype)
    stays = F.where(F.equal(a, b), b, moved)
    unordered = F.logical_or(F.is_nan(a), F.is_nan(b))
    return F.where(unordered, F.add(a, b), stays)


_FLOAT_BITS = {"f64": (11, 52), "f32": (8, 23), "f16": (5, 10), "bf16": (8, 7)}
"""The bits of the exponent and of the mantissa."""


def reduce_precision(x: Value, exponent_bits: int, mantissa_bits: int) -> Value:
    """Rounded to a float of fewer bits, and held in the same dtype.

    What overflows the narrower exponent is infinite and what underflows it zero, as no narrower
    format's denormals are kept.
    """
    if x.dtype.is_complex:
        parts = [reduce_precision(part, exponent_bits, mantissa_bits) for part in _parts(x)]
        return F.complex(*parts)
    own_exponent, own_mantissa = _FLOAT_BITS[x.dtype.name]
    bits = F.bitcast(x, to_unsigned_dtype(x.dtype))
    if mantissa_bits < own_mantissa:
        bits = _round_mantissa(bits, own_mantissa - mantissa_bits)
    if exponent_bits < own_exponent:
        bits = _limit_exponent(bits, own_exponent, own_mantissa, exponent_bits)
    rounded = F.bitcast(bits, x.dtype)
    return F.where(F.is_nan(x), x, rounded)


def _parts(x: Value) -> tuple[Value, Value]:
    return F.real(x), F.imag(x)


def _round_mantissa(bits: Value, dropped: int) -> Value:
    """To nearest, ties to even, without the lowest bits; a carry goes into the exponent."""
    last = F.bitwise_and(F.shift_right(bits, like(dropped, bits)), 1)
    rounded = F.add(F.add(bits, last), like((1 << (dropped - 1)) - 1, bits))
    return F.bitwise_and(rounded, F.bitwise_not(like((1 << dropped) - 1, bits)))


def _limit_exponent(bits: Value, exponent: int, mantissa: int, kept: int) -> Value:
    """Infinity above the range of an exponent of ``kept`` bits, zero below it."""
    width = bits.dtype.bits
    sign_mask = like(1 << (width - 1), bits)
    exponents = like(((1 << exponent) - 1) << mantissa, bits)
    bias = (1 << (exponent - 1)) - 1
    reduced_bias = (1 << (kept - 1)) - 1
    found = F.bitwise_and(bits, exponents)
    of_sign = F.bitwise_and(bits, sign_mask)
    overflows = F.greater(found, like((bias + reduced_bias) << mantissa, bits))
    underflows = F.less_equal(found, like((bias - reduced_bias) << mantissa, bits))
    limited = F.where(overflows, F.bitwise_or(of_sign, exponents), bits)
    return F.where(underflows, of_sign, limited)


def bitcast(x: Value, dtype: DType) -> Value:
    """Bits seen as another dtype; XLA gives or takes a last axis where the widths differ."""
    if x.dtype is dtype:
        return x
    if x.dtype is bool_ or dtype is bool_ or x.dtype.bits == dtype.bits:
        return F.bitcast(x, dtype)
    if x.dtype.bits < dtype.bits:
        return F.squeeze(F.bitcast(x, dtype), -1)
    return F.bitcast(F.unsqueeze(x, -1), dtype)
