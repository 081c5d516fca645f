"""erf, erfc and erfcx.

erf is a polynomial near 0 and 1 - e^-p(x) further out. erfc has to keep its relative accuracy far
out in the tail: it is e^(-x²) times erfcx, and erfcx(x) (x + c) is a polynomial in
(x - c) / (x + c) on the whole half line. x² is taken with what its rounding loses, which e^(-x²)
would magnify.
"""

from __future__ import annotations

from monograph.ir.types import DType, f32, f64
from monograph.kernel.mathlib.exponential import HEADROOM, exp_in_range, exp_scaled
from monograph.kernel.mathlib.number import Number, fma, horner, two_product, where

ERF_NEAR = 0.85
# erf(x) / x - 1 in x² for |x| ≤ 0.85; relative error: 2^-27.1 and 2^-55.9
ERF_INNER: dict[DType, tuple[float, ...]] = {
    f32: (
        float.fromhex("0x1.06eba8p-3"),
        float.fromhex("-0x1.812726p-2"),
        float.fromhex("0x1.ce256ap-4"),
        float.fromhex("-0x1.b735eap-6"),
        float.fromhex("0x1.4b7630p-8"),
        float.fromhex("-0x1.4cd860p-11"),
    ),
    f64: (
        float.fromhex("0x1.06eba8214db68p-3"),
        float.fromhex("-0x1.812746b03799fp-2"),
        float.fromhex("0x1.ce2f21a03eda2p-4"),
        float.fromhex("-0x1.b82ce31136cadp-6"),
        float.fromhex("0x1.565bccd39422dp-8"),
        float.fromhex("-0x1.c02da808dc4f6p-11"),
        float.fromhex("0x1.f9a1a1d26776cp-14"),
        float.fromhex("-0x1.f4b282909524dp-17"),
        float.fromhex("0x1.b83799bf2116fp-20"),
        float.fromhex("-0x1.5120926a48a5fp-23"),
        float.fromhex("0x1.6ef732815ae6fp-27"),
    ),
}
# -log(erfc(x)) / x for 0.85 ≤ x ≤ 3.95 (f32) and 6 (f64); error of erf: 2^-28.2 and 2^-56.8
ERF_OUTER: dict[DType, tuple[float, ...]] = {
    f32: (
        float.fromhex("0x1.20e750p+0"),
        float.fromhex("0x1.457610p-1"),
        float.fromhex("0x1.af6f8ep-4"),
        float.fromhex("-0x1.77c334p-6"),
        float.fromhex("0x1.a73c64p-9"),
        float.fromhex("-0x1.c45e34p-13"),
    ),
    f64: (
        float.fromhex("0x1.20dd751e8ce5bp+0"),
        float.fromhex("0x1.45f30341b456ap-1"),
        float.fromhex("0x1.a4f5b78080084p-4"),
        float.fromhex("-0x1.3974ef0d800ddp-6"),
        float.fromhex("-0x1.a1b909967f06fp-13"),
        float.fromhex("0x1.b720a4614610fp-10"),
        float.fromhex("-0x1.23da332567251p-11"),
        float.fromhex("-0x1.01003369345dcp-16"),
        float.fromhex("0x1.b610b7b1bcb31p-14"),
        float.fromhex("-0x1.fb0a9502aea52p-15"),
        float.fromhex("0x1.7213d0db2f596p-16"),
        float.fromhex("-0x1.8c28ed38abd8ep-18"),
        float.fromhex("0x1.420d00ee5188fp-20"),
        float.fromhex("-0x1.8c85de97dea3dp-23"),
        float.fromhex("0x1.67caba0f6ac1fp-26"),
        float.fromhex("-0x1.c6c853b9479b0p-30"),
        float.fromhex("0x1.65cdce70305a6p-34"),
        float.fromhex("-0x1.07cfb3d736edfp-39"),
    ),
}
ERF_IS_ONE: dict[DType, float] = {f32: 3.9375, f64: 5.9375}
"""From here on erf rounds to 1."""

