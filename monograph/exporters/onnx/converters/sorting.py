"""Sorting, all of it by ONNX's TopK, which prefers the lower of equal elements as ours do.

TopK puts NaNs anywhere. Floats are therefore sorted by a key that has no NaN and the same order: a
wider float, in which there is room for NaN beyond infinity. f64 is sorted twice: by number, then,
keeping that order, by whether it is one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, exports
from monograph.exporters.onnx.scope import Term
from monograph.ir.dims import Dim
from monograph.ir.graph import Node
from monograph.ir.types import bool_, f64, i32, i64, u64
from monograph.ops import sorting

BEYOND_F32 = 1e300
BEYOND_ALL = 2e300


def _needs_key(node: Node) -> bool:
    dtype = node.operands[0].dtype
    return dtype.is_float or dtype is u64


@exports(sorting.Argsort, function=_needs_key)
def argsort(node: ExportContext[sorting.Argsort]) -> Exported:
    """argsort → the indices of TopK."""
    return _order(node, node.shape()[node.op.axis], node.op.descending)


@exports(sorting.TopKIndices, function=_needs_key)
def top_k_indices(node: ExportContext[sorting.TopKIndices]) -> Exported:
    """The indices of TopK."""
    return _order(node, node.op.k, node.op.largest)


@exports(sorting.TopK, function=True)
def top_k(node: ExportContext[sorting.TopK]) -> Exported:
    """Those in order of size; sorted again by index if that is what is asked for."""
    op, axis = node.op, node.op.axis % node.rank
    chosen = _order(node, op.k, op.largest)
    if not op.sorted:
        chosen = _sort(node, chosen, op.k, largest=False)[0]
    return node.emit("GatherElements", node.inputs[0], chosen, axis=axis), chosen


def _order(node: ExportContext[Any], count: Dim, largest: bool) -> Term:
    """The places of the first ``count`` elements in order of size."""
    x = node.inputs[0]
    if node.dtype is bool_:
        return _sort(node, node.cast(x, i32), count, largest)[1]
    if node.dtype is u64:
        lowest = node.number(np.iinfo(np.int64).min, i64)
        return _sort(node, node.emit("BitwiseXor", node.cast(x, i64), lowest), count, largest)[1]
    if not node.dtype.is_float or not node.special_values:
        return _sort(node, x, count, largest)[1]
    if node.dtype is f64:
        return _order_of_doubles(node, count, largest)
    bounds = (node.number(bound, f64) for bound in (-BEYOND_F32, BEYOND_F32))
    wide = node.emit("Clip", node.cast(x, f64), *bounds)
    key = node.where(node.is_nan(x), node.number(BEYOND_ALL, f64), wide)
    return _sort(node, key, count, largest)[1]


def _order_of_doubles(node: ExportContext[Any], count: Dim, largest: bool) -> Term:
    axis = node.op.axis % node.rank
    size = node.shape()[axis]
    nan = node.is_nan(node.inputs[0])
    numbers = node.where(nan, node.number(0, f64), node.inputs[0])
    by_number = _sort(node, numbers, size, largest)[1]
    flags = node.emit("GatherElements", node.cast(nan, i32), by_number, axis=axis)
    places = _sort(node, flags, count, largest)[1]
    return node.emit("GatherElements", by_number, places, axis=axis)


def _sort(node: ExportContext[Any], x: Term, count: Dim, largest: bool) -> tuple[Term, ...]:
    options = {"axis": node.op.axis % node.rank, "largest": int(largest), "sorted": 1}
    return node.emit_many("TopK", x, node.size(count), dtypes=[None, i64], **options)
