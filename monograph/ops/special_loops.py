"""Special functions by data-dependent iteration, as loops over one element at a time.

The formulas are those of ``special_gamma`` and ``polynomials``, in f64 and rounded once. ``Number``
lets them be written with Python's operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from monograph.ir.lower import Cell, LoopBuilder, Position, Scalar
from monograph.ir.types import f64
from monograph.ops.gamma_reference import BERNOULLI

if TYPE_CHECKING:
    from monograph.ops.polynomials import Recurrence

MOST_TERMS = 1 << 24
"""Terms after which a recurrence ends, whatever its degree."""


class Number:
    """An f64 of the loops; NumPy's functions of one call its method of their name."""

    def __init__(self, b: LoopBuilder, scalar: Scalar) -> None:
        self.b = b
        self.scalar = scalar

    def of(self, value: Number | float) -> Number:
        """A number as one of these."""
        if isinstance(value, Number):
            return value
        return Number(self.b, self.b.literal(float(value), f64))

    def apply(self, function: str, *others: Number | float) -> Number:
        """A scalar function of this number and others."""
        operands = [self.of(other).scalar for other in others]
        return Number(self.b, self.b.apply(function, self.scalar, *operands))

    def __add__(self, other: Number | float) -> Number:
        return self.apply("add", other)

    def __sub__(self, other: Number | float) -> Number:
        return self.apply("subtract", other)

    def __mul__(self, other: Number | float) -> Number:
        return self.apply("multiply", other)

    def __truediv__(self, other: Number | float) -> Number:
        return self.apply("divide", other)

    def __radd__(self, other: float) -> Number:
        return self.of(other) + self

    def __rsub__(self, other: float) -> Number:
        return self.of(other) - self

    def __rmul__(self, other: float) -> Number:
        return self.of(other) * self

    def __rtruediv__(self, other: float) -> Number:
        return self.of(other) / self

    def __neg__(self) -> Number:
        return self.apply("negate")

    def cos(self) -> Number:
        """Its cosine."""
        return self.apply("cos")

    def sin(self) -> Number:
        """Its sine."""
        return self.apply("sin")

    def less(self, other: Number | float) -> Scalar:
        """Whether it is less than another."""
        return self.apply("less", other).scalar

    def equals(self, other: Number | float) -> Scalar:
        """Whether it is another."""
        return self.apply("equal", other).scalar

    def where(self, condition: Scalar, yes: Number | float, no: Number | float) -> Number:
        """One of two numbers."""
        chosen = self.b.select(condition, self.of(yes).scalar, self.of(no).scalar)
        return Number(self.b, chosen)


class Variable:
    """A number that loops change."""

    def __init__(self, initial: Number) -> None:
        self.b = initial.b
        self.cell: Cell = initial.b.variable(initial.scalar)

    def get(self) -> Number:
        """What it is now."""
        return Number(self.b, self.cell.get())

    def set(self, value: Number | float) -> None:
        """Let it be this."""
        self.cell.set(self.get().of(value).scalar)


def for_each_element(b: LoopBuilder, compute: Callable[[Sequence[Number]], Number]) -> None:
    """Fill the result with a function of the elements that meet at each position."""
    with b.parallel(b.results[0].shape) as at:
        operands = [_element(b, k, at) for k in range(len(b.operands))]
        b.store(b.result(), at, compute(operands).scalar)


def _element(b: LoopBuilder, operand: int, at: Position) -> Number:
    return Number(b, b.cast(b.broadcast(operand, at), f64))


def _not(b: LoopBuilder, condition: Scalar) -> Scalar:
    return b.apply("logical_not", condition)


def _either(b: LoopBuilder, *conditions: Scalar) -> Scalar:
    found = conditions[0]
    for condition in conditions[1:]:
        found = b.apply("logical_or", found, condition)
    return found


# Polynomials --------------------------------------------------------------------------------------


