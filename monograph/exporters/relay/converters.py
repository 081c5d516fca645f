"""What each op is in Relay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from monograph import functional as F
from monograph.exporters.relay.emitter import DTYPES, TABLE, Emitter, Term
from monograph.ir.dims import Shape
from monograph.ir.graph import Node, Value
from monograph.ir.op import Op
from monograph.ir.types import TensorType, i32
from monograph.ops.conv.convolution import Conv
from monograph.ops.cumulative import Cumprod, Cumsum, Cumulative
from monograph.ops.data import Constant, Full, Iota, Weight
from monograph.ops.elementwise.convert import Cast, StopGradient
from monograph.ops.elementwise.select import Clip
from monograph.ops.index.lookup import Embedding
from monograph.ops.index.reading import Take, TakeAlongAxis
from monograph.ops.joining import Concat
from monograph.ops.linalg import DotGeneral, Linear
from monograph.ops.math import Erfc
from monograph.ops.norm import GroupNorm, LayerNorm
from monograph.ops.pool import AvgPool, MaxPool
from monograph.ops.rectifier import LeakyRelu
from monograph.ops.reduce.arithmetic import Prod, Sum
from monograph.ops.reduce.base import Reduction
from monograph.ops.reduce.extremum import ArgExtremum, Argmax, Argmin, Max, Min
from monograph.ops.reduce.statistics import Mean
from monograph.ops.reduce.truth import All
from monograph.ops.reduce.truth import Any as AnyTrue
from monograph.ops.shape import Expand, Reshape, Squeeze, Transpose, Unsqueeze
from monograph.ops.slicing import Flip, Pad, Slice
from monograph.ops.softmax import AlongAxis, LogSoftmax, Softmax
from monograph.ops.sorting import Argsort
from monograph.ops.windows import Pairs

WORDS = {
    **{name: name for name in (
        "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atanh", "bitwise_and",
        "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "cos", "cosh", "divide", "equal", "erf",
        "exp", "floor", "floor_divide", "greater", "greater_equal", "less", "less_equal", "log",
        "log10", "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum",
        "minimum", "multiply", "not_equal", "power", "round", "rsqrt", "sigmoid", "sign", "sin",
        "sinh", "sqrt", "subtract", "tan", "tanh", "trunc", "where",
    )},
    "is_finite": "isfinite",
    "is_inf": "isinf",
    "is_nan": "isnan",
    "negate": "negative",
    "relu": "nn.relu",
    "shift_left": "left_shift",
    "shift_right": "right_shift",
}  # fmt: skip
"""Ops that are one operator of Relay on the operands alone."""


def _word(emitter: Emitter, node: Node, op: Op) -> Term:
    return emitter.call(WORDS[op.name], emitter.operands(node), node.result.tensor)


TABLE.writes_each(WORDS, _word)


def _free(shape: Shape) -> bool:
    return not all(isinstance(dim, int) for dim in shape)


def _refuse_free(node: Node) -> str | None:
    return (
        "its sizes are attributes in Relay, and one is free" if _free(node.result.shape) else None
    )


@TABLE.writes(Weight)
def _weight(emitter: Emitter, node: Node, op: Weight) -> Term:
    return emitter.parameter(op.label, op.data.array(), node.result.tensor)


@TABLE.writes(Constant)
def _constant(emitter: Emitter, node: Node, op: Constant) -> Term:
    return emitter.parameter(node.result.name, op.data.array(), node.result.tensor)


@TABLE.writes(Full, unless=_refuse_free)
def _full(emitter: Emitter, node: Node, op: Full) -> Term:
    scalar = emitter.parameter("fill", op.element(), node.result.tensor.with_shape(()))
    return emitter.call("broadcast_to", [scalar], node.result.tensor, shape=list(op.shape))


@TABLE.writes(Iota, unless=_refuse_free)
def _iota(emitter: Emitter, node: Node, op: Iota) -> Term:
    sizes = node.result.tensor.static_shape()
    array = np.arange(sizes[op.axis]).astype(op.dtype.numpy)
    counted = emitter.parameter("iota", array, node.result.tensor.with_shape(array.shape))
    if len(sizes) == 1:
        return counted
    column = [-1 if axis == op.axis % len(sizes) else 1 for axis in range(len(sizes))]
    shape = tuple(array.size if each == -1 else 1 for each in column)
    row = emitter.call("reshape", [counted], node.result.tensor.with_shape(shape), newshape=column)
    return emitter.call("broadcast_to", [row], node.result.tensor, shape=list(sizes))


@TABLE.writes(StopGradient)
def _stop_gradient(emitter: Emitter, node: Node, op: StopGradient) -> Term:
    return emitter.operands(node)[0]


@TABLE.writes(Cast)
def _cast(emitter: Emitter, node: Node, op: Cast) -> Term:
    dtype = DTYPES[op.dtype.name]
    return emitter.call("cast", emitter.operands(node), node.result.tensor, dtype=dtype)


def _refuse_two_free(node: Node) -> str | None:
    free = [dim for dim in node.result.shape if not isinstance(dim, int)]
    return None if len(free) <= 1 else "Relay's reshape works one size out"


@TABLE.writes(Reshape, Squeeze, Unsqueeze, unless=_refuse_two_free)
def _reshape(emitter: Emitter, node: Node, op: Op) -> Term:
    """One free size is -1."""
    sizes = [dim if isinstance(dim, int) else -1 for dim in node.result.shape]
    return emitter.call("reshape", emitter.operands(node), node.result.tensor, newshape=sizes)


@TABLE.writes(Expand, unless=_refuse_free)
def _expand(emitter: Emitter, node: Node, op: Expand) -> Term:
    sizes = list(node.result.shape)
    return emitter.call("broadcast_to", emitter.operands(node), node.result.tensor, shape=sizes)


@TABLE.writes(Transpose)
def _transpose(emitter: Emitter, node: Node, op: Transpose) -> Term:
    axes = [axis % node.result.rank for axis in op.permutation]
    return emitter.call("transpose", emitter.operands(node), node.result.tensor, axes=axes)


@TABLE.writes(Flip)
def _flip(emitter: Emitter, node: Node, op: Flip) -> Term:
    (made,) = emitter.operands(node)
    for axis in op.axes:
        made = emitter.call("reverse", [made], made.type, axis=axis % node.result.rank)
    return made


@TABLE.writes(Concat)
def _concat(emitter: Emitter, node: Node, op: Concat) -> Term:
    parts = f"({', '.join(term.name for term in emitter.operands(node))})"
    return emitter.call("concatenate", [parts], node.result.tensor, axis=op.axis)


@TABLE.writes(Slice, unless=_refuse_free)
def _slice(emitter: Emitter, node: Node, op: Slice) -> Term:
    attributes = {"begin": list(op.starts), "end": list(op.limits), "strides": list(op.steps)}
    return emitter.call("strided_slice", emitter.operands(node), node.result.tensor, **attributes)


def _refuse_pad(node: Node) -> str | None:
    op = node.op
    assert isinstance(op, Pad)
    amounts = (*op.low, *op.high)
    crops = not all(isinstance(each, int) and each >= 0 for each in amounts)
    return "Relay pads outwards by known amounts" if crops or any(op.interior) else None


@TABLE.writes(Pad, unless=_refuse_pad)
def _pad(emitter: Emitter, node: Node, op: Pad) -> Term:
    (x,) = emitter.operands(node)
    width = [list(pair) for pair in zip(op.low, op.high, strict=True)]
    return emitter.call("nn.pad", [x, _scalar(op.value)], node.result.tensor, pad_width=width)


def _scalar(value: float) -> str:
    return f"{float(value)!r}f"


@TABLE.writes(Sum, Prod, Max, Min, Mean, All, AnyTrue)
def _reduce(emitter: Emitter, node: Node, op: Reduction) -> Term:
    axes = [axis % node.operands[0].rank for axis in op.axes]
    attributes = {"axis": axes, "keepdims": op.keepdims}
    return emitter.call(op.name, emitter.operands(node), node.result.tensor, **attributes)


@TABLE.writes(Argmax, Argmin)
def _arg_extremum(emitter: Emitter, node: Node, op: ArgExtremum) -> Term:
    """Relay's is of int32."""
    narrow = TensorType(i32, node.result.shape)
    attributes = {"axis": [op.axis], "keepdims": op.keepdims}
    found = emitter.call(op.name, emitter.operands(node), narrow, **attributes)
    return emitter.call("cast", [found], node.result.tensor, dtype="int64")


