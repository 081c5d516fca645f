"""x modulo π/2, exactly, for every float: what sin, cos and tan start with.

Moderate numbers subtract a multiple of π/2 held in several parts. A huge x = m 2^E needs digits of
2/π far behind the point: those whose product with x is a multiple of 4 whole turns of a quadrant
are left out, and as many of the next ones are taken as make the fraction good to its last bit,
however near to a multiple of π/2 the number lies (Payne and Hanek's method).
"""

from __future__ import annotations

import itertools

from monograph.dataclass import dataclass
from monograph.ir.types import f32, f64, u64
from monograph.kernel.mathlib.number import (
    Condition,
    Number,
    constant,
    fma,
    two_product,
    two_sum,
    where,
)

TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
HALF_PI = (
    float.fromhex("0x1.921fb54442d18p+0"),
    float.fromhex("0x1.1a62633145c07p-54"),
    float.fromhex("-0x1.f1976b7ed8fbcp-110"),
)
"""π/2 in parts of 53 bits."""

# The bits of 2/π behind 32 zeros, in limbs of 32.
LIMBS = (
    0x00000000,
    0xA2F9836E,
    0x4E441529,
    0xFC2757D1,
    0xF534DDC0,
    0xDB629599,
    0x3C439041,
    0xFE5163AB,
    0xDEBBC561,
    0xB7246E3A,
    0x424DD2E0,
    0x06492EEA,
    0x09D1921C,
    0xFE1DEB1C,
    0xB129A73E,
    0xE88235F5,
    0x2EBB4484,
    0xE99C7026,
    0xB45F7E41,
    0x3991D639,
    0x835339F4,
    0x9C845F8B,
    0xBDF9283B,
    0x1FF897FF,
    0xDE05980F,
    0xEF2F118B,
    0x5A0A6D1F,
    0x6D367ECF,
    0x27CB09B7,
    0x4F463F66,
    0x9E5FEA2D,
    0x7527BAC7,
    0xEBE5F17B,
    0x3D0739F7,
    0x8A5292EA,
    0x6BFB5FB1,
    0x1F8D5D08,
    0x56033046,
    0xFC7B6BAB,
    0xF0CFBC20,
    0x9AF4361D,
)
MODERATE_F32 = 2.0**45
"""Below this size the quadrant of an f32 is an f64 that is exact."""
MODERATE_F64 = 2.0**26
"""Below this size three parts of π/2 suffice for an f64."""


@dataclass(frozen=True)
class Reduced:
    """x = (quadrant + 4j) π/2 + high + low for some j, and |high| at most a little over π/4."""

    quadrant: Number
    """An integer, modulo 4, in the lowest two bits of a u64."""
    high: Number
    low: Number | None
    """Left out where ``high`` alone, an f64, is far better than the result needs."""

    def is_odd(self) -> Condition:
        """Whether sine and cosine change places."""
        return (self.quadrant & 1).equals(1)

    def sign(self, added: int) -> Number:
        """The sign bit that ``added`` quadrants further is: set in the third and fourth."""
        turned = self.quadrant + added if added else self.quadrant
        return (turned << 62) & (1 << 63)


def reduce_f32(x: Number) -> Reduced:
    """An f32 of any size, reduced in f64."""
    wide = x.cast(f64)
    moderate = abs(wide) < MODERATE_F32
    whole, near = _moderate_f32(wide)
    huge_whole, fraction = _huge_f32(wide)
    return Reduced(
        _low_bits(where(moderate, whole, huge_whole)),
        where(moderate, near, fraction * HALF_PI[0]),
        None,
    )


def _moderate_f32(wide: Number) -> tuple[Number, Number]:
    """The quadrant and the rest of an f32 below 2^45, as f64."""
    whole = (wide * TWO_OVER_PI).rounded()
    return whole, fma(whole, -HALF_PI[1], fma(whole, -HALF_PI[0], wide))


def _low_bits(whole: Number) -> Number:
    """A whole number below 2^51 as an integer, modulo 4."""
    return (whole + whole.format.shifter).unsigned_bits()


EXACT_BITS_PER_PIECE = 29
"""How many bits of 2/π times an f32 are exact in f64."""
PIECE_STARTS = (15, 47, 79)
"""How far behind the point the four pieces begin, for three ranges of size."""
PIECE_LIMITS = (2.0**77, 2.0**109)
"""Below which size the first, and the second, start serves."""


def _piece(begin: int) -> Number:
    """29 bits of 2/π, from so far behind the point."""
    digits = 0
    for limb in LIMBS[1:]:
        digits = digits << 32 | limb
    kept = digits >> (32 * (len(LIMBS) - 1) - begin - EXACT_BITS_PER_PIECE) & (
        (1 << EXACT_BITS_PER_PIECE) - 1
    )
    return constant(kept * 2.0 ** -(begin + EXACT_BITS_PER_PIECE), f64)