def lower_polynomial(
    b: LoopBuilder, recurrence: Recurrence, shifted: bool, limit: int | None
) -> None:
    """The loops of ``polynomial``: the recurrence, up to each element's degree."""

    def value(operands: Sequence[Number]) -> Number:
        given, order = operands
        x = 2 * given - 1 if shifted else given
        whole = order.apply("trunc")
        degree = whole.where(_not(b, whole.equals(whole)), -1.0, whole)
        known = degree.where(degree.less(0.0), 0.0, 1.0)
        pending = b.apply("logical_and", degree.of(0.0).less(degree), degree.less(math.inf))
        if limit is not None:
            high = degree.of(float(limit)).less(degree)
            known = known.where(high, math.nan, known)
            pending = b.apply("logical_and", pending, _not(b, high))
        if recurrence.oscillation is not None:
            inside = x.apply("abs").less(1.0)
            swift = b.apply("logical_and", degree.of(8.0).less(degree), inside)
            angle = x.where(swift, x, 0.0).apply("acos")
            known = known.where(swift, recurrence.oscillation(angle, degree), known)
            pending = b.apply("logical_and", pending, _not(b, swift))
        result = Variable(known)
        with b.when(pending):
            result.set(_run_recurrence(b, recurrence, x, degree))
        return result.get()

    for_each_element(b, value)


def _run_recurrence(b: LoopBuilder, recurrence: Recurrence, x: Number, degree: Number) -> Number:
    """The polynomial of a positive degree."""
    before, current = Variable(x.of(1.0)), Variable(recurrence.first(x))
    count = Variable(x.of(1.0))
    last = degree.apply("minimum", float(MOST_TERMS))
    with b.while_(lambda: count.get().less(last)):
        p, q, k = current.get(), before.get(), count.get()
        following = recurrence.following(x, k, p, q)
        before.set(p)
        current.set(following)
        count.set(k + 1.0)
    return current.get()


# Zeta ---------------------------------------------------------------------------------------------


def lower_zeta(b: LoopBuilder) -> None:
    """The loops of ``zeta``."""
    for_each_element(b, lambda operands: _zeta(b, operands[0], operands[1]))


def lower_polygamma(b: LoopBuilder, order: int) -> None:
    """The loops of ``polygamma``."""
    if order == 0:
        for_each_element(b, lambda operands: operands[0].apply("digamma"))
        return
    try:
        factor = float(math.factorial(order))
    except OverflowError:
        factor = math.inf
    signed = factor if order % 2 else -factor

    def value(operands: Sequence[Number]) -> Number:
        (x,) = operands
        found = _zeta(b, x.of(order + 1.0), x) * signed
        return x.where(x.equals(-math.inf), math.nan, found)

    for_each_element(b, value)


def _zeta(b: LoopBuilder, x: Number, q: Number) -> Number:
    power = x.where(x.of(1.0).less(x), x, 2.0)
    positive = q.of(0.0).less(q)
    size = q.where(positive, 0.0, -q)
    whole = size.apply("floor")
    part = size.where(size.equals(whole), 0.5, size - whole)
    below = _positive_zeta(b, power, part) - _positive_zeta(b, power, size + 1.0)
    half = power * 0.5
    mirrored = below.where(half.equals(half.apply("floor")), below, -below)
    mirrored = mirrored + _positive_zeta(b, power, 1.0 - part)
    direct = _positive_zeta(b, power, q.where(positive, q, 1.0))
    result = q.where(positive, direct, mirrored)
    is_broken = _not(b, power.equals(power.apply("floor")))
    others = _not(b, positive)
    result = q.where(b.apply("logical_and", others, is_broken), math.nan, result)
    is_pole = b.apply("logical_and", others, q.equals(q.apply("floor")))
    result = q.where(is_pole, math.inf, result)
    result = x.where(x.equals(1.0), math.inf, x.where(x.less(1.0), math.nan, result))
    undefined = _either(b, _not(b, x.equals(x)), _not(b, q.equals(q)))
    return x.where(undefined, math.nan, result)