@TABLE.writes(Cumsum, Cumprod)
def _cumulative(emitter: Emitter, node: Node, op: Cumulative) -> Term:
    """What runs from the end runs along the reversed axis."""
    assert isinstance(op, Cumsum | Cumprod)
    (found,) = emitter.operands(node)
    type_, axis = node.result.tensor, op.axis % node.result.rank
    if op.reverse:
        found = emitter.call("reverse", [found], type_, axis=axis)
    found = emitter.call(op.name, [found], type_, axis=axis, exclusive=op.exclusive)
    return emitter.call("reverse", [found], type_, axis=axis) if op.reverse else found


@TABLE.writes(Argsort)
def _argsort(emitter: Emitter, node: Node, op: Argsort) -> Term:
    attributes = {"axis": op.axis, "is_ascend": not op.descending, "dtype": "int64"}
    return emitter.call("argsort", emitter.operands(node), node.result.tensor, **attributes)


def _refuse_zeros_of_hidden_rows(node: Node) -> str | None:
    if isinstance(node.op, Softmax) and node.op.fully_masked != "nan":
        return "Relay's softmax gives NaN for a row of -inf"
    return None


@TABLE.writes(Softmax, LogSoftmax, unless=_refuse_zeros_of_hidden_rows)
def _softmax(emitter: Emitter, node: Node, op: AlongAxis) -> Term:
    word = f"nn.{op.name}"
    return emitter.call(word, emitter.operands(node), node.result.tensor, axis=op.axis)


