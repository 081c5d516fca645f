"""Ranges of integer formulas: the least and the greatest number that each can be."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from monograph.ir.types import Array, DType, bool_, i8, i16, integer_limits, u8
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Expr, Literal, Load

Range = tuple[int, int]
"""The least and the greatest number that a formula can be."""
SMALL_WORD_RANGE: Range = (-512, 511)
"""What words are within that are called small: bytes less a zero point, and such less another."""
NARROW_DTYPES: tuple[DType, ...] = (i8, u8, i16)
"""Dtypes that processors multiply several of at a time, the narrowest first."""


def fits(formula: Expr, dtype: DType, small: Collection[str] = ()) -> bool:
    """Whether an integer formula is within a dtype's range, where some buffers are small."""
    return _is_within(_range(formula, small), integer_limits(dtype))


def narrowest(formula: Expr, small: Collection[str] = ()) -> DType:
    """The narrowest of the dtypes that hold an integer formula, where some buffers are small."""
    own = _range(formula, small)
    return next(
        (dtype for dtype in NARROW_DTYPES if _is_within(own, integer_limits(dtype))), formula.dtype
    )


def is_small(formula: Expr, small: Collection[str] = ()) -> bool:
    """Whether an integer formula is always within ``SMALL_WORD_RANGE``, where some buffers are."""
    return _is_within(_range(formula, small), SMALL_WORD_RANGE)


def holds_small(numbers: Array) -> bool:
    """Whether all of these are within ``SMALL_WORD_RANGE``."""
    return numbers.size == 0 or _is_within(
        (int(numbers.min()), int(numbers.max())), SMALL_WORD_RANGE
    )


def _is_within(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _range(formula: Expr, small: Collection[str]) -> Range:
    """Bounds of an integer formula, by the types that it reads and what it does with them."""
    known: dict[Expr, Range] = {}
    for part in e.walk((formula,)):
        if _is_integer(part.dtype):
            known[part] = _range_of(part, small, known)
    return known[formula]


def _range_of(formula: Expr, small: Collection[str], known: Mapping[Expr, Range]) -> Range:
    """Bounds of a formula whose operands' bounds are known."""
    own = integer_limits(formula.dtype)
    if isinstance(formula, Literal):
        return int(formula.value), int(formula.value)
    if isinstance(formula, Load) and formula.buffer.name in small:
        return SMALL_WORD_RANGE
    if not isinstance(formula, Apply):
        return own
    operands = [known[each] for each in formula.operands if each in known]
    found = own
    match formula.function:
        case "cast" if operands:
            found = operands[0]
        case "add":
            found = operands[0][0] + operands[1][0], operands[0][1] + operands[1][1]
        case "subtract":
            found = operands[0][0] - operands[1][1], operands[0][1] - operands[1][0]
        case "multiply":
            ends = [x * y for x in operands[0] for y in operands[1]]
            found = min(ends), max(ends)
        case "bitwise_and" if any(x[0] >= 0 for x in operands):
            found = (0, min(x[1] for x in operands if x[0] >= 0))
        case "negate":
            found = -operands[0][1], -operands[0][0]
        case "where":
            found = min(x[0] for x in operands[-2:]), max(x[1] for x in operands[-2:])
    return found if _is_within(found, own) else own


def _is_integer(dtype: DType) -> bool:
    return dtype.is_integer or dtype is bool_
