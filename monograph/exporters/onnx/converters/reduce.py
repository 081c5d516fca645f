"""Reductions.

ONNX Runtime drops a NaN from a maximum unless it stands first, sums integers in doubles that
saturate, and finds 0 to be the mean of nothing. Each is put right where it can show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.kernels import carrier
from monograph.exporters.onnx.registry import Exported, expands, exports
from monograph.exporters.onnx.scope import Term
from monograph.ir.build import apply, cast_to
from monograph.ir.dims import Dim, provably_at_least, shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.types import bool_, i32, i64, integer_limits, u64
from monograph.ops import cumulative, data, joining, log_cumulative, math, reduce, slicing
from monograph.ops import elementwise as e
from monograph.ops import shape as shape_ops
from monograph.ops.control import scan
from monograph.ops.linalg import Matmul
from monograph.ops.reduce.base import reduce_shape
from monograph.ops.reduce.extremum import dtype_limit

_FLAG = i32

LARGEST_EXACT_BITS = 52
"""ONNX Runtime adds integers in f64: a sum that fits in so many bits is exact."""


def _reduce(node: ExportContext[Any], name: str, term: Term | None = None) -> Term:
    """A reduction over the op's axes."""
    operand = node.inputs[0] if term is None else term
    if not node.op.axes:
        return operand
    axes = [axis % node.rank for axis in node.op.axes]
    return node.emit(name, operand, node.integers(axes), keepdims=int(node.op.keepdims))


def _elements(node: ExportContext[Any]) -> Dim:
    """How many elements each result is made of."""
    return shape_product(node.shape()[axis] for axis in node.op.axes)


# Sums and products --------------------------------------------------------------------------------


@exports(reduce.Sum)
def sum_(node: ExportContext[reduce.Sum]) -> Exported:
    """sum → ReduceSum of floats, and of integers whose sum f64 holds."""
    if node.dtype.is_float or not node.op.axes:
        return _reduce(node, "ReduceSum")
    if not _sums_exactly(node):
        return None
    wide = node.cast(node.inputs[0], i64)
    return node.cast(_reduce(node, "ReduceSum", wide), node.dtype)


def _sums_exactly(node: ExportContext[reduce.Sum]) -> bool:
    """Whether f64 holds the sum whatever the elements are, going by the dtype they came from."""
    value = node.node.operands[0]
    source = value.producer
    bits = value.dtype.bits
    if source is not None and isinstance(source.op, e.Cast):
        origin = source.operands[0].dtype
        bits = 1 if origin is bool_ else origin.bits if origin.is_integer else bits
    count = _elements(node)
    return isinstance(count, int) and bits + count.bit_length() <= LARGEST_EXACT_BITS


@expands(reduce.Sum)
def sum_of_integers(op: reduce.Sum, x: Value) -> Value:
    """One product with ones for each axis: products of matrices wrap as they should."""
    axes = sorted(axis % x.rank for axis in op.axes)
    total = x if x.dtype.bits >= 32 else cast_to(x, i64)
    for axis in reversed(axes):
        rows = shape_ops.moveaxis(total, axis, -1)
        total = apply(Matmul(), rows, data.ones((rows.shape[-1],), rows.dtype))
    return _restore_axes(total, op, x)


@exports(reduce.Prod)
def prod(node: ExportContext[reduce.Prod]) -> Exported:
    """prod → ReduceProd of floats."""
    return _reduce(node, "ReduceProd") if node.dtype.is_float or not node.op.axes else None


@expands(reduce.Prod)
def product_of_integers(op: reduce.Prod, x: Value) -> Value:
    """The last of the running products, which wrap; a 1 in front stands for an empty axis."""
    total = x
    for axis in sorted((axis % x.rank for axis in op.axes), reverse=True):
        first = data.ones((*total.shape[:axis], 1, *total.shape[axis + 1 :]), x.dtype)
        running = cumulative.cumprod(joining.concat([first, total], axis), axis)
        last = running.shape[axis] - 1
        total = slicing.slice(running, [last], [last + 1], axes=[axis])
        total = shape_ops.reshape(total, (*total.shape[:axis], *total.shape[axis + 1 :]))
    return _restore_axes(total, op, x)


