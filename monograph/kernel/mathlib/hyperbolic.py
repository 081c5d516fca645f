"""tanh, sinh, cosh and their inverses.

tanh is a polynomial near 0, where 1 - 2 / (e^2x + 1) would cancel, and that form further out.
"""

from __future__ import annotations

from monograph.ir.types import DType, f32, f64
from monograph.kernel.mathlib.exponential import exp_in_range
from monograph.kernel.mathlib.number import Number, fma, horner, where

# (tanh(x) - x) / x³ in x² for |x| ≤ 0.625; error relative to tanh: 2^-27.8 and 2^-57.7
TANH: dict[DType, tuple[float, ...]] = {
    f32: (
        float.fromhex("-0x1.555534p-2"),
        float.fromhex("0x1.110760p-3"),
        float.fromhex("-0x1.b84340p-5"),
        float.fromhex("0x1.52509ep-6"),
        float.fromhex("-0x1.76922ap-8"),
    ),
    f64: (
        float.fromhex("-0x1.5555555555552p-2"),
        float.fromhex("0x1.1111111110c39p-3"),
        float.fromhex("-0x1.ba1ba1b9d1155p-5"),
        float.fromhex("0x1.664f4870c0be8p-6"),
        float.fromhex("-0x1.226e32d127b23p-7"),
        float.fromhex("0x1.d6d35aa4159a5p-9"),
        float.fromhex("-0x1.7d9c3a030448ep-10"),
        float.fromhex("0x1.350bcb934247cp-11"),
        float.fromhex("-0x1.f1168b8ba4b80p-13"),
        float.fromhex("0x1.8027a7d505f17p-14"),
        float.fromhex("-0x1.faf87e7d52142p-16"),
        float.fromhex("0x1.9661a87675a6fp-18"),
    ),
}
TANH_NEAR = 0.625
TANH_IS_ONE: dict[DType, float] = {f32: 9.125, f64: 19.25}
"""From here on tanh rounds to 1."""


def tanh(x: Number) -> Number:
    """The hyperbolic tangent."""
    size = abs(x)
    square = x * x
    near = fma(square * horner(square, TANH[x.dtype]), size, size)
    growth = exp_in_range(size.at_most(TANH_IS_ONE[x.dtype]) * 2.0)
    far = 1.0 - 2.0 / (growth + 1.0)
    return where(size < TANH_NEAR, near, far).with_sign_of(x)
