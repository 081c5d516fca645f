"""exp, exp2 and expm1.

x is split as n ln 2 + r with |r| ≤ ln 2 / 2, e^r is a polynomial, and 2^n is built from its bits:
adding a large constant to x / ln 2 rounds it to n and leaves n in the lowest bits of the sum, from
where a shift moves it into the exponent field. Where the result may be subnormal or huge, 2^n is
applied in two factors, so that the only rounding is the last product's; elsewhere, which is nearly
always, n is added to the exponent field of e^r.
"""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.types import DType, f32, f64
from monograph.kernel.mathlib.number import (
    FORMATS,
    Condition,
    Number,
    fma,
    horner,
    rarely,
    where,
)

LOG2_E = 1.4426950408889634
LN2 = 0.6931471805599453


@dataclass(frozen=True)
class Tables:
    """What a dtype needs: ln 2 in two parts, polynomials, and where results over- and underflow."""

    ln2_high: float
    """So short that n times it is exact."""
    ln2_low: float
    natural: tuple[float, ...]
    """(e^r - 1 - r) / r²"""
    binary: tuple[float, ...]
    """(2^r - 1) / r"""
    ordinary: float
    """Up to this size exp is neither subnormal nor infinite, nor next to it."""
    nearly_zero: float
    """e to this is next to the power of two whose exponent field is 0: its bits are those of 0."""
    lowest: float
    """Below this exp is 0."""
    highest: float
    """Above this exp is infinite."""
    binary_range: tuple[float, float]
    lowest_minus_one: float
    """Below this expm1 is -1."""


TABLES: dict[DType, Tables] = {
    f32: Tables(
        ln2_high=float.fromhex("0x1.62e4p-1"),
        ln2_low=float.fromhex("0x1.7f7d1cp-20"),
        # |r| ≤ ln 2 / 2; error relative to e^r: 3.1e-9 = 2^-28.2
        natural=(
            float.fromhex("0x1.fffffcp-2"),
            float.fromhex("0x1.555492p-3"),
            float.fromhex("0x1.5558b0p-5"),
            float.fromhex("0x1.12398ep-7"),
            float.fromhex("0x1.6a4d60p-10"),
        ),
        # |r| ≤ 1/2; error relative to 2^r: 3.0e-9 = 2^-28.3
        binary=(
            float.fromhex("0x1.62e430p-1"),
            float.fromhex("0x1.ebfbdcp-3"),
            float.fromhex("0x1.c6af7ap-5"),
            float.fromhex("0x1.3b2dd2p-7"),
            float.fromhex("0x1.5f0946p-10"),
            float.fromhex("0x1.417a5cp-13"),
        ),
        ordinary=86.5,
        nearly_zero=-88.25,
        lowest=-104.0,
        highest=89.0,
        binary_range=(-151.0, 129.0),
        lowest_minus_one=-18.0,
    ),
    f64: Tables(
        ln2_high=float.fromhex("0x1.62e42feep-1"),
        ln2_low=float.fromhex("0x1.a39ef35793c76p-33"),
        # |r| ≤ ln 2 / 2; error relative to e^r: 7.7e-19 = 2^-60.2
        natural=(
            float.fromhex("0x1.0000000000000p-1"),
            float.fromhex("0x1.555555555555bp-3"),
            float.fromhex("0x1.5555555555502p-5"),
            float.fromhex("0x1.111111110ec40p-7"),
            float.fromhex("0x1.6c16c16c30614p-10"),
            float.fromhex("0x1.a01a01b389fe2p-13"),
            float.fromhex("0x1.a01a01364160ap-16"),
            float.fromhex("0x1.71ddf002b5837p-19"),
            float.fromhex("0x1.27e5b4a8cc4afp-22"),
            float.fromhex("0x1.af6c1d6e6b479p-26"),
            float.fromhex("0x1.1e3ceb2c45792p-29"),
        ),
        # |r| ≤ 1/2; error relative to 2^r: 1.8e-17 = 2^-55.6
        binary=(
            float.fromhex("0x1.62e42fefa39efp-1"),
            float.fromhex("0x1.ebfbdff82c58fp-3"),
            float.fromhex("0x1.c6b08d704a0cfp-5"),
            float.fromhex("0x1.3b2ab6fba4e21p-7"),
            float.fromhex("0x1.5d87fe78a26cap-10"),
            float.fromhex("0x1.430912f883f94p-13"),
            float.fromhex("0x1.ffcbfc74d61dcp-17"),
            float.fromhex("0x1.62c021e1e6904p-20"),
            float.fromhex("0x1.b524dd54ce4cep-24"),
            float.fromhex("0x1.e4d06e1d9f531p-28"),
            float.fromhex("0x1.ea014fdebb7cbp-32"),
            float.fromhex("0x1.c2cc967477620p-36"),
        ),
        ordinary=707.0,
        nearly_zero=-709.125,
        lowest=-746.0,
        highest=710.0,
        binary_range=(-1076.0, 1025.0),
        lowest_minus_one=-38.0,
    ),
}

HEADROOM = 96
"""``exp_scaled`` gives 2^96 times the exponential, which is then far from the subnormals."""


def power_of_two(shifted: Number, dtype: DType) -> Number:
    """2^k, where the lowest bits of ``shifted`` hold k plus the exponent's bias."""
    return (shifted << FORMATS[dtype].mantissa).as_float(dtype)