def _refuse_open(node: Node) -> str | None:
    op = node.op
    assert isinstance(op, Clip)
    return "Relay clips at both ends" if op.low is None or op.high is None else None


@TABLE.writes(Clip, unless=_refuse_open)
def _clip(emitter: Emitter, node: Node, op: Clip) -> Term:
    attributes = {"a_min": float(op.low or 0), "a_max": float(op.high or 0)}
    return emitter.call("clip", emitter.operands(node), node.result.tensor, **attributes)


@TABLE.writes(LeakyRelu)
def _leaky_relu(emitter: Emitter, node: Node, op: LeakyRelu) -> Term:
    (x,) = emitter.operands(node)
    return emitter.call("nn.leaky_relu", [x], node.result.tensor, alpha=op.slope)


@TABLE.writes(Take)
def _take(emitter: Emitter, node: Node, op: Take) -> Term:
    operands = emitter.operands(node)
    return emitter.call("take", operands, node.result.tensor, axis=op.axis, mode="wrap")


@TABLE.writes(Embedding)
def _embedding(emitter: Emitter, node: Node, op: Embedding) -> Term:
    operands = emitter.operands(node)
    return emitter.call("take", operands, node.result.tensor, axis=0, mode="wrap")


@TABLE.writes(TakeAlongAxis)
def _take_along_axis(emitter: Emitter, node: Node, op: TakeAlongAxis) -> Term:
    return emitter.call("gather", emitter.operands(node), node.result.tensor, axis=op.axis)


@TABLE.expands(Erfc)
def _erfc(op: Erfc, x: Value) -> Value:
    """Relay has erf alone: the tail loses its digits."""
    return 1.0 - F.erf(x)


def _refuse_bare(node: Node) -> str | None:
    return None if len(node.operands) == 3 else "Relay's norms have a scale and a bias"


def _refuse_layer_norm(node: Node) -> str | None:
    assert isinstance(node.op, LayerNorm)
    last = node.op.axis % node.result.rank == node.result.rank - 1
    return _refuse_bare(node) if last else "Relay normalises one axis"


@TABLE.writes(LayerNorm, unless=_refuse_layer_norm)
def _layer_norm(emitter: Emitter, node: Node, op: LayerNorm) -> Term:
    attributes = {"axis": -1, "epsilon": op.epsilon}
    return emitter.call("nn.layer_norm", emitter.operands(node), node.result.tensor, **attributes)


