"""Distances between vectors, covariance, and vectors held below a norm: compositions all.

Norms are taken so that their gradient at zero is zero, as torch has it, and not NaN.
"""

from __future__ import annotations

import math

import numpy as np

from monograph.errors import TypeRuleError
from monograph.ir.build import Operand, cast_to, promote_operands
from monograph.ir.graph import Value
from monograph.ir.operators import function
from monograph.ops import data, elementwise, index, linalg, reduce
from monograph.ops import math as math_ops
from monograph.ops import shape as shape_ops
from monograph.ops.matrices import diagonal, real_dtype
from monograph.ops.rules import normalize_axis, require


def _norm(x: Value, p: float, axes: tuple[int, ...], keepdims: bool = False) -> Value:
    """The p-norm over some axes: 0 counts what is not zero, infinity takes the largest."""
    size = elementwise.abs(x)
    if any(x.shape[axis] == 0 for axis in axes):
        return reduce.sum(size, axes, keepdims)
    if p == 0:
        return reduce.sum(cast_to(elementwise.not_equal(x, 0), size.dtype), axes, keepdims)
    if p == 1:
        return reduce.sum(size, axes, keepdims)
    if p == math.inf:
        return reduce.max(size, axes, keepdims)
    plain = size if x.dtype.is_complex else x
    powers = math_ops.square(plain) if p == 2 else _power(size, p)
    total = reduce.sum(powers, axes, keepdims)
    empty = elementwise.equal(total, 0)
    held = elementwise.where(empty, 1.0, total)  # so that no root of 0 is differentiated
    root = math_ops.sqrt(held) if p == 2 else elementwise.power(held, 1.0 / p)
    return elementwise.where(empty, 0.0, root)


def _power(size: Value, p: float) -> Value:
    """size ** p for a positive p, with a gradient of 0 where the size is 0."""
    empty = elementwise.equal(size, 0)
    return elementwise.where(empty, 0.0, elementwise.power(elementwise.where(empty, 1.0, size), p))


@function
def pairwise_distance(a: Operand, b: Operand, p: float = 2.0) -> Value:
    """The p-norm of the difference of each row of ``a`` and each of ``b``: [..., rows, rows]."""
    require(p >= 0, "pairwise_distance: a negative norm", expected="p of at least 0", found=p)
    left, right = promote_operands(reduce.as_float(a), reduce.as_float(b))
    require(
        left.rank >= 2 and right.rank >= 2,
        "pairwise_distance: rows of vectors are needed",
        expected="two operands of rank 2 or more",
        found=f"{left.type} and {right.type}",
    )
    gaps = shape_ops.unsqueeze(left, -2) - shape_ops.unsqueeze(right, -3)
    return _norm(gaps, p, (gaps.rank - 1,))


@function
def self_distance(x: Operand, p: float = 2.0) -> Value:
    """The p-norm of the difference of each two rows, in the order (0, 1), (0, 2)… (1, 2)…"""
    require(p >= 0, "self_distance: a negative norm", expected="p of at least 0", found=p)
    value = reduce.as_float(x)
    require(
        value.rank == 2,
        "self_distance: rows of vectors are needed",
        expected="an operand of rank 2",
        found=value.type,
    )
    rows = value.shape[0]
    if not isinstance(rows, int):
        raise TypeRuleError(
            "self_distance: the number of rows must be known",
            expected="a static first dimension",
            found=str(value.type),
        )
    first, second = np.triu_indices(rows, 1)
    return _norm(index.take(value, first) - index.take(value, second), p, (1,))


@function
def covariance(
    x: Operand,
    correction: float = 1.0,
    frequencies: Operand | None = None,
    weights: Operand | None = None,
) -> Value:
    """The covariance of the rows of ``x``, whose columns are observations; a number for one row.

    ``frequencies`` says how often each observation was made, ``weights`` how much it counts.
    """
    value = reduce.as_float(x)
    require(
        value.rank <= 2,
        "covariance: rows of observations are needed",
        expected="an operand of rank 0 to 2",
        found=value.type,
    )
    rows = value if value.rank == 2 else shape_ops.reshape(value, (1, -1))
    counts = None if frequencies is None else reduce.one_value(frequencies)
    importance = None if weights is None else reduce.one_value(weights)
    factor = _join_weights(counts, importance, value)
    if factor is None:
        with rows.graph.as_current():
            observations = cast_to(data.dim(rows.shape[1]), real_dtype(value.dtype))
        norm = observations - correction
        centred = rows - reduce.sum(rows, 1, keepdims=True) / cast_to(observations, rows.dtype)
        scaled = centred
    else:
        total = reduce.sum(factor)
        centred = rows - reduce.sum(rows * factor, 1, keepdims=True) / total
        norm = _norm_factor(total, factor, importance, correction)
        scaled = centred * factor
    norm = elementwise.maximum(norm, 0.0)
    turned = elementwise.conj(shape_ops.swapaxes(scaled, 0, 1))
    result = linalg.matmul(centred, turned) / cast_to(norm, value.dtype)
    return shape_ops.reshape(result, ()) if rows.shape[0] == 1 else result


def _join_weights(counts: Value | None, importance: Value | None, like: Value) -> Value | None:
    """What each observation counts in all."""
    parts = [cast_to(part, like.dtype) for part in (counts, importance) if part is not None]
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else parts[0] * parts[1]


def _norm_factor(total: Value, factor: Value, importance: Value | None, correction: float) -> Value:
    size = elementwise.real(total)
    if importance is None or correction == 0:
        return size - (correction if importance is None else 0.0)
    weighted = reduce.sum(factor * cast_to(importance, factor.dtype))
    return size - elementwise.real(weighted) * correction / size


@function
def correlation(x: Operand) -> Value:
    """The correlation coefficients of the rows of ``x``, whose columns are observations."""
    matrix = covariance(x)
    if matrix.rank == 0:
        return matrix / matrix
    deviation = math_ops.sqrt(elementwise.real(diagonal(matrix)))
    scale = cast_to(deviation, matrix.dtype)
    quotient = matrix / shape_ops.unsqueeze(scale, -1) / shape_ops.unsqueeze(scale, -2)
    if matrix.dtype.is_complex:
        parts = (elementwise.real(quotient), elementwise.imag(quotient))
        return elementwise.complex(*(elementwise.clip(part, -1.0, 1.0) for part in parts))
    return elementwise.clip(quotient, -1.0, 1.0)


@function
def renormalize(x: Operand, p: float, axis: int, limit: float) -> Value:
    """Slices along ``axis`` whose p-norm exceeds ``limit`` scaled down to it."""
    require(p > 0, "renormalize: no such norm", expected="p above 0", found=p)
    value = reduce.as_float(x)
    normal = normalize_axis("renormalize", axis, value.rank)
    others = tuple(position for position in range(value.rank) if position != normal)
    norm = _norm(value, p, others, keepdims=True)
    factor = elementwise.where(norm > limit, limit / (norm + 1e-7), 1.0)
    return value * cast_to(factor, value.dtype)
