"""Formulas over elements, written with Python's operators.

An ``Expr``'s own operators are index arithmetic. A ``Number`` wraps an expression so that ``+``,
``*``, ``<`` and ``&`` mean what they mean for elements: they round, wrap and compare as the basic
functions do. A Python number beside a ``Number`` becomes a literal of its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.types import DType, bool_, f32, f64, i32, i64, u32, u64
from monograph.kernel import expr as e
from monograph.kernel.expr import Expr, apply, cast, literal, select

Plain = bool | int | float


@dataclass(frozen=True)
class Format:
    """How the bits of a float are laid out, and the constants that follow from it."""

    dtype: DType
    integer: DType
    unsigned: DType
    mantissa: int
    """How many bits of the significand are stored."""
    bias: int

    @property
    def shifter(self) -> float:
        """Adding this rounds to a whole number, which the lowest bits of the sum then hold."""
        return 1.5 * 2.0**self.mantissa

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float(np.finfo(self.dtype.numpy).max)

    @property
    def smallest_normal(self) -> float:
        """The smallest number with a full significand."""
        return float(np.finfo(self.dtype.numpy).tiny)


FORMATS = {
    f32: Format(f32, i32, u32, 23, 127),
    f64: Format(f64, i64, u64, 52, 1023),
}


@dataclass(frozen=True, eq=False)
class Number:
    """An element, as a formula."""

    expr: Expr

    @property
    def dtype(self) -> DType:
        """The dtype in which the formula is computed."""
        return self.expr.dtype

    @property
    def format(self) -> Format:
        """The layout of this float's bits."""
        return FORMATS[self.dtype]

    def like(self, other: Number | Plain) -> Expr:
        """The other side of an operator, as an expression of this dtype."""
        if isinstance(other, Number):
            return other.expr
        if self.dtype is f32:
            return literal(float(np.float32(other)), f32)
        return literal(other, self.dtype)

    def _with(self, function: str, other: Number | Plain) -> Number:
        return Number(apply(function, self.expr, self.like(other)))

    def _compare(self, function: str, other: Number | Plain) -> Condition:
        return Condition(apply(function, self.expr, self.like(other), dtype=bool_))

    def __add__(self, other: Number | Plain) -> Number:
        return self._with("add", other)

    def __radd__(self, other: Plain) -> Number:
        return self + other

    def __sub__(self, other: Number | Plain) -> Number:
        return self._with("subtract", other)

    def __rsub__(self, other: Plain) -> Number:
        return Number(apply("subtract", self.like(other), self.expr))

    def __mul__(self, other: Number | Plain) -> Number:
        return self._with("multiply", other)

    def __rmul__(self, other: Plain) -> Number:
        return self * other

    def __truediv__(self, other: Number | Plain) -> Number:
        return self._with("divide", other)

    def __rtruediv__(self, other: Plain) -> Number:
        return Number(apply("divide", self.like(other), self.expr))

    def __neg__(self) -> Number:
        return Number(apply("negate", self.expr))

    def __abs__(self) -> Number:
        return Number(apply("abs", self.expr))

    def __and__(self, other: Number | Plain) -> Number:
        return self._with("bitwise_and", other)

    def __or__(self, other: Number | Plain) -> Number:
        return self._with("bitwise_or", other)

    def __xor__(self, other: Number | Plain) -> Number:
        return self._with("bitwise_xor", other)

    def __lshift__(self, other: Number | Plain) -> Number:
        return self._with("shift_left", other)

    def __rshift__(self, other: Number | Plain) -> Number:
        return self._with("shift_right", other)

    def __lt__(self, other: Number | Plain) -> Condition:
        return self._compare("less", other)

    def __le__(self, other: Number | Plain) -> Condition:
        return self._compare("less_equal", other)

    def __gt__(self, other: Number | Plain) -> Condition:
        return self._compare("greater", other)

    def __ge__(self, other: Number | Plain) -> Condition:
        return self._compare("greater_equal", other)

    def equals(self, other: Number | Plain) -> Condition:
        """Whether the two are equal; ``==`` compares formulas, as everywhere in Python."""
        return self._compare("equal", other)

    def sqrt(self) -> Number:
        """The square root, rounded once."""
        return Number(apply("sqrt", self.expr))

    def rounded(self) -> Number:
        """The nearest whole number; a half goes to the even one."""
        return Number(apply("round", self.expr))

    def floor(self) -> Number:
        """The whole number below."""
        return Number(apply("floor", self.expr))

    def with_sign_of(self, other: Number) -> Number:
        """This size with that sign."""
        return Number(apply("copysign", self.expr, other.expr))

    def at_least(self, low: Number | Plain) -> Number:
        """The larger of the two: one instruction, and a NaN stays one."""
        return where(self < low, low, self)

    def at_most(self, high: Number | Plain) -> Number:
        """The smaller of the two: one instruction, and a NaN stays one."""
        return where(self > high, high, self)

    def bits(self) -> Number:
        """The bits of a float as a signed integer of the same width."""
        return Number(apply("bitcast", self.expr, dtype=self.format.integer))

    def unsigned_bits(self) -> Number:
        """The bits of a float as an unsigned integer of the same width."""
        return Number(apply("bitcast", self.expr, dtype=self.format.unsigned))

    def as_float(self, dtype: DType) -> Number:
        """The float with these bits."""
        return Number(apply("bitcast", self.expr, dtype=dtype))

    def cast(self, dtype: DType) -> Number:
        """The number rounded to another dtype."""
        return Number(cast(self.expr, dtype))


