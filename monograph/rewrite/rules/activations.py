"""Activations that were spelled out: gelu, sigmoid, silu, softplus, relu and their relatives.

The composite is at least as accurate as what it replaces: it does not overflow on the way, and it
does not cancel. Where the spelled-out form has no answer at an infinity (``-inf * 0``), the
composite has the limit. Each rule says what may differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from monograph.ops.activation import Softplus, gelu, log_sigmoid, mish, silu, softplus
from monograph.ops.elementwise import FLOATS, REALS, Clip, Greater, Less, Maximum, Minimum, Where
from monograph.ops.math import Erf, Erfc, Exp, Log, Log1p, Reciprocal, Sigmoid, Tanh, sigmoid
from monograph.ops.rectifier import (
    Hardsigmoid,
    Relu,
    Relu6,
    hardsigmoid,
    hardswish,
    leaky_relu,
    relu,
    relu6,
)
from monograph.rewrite.constants import short_splat
from monograph.rewrite.pattern import AnyConstant, Pattern
from monograph.rewrite.rule import Match, Replacement, Rule

FOUR_DIGITS = 5e-4
"""How far off a published constant is when it is written with four digits."""

SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
CUBIC = 0.044715


def _spelling(
    name: str,
    pattern: Callable[[Pattern], object],
    replacement: Callable[..., Replacement],
    floats: str,
) -> Rule:
    """A rule for a function of x in any order and grouping, with constants of four digits."""
    return Rule(
        name,
        pattern=pattern,
        replacement=replacement,
        kinds=FLOATS,
        associative=True,
        tolerance=FOUR_DIGITS,
        floats=floats,
        changes_specials=True,
    )


GELU_FLOATS = (
    "rounds otherwise, and better where x is very negative; -0.0 at -inf, where the product was"
    " NaN; constants may be off in their fifth digit"
)
GELU = (
    _spelling(
        "gelu_erf",
        lambda x: 0.5 * x * (1 + Erf()(SQRT_HALF * x)),
        lambda x: gelu(x),
        GELU_FLOATS,
    ),
    _spelling(
        "gelu_erf_halved",
        lambda x: x * (0.5 + 0.5 * Erf()(SQRT_HALF * x)),
        lambda x: gelu(x),
        GELU_FLOATS,
    ),
    _spelling(
        "gelu_erfc",
        lambda x: 0.5 * x * Erfc()(-SQRT_HALF * x),
        lambda x: gelu(x),
        GELU_FLOATS,
    ),
    _spelling(
        "gelu_erfc_negated",
        lambda x: 0.5 * x * Erfc()(x * -1 * SQRT_HALF),
        lambda x: gelu(x),
        GELU_FLOATS,
    ),
    _spelling(
        "gelu_tanh",
        lambda x: 0.5 * x * (1 + Tanh()(SQRT_2_OVER_PI * (x + CUBIC * x * x * x))),
        lambda x: gelu(x, "tanh"),
        GELU_FLOATS,
    ),
    _spelling(
        "gelu_tanh_factored",
        lambda x: 0.5 * x * (1 + Tanh()(SQRT_2_OVER_PI * x * (1 + CUBIC * x * x))),
        lambda x: gelu(x, "tanh"),
        GELU_FLOATS,
    ),
    _spelling(
        "gelu_tanh_expanded",
        lambda x: 0.5 * x * (1 + Tanh()(SQRT_2_OVER_PI * x + SQRT_2_OVER_PI * CUBIC * x * x * x)),
        lambda x: gelu(x, "tanh"),
        GELU_FLOATS,
    ),
    _spelling(
        "gelu_tanh_halved",
        lambda x: x * (0.5 + 0.5 * Tanh()(SQRT_2_OVER_PI * (x + CUBIC * x * x * x))),
        lambda x: gelu(x, "tanh"),
        GELU_FLOATS,
    ),
    _spelling(
        "gelu_sigmoid",
        lambda x: x * Sigmoid()(2 * SQRT_2_OVER_PI * (x + CUBIC * x * x * x)),
        lambda x: gelu(x, "tanh"),
        GELU_FLOATS,
    ),
)

SIGMOID = (
    _spelling(
        "sigmoid_quotient",
        lambda x: 1 / (1 + Exp()(-x)),
        lambda x: sigmoid(x),
        "rounds otherwise; exp(-x) no longer overflows on the way",
    ),
    _spelling(
        "sigmoid_reciprocal",
        lambda x: Reciprocal()(1 + Exp()(-x)),
        lambda x: sigmoid(x),
        "rounds otherwise; exp(-x) no longer overflows on the way",
    ),
    _spelling(
        "sigmoid_of_exp",
        lambda x: Exp()(x) / (1 + Exp()(x)),
        lambda x: sigmoid(x),
        "rounds otherwise; 1 where exp(x) overflows, where the quotient was NaN",
    ),
    _spelling(
        "sigmoid_tanh",
        lambda x: 0.5 * (1 + Tanh()(0.5 * x)),
        lambda x: sigmoid(x),
        "rounds otherwise, and better where x is very negative",
    ),
    _spelling(
        "sigmoid_tanh_halved",
        lambda x: 0.5 + 0.5 * Tanh()(0.5 * x),
        lambda x: sigmoid(x),
        "rounds otherwise, and better where x is very negative",
    ),
    _spelling(
        "silu_product",
        lambda x: x * Sigmoid()(x),
        lambda x: silu(x),
        "rounds once instead of twice; -0.0 at -inf, where the product was NaN",
    ),
    _spelling(
        "silu_quotient",
        lambda x: x / (1 + Exp()(-x)),
        lambda x: silu(x),
        "rounds otherwise; -0.0 at -inf, where the quotient was NaN",
    ),
)

SOFTPLUS = (
    _spelling(
        "softplus_log",
        lambda x: Log()(1 + Exp()(x)),
        lambda x: softplus(x, threshold=math.inf),
        "rounds otherwise: exp(x) no longer overflows, nor vanishes beside 1",
    ),
    _spelling(
        "softplus_log1p",
        lambda x: Log1p()(Exp()(x)),
        lambda x: softplus(x, threshold=math.inf),
        "rounds otherwise: exp(x) no longer overflows",
    ),
    _spelling(
        "log_of_sigmoid",
        lambda x: Log()(Sigmoid()(x)),
        lambda x: log_sigmoid(x),
        "rounds otherwise: finite where sigmoid(x) underflows, and not 0 where it rounds to 1",
    ),
    Rule(
        "mish_product",
        pattern=lambda x: x * Tanh()(Softplus(1.0, math.inf)(x)),
        replacement=lambda x: mish(x),
        kinds=FLOATS,
        floats="rounds once instead of three times; -0.0 at -inf, where the product was NaN",
        changes_specials=True,
    ),
    Rule(
        "mish_product_of_threshold",
        pattern=lambda x: x * Tanh()(Softplus()(x)),
        replacement=lambda x: mish(x),
        kinds=FLOATS,
        floats="rounds once instead of three times; -0.0 at -inf, where the product was NaN",
        changes_specials=True,
    ),
)


def _slope(match: Match) -> float:
    slope = short_splat(match.slope)
    assert slope is not None  # the guard has seen to it
    return slope


def _has_slope(match: Match) -> bool:
    return short_splat(match.slope) is not None


RECTIFIERS = (
    Rule(
        "relu_maximum",
        pattern=lambda x: Maximum()(x, 0),
        replacement=lambda x: relu(x),
        kinds=REALS,
        floats="exact: NaN stays NaN, and of the two zeros 0.0 is the larger",
    ),
    Rule(
        "relu_clip",
        pattern=lambda x: Clip(0.0, None)(x),
        replacement=lambda x: relu(x),
        kinds=REALS,
        floats="exact: clip is that maximum",
    ),
    Rule(
        "relu6_minimum",
        pattern=lambda x: Minimum()(Maximum()(x, 0), 6),
        replacement=lambda x: relu6(x),
        kinds=FLOATS,
        floats="exact: relu6 is that minimum",
    ),
    Rule(
        "relu6_of_relu",
        pattern=lambda x: Minimum()(Relu()(x), 6),
        replacement=lambda x: relu6(x),
        kinds=FLOATS,
        floats="exact: relu6 is that minimum",
    ),
    Rule(
        "relu6_clip",
        pattern=lambda x: Clip(0.0, 6.0)(x),
        replacement=lambda x: relu6(x),
        kinds=FLOATS,
        floats="exact: relu6 is that clip",
    ),
    Rule(
        "leaky_relu_greater",
        pattern=lambda x: Where()(Greater()(x, 0), x, x * AnyConstant("slope")),
        replacement=lambda x, match: leaky_relu(x, _slope(match)),
        guard=_has_slope,
        floats="exact: leaky_relu is that choice",
    ),
    Rule(
        "leaky_relu_less",
        pattern=lambda x: Where()(Less()(0, x), x, x * AnyConstant("slope")),
        replacement=lambda x, match: leaky_relu(x, _slope(match)),
        guard=_has_slope,
        floats="exact: leaky_relu is that choice",
    ),
    _spelling(
        "hardsigmoid_quotient",
        lambda x: (1.0 / 6.0) * Relu6()(x + 3),
        lambda x: hardsigmoid(x),
        "rounds once where 1/6 rounded too",
    ),
    _spelling(
        "hardswish_product",
        lambda x: (1.0 / 6.0) * x * Relu6()(x + 3),
        lambda x: hardswish(x),
        "rounds otherwise; -0.0 at -inf, where the product was NaN",
    ),
    _spelling(
        "hardswish_of_hardsigmoid",
        lambda x: x * Hardsigmoid()(x),
        lambda x: hardswish(x),
        "rounds otherwise; -0.0 at -inf, where the product was NaN",
    ),
)

RULES: tuple[Rule, ...] = (*GELU, *SIGMOID, *SOFTPLUS, *RECTIFIERS)
