"""Reductions, sorts and running sums."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from monograph.exporters.fx.emitter import TABLE, FxEmitter, Term, normal_axes, refuse_uncomputed
from monograph.frontends.torch.types import dtype_to_torch
from monograph.ir.graph import Node
from monograph.ir.op import Op
from monograph.ir.types import bool_
from monograph.ops.cumulative import Cummax, Cumprod, Cumsum
from monograph.ops.log_cumulative import Logcumsumexp
from monograph.ops.reduce.arithmetic import Prod, Sum
from monograph.ops.reduce.extremum import ArgExtremum, Argmax, Argmin, Extremum, Max, Min
from monograph.ops.reduce.statistics import Logsumexp, Mean, Variance
from monograph.ops.reduce.truth import All, Quantifier
from monograph.ops.reduce.truth import Any as AnyTrue
from monograph.ops.softmax import AlongAxis, LogSoftmax, Softmax
from monograph.ops.sorting import Argsort, Sort, TopKIndices
from monograph.ops.statistics import Bincount, Searchsorted
from monograph.ops.triangle import Triangle, Tril, Triu


def _refuse_no_axes(node: Node) -> str | None:
    odd = refuse_uncomputed(node)
    if odd is None and isinstance(node.op, Variance | Logsumexp) and not node.op.axes:
        return "torch takes no axes for all of them"
    return odd


@TABLE.writes(Sum, unless=refuse_uncomputed)
def _sum(emitter: FxEmitter, node: Node, op: Sum) -> Term:
    (x,) = emitter.operands(node)
    dtype = dtype_to_torch(node.result.dtype)
    axes = normal_axes(op.axes, node.operands[0].rank)
    if not axes:
        return x
    return emitter.call(torch.sum, x, axes, keepdim=op.keepdims, dtype=dtype)


@TABLE.writes(Mean, unless=refuse_uncomputed)
def _mean(emitter: FxEmitter, node: Node, op: Mean) -> Term:
    (x,) = emitter.operands(node)
    axes = normal_axes(op.axes, node.operands[0].rank)
    return emitter.call(torch.mean, x, axes, keepdim=op.keepdims) if axes else x


@TABLE.writes(Variance, unless=_refuse_no_axes)
def _variance(emitter: FxEmitter, node: Node, op: Variance) -> Term:
    (x,) = emitter.operands(node)
    axes = normal_axes(op.axes, node.operands[0].rank)
    return emitter.call(torch.var, x, axes, correction=op.correction, keepdim=op.keepdims)


@TABLE.writes(Prod, unless=refuse_uncomputed)
def _prod(emitter: FxEmitter, node: Node, op: Prod) -> Term:
    (made,) = emitter.operands(node)
    dtype = dtype_to_torch(node.result.dtype)
    for axis in sorted(normal_axes(op.axes, node.operands[0].rank), reverse=True):
        made = emitter.call(torch.prod, made, axis, keepdim=op.keepdims, dtype=dtype)
    return made


@TABLE.writes(All, AnyTrue)
def _quantifier(emitter: FxEmitter, node: Node, op: Quantifier) -> Term:
    (made,) = emitter.operands(node)
    function = torch.all if op.name == "all" else torch.any
    for axis in sorted(normal_axes(op.axes, node.operands[0].rank), reverse=True):
        made = emitter.call(function, made, axis, keepdim=op.keepdims)
    return made


def _refuse_empty(node: Node) -> str | None:
    odd = refuse_uncomputed(node)
    if odd is None and any(dim == 0 for dim in node.operands[0].shape):
        return "torch has no extremum of nothing"
    return odd


@TABLE.writes(Max, Min, unless=_refuse_empty)
def _extremum(emitter: FxEmitter, node: Node, op: Extremum) -> Term:
    (x,) = emitter.operands(node)
    axes = normal_axes(op.axes, node.operands[0].rank)
    if not axes:
        return x
    function = torch.amax if op.name == "max" else torch.amin
    return emitter.call(function, x, axes, keepdim=op.keepdims)


@TABLE.writes(Argmax, Argmin, unless=_refuse_empty)
def _arg_extremum(emitter: FxEmitter, node: Node, op: ArgExtremum) -> Term:
    (x,) = emitter.operands(node)
    if node.operands[0].dtype is bool_:
        x = emitter.method("to", x, torch.uint8)
    function = torch.argmax if op.name == "argmax" else torch.argmin
    return emitter.call(function, x, op.axis, keepdim=op.keepdims)


@TABLE.writes(Logsumexp, unless=_refuse_no_axes)
def _logsumexp(emitter: FxEmitter, node: Node, op: Logsumexp) -> Term:
    (x,) = emitter.operands(node)
    axes = normal_axes(op.axes, node.operands[0].rank)
    return emitter.call(torch.logsumexp, x, axes, keepdim=op.keepdims)


def _refuse_zeros_of_hidden_rows(node: Node) -> str | None:
    if isinstance(node.op, Softmax) and node.op.fully_masked != "nan":
        return "torch.softmax gives NaN for a row of -inf"
    return refuse_uncomputed(node)


@TABLE.writes(Softmax, LogSoftmax, unless=_refuse_zeros_of_hidden_rows)
def _softmax(emitter: FxEmitter, node: Node, op: AlongAxis) -> Term:
    (x,) = emitter.operands(node)
    function = torch.softmax if op.name == "softmax" else torch.log_softmax
    return emitter.call(function, x, op.axis)


@TABLE.writes(Cumsum, unless=refuse_uncomputed)
def _cumsum(emitter: FxEmitter, node: Node, op: Cumsum) -> Term:
    return _running(emitter, node, op, torch.cumsum, 0)


@TABLE.writes(Cumprod, unless=refuse_uncomputed)
def _cumprod(emitter: FxEmitter, node: Node, op: Cumprod) -> Term:
    return _running(emitter, node, op, torch.cumprod, 1)


def _running(
    emitter: FxEmitter, node: Node, op: Cumsum | Cumprod, function: Callable[..., Any], start: int
) -> Term:
    """``exclusive`` puts the start in front and leaves the last element out."""
    (made,) = emitter.operands(node)
    axis = op.axis % node.result.rank
    if op.reverse:
        made = emitter.call(torch.flip, made, [axis])
    if op.exclusive:
        shape = node.result.shape
        first = emitter.shape((*shape[:axis], 1, *shape[axis + 1 :]))
        filling = emitter.call(torch.full, first, start, dtype=dtype_to_torch(node.result.dtype))
        joined = emitter.call(torch.cat, [filling, made], axis)
        made = emitter.call(torch.narrow, joined, axis, 0, emitter.size(shape[axis]))
    made = emitter.call(function, made, axis, dtype=dtype_to_torch(node.result.dtype))
    return emitter.call(torch.flip, made, [axis]) if op.reverse else made


@TABLE.writes(Cummax, unless=refuse_uncomputed)
def _cummax(emitter: FxEmitter, node: Node, op: Cummax) -> Term:
    (made,) = emitter.operands(node)
    axis = op.axis % node.result.rank
    if op.reverse:
        made = emitter.call(torch.flip, made, [axis])
    made = emitter.unpack(emitter.call(torch.cummax, made, axis), 1)[0]
    return emitter.call(torch.flip, made, [axis]) if op.reverse else made


@TABLE.writes(Logcumsumexp, unless=refuse_uncomputed)
def _logcumsumexp(emitter: FxEmitter, node: Node, op: Logcumsumexp) -> Term:
    (made,) = emitter.operands(node)
    if op.reverse:
        made = emitter.call(torch.flip, made, [op.axis])
    made = emitter.call(torch.logcumsumexp, made, op.axis)
    return emitter.call(torch.flip, made, [op.axis]) if op.reverse else made


@TABLE.writes(Argsort, Sort, unless=refuse_uncomputed)
def _sort(emitter: FxEmitter, node: Node, op: Op) -> Term:
    (x,) = emitter.operands(node)
    assert isinstance(op, Argsort | Sort)
    pair = emitter.call(torch.sort, x, stable=True, dim=op.axis, descending=op.descending)
    return emitter.call(operator.getitem, pair, 0 if op.name == "sort" else 1)


@TABLE.writes(TopKIndices, unless=refuse_uncomputed)
def _top_k_indices(emitter: FxEmitter, node: Node, op: TopKIndices) -> Term:
    """torch's own topk takes any of equal elements; the first of a stable sort are the lowest."""
    (x,) = emitter.operands(node)
    pair = emitter.call(torch.sort, x, stable=True, dim=op.axis, descending=op.largest)
    return emitter.call(torch.narrow, emitter.call(operator.getitem, pair, 1), op.axis, 0, op.k)


@TABLE.writes(Bincount, unless=refuse_uncomputed)
def _bincount(emitter: FxEmitter, node: Node, op: Bincount) -> Term:
    x, *weights = emitter.operands(node)
    is_known = op.is_settled or isinstance(op.length, int)
    least = emitter.size(op.length) if is_known else op.minimum
    return emitter.call(torch.bincount, x, weights[0] if weights else None, least)


@TABLE.writes(Searchsorted, unless=refuse_uncomputed)
def _searchsorted(emitter: FxEmitter, node: Node, op: Searchsorted) -> Term:
    ordered, values = (emitter.method("contiguous", each) for each in emitter.operands(node))
    return emitter.call(torch.searchsorted, ordered, values, right=op.right)


@TABLE.writes(Tril, Triu)
def _triangle(emitter: FxEmitter, node: Node, op: Triangle) -> Term:
    function = torch.tril if op.name == "tril" else torch.triu
    return emitter.call(function, *emitter.operands(node), emitter.size(op.diagonal))
