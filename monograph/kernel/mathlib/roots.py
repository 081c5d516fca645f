"""rsqrt and reciprocal, which are a division each."""

from __future__ import annotations

from monograph.kernel.mathlib.number import Number


def reciprocal(x: Number) -> Number:
    """1 / x, rounded once."""
    return 1.0 / x


def rsqrt(x: Number) -> Number:
    """1 / √x; the root of -0.0 is -0.0, so there it is -inf."""
    return 1.0 / x.sqrt()
