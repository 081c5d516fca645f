"""Sorting and what rests on it: sort, topk, median, mode, quantiles, unique, searchsorted, bins."""

from __future__ import annotations

from typing import Any

import numpy as np

from monograph import functional as F
from monograph.frontends.torch.aten.reduce import axis_of
from monograph.frontends.torch.node import TorchNode, static
from monograph.frontends.torch.ops import bind_dim
from monograph.frontends.torch.registry import converter
from monograph.ir.build import apply, constant
from monograph.ir.dims import Symbol, provably_less
from monograph.ir.graph import Value
from monograph.ir.types import f64, i32, i64
from monograph.ops.index.lookup import new_symbol_name
from monograph.ops.statistics import Bincount


@converter("aten.sort.default", "aten.sort.stable")
def _sort(node: TorchNode) -> tuple[Value, Value]:
    x = node["self"]
    if x.rank == 0:
        return x, F.zeros((), i64)
    axis = axis_of(x, node["dim"])
    order = F.argsort(x, axis, bool(node["descending"]))
    return F.take_along_axis(x, order, axis), order


@converter("aten.argsort.default", "aten.argsort.stable")
def _argsort(node: TorchNode) -> Value:
    x = node["self"]
    if x.rank == 0:
        return F.zeros((), i64)
    return F.argsort(x, axis_of(x, node["dim"]), bool(node["descending"]))


@converter("aten.msort.default")
def _msort(node: TorchNode) -> Value:
    x: Value = node["self"]
    return x if x.rank == 0 else F.sort(x, 0)


@converter("aten.topk.default")
def _topk(node: TorchNode) -> tuple[Value, Value]:
    x = node["self"]
    if x.rank == 0:
        shape = node.result_type().shape
        return F.reshape(x, shape), F.zeros(shape, i64)
    count = static(node["k"], "k of topk")
    return F.top_k(x, count, axis_of(x, node["dim"]), bool(node["largest"]), bool(node["sorted"]))


@converter("aten.kthvalue.default")
def _kthvalue(node: TorchNode) -> tuple[Value, Value]:
    x = node["self"]
    if x.rank == 0:
        return x, F.zeros((), i64)
    return F.kth_value(x, static(node["k"], "k"), axis_of(x, node["dim"]), bool(node["keepdim"]))


@converter("aten.median.default")
def _median(node: TorchNode) -> Value:
    return F.median(F.reshape(node["self"], (-1,)), 0)[0]


@converter("aten.nanmedian.default")
def _nanmedian(node: TorchNode) -> Value:
    return F.median(F.reshape(node["self"], (-1,)), 0, ignore_nan=True)[0]


@converter("aten.median.dim")
def _median_along(node: TorchNode) -> tuple[Value, Value]:
    return _median_of(node, False)


@converter("aten.nanmedian.dim")
def _nanmedian_along(node: TorchNode) -> tuple[Value, Value]:
    return _median_of(node, True)


def _median_of(node: TorchNode, ignore_nan: bool) -> tuple[Value, Value]:
    x = node["self"]
    if x.rank == 0:
        return x, F.zeros((), i64)
    keep = bool(node["keepdim"])
    return F.median(x, axis_of(x, node["dim"]), keepdims=keep, ignore_nan=ignore_nan)


@converter("aten.mode.default")
def _mode(node: TorchNode) -> tuple[Value, Value]:
    x = node["self"]
    if x.rank == 0:
        return x, F.zeros((), i64)
    return F.mode(x, axis_of(x, node["dim"]), bool(node["keepdim"]))


@converter(
    "aten.searchsorted.Tensor",
    "aten.searchsorted.Scalar",
)
def _searchsorted(node: TorchNode) -> Value:
    right = bool(node["right"]) or node["side"] == "right"
    edges, x = node.promote(node["sorted_sequence"], node["self"])
    found = F.searchsorted(edges, x, right, node["sorter"])
    return F.cast(found, i32 if node["out_int32"] else i64)


