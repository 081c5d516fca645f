"""Interval arithmetic on integers, for the bounds of symbolic dimensions.

An interval is inclusive; None at either end means unbounded. Every function returns an interval
that contains all results for operands inside the given ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Interval: TypeAlias = tuple[int | None, int | None]


def excludes_zero(interval: Interval) -> bool:
    """Whether zero lies outside."""
    lower, upper = interval
    return (lower is not None and lower > 0) or (upper is not None and upper < 0)


def negated(interval: Interval) -> Interval:
    """The interval of -x."""
    lower, upper = interval
    return None if upper is None else -upper, None if lower is None else -lower


def product(left: Interval, right: Interval) -> Interval:
    """The interval of x * y."""
    if left == (1, 1):
        return right
    (a, b), (c, d) = left, right
    if a is not None and c is not None and a >= 0 and c >= 0:
        return a * c, None if b is None or d is None else b * d
    if a is None or b is None or c is None or d is None:
        return None, None
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)


def maximum(intervals: Sequence[Interval]) -> Interval:
    """The interval of max(x, y, …)."""
    lowers = [lower for lower, _ in intervals if lower is not None]
    uppers = [upper for _, upper in intervals if upper is not None]
    unbounded = len(uppers) < len(intervals)
    return max(lowers, default=None), None if unbounded else max(uppers)


def minimum(intervals: Sequence[Interval]) -> Interval:
    """The interval of min(x, y, …)."""
    return negated(maximum([negated(interval) for interval in intervals]))


def quotient(numerator: Interval, denominator: Interval) -> Interval:
    """The interval of x // y; a zero divisor has no result, so needs no bound."""
    least, most = denominator
    if least is None or least < 0:
        if most is None or most > 0:
            return None, None
        return quotient(negated(numerator), negated(denominator))
    smallest = max(least, 1)
    lower, upper = numerator
    if lower is not None:
        lower = lower // smallest if lower < 0 else lower // most if most else 0
    if upper is not None:
        upper = upper // smallest if upper >= 0 else upper // most if most else -1
    return lower, upper


def remainder(numerator: Interval, denominator: Interval) -> Interval:
    """The interval of x % y, which has the sign of y."""
    least, most = denominator
    if least is None or least < 0:
        if most is None or most > 0:
            return None, None
        return negated(remainder(negated(numerator), negated(denominator)))
    low, high = numerator
    largest = None if most is None else most - 1
    if low is not None and low >= 0 and high is not None:
        largest = high if largest is None else min(high, largest)
    return 0, largest
