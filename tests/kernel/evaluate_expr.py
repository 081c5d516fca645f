"""Scalar expressions in NumPy, with the rounding that a machine has.

An ``fma`` rounds once. In f32 the product is exact in f64, and rounding the sum to f64 and then to
f32 differs from rounding it once only for sums that lie within 2^-53 of the middle between two f32.
In f64 the product's error is computed and added with rounding to odd (Boldo and Melquiond's
algorithm), which is exact short of over- and underflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from monograph.kernel.expr import Apply, Expr, Literal, walk

Array = np.ndarray[Any, Any]


def evaluate(root: Expr, bindings: Mapping[Expr, Array]) -> Array:
    """The value of an expression, with arrays for its variables."""
    known: dict[Expr, Array] = dict(bindings)
    with np.errstate(all="ignore"):
        for expr in walk((root,)):
            if expr in known:
                continue
            if isinstance(expr, Literal):
                known[expr] = np.asarray(expr.value, expr.dtype.numpy)
                continue
            assert isinstance(expr, Apply), expr
            operands = [known[operand] for operand in expr.operands]
            known[expr] = _apply(expr, operands)
    return known[root]


def _apply(expr: Apply, operands: list[Array]) -> Array:
    dtype = expr.dtype.numpy
    if expr.function == "bitcast":
        return np.ascontiguousarray(operands[0]).view(dtype)
    if expr.function in ("cast", "convert"):
        return operands[0].astype(dtype)
    if expr.function == "fma":
        return (_fma_f32 if dtype == np.float32 else _fma_f64)(*operands)
    return FUNCTIONS[expr.function](*operands).astype(dtype, copy=False)


def _fma_f32(a: Array, b: Array, c: Array) -> Array:
    return (a.astype(np.float64) * b + c).astype(np.float32)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _split(a: Array) -> tuple[Array, Array]:
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def _fma_f64(a: Array, b: Array, c: Array) -> Array:
    product = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    lost = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    small, small_lost = _two_sum(c, lost)
    large, large_lost = _two_sum(product, small)
    odd = _rounded_to_odd(*_two_sum(small_lost, large_lost))
    result = large + odd
    return np.where(np.isfinite(result), result, product + c)


def _rounded_to_odd(total: Array, lost: Array) -> Array:
    """The sum, moved to its odd neighbour on the side of what was lost."""
    even = np.ascontiguousarray(total).view(np.int64) & 1 == 0
    moved = np.nextafter(total, np.copysign(np.inf, lost))
    return np.where(even & (lost != 0), moved, total)


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "abs": np.abs,
    "add": np.add,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "copysign": np.copysign,
    "divide": np.divide,
    "equal": np.equal,
    "floor": np.floor,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_not": np.logical_not,
    "logical_or": np.logical_or,
    "multiply": np.multiply,
    "negate": np.negative,
    "round": np.rint,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "sqrt": np.sqrt,
    "subtract": np.subtract,
    "where": np.where,
    "rarely": np.where,
}