def _restore_axes(total: Value, op: reduce.Reduction, x: Value) -> Value:
    return shape_ops.reshape(total, reduce_shape(op.name, x.shape, op.axes, op.keepdims))


# Maxima and minima --------------------------------------------------------------------------------


def _may_hold_nan(node: Node) -> bool:
    return node.operands[0].dtype.is_float


@exports(reduce.Max, reduce.Min, function=_may_hold_nan)
def extremum(node: ExportContext[reduce.Max]) -> Exported:
    """max, min → ReduceMax, ReduceMin; NaN where there is one."""
    name = "ReduceMax" if node.op.name == "max" else "ReduceMin"
    if not node.runs(name, node.dtype) or _lacks_limit(node, name):
        return None
    return _or_nan(node, _reduce(node, name))


def _lacks_limit(node: ExportContext[reduce.Max], name: str) -> bool:
    """Whether ONNX Runtime gives no limit of the dtype, or another's, where nothing is reduced."""
    if not node.op.may_be_empty or node.dtype.is_float:
        return False
    is_native = node.dtype is not bool_ and carrier(name, node.dtype) is node.dtype
    return not is_native and not provably_at_least(_elements(node), 1)


def _or_nan(node: ExportContext[Any], reduced: Term) -> Term:
    """NaN where there is one among the elements."""
    if not node.dtype.is_float or not node.special_values or not node.op.axes:
        return reduced
    flags = node.is_nan(node.inputs[0])
    if node.opset >= 20 and provably_at_least(_elements(node), 1):
        has_nan = _reduce(node, "ReduceMax", flags)
    else:  # bools have no maximum in older opsets, and none at all of nothing
        has_nan = node.cast(_reduce(node, "ReduceSum", node.cast(flags, _FLAG)), bool_)
    return node.where(has_nan, node.nan(node.dtype), reduced)


@expands(reduce.Max)
def maximum_in_others(op: reduce.Max, x: Value) -> Value:
    """The maximum of keys in the same order; of others, with the limit as one more element."""
    if x.dtype is u64:
        return from_key(apply(op, u64_key(x)))
    return apply(reduce.Max(op.axes, op.keepdims), _with_limit(x, op.axes, lowest=True))


@expands(reduce.Min)
def minimum_in_others(op: reduce.Min, x: Value) -> Value:
    """The minimum of keys in the same order; of others, with the limit as one more element."""
    if x.dtype is u64:
        return from_key(apply(op, u64_key(x)))
    return apply(reduce.Min(op.axes, op.keepdims), _with_limit(x, op.axes, lowest=False))


def _with_limit(x: Value, axes: Sequence[int], lowest: bool) -> Value:
    """The operand with an element more along each axis, that any other replaces."""
    for axis in sorted(axis % x.rank for axis in axes):
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        x = joining.concat([x, data.full(shape, dtype_limit(x.dtype, lowest), x.dtype)], axis)
    return x


def u64_key(x: Value) -> Value:
    """u64 numbers as i64 numbers in the same order."""
    assert x.dtype is u64
    return e.bitwise_xor(cast_to(x, i64), np.iinfo(np.int64).min)


def from_key(key: Value) -> Value:
    """The u64 numbers that keys stand for."""
    return cast_to(e.bitwise_xor(key, np.iinfo(np.int64).min), u64)


@exports(reduce.Argmax, reduce.Argmin, function=_may_hold_nan)
def arg_extremum(node: ExportContext[reduce.Argmax]) -> Exported:
    """The place of the first NaN where there is one: NaNs are looked for first."""
    name = "ArgMax" if node.op.name == "argmax" else "ArgMin"
    if not node.runs(name, node.dtype):
        return None
    options: dict[str, Any] = {"axis": node.op.axis % node.rank, "keepdims": int(node.op.keepdims)}
    place = node.emit(name, *node.inputs, dtype=i64, **options)
    if not node.dtype.is_float or not node.special_values:
        return place
    flags = node.cast(node.is_nan(node.inputs[0]), _FLAG)
    first = node.emit("ArgMax", flags, dtype=i64, **options)
    axes = node.integers([node.op.axis % node.rank])
    most = node.emit("ReduceMax", flags, axes, keepdims=int(node.op.keepdims))
    return node.where(node.cast(most, bool_), first, place)


