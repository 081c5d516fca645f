"""Algebra that holds bit for bit, whatever the operands (NaN, ±0, infinities, denormals).

"Exact" throughout means: every number and infinity and the sign of every zero stays as it was, and
a NaN stays a NaN (which NaN is not promised). What holds for real numbers only is in ``fast_math``.
"""

from __future__ import annotations

import math

from monograph.ir.graph import Node, Value
from monograph.ir.op import Op, Trait
from monograph.ir.types import Kind
from monograph.ops.elementwise import (
    BITS,
    FLOATS,
    INTEGERS,
    REALS,
    Abs,
    Ceil,
    Clip,
    Divide,
    Floor,
    Maximum,
    Minimum,
    Negate,
    Round,
    Trunc,
    abs,
    float_facts,
    negate,
)
from monograph.ops.math import Square, square
from monograph.rewrite.constants import fill, is_constant, real_splat, round_to
from monograph.rewrite.pattern import AnyConstant
from monograph.rewrite.rule import Rule, rewrite
from monograph.rewrite.signed_zero import never_negative_zero

SIGNED = frozenset({Kind.SIGNED, Kind.FLOAT})

SUMS = (
    Rule(
        "add_zero",
        pattern=lambda x: x + 0,
        replacement=lambda x: x,
        guard=lambda match: never_negative_zero(match.x),
        floats="exact: fires only where x is known never to be -0.0, since -0.0 + 0.0 is 0.0",
    ),
    Rule(
        "add_negative_zero",
        pattern=lambda x: x + -0.0,
        replacement=lambda x: x,
        kinds=FLOATS,
        floats="exact: -0.0 is the identity of IEEE addition",
    ),
    Rule(
        "subtract_zero",
        pattern=lambda x: x - 0,
        replacement=lambda x: x,
        floats="exact: -0.0 - 0.0 is -0.0",
    ),
    Rule(
        "subtract_from_negative_zero",
        pattern=lambda x: -0.0 - x,
        replacement=lambda x: negate(x),
        kinds=FLOATS,
        floats="exact: -0.0 - x is -x for both zeros",
    ),
    Rule(
        "subtract_from_zero",
        pattern=lambda x: 0 - x,
        replacement=lambda x: negate(x),
        kinds=INTEGERS,
        floats="integers only: 0.0 - 0.0 is 0.0, not -0.0",
    ),
    Rule(
        "subtract_self",
        pattern=lambda x: x - x,
        replacement=lambda: 0,
        kinds=INTEGERS,
        floats="integers only: of NaN and infinities the difference is NaN",
    ),
    Rule(
        "add_negated",
        pattern=lambda x, y: x + -y,
        replacement=lambda x, y: x - y,
        floats="exact: IEEE subtraction is addition of the negated operand",
    ),
    Rule(
        "subtract_negated",
        pattern=lambda x, y: x - (-y),
        replacement=lambda x, y: x + y,
        floats="exact: IEEE subtraction is addition of the negated operand",
    ),
    Rule(
        "negate_difference",
        pattern=lambda x, y: -(x - y),
        replacement=lambda x, y: y - x,
        kinds=INTEGERS,
        floats="integers only: where x equals y the signs of zero differ",
    ),
    Rule(
        "combine_added_constants",
        pattern=lambda x: (x + AnyConstant("a")) + AnyConstant("b"),
        replacement=lambda x, a, b: x + (a + b),
        kinds=INTEGERS,
        guard=lambda match: not is_constant(match.x),
        floats="integers only: floats would round once instead of twice",
    ),
)