ERFCX_CENTER: dict[DType, float] = {f32: 1.5, f64: 4.0}
# erfcx(x) (x + c) in (x - c) / (x + c) for 0.85 ≤ x ≤ 10.1 (f32) and 28 (f64); relative error:
# 2^-25.8 and 2^-55.5
ERFCX: dict[DType, tuple[float, ...]] = {
    f32: (
        float.fromhex("0x1.edf488p-1"),
        float.fromhex("-0x1.0404f2p-1"),
        float.fromhex("0x1.35beaap-4"),
        float.fromhex("0x1.876a7cp-5"),
        float.fromhex("-0x1.0a05dap-7"),
        float.fromhex("-0x1.3b44eep-7"),
        float.fromhex("-0x1.506d7cp-11"),
        float.fromhex("0x1.2c8634p-9"),
    ),
    f64: (
        float.fromhex("0x1.18932bf08e154p+0"),
        float.fromhex("-0x1.f3fe31ecb49c4p-1"),
        float.fromhex("0x1.8be202d26c725p-1"),
        float.fromhex("-0x1.14eacb1ad015cp-1"),
        float.fromhex("0x1.52cac2370f2afp-2"),
        float.fromhex("-0x1.645fd8a4cb5a4p-3"),
        float.fromhex("0x1.38dbd2c93243fp-4"),
        float.fromhex("-0x1.b00c0524ec42ep-6"),
        float.fromhex("0x1.908f46eea98e7p-8"),
        float.fromhex("-0x1.269b61c0cd27fp-12"),
        float.fromhex("-0x1.dd28314525f66p-12"),
        float.fromhex("0x1.72ce4bfe70105p-13"),
        float.fromhex("-0x1.e80bdc8f803e9p-19"),
        float.fromhex("-0x1.3c800aa62a8f0p-16"),
        float.fromhex("0x1.3b2c9d0ae667ap-18"),
        float.fromhex("0x1.809ded0c91ef4p-20"),
        float.fromhex("-0x1.c7470a16923abp-21"),
        float.fromhex("-0x1.75efd38cfeed0p-24"),
        float.fromhex("0x1.09fb4c87bbe53p-23"),
        float.fromhex("0x1.48fa492a8a1b2p-27"),
        float.fromhex("-0x1.d4b4d9774fcadp-27"),
        float.fromhex("-0x1.71e3e06f0b739p-29"),
    ),
}
ERFC_IS_ZERO: dict[DType, float] = {f32: 10.0625, f64: 27.25}
"""From here on erfc underflows."""


def erf(x: Number) -> Number:
    """The error function."""
    size = abs(x)
    square = x * x
    near = fma(horner(square, ERF_INNER[x.dtype]), size, size)
    held = size.at_most(ERF_IS_ONE[x.dtype])
    depth = held * horner(held, ERF_OUTER[x.dtype])
    far = 1.0 - exp_in_range(-depth)
    return where(size < ERF_NEAR, near, far).with_sign_of(x)


def _erfcx_of_positive(x: Number) -> Number:
    center = ERFCX_CENTER[x.dtype]
    inverse = 1.0 / (x + center)
    return horner((x - center) * inverse, ERFCX[x.dtype]) * inverse


def erfc(x: Number) -> Number:
    """1 - erf(x), without cancellation."""
    size = abs(x).at_most(ERFC_IS_ZERO[x.dtype])
    square, lost = two_product(size, size)
    scaled = exp_scaled(-square, -lost) * _erfcx_of_positive(size)
    tail = scaled * 2.0**-HEADROOM
    near = 1.0 - fma(horner(x * x, ERF_INNER[x.dtype]), x, x)
    return where(size < ERF_NEAR, near, where(x < 0.0, 2.0 - tail, tail))
