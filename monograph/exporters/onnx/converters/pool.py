"""Pools. ONNX's have [batch, channels, *spatial] operands; ours have any number of leading axes."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce as fold
from math import prod
from typing import Any

import numpy as np

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.converters.conv import taps_of
from monograph.exporters.onnx.registry import Exported, expands, exports
from monograph.exporters.onnx.scope import Term
from monograph.ir.build import apply, apply_many, cast_to
from monograph.ir.dims import Dim, Shape, provably_at_least, shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.types import DType, bool_, i64, integer_limits, u8
from monograph.ops import data, index, joining, pool, reduce
from monograph.ops import elementwise as e
from monograph.ops import shape as shape_ops
from monograph.ops.windows import Windows


def _attributes(op: Any) -> dict[str, Any]:
    padding = op.padding
    return {
        "kernel_shape": list(op.kernel),
        "strides": list(op.stride),
        "pads": [low for low, _ in padding] + [high for _, high in padding],
        "ceil_mode": int(op.ceil_mode),
    }


def _fits(node: ExportContext[Any], name: str) -> bool:
    """Whether ONNX Runtime pools like this: up to three axes, less padding than kernel."""
    op = node.op
    narrow = all(max(pair) < size for pair, size in zip(op.padding, op.kernel, strict=True))
    some = all(provably_at_least(size, 1) for size in (*node.shape(), *node.result.shape))
    whole = not op.ceil_mode or node.opset >= 22  # where the last window may start changed there
    return narrow and some and whole and len(op.kernel) <= 3 and node.runs(name, node.dtype)


def _join_batch_axes(shape: Shape, rank: int) -> Shape:
    """The shape with just two axes before the last ``rank``."""
    leading = shape[: len(shape) - rank]
    spatial = shape[len(shape) - rank :]
    if len(leading) == 2:
        return shape
    batch: tuple[Dim, ...] = (shape_product(leading[:-1]), leading[-1]) if leading else (1, 1)
    return (*batch, *spatial)


def _write_pool(node: ExportContext[Any], name: str, term: Term, **attributes: Any) -> Term:
    rank = len(node.op.kernel)
    shape, result = node.shape(), node.result.shape
    operand = node.reshape(term, shape, _join_batch_axes(shape, rank))
    if name == "MaxPool":
        # With a second result ONNX Runtime takes a path on which -inf is less than all else.
        y = node.emit_many(name, operand, dtypes=[None, i64], **attributes)[0]
    else:
        y = node.emit(name, operand, **attributes)
    return node.reshape(y, _join_batch_axes(result, rank), result)


def _may_hold_nan(node: Node) -> bool:
    return node.operands[0].dtype.is_float


@exports(pool.MaxPool, function=_may_hold_nan)
def max_pool(node: ExportContext[pool.MaxPool]) -> Exported:
    """A NaN is a maximum: the windows that hold one are found by a pool of their own."""
    if not _fits(node, "MaxPool"):
        return None
    attributes = {**_attributes(node.op), "dilations": list(node.op.dilation)}
    y = _write_pool(node, "MaxPool", node.inputs[0], **attributes)
    if not node.dtype.is_float or not node.special_values:
        return y
    flags = node.cast(node.is_nan(node.inputs[0]), u8)
    has_nan = node.cast(_write_pool(node, "MaxPool", flags, **attributes), bool_)
    return node.where(has_nan, node.nan(node.dtype), y)


@expands(pool.MaxPool)
def max_pool_by_taps(op: pool.MaxPool, x: Value) -> Value:
    """The maximum of the taps."""
    return fold(e.maximum, taps_of(x, _clip_windows(op.windows(), x), _lowest(x.dtype)))


def _clip_windows(windows: Windows, x: Value) -> Windows:
    """The windows without what lies beyond the operand: a kernel of 1000 over a plane of 7."""
    return replace(windows, kernel=pool.clip_kernel(windows, x.shape))


def _lowest(dtype: DType) -> float | int:
    return integer_limits(dtype)[0] if dtype.is_integer else -np.inf


@expands(pool.MaxPoolWithIndices)
def max_pool_with_indices(op: pool.MaxPoolWithIndices, x: Value) -> tuple[Value, Value]:
    """The first of the places in each window that lie inside and hold its maximum (or a NaN)."""
    windows = op.windows()
    spatial = x.shape[x.rank - windows.rank :]
    taps = joining.stack(taps_of(x, windows, _lowest(x.dtype)), 0)
    largest = reduce.max(taps, 0)
    everywhere = data.full(spatial, True, bool_)
    inside = joining.stack(taps_of(everywhere, windows, False), 0)
    wide = (taps.shape[0], *(1,) * (x.rank - windows.rank), *inside.shape[1:])
    inside = shape_ops.reshape(inside, wide)
    best = e.equal(taps, largest)
    if x.dtype.is_float:
        best = e.logical_or(best, e.is_nan(taps))
    first = reduce.argmax(cast_to(e.logical_and(best, inside), u8), 0)
    numbers = shape_ops.reshape(data.iota((shape_product(spatial),)), spatial)
    places = shape_ops.reshape(joining.stack(taps_of(numbers, windows, 0), 0), wide)
    stretched = shape_ops.expand(places, taps.shape)
    chosen = index.take_along_axis(stretched, shape_ops.unsqueeze(first, 0), 0)
    found = shape_ops.reshape(chosen, largest.shape)
    return largest, e.where(reduce.any(inside, 0), found, -1)


@expands(pool.MaxPoolGradient)
def max_pool_gradient(op: pool.MaxPoolGradient, x: Value, grad: Value) -> Value:
    """Each window's gradient added where its maximum stands."""
    _, places = apply_many(pool.MaxPoolWithIndices(**op.attributes()), x)
    leading = x.shape[: x.rank - len(op.kernel)]
    count = shape_product(grad.shape[len(leading) :])
    size = shape_product(x.shape[len(leading) :])
    flat = shape_ops.reshape(places, (*leading, count))
    given = shape_ops.reshape(grad, (*leading, count))
    outside = flat < 0
    shares = e.where(outside, 0.0, given)
    total = data.zeros((*leading, size), grad.dtype)
    put = index.PutAlongAxis(len(leading), "add")
    return shape_ops.reshape(apply(put, total, e.maximum(flat, 0), shares), x.shape)


@exports(pool.AvgPool)
def avg_pool(node: ExportContext[pool.AvgPool]) -> Exported:
    """ONNX Runtime's ceil_mode counts what overhangs; such pools are sums of taps."""
    if node.op.ceil_mode or not _fits(node, "AveragePool"):
        return None
    counted = int(node.op.count_include_pad)
    attributes = {**_attributes(node.op), "count_include_pad": counted}
    return _write_pool(node, "AveragePool", node.inputs[0], **attributes)


@expands(pool.AvgPool)
def avg_pool_by_taps(op: pool.AvgPool, x: Value) -> Value:
    """The sum of the taps over how many count."""
    total = fold(e.add, taps_of(x, _clip_windows(op.windows(), x), 0.0))
    if not op.ceil_mode and op.count_include_pad:
        return total / float(prod(op.kernel))
    return op._shares(x, total)