@dataclass(frozen=True, eq=False)
class Condition:
    """A formula that is true or false."""

    expr: Expr

    def __and__(self, other: Condition) -> Condition:
        return Condition(apply("logical_and", self.expr, other.expr))

    def __or__(self, other: Condition) -> Condition:
        return Condition(apply("logical_or", self.expr, other.expr))

    def __invert__(self) -> Condition:
        return Condition(apply("logical_not", self.expr))


def constant(value: Plain, dtype: DType) -> Number:
    """A literal, rounded to its dtype."""
    rounded = float(np.float32(value)) if dtype is f32 else value
    return Number(literal(rounded, dtype))


def where(condition: Condition, yes: Number | Plain, no: Number | Plain) -> Number:
    """One of two values, of which at least one is a ``Number``."""
    model = yes if isinstance(yes, Number) else no
    assert isinstance(model, Number), "a choice between two constants needs a dtype"
    return Number(select(condition.expr, model.like(yes), model.like(no)))


def rarely(condition: Condition, seldom: Number, usual: Number) -> Number:
    """``where`` of a condition that seldom holds: ``usual`` is all that most elements cost."""
    return Number(e.rarely(condition.expr, seldom.expr, usual.expr))


def fma(a: Number, b: Number | Plain, c: Number | Plain) -> Number:
    """``a * b + c``, rounded once."""
    return Number(apply("fma", a.expr, a.like(b), a.like(c)))


def horner(x: Number, coefficients: Sequence[float]) -> Number:
    """The polynomial with these coefficients, the constant one first."""
    result = constant(coefficients[-1], x.dtype)
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, coefficient)
    return result


def two_sum(a: Number, b: Number) -> tuple[Number, Number]:
    """``a + b`` and what its rounding lost."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def fast_two_sum(a: Number, b: Number | Plain) -> tuple[Number, Number]:
    """``a + b`` and what its rounding lost, where ``a`` is the larger (or 0)."""
    total = a + b
    return total, Number(apply("subtract", a.like(b), (total - a).expr))


def two_product(a: Number, b: Number | Plain) -> tuple[Number, Number]:
    """``a * b`` and what its rounding lost."""
    product = a * b
    return product, fma(a, b, -product)


def compute_in_f64(formula: Callable[[Number], Number]) -> Callable[[Number], Number]:
    """A formula that is written for f64, for f32 as well: widened, computed, rounded once."""

    def widened(x: Number) -> Number:
        return formula(x) if x.dtype is f64 else formula(x.cast(f64)).cast(x.dtype)

    return widened
