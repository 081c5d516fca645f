"""Functions of one float, and trigonometry.

ONNX has no exp2, expm1, log2, log1p, rsqrt, erfc or atan2; ONNX Runtime has no erf and atan in f64.
They are expanded into what there is, by formulas that keep their accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, expands, exports
from monograph.ir.build import cast_to
from monograph.ir.graph import Value
from monograph.ir.types import f32, f64
from monograph.ops import elementwise as e
from monograph.ops import erf_reference
from monograph.ops import math as m
from monograph.ops import trigonometry as t


@exports(m.Exp2)
def exp2(node: ExportContext[m.Exp2]) -> Exported:
    """exp2(x) → Pow(2, x)."""
    return node.emit("Pow", node.number(2, node.dtype), *node.inputs)


@exports(m.Rsqrt)
def rsqrt(node: ExportContext[m.Rsqrt]) -> Exported:
    """rsqrt → Reciprocal(Sqrt)."""
    return node.emit("Reciprocal", node.emit("Sqrt", *node.inputs))


@exports(m.Square)
def square(node: ExportContext[m.Square]) -> Exported:
    """square(x) → Mul(x, x)."""
    return node.emit("Mul", *node.inputs, *node.inputs)


@expands(m.Expm1)
def expm1(op: m.Expm1, x: Value) -> Value:
    """(u - 1) x / log(u) for u = exp(x), whose error cancels that of u - 1 (W. Kahan)."""
    grown = m.exp(x)
    above = grown - 1.0
    near = above * x / m.log(grown)
    far = e.logical_or(e.equal(grown, math.inf), e.equal(above, -1.0))
    return e.where(e.equal(grown, 1.0), x, e.where(far, above, near))


@expands(m.Log1p)
def log1p(op: m.Log1p, x: Value) -> Value:
    """log(u) x / (u - 1) for u = 1 + x, whose error cancels that of log(u) (W. Kahan)."""
    moved = x + 1.0
    near = m.log(moved) * x / (moved - 1.0)
    return e.where(e.equal(moved, 1.0), x, e.where(e.equal(moved, math.inf), moved, near))


@expands(m.Log2)
def log2(op: m.Log2, x: Value) -> Value:
    """The natural logarithm in f64, over that of 2."""
    return cast_to(m.log(cast_to(x, f64)) * (1.0 / m.LN_2), x.dtype)


@expands(m.Erf)
def erf(op: m.Erf, x: Value) -> Value:
    """See ``ops.erf_reference``, whose series this is."""
    size = e.abs(x)
    inner = _series(e.where(size <= 1.0, x, 0.0))
    return e.where(size <= 1.0, inner, e.copysign(1.0 - _tail(size, len(erf_reference._TAIL)), x))


@expands(m.Erfc)
def erfc(op: m.Erfc, x: Value) -> Value:
    """See ``ops.erf_reference``, whose series this is; f32 needs fewer terms of it."""
    wide = cast_to(x, f64)
    size = e.abs(wide)
    tail = _tail(size, 16 if x.dtype is f32 else len(erf_reference._TAIL))
    outer = e.where(wide < 0.0, 2.0 - tail, tail)
    inner = 1.0 - _series(e.where(size <= 0.5, wide, 0.0))
    return cast_to(e.where(size <= 0.5, inner, outer), x.dtype)


def _series(x: Value) -> Value:
    """erf near 0, by its Taylor series."""
    squared = x * x
    total: Value | float = erf_reference._TAYLOR[-1]
    for coefficient in reversed(erf_reference._TAYLOR[:-1]):
        total = squared * total + coefficient
    return x * total


def _tail(size: Value, terms: int) -> Value:
    """erfc of numbers that are not negative."""
    near = e.minimum(size, 30.0)
    smooth = _chebyshev((near - 4.0) / (near + 4.0), erf_reference._TAIL[:terms])
    head = e.floor(near * 16.0) / 16.0
    fine = m.exp(e.negate(near - head) * (near + head))
    return m.exp(e.negate(head) * head) * (fine * smooth / (near * 2.0 + 1.0))


def _chebyshev(x: Value, coefficients: Sequence[float]) -> Value:
    """A Chebyshev series by Clenshaw's recurrence."""
    doubled = x * 2.0
    before: Value | float = 0.0
    current: Value | float = coefficients[-1]
    for coefficient in reversed(coefficients[1:-1]):
        before, current = current, doubled * current - before + coefficient
    return x * current - before + coefficients[0]


@expands(t.Atan)
def atan(op: t.Atan, x: Value) -> Value:
    """Of f64: the angle in f32, and what f64 finds to be missing from it.

    With y near atan(z), atan(z) = y + atan((z cos y - sin y) / (cos y + z sin y)), whose last
    part is so small that it is its own tangent.
    """
    size = e.abs(x)
    outside = size > 1.0
    z = e.where(outside, 1.0 / size, size)
    angle = cast_to(t.atan(cast_to(z, f32)), f64)
    cosine, sine = m.cos(angle), m.sin(angle)
    exact = angle + (z * cosine - sine) / (cosine + z * sine)
    return e.copysign(e.where(outside, math.pi / 2 - exact, exact), x)


@expands(e.Atan2)
def atan2(op: e.Atan2, y: Value, x: Value) -> Value:
    """The angle in the first octant, reflected to where the point is."""
    across, along = e.abs(y), e.abs(x)
    steep = across > along
    larger = e.where(steep, across, along)
    # Of two infinities the angle is halfway, and of two zeros it is 0.
    equal = e.logical_and(e.equal(across, along), e.logical_or(e.is_inf(x), e.equal(x, 0.0)))
    ratio = e.where(steep, along, across) / e.where(equal, 1.0, larger)
    ratio = e.where(equal, e.cast(e.is_inf(x), x.dtype), ratio)
    octant = t.atan(ratio)
    quadrant = e.where(steep, math.pi / 2 - octant, octant)
    leftwards = e.copysign(1.0, x) < 0.0
    return e.copysign(e.where(leftwards, math.pi - quadrant, quadrant), y)


@expands(e.Trunc)
def trunc(op: e.Trunc, x: Value) -> Value:
    """The floor of the magnitude, with the sign."""
    return e.copysign(e.floor(e.abs(x)), x)


@expands(e.TruncateDivide)
def truncate_divide(op: e.TruncateDivide, a: Value, b: Value) -> Value:
    """Of floats: the quotient, truncated."""
    return e.trunc(a / b)


@expands(e.Copysign)
def copysign(op: e.Copysign, a: Value, b: Value) -> Value:
    """By comparison; a NaN has no sign that could be seen this way, and counts as positive."""
    negative = e.logical_or(b < 0.0, e.logical_and(e.equal(b, 0.0), 1.0 / b < 0.0))
    size = e.abs(a)
    return e.where(negative, e.negate(size), size)