PRODUCTS = (
    Rule(
        "multiply_by_one",
        pattern=lambda x: x * 1,
        replacement=lambda x: x,
        floats="exact",
    ),
    Rule(
        "multiply_by_minus_one",
        pattern=lambda x: x * -1,
        replacement=lambda x: negate(x),
        kinds=SIGNED,
        floats="exact: only the sign changes",
    ),
    Rule(
        "multiply_by_zero",
        pattern=lambda x: x * 0,
        replacement=lambda: 0,
        kinds=BITS,
        floats="integers and bools only: NaN * 0 is NaN and -1.0 * 0.0 is -0.0",
    ),
    Rule(
        "multiply_negated",
        pattern=lambda x, y: -x * -y,
        replacement=lambda x, y: x * y,
        floats="exact: the two signs cancel",
    ),
    Rule(
        "combine_multiplied_constants",
        pattern=lambda x: (x * AnyConstant("a")) * AnyConstant("b"),
        replacement=lambda x, a, b: x * (a * b),
        kinds=INTEGERS,
        guard=lambda match: not is_constant(match.x),
        floats="integers only: floats would round once instead of twice",
    ),
    Rule(
        "divide_by_one",
        pattern=lambda x: x / 1,
        replacement=lambda x: x,
        floats="exact",
    ),
    Rule(
        "divide_by_minus_one",
        pattern=lambda x: x / -1,
        replacement=lambda x: negate(x),
        floats="exact: only the sign changes",
    ),
    Rule(
        "divide_negated",
        pattern=lambda x, y: -x / -y,
        replacement=lambda x, y: x / y,
        floats="exact: the two signs cancel",
    ),
    Rule(
        "floor_divide_by_one",
        pattern=lambda x: x // 1,
        replacement=lambda x: x,
        kinds=INTEGERS,
        floats="integers only",
    ),
    Rule(
        "remainder_by_one",
        pattern=lambda x: x % 1,
        replacement=lambda: 0,
        kinds=INTEGERS,
        floats="integers only",
    ),
)

POWERS = (
    Rule(
        "power_zero",
        pattern=lambda x: x**0,
        replacement=lambda: 1,
        kinds=REALS,
        floats="exact: IEEE pow(x, 0) is 1 for every x, NaN too",
    ),
    Rule(
        "power_negative_zero",
        pattern=lambda x: x**-0.0,
        replacement=lambda: 1,
        kinds=FLOATS,
        floats="exact: IEEE pow(x, -0) is 1 for every x, NaN too",
    ),
    Rule(
        "power_one",
        pattern=lambda x: x**1,
        replacement=lambda x: x,
        kinds=REALS,
        floats="exact",
    ),
    Rule(
        "power_two",
        pattern=lambda x: x**2,
        replacement=lambda x: x * x,
        kinds=REALS,
        floats="as exact as a product: rounds once, where a library's pow may be off by an ulp",
    ),
    Rule(
        "power_minus_one",
        pattern=lambda x: x**-1,
        replacement=lambda x: 1 / x,
        kinds=FLOATS,
        floats="as exact as a division: rounds once, where a library's pow may be off by an ulp",
    ),
    Rule(
        "power_of_one",
        pattern=lambda x: 1**x,
        replacement=lambda: 1,
        kinds=REALS,
        floats="exact: IEEE pow(1, x) is 1 for every x, NaN too",
    ),
)

SIGNS = (
    Rule(
        "abs_of_negated",
        pattern=lambda x: abs(-x),
        replacement=lambda x: abs(x),
        kinds=SIGNED,
        floats="exact: the sign is dropped either way",
    ),
    Rule(
        "square_of_negated",
        pattern=lambda x: Square()(Negate()(x)),
        replacement=lambda x: square(x),
        floats="exact: the two signs cancel",
    ),
    Rule(
        "square_of_abs",
        pattern=lambda x: Square()(Abs()(x)),
        replacement=lambda x: square(x),
        floats="exact: the two signs cancel",
    ),
)

EXTREMES = (
    Rule(
        "maximum_of_one",
        pattern=lambda x: Maximum()(x, x),
        replacement=lambda x: x,
        floats="exact",
    ),
    Rule(
        "minimum_of_one",
        pattern=lambda x: Minimum()(x, x),
        replacement=lambda x: x,
        floats="exact",
    ),
    Rule(
        "maximum_with_lowest",
        pattern=lambda x: Maximum()(x, -math.inf),
        replacement=lambda x: x,
        kinds=FLOATS,
        floats="exact: NaN wins either way",
    ),
    Rule(
        "minimum_with_highest",
        pattern=lambda x: Minimum()(x, math.inf),
        replacement=lambda x: x,
        kinds=FLOATS,
        floats="exact: NaN wins either way",
    ),
)