def _positive_zeta(b: LoopBuilder, x: Number, q: Number) -> Number:
    """Euler and Maclaurin's sum, for x > 1 and q > 0."""
    total = Variable(q.of(0.0))
    with b.loop(10) as step:
        at = q + Number(b, b.cast(step, f64))
        total.set(total.get() + at.apply("power", -x))
    far = q + 10.0
    last = far.apply("power", -x)
    tail = last * far / (x - 1.0) + 0.5 * last
    factor, inverse = x * last / far, 1.0 / (far * far)
    correction = q.of(0.0)
    for k, bernoulli in enumerate(BERNOULLI):
        order = 2 * k + 2
        correction = correction + factor * (bernoulli / math.factorial(order))
        factor = factor * (x + (order - 1)) * (x + order) * inverse
    sum_ = total.get()
    matters = (sum_ * 1e-18).less(last)
    return sum_ + last.where(matters, tail + correction, 0.0)


# The incomplete gamma function --------------------------------------------------------------------

MIN_QUADRATURE_SHAPE = 100.0
"""The shape from which the integrand is a bell that a quadrature takes."""
MAX_SERIES_TERMS = 400
QUADRATURE_POINTS = 64
"""Points of the quadrature."""


def lower_incomplete_gamma(b: LoopBuilder, upper: bool) -> None:
    """The loops of ``igamma`` and ``igammac``."""

    def value(operands: Sequence[Number]) -> Number:
        a, x = operands
        nothing, everything = (1.0, 0.0) if upper else (0.0, 1.0)
        found = Variable(a.of(math.nan))
        zero = a.of(0.0)
        inside = b.apply("logical_and", zero.less(a), zero.less(x))
        finite = b.apply("logical_and", a.less(math.inf), x.less(math.inf))
        inside = b.apply("logical_and", inside, finite)
        with b.when(inside):
            _incomplete(b, found, a, x, upper)
        result = found.get()
        is_start = b.apply("logical_and", x.equals(0.0), zero.less(a))
        result = a.where(is_start, nothing, result)
        is_flat = b.apply("logical_and", a.equals(0.0), zero.less(x))
        result = a.where(is_flat, everything, result)
        is_end = b.apply("logical_and", x.equals(math.inf), _not(b, a.less(0.0)))
        result = a.where(is_end, everything, result)
        is_far = b.apply("logical_and", a.equals(math.inf), _not(b, x.less(0.0)))
        is_far = b.apply("logical_and", is_far, x.less(math.inf))
        result = a.where(is_far, nothing, result)
        undefined = _either(
            b,
            a.less(0.0),
            x.less(0.0),
            b.apply("logical_and", a.equals(0.0), x.equals(0.0)),
            b.apply("logical_and", a.equals(math.inf), x.equals(math.inf)),
            _not(b, a.equals(a)),
            _not(b, x.equals(x)),
        )
        return a.where(undefined, math.nan, result)

    for_each_element(b, value)


def _incomplete(b: LoopBuilder, found: Variable, a: Number, x: Number, upper: bool) -> None:
    """One of the ways to a result, for positive finite numbers."""
    is_large = _not(b, a.less(MIN_QUADRATURE_SHAPE))
    in_series = b.apply("logical_and", _not(b, is_large), x.less(a + 1.0))
    in_fraction = b.apply("logical_and", _not(b, is_large), _not(b, x.less(a + 1.0)))
    with b.when(is_large):
        found.set(_by_quadrature(b, a, x, upper))
    if upper:
        is_tiny = b.apply("logical_and", in_series, _not(b, x.of(1.1).less(x)))
        with b.when(is_tiny):
            found.set(_upper_series(b, a, x))
        in_series = b.apply("logical_and", in_series, x.of(1.1).less(x))
    with b.when(in_series):
        series = _lower_series(b, a, x)
        found.set(1.0 - series if upper else series)
    with b.when(in_fraction):
        fraction = _upper_fraction(b, a, x)
        found.set(fraction if upper else 1.0 - fraction)


def _prefactor(a: Number, x: Number) -> Number:
    """xᵃ e⁻ˣ / Γ(a)."""
    return (a * x.apply("log") - x - a.apply("lgamma")).apply("exp")


def _lower_series(b: LoopBuilder, a: Number, x: Number) -> Number:
    term, total = Variable(1.0 / a), Variable(1.0 / a)
    step = Variable(a.of(1.0))

    def goes_on() -> Scalar:
        small = _not(b, (total.get() * 1e-17).less(term.get()))
        few = step.get().less(float(MAX_SERIES_TERMS))
        return b.apply("logical_and", few, _not(b, small))

    with b.while_(goes_on):
        k = step.get()
        following = term.get() * x / (a + k)
        term.set(following)
        total.set(total.get() + following)
        step.set(k + 1.0)
    return total.get() * _prefactor(a, x)