@TABLE.writes(GroupNorm, unless=_refuse_bare)
def _group_norm(emitter: Emitter, node: Node, op: GroupNorm) -> Term:
    attributes = {"num_groups": op.groups, "axis": 1, "epsilon": op.epsilon}
    return emitter.call("nn.group_norm", emitter.operands(node), node.result.tensor, **attributes)


def _refuse_rows(node: Node) -> str | None:
    return None if node.operands[0].rank == 2 else "nn.dense multiplies matrices"


@TABLE.writes(Linear, unless=_refuse_rows)
def _linear(emitter: Emitter, node: Node, op: Linear) -> Term:
    x, weight, *rest = emitter.operands(node)
    units = weight.type.shape[0]
    made = emitter.call("nn.dense", [x, weight], node.result.tensor, units=units)
    return emitter.call("nn.bias_add", [made, rest[0]], made.type) if rest else made


@TABLE.writes(DotGeneral, unless=_refuse_free)
def _dot_general(emitter: Emitter, node: Node, op: DotGeneral) -> Term:
    """Batched matrices: [batch, rows, inner] by [batch, columns, inner], reshaped around it."""
    lhs, rhs = emitter.operands(node)
    left_free, right_free = op.free_axes(lhs.type.rank, rhs.type.rank)
    a = _matrices(emitter, lhs, (op.lhs_batch, left_free, op.lhs_contracting))
    b = _matrices(emitter, rhs, (op.rhs_batch, right_free, op.rhs_contracting))
    shape = (a.type.shape[0], a.type.shape[1], b.type.shape[1])
    type_ = node.result.tensor.with_shape(shape)
    made = emitter.call("nn.batch_matmul", [a, b], type_, transpose_b=True)
    sizes = list(node.result.shape)
    return emitter.call("reshape", [made], node.result.tensor, newshape=sizes)


def _matrices(emitter: Emitter, x: Term, parts: tuple[Sequence[int], ...]) -> Term:
    order = [axis % x.type.rank for part in parts for axis in part]
    if order != sorted(order):
        shape = tuple(x.type.shape[axis] for axis in order)
        x = emitter.call("transpose", [x], x.type.with_shape(shape), axes=order)
    sizes = x.type.static_shape()
    joined, start = [], 0
    for part in parts:
        joined.append(math.prod(sizes[start : start + len(part)]))
        start += len(part)
    return emitter.call("reshape", [x], x.type.with_shape(tuple(joined)), newshape=joined)


def _borders(padding: Pairs) -> list[int]:
    return [low for low, _ in padding] + [high for _, high in padding]


def _refuse_rank(node: Node) -> str | None:
    rank = node.operands[0].rank - 2
    return None if rank in (1, 2, 3) else f"Relay has no {node.op.name} of {rank} dimensions"


@TABLE.writes(Conv, unless=_refuse_rank)
def _conv(emitter: Emitter, node: Node, op: Conv) -> Term:
    x, weight, *rest = emitter.operands(node)
    channels, _, *kernel = weight.type.shape
    made = emitter.call(
        f"nn.conv{len(op.stride)}d",
        [x, weight],
        node.result.tensor,
        strides=list(op.stride),
        padding=_borders(op.padding),
        dilation=list(op.dilation),
        groups=op.groups,
        channels=channels,
        kernel_size=kernel,
    )
    return emitter.call("nn.bias_add", [made, rest[0]], made.type) if rest else made


@TABLE.writes(MaxPool, unless=_refuse_rank)
def _max_pool(emitter: Emitter, node: Node, op: MaxPool) -> Term:
    return _pool(emitter, node, "max", op, {"dilation": list(op.dilation)})


@TABLE.writes(AvgPool, unless=_refuse_rank)
def _avg_pool(emitter: Emitter, node: Node, op: AvgPool) -> Term:
    return _pool(emitter, node, "avg", op, {"count_include_pad": op.count_include_pad})


def _pool(
    emitter: Emitter, node: Node, kind: str, op: MaxPool | AvgPool, more: dict[str, Any]
) -> Term:
    attributes = {
        "pool_size": list(op.kernel),
        "strides": list(op.stride),
        "padding": _borders(op.padding),
        "ceil_mode": op.ceil_mode,
        **more,
    }
    word = f"nn.{kind}_pool{len(op.kernel)}d"
    return emitter.call(word, emitter.operands(node), node.result.tensor, **attributes)
