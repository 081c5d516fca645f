"""Interval arithmetic on integers, for the bounds of symbolic dimensions.

An interval is inclusive; None at either end means unbounded. Every function returns an interval
that contains all results for operands inside the given ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TypeAlias

Interval: TypeAlias = tuple[int | None, int | None]

MAX_END = 2**64
"""No size is beyond it, so that nothing is gained by knowing an end that is."""


def excludes_zero(interval: Interval) -> bool:
    """Whether zero lies outside."""
    lower, upper = interval
    return (lower is not None and lower > 0) or (upper is not None and upper < 0)


def widen_to_short_ends(interval: Interval) -> Interval:
    """A wider interval with short ends: those of powers of powers have millions of digits."""
    lower, upper = interval
    if lower is not None and abs(lower) > MAX_END:
        lower = MAX_END if lower > 0 else None
    if upper is not None and abs(upper) > MAX_END:
        upper = -MAX_END if upper < 0 else None
    return lower, upper


def negate(interval: Interval) -> Interval:
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
    ends = (-inf if a is None else a, inf if b is None else b)
    others = (-inf if c is None else c, inf if d is None else d)
    corners = [_times(x, y) for x in ends for y in others]
    lower, upper = min(corners), max(corners)
    return lower if isinstance(lower, int) else None, upper if isinstance(upper, int) else None


def _times(x: int | float, y: int | float) -> int | float:
    """The product of integers and infinities; whatever is multiplied by zero vanishes."""
    if x == 0 or y == 0:
        return 0
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    return inf if (x > 0) == (y > 0) else -inf


def union(left: Interval, right: Interval) -> Interval:
    """The least interval that contains both."""
    (a, b), (c, d) = left, right
    return (
        None if a is None or c is None else min(a, c),
        None if b is None or d is None else max(b, d),
    )


def maximum(intervals: Sequence[Interval]) -> Interval:
    """The interval of max(x, y, …)."""
    lowers = [lower for lower, _ in intervals if lower is not None]
    uppers = [upper for _, upper in intervals if upper is not None]
    unbounded = len(uppers) < len(intervals)
    return max(lowers, default=None), None if unbounded else max(uppers)


def minimum(intervals: Sequence[Interval]) -> Interval:
    """The interval of min(x, y, …)."""
    return negate(maximum([negate(interval) for interval in intervals]))


def quotient(numerator: Interval, denominator: Interval) -> Interval:
    """The interval of x // y; a zero divisor has no result, so needs no bound."""
    least, most = denominator
    if least is None or least < 0:
        below = quotient(negate(numerator), negate((least, -1 if most is None else min(most, -1))))
        if most is not None and most <= 0:
            return below
        return union(below, quotient(numerator, (1, most)))
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
        below = negate((least, -1 if most is None else min(most, -1)))
        negative = negate(remainder(negate(numerator), below))
        if most is not None and most <= 0:
            return negative
        return union(negative, remainder(numerator, (1, most)))
    low, high = numerator
    largest = None if most is None else max(most - 1, 0)
    if low is not None and low >= 0 and high is not None:
        if high < least:
            return low, high
        largest = high if largest is None else min(high, largest)
    return 0, largest