def _upper_series(b: LoopBuilder, a: Number, x: Number) -> Number:
    total, power = Variable(a.of(0.0)), Variable(a.of(1.0))
    with b.loop(39) as k:
        step = Number(b, b.cast(k + 1, f64))
        following = power.get() * (-x / step)
        power.set(following)
        total.set(total.get() + following / (a + step))
    logarithm = a * x.apply("log") - (a + 1.0).apply("lgamma")
    return -logarithm.apply("expm1") - logarithm.apply("exp") * a * total.get()


def _upper_fraction(b: LoopBuilder, a: Number, x: Number) -> Number:
    """Q(a, x) by Lentz' method."""
    tiny = 1e-300
    base, ratio = Variable(x + 1.0 - a), Variable(a.of(1.0 / tiny))
    inverse = Variable(1.0 / (x + 1.0 - a))
    result, change = Variable(inverse.get()), Variable(a.of(0.0))
    step = Variable(a.of(1.0))

    def held(number: Number) -> Number:
        return number.where(number.apply("abs").less(tiny), tiny, number)

    def goes_on() -> Scalar:
        far = _not(b, (change.get() - 1.0).apply("abs").less(1e-16))
        return b.apply("logical_and", step.get().less(float(MAX_SERIES_TERMS)), far)

    with b.while_(goes_on):
        k = step.get()
        numerator = -k * (k - a)
        following = base.get() + 2.0
        d = 1.0 / held(numerator * inverse.get() + following)
        c = held(following + numerator / ratio.get())
        base.set(following)
        inverse.set(d)
        ratio.set(c)
        change.set(c * d)
        result.set(result.get() * (c * d))
        step.set(k + 1.0)
    return result.get() * _prefactor(a, x)


def _by_quadrature(b: LoopBuilder, a: Number, x: Number, upper: bool) -> Number:
    """The bell around a - 1, cut off ten widths away."""
    peak = a - 1.0
    width = peak.apply("sqrt")
    beyond = peak.less(x)
    high = (peak + 12.0 * width).apply("maximum", x + 8.0 * width)
    low = (peak - 9.0 * width).apply("minimum", x - 7.0 * width).apply("maximum", 0.0)
    end = x.where(beyond, high, low)
    nodes, weights = (b.local(f64, QUADRATURE_POINTS) for _ in range(2))
    for k, (node, weight) in enumerate(
        zip(*np.polynomial.legendre.leggauss(QUADRATURE_POINTS), strict=True)
    ):
        b.store(nodes, [b.index(k)], b.literal(0.5 * float(node) + 0.5, f64))
        b.store(weights, [b.index(k)], b.literal(0.5 * float(weight), f64))
    sum_ = Variable(x.of(0.0))
    with b.loop(QUADRATURE_POINTS) as point:
        at = x + (end - x) * Number(b, b.load(nodes, [point]))
        away = (at - peak) / peak
        safe = away.apply("maximum", -1.0 + 1e-300)
        bell = (peak * (safe.apply("log1p") - away)).apply("exp")
        sum_.set(sum_.get() + bell * Number(b, b.load(weights, [point])))
    total = sum_.get()
    scale = (-_stirling(peak)).apply("exp") / (2.0 * math.pi * peak).apply("sqrt")
    part = total * (end - x) * scale
    if upper:
        return part.where(beyond, part, 1.0 + part)
    return part.where(beyond, 1.0 - part, -part)


def _stirling(x: Number) -> Number:
    """log Γ(x) - (x - ½) log x + x - ½ log 2π, for x of at least 10."""
    inverse = 1.0 / x
    square = inverse * inverse
    terms = [b / ((2 * k + 2) * (2 * k + 1)) for k, b in enumerate(BERNOULLI[:9])]
    total = x.of(terms[-1])
    for term in reversed(terms[:-1]):
        total = total * square + term
    return inverse * total
