"""Airy's function as loops: a power series, an integral to the right, a wave to the left.

The formulas, and where each is taken, are those of ``special_bessel``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from monograph.ir.lower import LoopBuilder
from monograph.ir.types import f64
from monograph.ops.bessel_reference import (
    AIRY_AT_ZERO,
    AIRY_SLOPE,
    QUADRATURE_NODES,
    wave_coefficients,
)
from monograph.ops.special_loops import Number, Variable, for_each_element

SERIES_TERMS = 59
SERIES_FROM, SERIES_TO = -7.0, 1.0
"""Where the power series is taken."""


def lower_airy(b: LoopBuilder) -> None:
    """The loops of ``airy_ai``."""

    def value(operands: Sequence[Number]) -> Number:
        (x,) = operands
        result = Variable(x.where(x.apply("abs").equals(math.inf), 0.0, math.nan))
        right = b.apply("logical_and", x.of(SERIES_TO).less(x), x.less(math.inf))
        left = b.apply("logical_and", x.less(SERIES_FROM), x.of(-math.inf).less(x))
        near = (x.apply("greater_equal", SERIES_FROM), x.apply("less_equal", SERIES_TO))
        middle = b.apply("logical_and", *(side.scalar for side in near))
        with b.when(right):
            result.set(_decay(b, x))
        with b.when(left):
            result.set(_wave(-x))
        with b.when(middle):
            result.set(_series(b, x))
        return result.get()

    for_each_element(b, value)


def _series(b: LoopBuilder, x: Number) -> Number:
    """The two power series around 0."""
    cube = x * x * x
    even, odd = Variable(x.of(AIRY_AT_ZERO)), Variable(-AIRY_SLOPE * x)
    total = Variable(even.get() + odd.get())
    with b.loop(SERIES_TERMS) as k:
        step = Number(b, b.cast((k + 1) * 3, f64))
        even.set(even.get() * cube / (step * (step - 1.0)))
        odd.set(odd.get() * cube / (step * (step + 1.0)))
        total.set(total.get() + even.get() + odd.get())
    return total.get()


def _decay(b: LoopBuilder, x: Number) -> Number:
    """√(x/3) / π K(2/3 x^1.5) of order 1/3, by equal steps of its integral."""
    depth = x * x.apply("sqrt") * (2 / 3)
    reach = 40.0 / depth
    end = (reach + reach.apply("sqrt") * (2.0 + reach).apply("sqrt")).apply("log1p")
    root = depth.apply("sqrt") * math.sqrt(2.0)
    step = end / float(QUADRATURE_NODES)
    total = Variable(x.of(0.5))
    with b.loop(QUADRATURE_NODES) as node:
        t = step * Number(b, b.cast(node + 1, f64))
        arc = root * (t * 0.5).apply("sinh")
        bell = (-(arc * arc)).apply("exp")
        total.set(total.get() + bell * (t * (1 / 3)).apply("cosh"))
    scale = (x / 3.0).apply("sqrt") / math.pi
    return scale * (total.get() * step) * (-depth).apply("exp")


def _wave(size: Number) -> Number:
    """Ai(-x) by its asymptotic series."""
    depth = size * size.apply("sqrt") * (2 / 3)
    coefficients = wave_coefficients()
    inverse = -1.0 / (depth * depth)
    even = _polynomial(inverse, coefficients[0::2])
    odd = _polynomial(inverse, coefficients[1::2]) / depth
    angle = depth - math.pi / 4
    waves = angle.cos() * even + angle.sin() * odd
    return waves / (math.sqrt(math.pi) * size.apply("sqrt").apply("sqrt"))


def _polynomial(x: Number, coefficients: Sequence[float]) -> Number:
    total = x.of(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total
