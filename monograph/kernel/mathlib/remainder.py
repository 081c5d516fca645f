"""fmod, computed exactly: the remainder of x by y with the sign of x.

The quotient is a division, cut off. If it is not too large to be a whole number at all, one fused
step takes that many y from x and rounds nothing, since what is left has no more digits than they
have. The division may have been rounded up to the next whole number; then one y was too many.
Numbers that are further apart, and those that are not finite, are left to ``frem``, the long way.
"""

from __future__ import annotations

from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Expr
from monograph.kernel.mathlib.number import FORMATS, Number, fma, rarely, where


def is_short_division(expression: Apply) -> bool:
    """Whether an expression is an fmod that there is a formula for."""
    return expression.function == "fmod" and expression.operands[0].dtype in FORMATS


def fmod(x: Number, y: Number) -> Number:
    """The remainder of x / y, with the sign of x."""
    times = x / y
    whole = Number(e.apply("trunc", times.expr))
    left = fma(-whole, y, x)
    one = abs(y).with_sign_of(x)
    too_many = (left * Number(x.like(1.0)).with_sign_of(x)) < 0.0
    found = where(too_many, left + one, left).with_sign_of(x)
    near = (abs(times) < 2.0**x.format.mantissa) & (abs(y) <= x.format.largest)
    return rarely(~near, Number(e.apply("frem", x.expr, y.expr)), found)


def expand(expression: Apply) -> Expr:
    """The same value as an expression of basic functions."""
    x, y = expression.operands
    return fmod(Number(x), Number(y)).expr