def _huge_f32(x: Number) -> tuple[Number, Number]:
    """The quadrant of an f32 of at least 2^45, modulo 4, and the fraction beyond it."""
    size = abs(x)
    first, second = size < PIECE_LIMITS[0], size < PIECE_LIMITS[1]
    terms = []
    for skipped in range(0, 4 * EXACT_BITS_PER_PIECE, EXACT_BITS_PER_PIECE):
        low, middle, high = (_piece(start + skipped) for start in PIECE_STARTS)
        product = x * where(first, low, where(second, middle, high))
        terms.append(fma((product * 0.25).rounded(), -4.0, product))
    total = (terms[0] + terms[1]) + (terms[2] + terms[3])
    whole = total.rounded()
    # Each sum is exact, or so large beside what follows that nothing can cancel any more.
    fraction = (((terms[0] - whole) + terms[1]) + terms[2]) + terms[3]
    return whole, fraction


def _moderate_f64(x: Number) -> tuple[Number, Number, Number]:
    """The quadrant and the rest, in two parts, of an f64 below 2^26."""
    whole = (x * TWO_OVER_PI).rounded()
    exact = fma(whole, -HALF_PI[0], x)
    product, lost = two_product(whole, HALF_PI[1])
    near = exact - product
    return whole, near, ((exact - near) - product) - fma(whole, HALF_PI[2], lost)


def reduce_f64(x: Number) -> Reduced:
    """An f64 of any size, reduced to twice the precision."""
    moderate = abs(x) < MODERATE_F64
    whole, near, near_low = _moderate_f64(x)
    quadrant, fraction, fraction_low = _huge_f64(x)
    far, far_lost = two_product(fraction, HALF_PI[0])
    far_low = far_lost + fma(fraction, HALF_PI[1], fraction_low * HALF_PI[0])
    return Reduced(
        where(moderate, _low_bits(whole), quadrant),
        where(moderate, near, far),
        where(moderate, near_low, far_low),
    )


WINDOW = 6
LIMB_MASK = 0xFFFFFFFF


def _window(start: Number) -> list[Number]:
    """The six limbs that begin ``start`` bits into the table, by halving the table five times."""
    limbs: list[Number] = [constant(limb, u64) for limb in LIMBS]
    for bit in (4, 3, 2, 1, 0):
        step = 1 << bit
        skip = ((start >> (5 + bit)) & 1).equals(1)
        kept = WINDOW + step
        limbs = [
            where(skip, limbs[position + step], limbs[position])
            for position in range(min(kept, len(limbs) - step))
        ]
    shift = start & 31
    pairs = itertools.pairwise(limbs)
    joined = [(((high << 32) | low) << shift) >> 32 for high, low in pairs]
    return [limb & LIMB_MASK for limb in joined]


def _huge_f64(x: Number) -> tuple[Number, Number, Number]:
    """The quadrant, and the fraction beyond it in two parts, for an f64 of at least 2^26."""
    bits = x.unsigned_bits()
    exponent = (bits >> 52) & 0x7FF
    significand = (bits & ((1 << 52) - 1)) | (1 << 52)
    # x = significand 2^(exponent - 1075); two more bits of 2/π are needed than the exponent says.
    a = _window(exponent - (1075 - 30))
    m_low, m_high = significand & LIMB_MASK, significand >> 32
    low = [m_low * limb for limb in a[:5]]
    high = [m_high * limb for limb in a[1:6]]
    # Column j has the weight 2^(-32 (j + 1)) of four whole quadrants.
    columns = [
        (low[j] & LIMB_MASK) + (low[j + 1] >> 32) + (high[j] & LIMB_MASK) + (high[j + 1] >> 32)
        for j in range(4)
    ]
    for j in (3, 2, 1):
        columns[j - 1] = columns[j - 1] + (columns[j] >> 32)
    top = (columns[0] << 32) | (columns[1] & LIMB_MASK)
    rounded = top + (1 << 61)
    leading = _as_float((rounded >> 32) & 0x3FFFFFFF) - 2.0**29
    parts = [leading * 2.0**-30]
    parts += [_as_float(columns[j] & LIMB_MASK) * 2.0 ** (-30 - 32 * j) for j in (1, 2, 3)]
    sum_two, lost_two = two_sum(parts[0], parts[1])
    total, lost = two_sum(sum_two, parts[2])
    # The sign of x turns the fraction and the quadrant round.
    negative = x < 0.0
    quadrant = rounded >> 62
    rest = lost + (lost_two + parts[3])
    return (
        where(negative, constant(0, u64) - quadrant, quadrant),
        where(negative, -total, total),
        where(negative, -rest, rest),
    )


def _as_float(integer: Number) -> Number:
    """A u64 below 2^52 as an f64."""
    return (integer | 0x4330000000000000).as_float(f64) - 2.0**52


def reduce_quadrant(x: Number) -> Reduced:
    """x modulo π/2."""
    return reduce_f32(x) if x.dtype is f32 else reduce_f64(x)


def is_moderate(x: Number) -> Condition:
    """Whether ``reduce_moderate`` holds for x; not for NaN."""
    return abs(x) < (MODERATE_F32 if x.dtype is f32 else MODERATE_F64)


def reduce_moderate(x: Number) -> Reduced:
    """x modulo π/2, where x is not huge."""
    if x.dtype is f32:
        whole, near = _moderate_f32(x.cast(f64))
        return Reduced(_low_bits(whole), near, None)
    whole, near, low = _moderate_f64(x)
    return Reduced(_low_bits(whole), near, low)