@converter("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def _bucketize(node: TorchNode) -> Value:
    x, edges = node.promote(node["self"], node["boundaries"])
    found = F.bucketize(x, edges, bool(node["right"]))
    return F.cast(found, i32 if node["out_int32"] else i64)


@converter("aten.bincount.default")
def _bincount(node: TorchNode) -> Value:
    return _bin_counts(node["self"], node["weights"], static(node["minlength"], "minlength"))


def _bin_counts(x: Value, weights: Value | None, least: int) -> Value:
    """The counts, in two steps: how many there are is settled first, so both have native code."""
    if not provably_less(0, x.shape[0]):
        return F.bincount(x, weights, least)
    most = F.cast(F.max(x), i64) + 1
    length = Symbol(new_symbol_name(x.graph, "bins"), least)
    bind_dim(F.maximum(most, least), length)
    if weights is None:
        return apply(Bincount(length, least, True), x)
    beside = weights if weights.dtype.is_differentiable else F.cast(weights, f64)
    return apply(Bincount(length, least, True), x, beside)


@converter("aten.histc.default")
def _histc(node: TorchNode) -> Value:
    low, high = float(node["min"]), float(node["max"])
    if low == high == 0.0:
        return F.histogram_uniform(node["self"], node["bins"], None, None)
    return F.histogram_uniform(node["self"], node["bins"], low, high)


@converter("aten._unique2.default", "aten._unique.default")
def _unique(node: TorchNode) -> tuple[Value, ...]:
    x = node["self"]
    values, _, inverse, counts = F.unique(F.reshape(x, (-1,)), 0)
    results = (values, F.reshape(inverse, x.shape), counts)
    return _keep_requested(node, results)


@converter("aten.unique_dim.default")
def _unique_along(node: TorchNode) -> tuple[Value, ...]:
    x = node["self"]
    values, _, inverse, counts = F.unique(x, axis_of(x, node["dim"]))
    return _keep_requested(node, (values, inverse, counts))


@converter("aten.unique_consecutive.default")
def _unique_consecutive(node: TorchNode) -> tuple[Value, ...]:
    x, dim = node["self"], node["dim"]
    if dim is None:
        values, inverse, counts = F.unique_consecutive(F.reshape(x, (-1,)), 0)
        return _keep_requested(node, (values, F.reshape(inverse, x.shape), counts))
    return _keep_requested(node, F.unique_consecutive(x, axis_of(x, dim)))


def _keep_requested(node: TorchNode, results: tuple[Value, ...]) -> tuple[Value, ...]:
    """Results that were not asked for are empty in torch."""
    asked = (True, node.get("return_inverse", True), node.get("return_counts", True))
    kept = []
    for result, wanted, type_ in zip(results, asked, node.result_types(), strict=False):
        empty = not wanted and type_ is not None and type_.shape == (0,)
        kept.append(F.zeros((0,), i64) if empty else result)
    return tuple(kept)


@converter("aten.repeat_interleave.Tensor")
def _repeat_interleave(node: TorchNode) -> Value:
    return _run_of_each(node["repeats"], node["output_size"])


@converter("aten.repeat_interleave.self_Tensor")
def _repeat_elements(node: TorchNode) -> Value:
    """Each element as often as its number says, or as the one number for all says."""
    x, repeats, axis = node["self"], node["repeats"], node["dim"]
    if axis is None or x.rank == 0:
        x, axis = F.reshape(x, (-1,)), 0
    axis = axis_of(x, axis)
    if repeats.rank == 0 or repeats.shape == (1,):
        repeats = F.expand(F.reshape(repeats, (1,)), (x.shape[axis],))
    return F.take(x, _run_of_each(repeats, node["output_size"]), axis)


def _run_of_each(repeats: Value, size: int | None) -> Value:
    """Which run each place lies in: as many runs have ended before it as it counts.

    If the number of places is given and wrong, a run is named that there is not, or has no bin.
    """
    ends = F.cumsum(F.cast(repeats, i64), 0)
    counts = _bin_counts(ends, None, 0) if size is None else apply(Bincount(size + 1), ends)
    return F.getitem(F.cumsum(counts, 0), slice(0, -1))


@converter("aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar", "aten.isin.Scalar_Tensor")
def _isin(node: TorchNode) -> Value:
    elements: Any = node.get("elements") if node.get("elements") is not None else node["element"]
    tests = node["test_elements"] if node.get("test_elements") is not None else node["test_element"]
    a, b = node.promote(elements, tests)
    hits = F.any(F.equal(F.unsqueeze(a, -1), F.reshape(b, (-1,))), -1)
    return F.logical_not(hits) if node["invert"] else hits


@converter("aten.tril_indices.default")
def _tril_indices(node: TorchNode) -> Value:
    return _triangle(node, lambda row, column, offset: column <= row + offset)


@converter("aten.triu_indices.default")
def _triu_indices(node: TorchNode) -> Value:
    return _triangle(node, lambda row, column, offset: column >= row + offset)


def _triangle(node: TorchNode, inside: Any) -> Value:
    rows, columns = np.indices((node["row"], node["col"]))
    chosen = inside(rows, columns, node["offset"])
    places = np.stack([rows[chosen], columns[chosen]])
    return constant(places.astype(node.result_dtype.numpy))