@rewrite("idempotent", root=Op, traits=Trait.IDEMPOTENT, floats="exact: the trait says so")
def idempotent(node: Node) -> Value | None:
    """f(f(x)) → f(x) for relu, floor, round…"""
    if len(node.operands) != 1:
        return None
    inner = node.operands[0]
    return inner if inner.op == node.op else None


@rewrite("involution", root=Op, traits=Trait.INVOLUTION, floats="exact: the trait says so")
def involution(node: Node) -> Value | None:
    """f(f(x)) → x for negate, logical_not, flip…"""
    if len(node.operands) != 1:
        return None
    inner = node.operands[0].producer
    return inner.operands[0] if inner is not None and inner.op == node.op else None


ROUNDINGS = (Floor, Ceil, Round, Trunc)


@rewrite("round_whole", root=ROUNDINGS, floats="exact: a whole number rounds to itself")
def round_whole(node: Node) -> Value | None:
    """floor(ceil(x)) → ceil(x), and so for any two roundings."""
    inner = node.operands[0]
    return inner if isinstance(inner.op, ROUNDINGS) else None


@rewrite(
    "divide_by_power_of_two",
    root=Divide,
    floats="exact: the reciprocal of a power of two is exact, so both round the same number",
)
def divide_by_power_of_two(node: Node) -> Value | None:
    """x / 4 → x * 0.25, where the reciprocal is a normal number of the dtype."""
    x, divisor = node.operands
    number = real_splat(divisor)
    if number is None or not _is_power_of_two(number):
        return None
    inverse = 1.0 / number
    normal = math.fabs(inverse) >= float(float_facts(x.dtype).smallest_normal)
    if not normal or round_to(inverse, x.dtype) != inverse:
        return None
    return x * fill(divisor.tensor, inverse)


def _is_power_of_two(number: float) -> bool:
    return math.isfinite(number) and math.fabs(math.frexp(number)[0]) == 0.5


@rewrite("clip_unbounded", root=Clip, floats="exact")
def clip_unbounded(node: Node) -> Value | None:
    """clip(x) without bounds → x."""
    assert isinstance(node.op, Clip)
    unbounded = node.op.low is None and node.op.high is None
    return node.operands[0] if unbounded else None


@rewrite("clip_twice", root=Clip, floats="exact: min and max distribute over each other")
def clip_twice(node: Node) -> Value | None:
    """clip(clip(x, a, b), c, d) → clip(x, max(a, c), min(max(b, c), d))."""
    inner = node.operands[0].producer
    assert isinstance(node.op, Clip)
    if inner is None or not isinstance(inner.op, Clip):
        return None
    low, high = node.op.low, node.op.high
    raised = inner.op.high if low is None or inner.op.high is None else _larger(inner.op.high, low)
    lows = [bound for bound in (inner.op.low, low) if bound is not None]
    highs = [bound for bound in (raised, high) if bound is not None]
    result: Value = Clip(_larger(*lows) if lows else None, _smaller(*highs) if highs else None)(
        inner.operands[0]
    )
    return result


def _larger(*bounds: float) -> float:
    return max(bounds, key=_order)


def _smaller(*bounds: float) -> float:
    return min(bounds, key=_order)


def _order(bound: float) -> tuple[float, float]:
    return bound, math.copysign(1.0, bound)


RULES: tuple[Rule, ...] = (
    *SUMS,
    *PRODUCTS,
    divide_by_power_of_two,
    *POWERS,
    idempotent,
    involution,
    *SIGNS,
    round_whole,
    *EXTREMES,
    clip_unbounded,
    clip_twice,
)
