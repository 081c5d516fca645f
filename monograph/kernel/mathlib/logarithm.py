"""log, log2, log10 and log1p.

x is m 2^e with m between √½ and √2, taken apart by integer arithmetic on its bits; a subnormal x is
multiplied into the normal range first. With f = m - 1, log m is f - f²/2 + f³ P(f) in f32, and in
f64, where P would be long, f - f²/2 + s (f²/2 + R(s²)) with s = f / (2 + f).
"""

from __future__ import annotations

import math

from monograph.ir.types import DType, f32, f64
from monograph.kernel.mathlib.number import (
    Format,
    Number,
    constant,
    fast_two_sum,
    fma,
    horner,
    two_product,
    two_sum,
    where,
)

# (log(1 + f) - f + f²/2) / f³ for √½ ≤ 1 + f ≤ √2; error relative to the logarithm: 2^-30.3
CUBIC_F32 = (
    float.fromhex("0x1.555548p-2"),
    float.fromhex("-0x1.000006p-2"),
    float.fromhex("0x1.99a478p-3"),
    float.fromhex("-0x1.555c4cp-3"),
    float.fromhex("0x1.233b72p-3"),
    float.fromhex("-0x1.fc2708p-4"),
    float.fromhex("0x1.e6c148p-4"),
    float.fromhex("-0x1.de0e2ap-4"),
    float.fromhex("0x1.147fb2p-4"),
)
# (log((1 + s) / (1 - s)) - 2s) / s³ in s² for |s| ≤ 0.1716; relative error: 2^-59.1
ODD_F64 = (
    float.fromhex("0x1.5555555555593p-1"),
    float.fromhex("0x1.999999997fb70p-2"),
    float.fromhex("0x1.24924942154b9p-2"),
    float.fromhex("0x1.c71c51e8bd839p-3"),
    float.fromhex("0x1.746646408c48ep-3"),
    float.fromhex("0x1.39a0ed2b9c75dp-3"),
    float.fromhex("0x1.2f0e139161eb0p-3"),
)
# (log(1 + d) - d) / d² for 0 ≤ d ≤ 1; error relative to the logarithm: 2^-30.1
UNIT_F32 = (
    float.fromhex("-0x1.fffff8p-2"),
    float.fromhex("0x1.5553b6p-2"),
    float.fromhex("-0x1.ffc59ep-3"),
    float.fromhex("0x1.978b54p-3"),
    float.fromhex("-0x1.4a72b2p-3"),
    float.fromhex("0x1.ff28d8p-4"),
    float.fromhex("-0x1.54f16cp-4"),
    float.fromhex("0x1.58ff44p-5"),
    float.fromhex("-0x1.c0a200p-7"),
    float.fromhex("0x1.113634p-9"),
)
# As ODD_F64, for 0 ≤ s ≤ 1/3; relative error: 2^-58.6
ODD_UNIT_F64 = (
    float.fromhex("0x1.5555555555556p-1"),
    float.fromhex("0x1.999999999955cp-2"),
    float.fromhex("0x1.24924924c1e46p-2"),
    float.fromhex("0x1.c71c71a5d71c8p-3"),
    float.fromhex("0x1.745d1e044dd11p-3"),
    float.fromhex("0x1.3b12d5b5f3690p-3"),
    float.fromhex("0x1.1123483e51815p-3"),
    float.fromhex("0x1.dfe26c5719db1p-4"),
    float.fromhex("0x1.c1714b79aa45cp-4"),
    float.fromhex("0x1.1e759cd52fcb1p-4"),
    float.fromhex("0x1.5147564b09c06p-3"),
)