def times_power_of_two(x: Number, doubled: Number) -> Number:
    """``x * 2^n`` rounded once, where the lowest bits of ``doubled`` hold n plus twice the bias.

    n is halved: neither factor overflows, and the first product is exact.
    """
    half = doubled >> 1
    return x * power_of_two(half, x.dtype) * power_of_two(doubled - half, x.dtype)


def split(x: Number, added: int) -> tuple[Number, Number, Number]:
    """n, x - n ln 2 as far as it is exact, and a sum whose lowest bits hold n + ``added``."""
    shifter = x.format.shifter + added
    shifted = fma(x, LOG2_E, shifter)
    whole = shifted - shifter
    return whole, fma(whole, -TABLES[x.dtype].ln2_high, x), shifted.unsigned_bits()


def rest_of(whole: Number, exact: Number) -> Number:
    """r = x - n ln 2, from what ``split`` gave."""
    return fma(whole, -TABLES[whole.dtype].ln2_low, exact)


def exp_of_rest(rest: Number) -> Number:
    """e^r for |r| ≤ ln 2 / 2."""
    return horner(rest, (1.0, 1.0, *TABLES[rest.dtype].natural))


def with_exponent_raised(x: Number, shifted: Number) -> Number:
    """``x * 2^n``, a normal number, where the lowest bits of ``shifted`` hold n."""
    return ((shifted << x.format.mantissa) + x.unsigned_bits()).as_float(x.dtype)


def is_ordinary(x: Number) -> Condition:
    """Whether ``ordinary_exp`` holds for x; not for NaN."""
    return abs(x) < TABLES[x.dtype].ordinary


def ordinary_exp(x: Number, sign: float = 1.0) -> Number:
    """e to the x (or to the -x, with that sign) where that is far from over- and underflow."""
    shifted = fma(x, sign * LOG2_E, x.format.shifter)
    whole = shifted - x.format.shifter
    exact = fma(whole, -TABLES[x.dtype].ln2_high, x if sign > 0 else -x)
    return with_exponent_raised(exp_of_rest(rest_of(whole, exact)), shifted.unsigned_bits())


def exp(x: Number) -> Number:
    """e to the x."""
    tables = TABLES[x.dtype]
    held = x.at_least(tables.lowest).at_most(tables.highest)
    whole, exact, shifted = split(held, 2 * x.format.bias)
    any_size = times_power_of_two(exp_of_rest(rest_of(whole, exact)), shifted)
    return rarely(~is_ordinary(x), any_size, ordinary_exp(x))


def exp_scaled(x: Number, low: Number | None = None) -> Number:
    """2^96 e^(x + low), for an x between the lowest that matters and 0 and a tiny ``low``.

    The result is a normal number even where the exponential is subnormal: whoever multiplies it
    further and then by 2^-96 rounds in the subnormal range only once.
    """
    whole, exact, shifted = split(x, x.format.bias + HEADROOM)
    rest = rest_of(whole, exact)
    if low is not None:
        rest = rest + low
    return exp_of_rest(rest) * power_of_two(shifted, x.dtype)


def exp_in_range(x: Number) -> Number:
    """e to the x, where neither that nor 1 over it is near over- or underflow."""
    whole, exact, shifted = split(x, x.format.bias)
    return exp_of_rest(rest_of(whole, exact)) * power_of_two(shifted, x.dtype)


def exp_of_negative(x: Number) -> Number:
    """e to the x for x ≤ 0, in fewer instructions than ``exp``."""
    held = x.at_least(TABLES[x.dtype].lowest)
    return exp_scaled(held) * 2.0**-HEADROOM


def decay(x: Number) -> Number:
    """e to the x for x ≤ 0; what is less than about half the smallest normal number is 0."""
    tables = TABLES[x.dtype]
    held = x.at_least(tables.nearly_zero)
    shifter = x.format.shifter + x.format.bias
    shifted = fma(held, LOG2_E, shifter)
    whole = shifted - shifter
    if x.dtype is f32:  # n is so small that ln 2 need not be in two parts
        rest = fma(whole, -LN2, held)
    else:
        rest = rest_of(whole, fma(whole, -tables.ln2_high, held))
    return exp_of_rest(rest) * power_of_two(shifted.unsigned_bits(), x.dtype)


def exp2(x: Number) -> Number:
    """2 to the x."""
    lowest, highest = TABLES[x.dtype].binary_range
    held = x.at_least(lowest).at_most(highest)
    return exp2_in_parts(held, None)


def exp2_in_parts(x: Number, low: Number | None) -> Number:
    """2 to the (x + low), for a small ``low`` and an x not far beyond the range of results."""
    shifter = x.format.shifter + 2 * x.format.bias
    shifted = x + shifter
    rest = x - (shifted - shifter)
    if low is not None:
        rest = rest + low
    significand = horner(rest, (1.0, *TABLES[x.dtype].binary))
    return times_power_of_two(significand, shifted.unsigned_bits())


def expm1(x: Number) -> Number:
    """e to the x, less 1: 2^n (e^r - 1) + (2^n - 1), halved on the way lest 2^n overflow."""
    tables = TABLES[x.dtype]
    held = x.at_least(tables.lowest_minus_one).at_most(tables.highest)
    whole, exact, shifted = split(held, x.format.bias - 1)
    rest = rest_of(whole, exact)
    lost = fma(whole, -tables.ln2_low, exact - rest)
    small = fma(rest * rest, horner(rest, tables.natural), lost)
    half_scale = power_of_two(shifted, x.dtype)
    far = fma(half_scale, small, fma(half_scale, rest, half_scale - 0.5)) * 2.0
    return where(whole.equals(0.0), rest + small, far).with_sign_of(x)
