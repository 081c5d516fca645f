"""Algebra of the real numbers that floats only nearly obey; off unless ``fast_math`` is on.

Each rule names what it bends: NaN, infinities, the sign of zero, overflow and underflow on the way,
or rounding. Integers are never touched by these.
"""

from __future__ import annotations

from monograph.ir.graph import Node, Value
from monograph.ops.elementwise import FLOATS, Divide, abs, negate
from monograph.ops.math import (
    Exp,
    Exp2,
    Expm1,
    Log,
    Log1p,
    Log2,
    Reciprocal,
    Sqrt,
    Square,
    exp,
    rsqrt,
    sqrt,
)
from monograph.ops.reduce import Mean, Prod, Sum
from monograph.rewrite.constants import fill, is_constant, real_splat
from monograph.rewrite.pattern import AnyConstant
from monograph.rewrite.rule import Rule, rewrite
from monograph.rewrite.rules.reductions import merge_reductions

ZEROS_AND_NANS = (
    Rule(
        "add_zero_fast",
        pattern=lambda x: x + 0.0,
        replacement=lambda x: x,
        kinds=FLOATS,
        fast_math=True,
        floats="-0.0 + 0.0 is 0.0, and becomes -0.0",
    ),
    Rule(
        "subtract_negative_zero_fast",
        pattern=lambda x: x - -0.0,
        replacement=lambda x: x,
        kinds=FLOATS,
        fast_math=True,
        floats="-0.0 - -0.0 is 0.0, and becomes -0.0",
    ),
    Rule(
        "subtract_from_zero_fast",
        pattern=lambda x: 0.0 - x,
        replacement=lambda x: negate(x),
        kinds=FLOATS,
        fast_math=True,
        floats="0.0 - 0.0 is 0.0, and becomes -0.0",
    ),
    Rule(
        "negate_difference_fast",
        pattern=lambda x, y: -(x - y),
        replacement=lambda x, y: y - x,
        kinds=FLOATS,
        fast_math=True,
        floats="where x equals y, -0.0 becomes 0.0",
    ),
    Rule(
        "multiply_by_zero_fast",
        pattern=lambda x: x * 0.0,
        replacement=lambda: 0.0,
        kinds=FLOATS,
        fast_math=True,
        floats="of NaN and infinities the product is NaN, and of negative numbers -0.0",
    ),
    Rule(
        "subtract_self_fast",
        pattern=lambda x: x - x,
        replacement=lambda: 0.0,
        kinds=FLOATS,
        fast_math=True,
        floats="of NaN and infinities the difference is NaN",
    ),
    Rule(
        "divide_self_fast",
        pattern=lambda x: x / x,
        replacement=lambda: 1.0,
        kinds=FLOATS,
        fast_math=True,
        floats="of NaN, infinities and zeros the quotient is NaN",
    ),
    Rule(
        "divide_zero_fast",
        pattern=lambda x: 0.0 / x,
        replacement=lambda: 0.0,
        kinds=FLOATS,
        fast_math=True,
        floats="by NaN and zeros the quotient is NaN, and by negative numbers -0.0",
    ),
)

INVERSES = (
    Rule(
        "exp_of_log",
        pattern=lambda x: Exp()(Log()(x)),
        replacement=lambda x: x,
        kinds=FLOATS,
        fast_math=True,
        floats="of negative numbers the logarithm is NaN; elsewhere only rounding differs",
    ),
    Rule(
        "log_of_exp",
        pattern=lambda x: Log()(Exp()(x)),
        replacement=lambda x: x,
        kinds=FLOATS,
        fast_math=True,
        floats="exp overflows and underflows; elsewhere only rounding differs",
    ),
    Rule(
        "exp2_of_log2",
        pattern=lambda x: Exp2()(Log2()(x)),
        replacement=lambda x: x,
        kinds=FLOATS,
        fast_math=True,
        floats="of negative numbers the logarithm is NaN; elsewhere only rounding differs",
    ),
    Rule(
        "log2_of_exp2",
        pattern=lambda x: Log2()(Exp2()(x)),
        replacement=lambda x: x,
        kinds=FLOATS,
        fast_math=True,
        floats="exp2 overflows and underflows; elsewhere only rounding differs",
    ),
    Rule(
        "expm1_of_log1p",
        pattern=lambda x: Expm1()(Log1p()(x)),
        replacement=lambda x: x,
        kinds=FLOATS,
        fast_math=True,
        floats="below -1 the logarithm is NaN; elsewhere only rounding differs",
    ),
    Rule(
        "log1p_of_expm1",
        pattern=lambda x: Log1p()(Expm1()(x)),
        replacement=lambda x: x,
        kinds=FLOATS,
        fast_math=True,
        floats="expm1 overflows and comes to -1; elsewhere only rounding differs",
    ),
    Rule(
        "sqrt_of_square",
        pattern=lambda x: Sqrt()(Square()(x)),
        replacement=lambda x: abs(x),
        kinds=FLOATS,
        fast_math=True,
        floats="the square overflows and underflows; elsewhere only rounding differs",
    ),
    Rule(
        "sqrt_of_product",
        pattern=lambda x: Sqrt()(x * x),
        replacement=lambda x: abs(x),
        kinds=FLOATS,
        fast_math=True,
        floats="the square overflows and underflows; elsewhere only rounding differs",
    ),
    Rule(
        "square_of_sqrt",
        pattern=lambda x: Square()(Sqrt()(x)),
        replacement=lambda x: x,
        kinds=FLOATS,
        fast_math=True,
        floats="of negative numbers the root is NaN; elsewhere only rounding differs",
    ),
    Rule(
        "product_of_sqrt",
        pattern=lambda x: Sqrt()(x) * Sqrt()(x),
        replacement=lambda x: x,
        kinds=FLOATS,
        fast_math=True,
        floats="of negative numbers the root is NaN; elsewhere only rounding differs",
    ),
    Rule(
        "reciprocal_twice",
        pattern=lambda x: Reciprocal()(Reciprocal()(x)),
        replacement=lambda x: x,
        kinds=FLOATS,
        fast_math=True,
        floats="reciprocals of the smallest numbers overflow; elsewhere only rounding differs",
    ),
)