# Logarithms of 2 (natural and to base 10) in two parts, the first so short that e times it is
# exact; the inverses of log 2 and log 10 in two parts, of which the first is as good as can be.
LN2: dict[DType, tuple[float, float]] = {
    f32: (float.fromhex("0x1.62e4p-1"), float.fromhex("0x1.7f7d1cp-20")),
    f64: (float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")),
}
LOG10_2: dict[DType, tuple[float, float]] = {
    f32: (float.fromhex("0x1.344p-2"), float.fromhex("0x1.3509f8p-18")),
    f64: (float.fromhex("0x1.34413509f6p-2"), float.fromhex("0x1.9fef311f12b36p-42")),
}
LOG2_E: dict[DType, tuple[float, float]] = {
    f32: (float.fromhex("0x1.715476p+0"), float.fromhex("0x1.4ae0c0p-26")),
    f64: (float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.777d0ffda0d24p-56")),
}
LOG10_E: dict[DType, tuple[float, float]] = {
    f32: (float.fromhex("0x1.bcb7b2p-2"), float.fromhex("-0x1.5b235ep-27")),
    f64: (float.fromhex("0x1.bcb7b1526e50ep-2"), float.fromhex("0x1.95355baaafad3p-57")),
}


def take_apart(x: Number) -> tuple[Number, Number, Number]:
    """e as a float, m, and the bits of 2^e less those of 1, for a positive normal x = m 2^e."""
    layout = x.format
    width, unsigned = layout.mantissa, layout.unsigned
    offset = 2 * (layout.bias + 1) << width
    root_half = _bits_of(math.sqrt(0.5), layout)
    bits = x.unsigned_bits()
    # The exponent of x / √½ in the highest bits, plus an offset that keeps it positive.
    biased = bits + constant((offset - root_half) % (1 << unsigned.bits), unsigned)
    whole = biased & constant((1 << unsigned.bits) - (1 << width), unsigned)
    scale = whole - constant(offset, unsigned)
    # An integer below 2^width, laid over the bits of 2^width, is that sum.
    shifted = (biased >> width) | constant(_bits_of(2.0**width, layout), unsigned)
    exponent = shifted.as_float(x.dtype) - (2.0**width + 2 * (layout.bias + 1))
    return exponent, (bits - scale).as_float(x.dtype), scale


def _bits_of(value: float, layout: Format) -> int:
    return int(layout.dtype.numpy.type(value).view(layout.unsigned.numpy))


def normal(x: Number) -> tuple[Number, Number]:
    """x, multiplied by 2^mantissa if it is subnormal, and minus the exponent of that factor."""
    width = x.format.mantissa
    small = x < x.format.smallest_normal
    lifted = where(small, x * 2.0**width, x)
    return lifted, where(small, constant(-float(width), x.dtype), 0.0)


def tail(f: Number) -> tuple[Number, Number]:
    """h and t with log(1 + f) = f - h + t: h is f²/2, t the smaller rest."""
    half_square = f * f * 0.5
    if f.dtype is f32:
        return half_square, (f * f) * (f * horner(f, CUBIC_F32))
    s = f / (f + 2.0)
    z = s * s
    return half_square, s * (half_square + z * horner(z, ODD_F64))


def log(x: Number) -> Number:
    """The natural logarithm."""
    lifted, correction = normal(x)
    exponent, m, _ = take_apart(lifted)
    return finite_edges(x, _natural(exponent + correction, m - 1.0))


def _natural(exponent: Number, f: Number) -> Number:
    """``exponent`` log 2 + log(1 + f)."""
    high, low = LN2[f.dtype]
    half_square, rest = tail(f)
    main = exponent * high
    total, lost = fast_two_sum(main, f)
    return total + ((lost + fma(exponent, low, rest)) - half_square)


def finite_edges(x: Number, result: Number) -> Number:
    """``result`` where 0 < x < inf; elsewhere what every logarithm is: x, -inf or NaN."""
    edge = where(x.equals(0.0), constant(-math.inf, x.dtype), math.nan)
    return where(x < math.inf, where(x > 0.0, result, edge), x)


def log2(x: Number) -> Number:
    """The logarithm to base 2."""
    lifted, correction = normal(x)
    exponent, m, _ = take_apart(lifted)
    main, low = _scale_log(m - 1.0, LOG2_E[x.dtype])
    total, lost = fast_two_sum(exponent + correction, main)
    return finite_edges(x, total + (lost + low))


def log10(x: Number) -> Number:
    """The logarithm to base 10."""
    lifted, correction = normal(x)
    exponent, m, _ = take_apart(lifted)
    exponent = exponent + correction
    main, low = _scale_log(m - 1.0, LOG10_E[x.dtype])
    high_part, low_part = LOG10_2[x.dtype]
    total, lost = fast_two_sum(exponent * high_part, main)
    return finite_edges(x, total + fma(exponent, low_part, lost + low))


def _scale_log(f: Number, factor: tuple[float, float]) -> tuple[Number, Number]:
    """log(1 + f) times a factor given in two parts, in two parts itself."""
    half_square, rest = tail(f)
    high, lost = fast_two_sum(f, -half_square)
    low = lost + rest
    main, rounding = two_product(high, factor[0])
    return main, fma(low, factor[0], fma(high, factor[1], rounding))


def log1p(x: Number) -> Number:
    """log(1 + x): the logarithm of the rounded sum, with what its rounding lost added to f."""
    total, lost = two_sum(constant(1.0, x.dtype), x)
    exponent, m, scale = take_apart(total)
    one = constant(_bits_of(1.0, x.format), scale.dtype)
    inverse_scale = (one - scale).as_float(x.dtype)
    # Far out what is lost does not matter, and 2^-e may not be a number.
    inverse_scale = where(x < 2.0**60, inverse_scale, 0.0)
    result = _natural(exponent, fma(lost, inverse_scale, m - 1.0)).with_sign_of(x)
    edge = where(x.equals(-1.0), constant(-math.inf, x.dtype), math.nan)
    return where(x < math.inf, where(x > -1.0, result, edge), x)


def log1p_of_unit(d: Number) -> Number:
    """log(1 + d) for 0 ≤ d ≤ 1."""
    if d.dtype is f32:
        return fma(d * d, horner(d, UNIT_F32), d)
    s = d / (d + 2.0)
    z = s * s
    half_square = d * d * 0.5
    return d - (half_square - s * (half_square + z * horner(z, ODD_UNIT_F64)))
