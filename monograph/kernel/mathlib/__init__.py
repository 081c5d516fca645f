"""The vector math library: every transcendental function as a formula of basic scalar functions.

A target that has no exp of its own gets one from here: ``expand`` turns one application of an
approximated function into straight-line code (polynomials, selects, arithmetic on bits) that
computes whole vectors without a branch. The formulas hold for every input of f32 and f64: NaN,
infinities, zeros with their sign and subnormal numbers give what the interpreter gives, and
``BOUNDS`` says how far a result may be from the exact one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from monograph.errors import InputError
from monograph.kernel.expr import Apply, Expr
from monograph.kernel.mathlib import shortened
from monograph.kernel.mathlib.activations import (
    gelu_erf,
    gelu_tanh,
    log_sigmoid,
    sigmoid,
    silu,
    softplus,
)
from monograph.kernel.mathlib.bessel import (
    bessel_i0,
    bessel_i0e,
    bessel_i1,
    bessel_i1e,
    bessel_j0,
    bessel_j1,
    bessel_k0,
    bessel_k0e,
    bessel_k1,
    bessel_k1e,
    bessel_y0,
    bessel_y1,
    spherical_bessel_j0,
)
from monograph.kernel.mathlib.error_function import erf, erfc
from monograph.kernel.mathlib.exponential import decay, exp, exp2, expm1
from monograph.kernel.mathlib.gamma import digamma, lgamma
from monograph.kernel.mathlib.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from monograph.kernel.mathlib.inverse_trigonometric import acos, asin, atan, atan2
from monograph.kernel.mathlib.logarithm import log, log1p, log2, log10
from monograph.kernel.mathlib.normal import erfcx, log_ndtr, ndtri
from monograph.kernel.mathlib.number import FORMATS, Number
from monograph.kernel.mathlib.power import power
from monograph.kernel.mathlib.roots import reciprocal, rsqrt
from monograph.kernel.mathlib.shortened import SHORTENED
from monograph.kernel.mathlib.trigonometric import cos, sin, tan

FORMULAS: Final[dict[str, Callable[..., Number]]] = {
    "acos": acos,
    "acosh": acosh,
    "asin": asin,
    "asinh": asinh,
    "atan": atan,
    "atan2": atan2,
    "atanh": atanh,
    "bessel_i0": bessel_i0,
    "bessel_i0e": bessel_i0e,
    "bessel_i1": bessel_i1,
    "bessel_i1e": bessel_i1e,
    "bessel_j0": bessel_j0,
    "bessel_j1": bessel_j1,
    "bessel_k0": bessel_k0,
    "bessel_k0e": bessel_k0e,
    "bessel_k1": bessel_k1,
    "bessel_k1e": bessel_k1e,
    "bessel_y0": bessel_y0,
    "bessel_y1": bessel_y1,
    "cos": cos,
    "cosh": cosh,
    "decay": decay,
    "digamma": digamma,
    "erf": erf,
    "erfc": erfc,
    "erfcx": erfcx,
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "gelu_erf": gelu_erf,
    "gelu_tanh": gelu_tanh,
    "lgamma": lgamma,
    "log": log,
    "log10": log10,
    "log1p": log1p,
    "log2": log2,
    "log_ndtr": log_ndtr,
    "log_sigmoid": log_sigmoid,
    "ndtri": ndtri,
    "power": power,
    "reciprocal": reciprocal,
    "rsqrt": rsqrt,
    "sigmoid": sigmoid,
    "silu": silu,
    "sin": sin,
    "sinh": sinh,
    "softplus": softplus,
    "spherical_bessel_j0": spherical_bessel_j0,
    "tan": tan,
    "tanh": tanh,
}
"""The formula of each function; it takes and gives ``Number``s."""

BOUNDS: Final[dict[str, dict[str, float]]] = {
    "acos": {"f32": 1.5, "f64": 1.5},
    "acosh": {"f32": 2.5, "f64": 3.0},
    "asin": {"f32": 2.0, "f64": 2.5},
    "asinh": {"f32": 2.0, "f64": 2.5},
    "atan": {"f32": 2.0, "f64": 2.0},
    "atan2": {"f32": 1.0, "f64": 2.5},
    "atanh": {"f32": 2.5, "f64": 2.5},
    "bessel_i0": {"f32": 1.0, "f64": 8.0},
    "bessel_i0e": {"f32": 1.0, "f64": 8.0},
    "bessel_i1": {"f32": 1.0, "f64": 8.0},
    "bessel_i1e": {"f32": 1.0, "f64": 8.0},
    "bessel_j0": {"f32": 1.0, "f64": 16.0},
    "bessel_j1": {"f32": 1.0, "f64": 16.0},
    "bessel_k0": {"f32": 1.0, "f64": 8.0},
    "bessel_k0e": {"f32": 1.0, "f64": 8.0},
    "bessel_k1": {"f32": 1.0, "f64": 8.0},
    "bessel_k1e": {"f32": 1.0, "f64": 8.0},
    "bessel_y0": {"f32": 1.0, "f64": 16.0},
    "bessel_y1": {"f32": 1.0, "f64": 16.0},
    "cos": {"f32": 1.0, "f64": 1.0},
    "cosh": {"f32": 1.5, "f64": 1.5},
    "decay": {"f32": 5.0, "f64": 1.0},
    "digamma": {"f32": 1.0, "f64": 20.0},
    "erf": {"f32": 1.5, "f64": 1.5},
    "erfc": {"f32": 4.5, "f64": 4.5},
    "erfcx": {"f32": 1.0, "f64": 10.0},
    "exp": {"f32": 1.0, "f64": 1.0},
    "exp2": {"f32": 1.0, "f64": 1.0},
    "expm1": {"f32": 1.5, "f64": 1.5},
    "gelu_erf": {"f32": 4.0, "f64": 4.0},
    "gelu_tanh": {"f32": 20.0, "f64": 3.5},
    "lgamma": {"f32": 1.0, "f64": 80.0},
    "log": {"f32": 1.0, "f64": 1.0},
    "log10": {"f32": 1.0, "f64": 1.0},
    "log1p": {"f32": 1.5, "f64": 1.5},
    "log2": {"f32": 1.0, "f64": 1.0},
    "log_ndtr": {"f32": 1.0, "f64": 16.0},
    "log_sigmoid": {"f32": 2.0, "f64": 2.0},
    "ndtri": {"f32": 1.0, "f64": 6.0},
    "power": {"f32": 1.0, "f64": 1.5},
    "reciprocal": {"f32": 0.5, "f64": 0.5},
    "rsqrt": {"f32": 1.5, "f64": 1.5},
    "sigmoid": {"f32": 2.5, "f64": 2.5},
    "silu": {"f32": 3.5, "f64": 3.0},
    "sin": {"f32": 1.0, "f64": 1.0},
    "sinh": {"f32": 2.0, "f64": 2.0},
    "softplus": {"f32": 2.0, "f64": 2.0},
    "spherical_bessel_j0": {"f32": 1.0, "f64": 2.5},
    "tan": {"f32": 1.0, "f64": 2.5},
    "tanh": {"f32": 1.5, "f64": 1.5},
}
"""How far a result may be from the exact one, in units in the last place, by dtype."""

ZEROS_INSIDE: Final = frozenset(
    ("lgamma", "digamma", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0")
)
"""Functions with zeros that are not floats: the bound for f64 is in units of max(|result|, 1)."""


def is_formula(function: str) -> bool:
    """Whether a function is one that ``expand`` knows."""
    return function in FORMULAS or function in SHORTENED


def expand(expression: Apply) -> Expr:
    """The same value as an expression of basic functions, of an f32 or f64 operand."""
    formula = FORMULAS.get(expression.function)
    if expression.function in SHORTENED:
        formula = shortened.formula(expression.function)
    dtype = expression.operands[0].dtype
    if formula is None or dtype not in FORMATS:
        raise InputError(
            f"there is no formula for {expression.function} of {dtype}",
            expected="one of " + ", ".join(sorted(FORMULAS)) + ", of f32 or f64",
            found=f"{expression.function} of {dtype}",
        )
    return formula(*(Number(operand) for operand in expression.operands)).expr