@expands(reduce.Argmax)
def argmax_of_u64(op: reduce.Argmax, x: Value) -> Value:
    """The place of the largest key."""
    return apply(reduce.Argmax(op.axis, op.keepdims), u64_key(x))


@expands(reduce.Argmin)
def argmin_of_u64(op: reduce.Argmin, x: Value) -> Value:
    """The place of the smallest key."""
    return apply(reduce.Argmin(op.axis, op.keepdims), u64_key(x))


# The rest -----------------------------------------------------------------------------------------


@exports(reduce.Mean)
def mean(node: ExportContext[reduce.Mean]) -> Exported:
    """mean → ReduceMean, where there is something to average."""
    return _reduce(node, "ReduceMean") if provably_at_least(_elements(node), 1) else None


@exports(reduce.Logsumexp, function=True)
def logsumexp(node: ExportContext[reduce.Logsumexp]) -> Exported:
    """logsumexp → ReduceLogSumExp, which forgets a NaN beside an infinity."""
    return _or_nan(node, _reduce(node, "ReduceLogSumExp"))


@expands(reduce.Any)
def any_(op: reduce.Any, x: Value) -> Value:
    """Whether the count of true elements is not 0."""
    count = apply(reduce.Sum(op.axes, op.keepdims), cast_to(x, i64))
    return e.not_equal(count, 0)


@expands(reduce.All)
def all_(op: reduce.All, x: Value) -> Value:
    """Whether no element is false."""
    return e.logical_not(apply(reduce.Any(op.axes, op.keepdims), e.logical_not(x)))


@exports(cumulative.Cumsum)
def cumsum(node: ExportContext[cumulative.Cumsum]) -> Exported:
    """cumsum → CumSum."""
    return _running(node, "CumSum")


@exports(cumulative.Cumprod)
def cumprod(node: ExportContext[cumulative.Cumprod]) -> Exported:
    """cumprod → CumProd, since opset 26."""
    return _running(node, "CumProd") if node.opset >= 26 else None


def _running(node: ExportContext[Any], name: str) -> Exported:
    axis = node.number(node.op.axis % node.rank, i64)
    flags: dict[str, Any] = {"exclusive": int(node.op.exclusive), "reverse": int(node.op.reverse)}
    return node.emit(name, node.inputs[0], axis, **flags)


@expands(cumulative.Cumprod)
def cumprod_by_scan(op: cumulative.Cumprod, x: Value) -> Value:
    """Running products, step by step."""
    one = data.ones((), x.dtype)

    def step(before: Value, item: Value) -> tuple[Value, Value]:
        product = before * item
        return product, before if op.exclusive else product

    return _broadcast_start(x, op.axis, op.reverse, one, step)


@expands(cumulative.Cummax)
def cummax(op: cumulative.Cummax, x: Value) -> Value:
    """Running maxima, step by step."""
    lowest: Any = -np.inf
    if x.dtype is bool_:
        lowest = False
    elif x.dtype.is_integer:
        lowest = integer_limits(x.dtype)[0]
    start = data.full((), lowest, x.dtype)

    def step(before: Value, item: Value) -> tuple[Value, Value]:
        largest = e.maximum(before, item)
        return largest, largest

    return _broadcast_start(x, op.axis, op.reverse, start, step)


@expands(log_cumulative.Logcumsumexp)
def logcumsumexp(op: log_cumulative.Logcumsumexp, x: Value) -> Value:
    """Running sums of exponentials, step by step."""
    start = data.full((), -np.inf, x.dtype)

    def step(before: Value, item: Value) -> tuple[Value, Value]:
        top = e.maximum(before, item)
        apart = e.where(e.equal(before, item), 0.0, e.negate(e.abs(before - item)))
        total = top + math.log1p(math.exp(apart))
        return total, total

    return _broadcast_start(x, op.axis, op.reverse, start, step)


def _broadcast_start(x: Value, axis: int, reverse: bool, start: Value, step: Any) -> Value:
    """What a scan along the axis gives, from ``start`` everywhere."""
    rows = shape_ops.moveaxis(x, axis, 0)
    carry = shape_ops.expand(start, rows.shape[1:])
    _, running = scan(step, carry, rows, reverse=reverse)
    return shape_ops.moveaxis(running, 0, axis)
