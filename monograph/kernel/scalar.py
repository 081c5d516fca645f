"""The scalar functions that expressions apply, and which of them a target must know.

``BASIC`` functions map onto an instruction or a few: every target emits them itself. The others
(exp, erf…) are approximated: ``mathlib`` writes each as an expression of basic ones, for targets
without a function of their own. All are total: every input has a defined result, the same as the
op of that name gives in the interpreter.
"""

from __future__ import annotations

from typing import Final

COMPARISONS: Final = frozenset(
    ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
)
PREDICATES: Final = frozenset(("is_nan", "is_inf", "is_finite"))
LOGICAL: Final = frozenset(("logical_and", "logical_or", "logical_xor", "logical_not"))
TO_BOOL: Final = COMPARISONS | PREDICATES | LOGICAL
"""Functions whose result is a bool whatever they are given."""

BASIC: Final = TO_BOOL | frozenset(
    (
        *("add", "subtract", "multiply", "divide", "negate", "fma", "sqrt"),
        *("truncate_divide", "fmod", "maximum", "minimum", "copysign"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right"),
        *("abs", "sign", "floor", "ceil", "round", "trunc"),
        *("where", "rarely", "cast", "bitcast", "convert"),
        *("index_divide", "index_remainder", "frem"),
    )
)
"""What every target emits itself.

``fma(a, b, c)`` rounds once. ``rarely`` is ``where`` of a condition that seldom holds: a target may
branch around what is computed for it alone. ``convert`` is a cast whose operand is known to be in
range, so that it is one instruction. ``index_divide`` and ``index_remainder`` round towards minus
infinity and have a positive divisor. ``frem`` is ``fmod`` of floats by long division.
``multiply_pairs`` multiplies the halves of two words and adds the products up; ``widen_pairs``
makes a word of 32 bits of one of 16: two integers each, the first in the lower half.
"""


DOTS: Final = frozenset(("multiply_pairs", "dot_u7_i8", "dot_u8_i8", "dot_i8_i8"))
"""Functions that add up the products of several integers of two words.

``dot_u8_i8`` and ``dot_i8_i8`` are of words that hold four bytes each; the name says which are
signed, the left word's first. Only a target that asks for them is given any.
"""

APPROXIMATED: Final = frozenset(
    (
        *("exp", "exp2", "expm1", "decay", "log", "log2", "log1p", "rsqrt", "power"),
        *("sin", "cos", "atan", "atan2", "tanh", "erf", "erfc"),
        *("sigmoid", "tan", "asin", "acos", "sinh", "cosh", "asinh", "acosh", "atanh"),
        *("log10", "reciprocal", "gelu_erf", "gelu_tanh", "softplus", "log_sigmoid", "silu"),
        *("erfcx", "log_ndtr", "ndtri", "lgamma", "digamma", "spherical_bessel_j0"),
        *("bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e"),
        *("bessel_k0", "bessel_k0e", "bessel_k1", "bessel_k1e"),
        *("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"),
    )
)
"""Functions that ``mathlib`` expands into basic ones.

``decay`` is exp of what is not positive, with 0 for what would be subnormal and next to it.
"""

COST: Final = {
    **dict.fromkeys(("divide", "sqrt", "truncate_divide", "fmod"), 5),
    **dict.fromkeys(("exp", "exp2", "decay", "sigmoid", "silu"), 20),
    **dict.fromkeys(("exp_bf16", "decay_bf16", "sigmoid_bf16", "silu_bf16", "gelu_tanh_bf16"), 12),
    **dict.fromkeys(("exp_f16", "decay_f16", "sigmoid_f16", "silu_f16", "gelu_tanh_f16"), 13),
    **dict.fromkeys(("tanh_bf16", "tanh_f16", "gelu_erf_bf16", "gelu_erf_f16"), 24),
    **dict.fromkeys(("tanh", "erf", "gelu_erf", "gelu_tanh", "sinh", "cosh"), 30),
    **dict.fromkeys(("log", "log2", "log10", "erfc", "log1p", "expm1", "softplus", "atan"), 40),
    **dict.fromkeys(("asinh", "acosh", "atanh"), 55),
    **dict.fromkeys(("atan2", "power", "sin", "cos", "tan", "erfcx", "ndtri"), 100),
    **dict.fromkeys(("lgamma", "digamma", "log_ndtr", "bessel_i0", "bessel_i1"), 200),
    **dict.fromkeys(("bessel_i0e", "bessel_i1e", "bessel_k0", "bessel_k1"), 200),
    **dict.fromkeys(("bessel_k0e", "bessel_k1e", "spherical_bessel_j0"), 200),
    **dict.fromkeys(("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"), 600),
}
"""About how many vector instructions a function takes; one if it is not listed."""


def cost(function: str) -> int:
    """About how many vector instructions a scalar function takes."""
    return COST.get(function, 15 if function in APPROXIMATED else 1)
