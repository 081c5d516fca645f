"""Chains of casts, where the one in the middle loses nothing."""

from __future__ import annotations

from functools import cache

import numpy as np

from monograph.ir.graph import Node, Value
from monograph.ir.interpret import evaluate_op
from monograph.ir.types import Array, DType, Kind, f32, f64, i32, i64, u32, u64
from monograph.ops.elementwise import Cast, cast
from monograph.rewrite.rule import Rule, rewrite

_WIDE_AND_SAFE = {f32: (f64,), i32: (i64, f64), u32: (i64, u64, f64)}


@rewrite("cast_to_itself", root=Cast, floats="exact: nothing is cast")
def cast_to_itself(node: Node) -> Value | None:
    """cast(x, dtype of x) → x."""
    (x,) = node.operands
    return x if x.type == node.result.type else None


@rewrite(
    "cast_twice",
    root=Cast,
    floats="exact: fires only where every value of the first dtype is one of the second",
)
def cast_twice(node: Node) -> Value | None:
    """cast(cast(x, wider), dtype) → cast(x, dtype), or x itself.

    A float that becomes an integer saturates where an integer wraps, so integers do not skip a
    float on their way to a narrower integer.
    """
    inner = node.operands[0].producer
    if inner is None or not isinstance(inner.op, Cast):
        return None
    (x,) = inner.operands
    middle, last = inner.op.dtype, node.result.dtype
    if not preserves(x.dtype, middle):
        return None
    saturates = x.dtype.is_integer and middle.is_float and last.is_integer
    if saturates and last is not x.dtype and not preserves(x.dtype, last):
        return None
    return cast(x, last)


@cache
def preserves(source: DType, target: DType) -> bool:
    """Whether a cast to ``target`` keeps every value of ``source``, the sign of zero too.

    Types of 16 bits and fewer are asked value by value; for the wider ones it is well known.
    """
    if source is target:
        return True
    if Kind.STRING in (source.kind, target.kind) or source.is_complex or target.is_complex:
        return False
    if target.kind is Kind.BOOL:
        return False
    if source.bits > 16:
        return target in _WIDE_AND_SAFE.get(source, ())
    values = _every_value(source)
    with np.errstate(all="ignore"):
        after = np.asarray(evaluate_op(Cast(target), [values]))
        return _same(values.astype(np.float64), after.astype(np.float64))


def _every_value(dtype: DType) -> Array:
    if dtype.kind is Kind.BOOL:
        return np.array([False, True])
    if dtype.is_integer:
        start = -(2 ** (dtype.bits - 1)) if dtype.kind is Kind.SIGNED else 0
        return np.arange(start, start + 2**dtype.bits).astype(dtype.numpy)
    bits = np.arange(2**dtype.bits, dtype=np.uint16)
    return bits.astype(np.uint16 if dtype.bits == 16 else np.uint8).view(dtype.numpy)


def _same(before: Array, after: Array) -> bool:
    equal = (before == after) & (np.signbit(before) == np.signbit(after))
    return bool((equal | (np.isnan(before) & np.isnan(after))).all())


RULES: tuple[Rule, ...] = (cast_to_itself, cast_twice)
