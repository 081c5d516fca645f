"""Floats to integers as torch does it, also where a number does not fit.

``cast`` saturates, and makes 0 of NaN. torch leaves the matter to the processor, and on x86-64 the
conversion gives the least integer for whatever it cannot hold:

- to 8, 16 and 32 bits the conversion is to 32 bits, of which the low ones are kept: 300.7 becomes
  44 as an i8, and 1e20 becomes 0;
- to i64 and u32 it is to 64 bits;
- to u64, what is 2⁶³ and more is converted without that, which is then put back.

torch's vector code for u32 differs from its own scalar code; the latter is what is done here, for
any number of elements and on every processor.
"""

from __future__ import annotations

from monograph import functional as F
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import DType, f32, i32, i64, u32, u64


def to_integer(x: Value, dtype: DType) -> Value:
    """A float as an integer."""
    if x.dtype.bits < 32:  # the least integer is no number of theirs
        x = cast_to(x, f32)
    if dtype is u64:
        return _to_u64(x)
    wide = i64 if dtype in (i64, u32) else i32
    return cast_to(_convert_as_processor(x, wide), dtype)


def _convert_as_processor(x: Value, dtype: DType) -> Value:
    """What the processor's conversion to a signed integer gives; NaN does not fit either."""
    end = 2.0 ** (dtype.bits - 1)
    return cast_to(F.where(F.less(F.abs(x), end), x, -end), dtype)


def _to_u64(x: Value) -> Value:
    half = 2.0**63
    is_large = F.greater_equal(x, half)
    low = cast_to(_convert_as_processor(F.where(is_large, x - half, x), i64), u64)
    top = F.where(is_large, F.full((), 1 << 63, u64), F.full((), 0, u64))
    return F.bitwise_xor(low, top)
