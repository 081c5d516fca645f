"""Sorts of several operands by one or more of them, and the largest elements."""

from __future__ import annotations

from collections.abc import Sequence

from monograph import functional as F
from monograph.frontends.xla.arithmetic import total_order_key
from monograph.ir.build import cast_to
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import DType


def sort(operands: Sequence[Value], axis: int, keys: int) -> tuple[Value, ...]:
    """All operands in the order of the first ``keys`` of them; equal ones stay as they are.

    Both zeros are equal, and all NaN are, behind everything else, as in ``jax.lax.sort``. A complex
    key is its real part and then its imaginary one.
    """
    if len(operands) == 1 and not operands[0].dtype.is_complex:
        return (F.sort(operands[0], axis),)
    parts: list[Value] = []
    for key in operands[:keys]:
        parts += [F.real(key), F.imag(key)] if key.dtype.is_complex else [key]
    order = F.argsort(parts[-1], axis)
    for part in reversed(parts[:-1]):
        arranged = F.take_along_axis(part, order, axis)
        order = F.take_along_axis(order, F.argsort(arranged, axis), axis)
    return tuple(F.take_along_axis(x, order, axis) for x in operands)


def top_k(x: Value, k: Dim, axis: int, index_dtype: DType) -> tuple[Value, Value]:
    """The largest elements and their places; NaN counts as the largest, and +0 as above -0."""
    if not x.dtype.is_float:
        values, places = F.top_k(x, k, axis)
        return values, cast_to(places, index_dtype)
    _, places = F.top_k(total_order_key(x), k, axis)
    return F.take_along_axis(x, places, axis), cast_to(places, index_dtype)
