"""What holds for every binding within the declared ranges of the symbols."""

from __future__ import annotations

from monograph.ir.dims import intervals
from monograph.ir.dims.intervals import Interval
from monograph.ir.dims.polynomial import Dim, bounds_of


def provably_equal(a: Dim, b: Dim) -> bool:
    """Whether a and b are equal for every binding within the declared ranges."""
    return a == b or _difference_bounds(a, b) == (0, 0)


def provably_different(a: Dim, b: Dim) -> bool:
    """Whether a and b differ for every binding within the declared ranges."""
    return intervals.excludes_zero(_difference_bounds(a, b))


def provably_at_least(a: Dim, b: Dim) -> bool:
    """Whether a >= b for every binding within the declared ranges."""
    if isinstance(a, int) and isinstance(b, int):
        return a >= b
    lower, _ = _difference_bounds(a, b)
    return lower is not None and lower >= 0


def provably_less(a: Dim, b: Dim) -> bool:
    """Whether a < b for every binding within the declared ranges."""
    _, upper = _difference_bounds(a, b)
    return upper is not None and upper < 0


def _difference_bounds(a: Dim, b: Dim) -> Interval:
    """The bounds of a difference; of one that is too large to be written, nothing is known."""
    try:
        return bounds_of(a - b)
    except ValueError:
        return None, None
