"""Reading and writing at positions that are data, one-hot vectors, and what is not zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.emitter import computing
from monograph.exporters.onnx.protos import tensor_proto
from monograph.exporters.onnx.registry import Exported, expands, exports
from monograph.exporters.onnx.scope import Term
from monograph.ir.dims import provably_at_least
from monograph.ir.graph import Value
from monograph.ir.types import bool_, i32, i64, u64
from monograph.ops import data, index
from monograph.ops import shape as shape_ops

REDUCTIONS = {"set": "none", "add": "add", "multiply": "mul", "max": "max", "min": "min"}


@exports(index.Gather)
def gather(node: ExportContext[index.Gather]) -> Exported:
    """An empty index vector names the whole, which ONNX has no word for."""
    if node.shape(1)[-1] == 0:
        return None
    indices = node.cast(node.inputs[1], i64)
    return node.emit("GatherND", node.inputs[0], indices, batch_dims=node.op.batch_dims)


@expands(index.Gather)
def gather_whole(op: index.Gather, x: Value, indices: Value) -> Value:
    """The whole tensor for each of the index vectors."""
    places = indices.shape[op.batch_dims : -1]
    batch, rest = x.shape[: op.batch_dims], x.shape[op.batch_dims :]
    apart = shape_ops.reshape(x, (*batch, *(1,) * len(places), *rest))
    return shape_ops.expand(apart, (*batch, *places, *rest))


@exports(index.Take)
def take(node: ExportContext[index.Take]) -> Exported:
    """take → Gather."""
    return node.emit("Gather", node.inputs[0], node.as_i64(1), axis=node.op.axis % node.rank)


@exports(index.Embedding)
def embedding(node: ExportContext[index.Embedding]) -> Exported:
    """embedding → Gather of rows."""
    return node.emit("Gather", node.inputs[0], node.as_i64(1), axis=0)


@exports(index.TakeAlongAxis)
def take_along_axis(node: ExportContext[index.TakeAlongAxis]) -> Exported:
    """take_along_axis → GatherElements."""
    axis = node.op.axis % node.rank
    return node.emit("GatherElements", node.inputs[0], node.as_i64(1), axis=axis)


# Writing ------------------------------------------------------------------------------------------


@exports(index.Scatter, function=lambda node: _orders_floats(node.op, node.operands[0]))
def scatter(node: ExportContext[index.Scatter]) -> Exported:
    """scatter → ScatterND."""
    if node.shape(1)[-1] == 0:
        return None
    return _write_nans_last(node, "ScatterND", {})


@exports(index.PutAlongAxis, function=lambda node: _orders_floats(node.op, node.operands[0]))
def put_along_axis(node: ExportContext[index.PutAlongAxis]) -> Exported:
    """put_along_axis → ScatterElements."""
    return _write_nans_last(node, "ScatterElements", {"axis": node.op.axis % node.rank})


def _orders_floats(op: Any, x: Value) -> bool:
    return op.mode in ("max", "min") and x.dtype.is_float


def _write_nans_last(node: ExportContext[Any], name: str, attributes: dict[str, Any]) -> Exported:
    """A NaN is the largest and the smallest of all: it is written after the others."""
    mode = node.op.mode
    if node.dtype is bool_ and mode in ("max", "min"):
        mode = "add" if mode == "max" else "multiply"
    x, _, updates = node.inputs
    indices = node.cast(node.inputs[1], i64)
    if mode != "set":  # f16 can be written but not combined
        x, updates = (node.cast(term, computing(node.dtype)) for term in (x, updates))

    def write(target: Term, values: Term, how: str) -> Term:
        return node.emit(name, target, indices, values, reduction=REDUCTIONS[how], **attributes)

    written = node.cast(write(x, updates, mode), node.dtype)
    if not _orders_floats(node.op, node.node.operands[0]) or not node.special_values:
        return written
    flags, more = (node.cast(node.is_nan(term), i32) for term in (x, updates))
    has_nan = node.cast(write(flags, more, "max"), bool_)
    return node.where(has_nan, node.nan(node.dtype), written)


@expands(index.Scatter)
def scatter_whole(op: index.Scatter, x: Value, indices: Value, updates: Value) -> Value:
    """Updates of the whole tensor: rows of one that has the whole for its only row."""
    count = shape_ops.reshape(updates, (-1, *x.shape)).shape[0]
    rows = shape_ops.reshape(updates, (count, *x.shape))
    first = data.zeros((count, 1), i64)
    whole = index.Scatter(op.mode)(shape_ops.reshape(x, (1, *x.shape)), first, rows)
    return shape_ops.reshape(whole, x.shape)


# What indices make --------------------------------------------------------------------------------


@exports(index.OneHot)
def one_hot(node: ExportContext[index.OneHot]) -> Exported:
    """one_hot → OneHot."""
    op = node.op
    if not node.rank or not provably_at_least(op.depth, 1) or not node.runs("OneHot", op.dtype):
        return None
    values = node.constant([op.off_value, op.on_value], op.dtype)
    indices = node.inputs[0]
    if node.dtype is u64:  # beyond what i64 holds is beyond any depth
        indices = node.emit("Min", indices, node.number(np.iinfo(np.int64).max, u64))
    indices = node.cast(indices, i64)
    axis = op.axis % (node.rank + 1)
    return node.emit("OneHot", indices, node.size(op.depth), values, axis=axis)


@exports(index.Nonzero)
def nonzero(node: ExportContext[index.Nonzero]) -> Exported:
    """ONNX has a row for each axis, and one for a scalar, where ours has none."""
    flags = node.cast(node.inputs[0], bool_)
    if node.rank == 0:
        count = node.cast(node.reshape(flags, (), (1,)), i64)
        shape = node.write("Concat", [count, node.integers([0])], [i64], {"axis": 0})[0]
        return node.write("ConstantOfShape", [shape], [i64], {"value": _zero()})[0]
    places = node.emit("NonZero", flags, dtype=i64)
    return node.transpose(places, (1, 0))


def _zero() -> Any:
    return tensor_proto(np.zeros(1, np.int64), i64)