POWERS = (
    Rule(
        "power_three",
        pattern=lambda x: x**3,
        replacement=lambda x: x * x * x,
        kinds=FLOATS,
        fast_math=True,
        floats="rounds twice",
    ),
    Rule(
        "power_half",
        pattern=lambda x: x**0.5,
        replacement=lambda x: sqrt(x),
        kinds=FLOATS,
        fast_math=True,
        floats="pow(-inf, 0.5) is inf and pow(-0.0, 0.5) is 0.0; the roots are NaN and -0.0",
    ),
    Rule(
        "power_minus_half",
        pattern=lambda x: x**-0.5,
        replacement=lambda x: rsqrt(x),
        kinds=FLOATS,
        fast_math=True,
        floats="pow(-inf, -0.5) is 0.0 and pow(-0.0, -0.5) is inf; the roots are NaN and -inf",
    ),
    Rule(
        "one_over_sqrt",
        pattern=lambda x: 1.0 / Sqrt()(x),
        replacement=lambda x: rsqrt(x),
        kinds=FLOATS,
        fast_math=True,
        floats="rounds once instead of twice",
    ),
    Rule(
        "divide_by_sqrt",
        pattern=lambda x, y: x / Sqrt()(y),
        replacement=lambda x, y: x * rsqrt(y),
        kinds=FLOATS,
        fast_math=True,
        floats="rounds differently; the reciprocal root of 0 is infinite before it is multiplied",
    ),
    Rule(
        "product_of_exp",
        pattern=lambda x, y: Exp()(x) * Exp()(y),
        replacement=lambda x, y: exp(x + y),
        kinds=FLOATS,
        fast_math=True,
        floats="rounds differently; one factor may overflow where the product does not",
    ),
)

GROUPING = (
    Rule(
        "combine_added_constants_fast",
        pattern=lambda x: (x + AnyConstant("a")) + AnyConstant("b"),
        replacement=lambda x, a, b: x + (a + b),
        kinds=FLOATS,
        guard=lambda match: not is_constant(match.x),
        fast_math=True,
        floats="rounds once instead of twice; the sum of the constants may overflow",
    ),
    Rule(
        "combine_multiplied_constants_fast",
        pattern=lambda x: (x * AnyConstant("a")) * AnyConstant("b"),
        replacement=lambda x, a, b: x * (a * b),
        kinds=FLOATS,
        guard=lambda match: not is_constant(match.x),
        fast_math=True,
        floats="rounds once instead of twice; the product of the constants may overflow",
    ),
    Rule(
        "factor_out",
        pattern=lambda x, y, z: x * y + x * z,
        replacement=lambda x, y, z: x * (y + z),
        kinds=FLOATS,
        fast_math=True,
        floats="rounds twice instead of three times; y + z may overflow or cancel",
        single_use=True,
    ),
)


@rewrite(
    "divide_by_constant",
    root=Divide,
    fast_math=True,
    floats="rounds twice, since most reciprocals are not exact",
)
def divide_by_constant(node: Node) -> Value | None:
    """x / 3 → x * 0.333…; a product is several times cheaper than a quotient."""
    x, divisor = node.operands
    number = real_splat(divisor)
    if not number or is_constant(x):
        return None
    return x * fill(divisor.tensor, 1.0 / number)


@rewrite("sum_of_sum", root=(Sum, Prod), fast_math=True, floats="floats are added in another order")
def sum_of_sum(node: Node) -> Value | None:
    """sum(sum(x)) → sum(x) over the axes of both."""
    return merge_reductions(node)


@rewrite("mean_of_mean", root=Mean, fast_math=True, floats="floats are added in another order")
def mean_of_mean(node: Node) -> Value | None:
    """mean(mean(x)) → mean(x) over the axes of both."""
    return merge_reductions(node)


RULES: tuple[Rule, ...] = (
    *ZEROS_AND_NANS,
    *INVERSES,
    *POWERS,
    *GROUPING,
    divide_by_constant,
    sum_of_sum,
    mean_of_mean,
)
