"""Products, convolutions, factorizations, Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence

from monograph.exporters.stablehlo.emitter import TABLE, Emitter, Term
from monograph.exporters.stablehlo.sizes import is_known
from monograph.exporters.stablehlo.types import integers
from monograph.ir.graph import Node
from monograph.ir.types import TensorType, wide
from monograph.ops.conv.convolution import Conv
from monograph.ops.conv.transpose import ConvTranspose
from monograph.ops.factorize import Cholesky
from monograph.ops.fft import Fft, Irfft, Rfft
from monograph.ops.linalg import DotGeneral
from monograph.ops.solve import TriangularSolve
from monograph.ops.windows import Pairs


@TABLE.writes(DotGeneral)
def _dot_general(emitter: Emitter, node: Node, op: DotGeneral) -> Term:
    lhs, rhs = emitter.operands(node)
    parts = {
        "lhs_batching_dimensions": [axis % lhs.type.rank for axis in op.lhs_batch],
        "rhs_batching_dimensions": [axis % rhs.type.rank for axis in op.rhs_batch],
        "lhs_contracting_dimensions": [axis % lhs.type.rank for axis in op.lhs_contracting],
        "rhs_contracting_dimensions": [axis % rhs.type.rank for axis in op.rhs_contracting],
    }
    given = ", ".join(f"{key} = {axes}" for key, axes in parts.items() if axes)
    attribute = f"dot_dimension_numbers = #stablehlo.dot<{given}>"
    return emitter.op("dot_general", [lhs, rhs], node.result.tensor, attribute)


def _convolve(
    emitter: Emitter,
    x: Term,
    weight: Term,
    result: TensorType,
    strides: Sequence[int],
    padding: Pairs,
    spread: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Term:
    if x.type.size == 0 or weight.type.size == 0:
        return emitter.filled(0, result)
    spatial = ", ".join(str(axis) for axis in range(x.type.rank - 2))
    order = f"[b, f, {spatial}]x[o, i, {spatial}]->[b, f, {spatial}]".replace(", ]", "]")
    pairs = ", ".join(f"[{low}, {high}]" for low, high in padding)
    attributes = (
        f"window_strides = {integers(strides)}, "
        f"padding = dense<[{pairs}]> : tensor<{len(padding)}x2xi64>, "
        f"lhs_dilation = {integers(spread)}, rhs_dilation = {integers(dilation)}, "
        f"dimension_numbers = #stablehlo.conv<{order}>, "
        f"feature_group_count = {groups} : i64, batch_group_count = 1 : i64"
    )
    return emitter.op("convolution", [x, weight], result, attributes)


def _add_bias(emitter: Emitter, made: Term, rest: Sequence[Term]) -> Term:
    if not rest:
        return made
    bias = emitter.spread(rest[0], [1], made.type.shape)
    return emitter.binary("add", made, bias)


def _refuse_points(node: Node) -> str | None:
    return None if node.operands[0].rank > 2 else "a convolution needs a spatial dimension"


@TABLE.writes(Conv, unless=_refuse_points)
def _conv(emitter: Emitter, node: Node, op: Conv) -> Term:
    x, weight, *rest = emitter.operands(node)
    ones = [1] * len(op.stride)
    made = _convolve(
        emitter, x, weight, node.result.tensor, op.stride, op.padding, ones, op.dilation, op.groups
    )
    return _add_bias(emitter, made, rest)


def _refuse_free_weights(node: Node) -> str | None:
    if not node.operands[1].tensor.is_static:
        return "its weights have a free size"
    return _refuse_points(node)


@TABLE.writes(ConvTranspose, unless=_refuse_free_weights)
def _conv_transpose(emitter: Emitter, node: Node, op: ConvTranspose) -> Term:
    """A convolution of the operand spread out by the stride, with the weights turned around."""
    x, weight, *rest = emitter.operands(node)
    inputs, per_group, *kernel = weight.type.static_shape()  # others are refused
    shape = (op.groups, inputs // op.groups, per_group, *kernel)
    parts = emitter.reshape(weight, shape)
    parts = emitter.transpose(parts, [0, 2, 1, *range(3, 3 + len(kernel))])
    turned = emitter.reshape(parts, (op.groups * per_group, inputs // op.groups, *kernel))
    spatial = integers(range(2, 2 + len(kernel)))
    turned = emitter.op("reverse", [turned], turned.type, f"dimensions = {spatial}")
    padding = []
    for axis, (low, high) in enumerate(op.padding):
        reach = op.dilation[axis] * (kernel[axis] - 1)
        padding.append((reach - low, reach - high + op.output_padding[axis]))
    ones = [1] * len(kernel)
    made = _convolve(
        emitter,
        x,
        turned,
        node.result.tensor,
        ones,
        tuple(padding),
        op.stride,
        op.dilation,
        op.groups,
    )
    return _add_bias(emitter, made, rest)


def _refuse_empty(node: Node) -> str | None:
    shape = node.operands[0].shape
    if any(dim == 0 for dim in shape):
        return "XLA transforms something"
    op = node.op
    assert isinstance(op, Fft | Rfft | Irfft)
    lengths = [each.shape[axis] for each in (*node.operands, *node.results) for axis in op.axes]
    return None if is_known(lengths) else "it transforms an axis whose size is free"


def _transform(
    emitter: Emitter, x: Term, kind: str, axis: int, length: int, result: TensorType
) -> Term:
    """One axis, which is moved to the end and back."""
    rank = x.type.rank
    order = [*(each for each in range(rank) if each != axis), axis]
    moved = emitter.transpose(x, order)
    shape = tuple(result.shape[each] for each in order)
    attributes = f"fft_type = #stablehlo<fft_type {kind}>, fft_length = {integers([length])}"
    made = emitter.op("fft", [moved], result.with_shape(shape), attributes)
    return emitter.transpose(made, [order.index(each) for each in range(rank)])


def _lengths(type_: TensorType) -> list[int]:
    """The sizes of all axes, those that are free, which nothing is transformed along, as 1."""
    return [dim if isinstance(dim, int) else 1 for dim in type_.shape]


def _scale(emitter: Emitter, x: Term, factor: float) -> Term:
    return x if factor == 1.0 else emitter.binary("multiply", x, emitter.filled(factor, x.type))


def _factor(scale: str, count: int, divided: int = 1) -> float:
    """By what a transform of ``count`` elements is scaled, where ``divided`` is done already."""
    wanted = {"none": 1.0, "root": 1 / math.sqrt(count), "count": 1 / count}[scale]
    return wanted * divided


@TABLE.writes(Fft, unless=_refuse_empty)
def _fft(emitter: Emitter, node: Node, op: Fft) -> Term:
    (x,) = emitter.operands(node)
    shape = _lengths(x.type)
    count = math.prod(shape[axis] for axis in op.axes)
    kind = "IFFT" if op.inverse else "FFT"
    made = x
    for axis in op.axes:
        made = _transform(emitter, made, kind, axis % len(shape), shape[axis], x.type)
    return _scale(emitter, made, _factor(op.scale, count, count if op.inverse else 1))


@TABLE.writes(Rfft, unless=_refuse_empty)
def _rfft(emitter: Emitter, node: Node, op: Rfft) -> Term:
    (x,) = emitter.operands(node)
    shape = _lengths(x.type)
    count = math.prod(shape[axis] for axis in op.axes)
    *outer, last = (axis % len(shape) for axis in op.axes)
    made = _transform(emitter, x, "RFFT", last, shape[last], node.result.tensor)
    for axis in outer:
        made = _transform(emitter, made, "FFT", axis, shape[axis], node.result.tensor)
    return _scale(emitter, made, _factor(op.scale, count))


@TABLE.writes(Irfft, unless=_refuse_empty)
def _irfft(emitter: Emitter, node: Node, op: Irfft) -> Term:
    (x,) = emitter.operands(node)
    shape = _lengths(node.result.tensor)
    count = math.prod(shape[axis] for axis in op.axes)
    *outer, last = (axis % len(shape) for axis in op.axes)
    made = x
    for axis in outer:
        made = _transform(emitter, made, "IFFT", axis, shape[axis], x.type)
    made = _transform(emitter, made, "IRFFT", last, shape[last], node.result.tensor)
    return _scale(emitter, made, _factor(op.scale, count, count))


@TABLE.writes(Cholesky)
def _cholesky(emitter: Emitter, node: Node, op: Cholesky) -> Term:
    """XLA leaves the other triangle as it may be: it is cleared."""
    (x,) = emitter.operands(node)
    lower = "false" if op.upper else "true"
    exact = emitter.convert(x, wide(x.type.dtype))
    made = emitter.op("cholesky", [exact], exact.type, f"lower = {lower}")
    rows = emitter.iota(x.type.shape, x.type.rank - 2)
    columns = emitter.iota(x.type.shape, x.type.rank - 1)
    kept = emitter.compare("LE" if op.upper else "GE", rows, columns)
    made = emitter.select(kept, made, emitter.filled(0, made.type))
    return emitter.convert(made, x.type.dtype)


@TABLE.writes(TriangularSolve)
def _triangular_solve(emitter: Emitter, node: Node, op: TriangularSolve) -> Term:
    a, b = emitter.operands(node)
    batch = node.result.shape[:-2]
    a = emitter.broadcast(a, (*batch, *a.type.shape[-2:]))
    b = emitter.broadcast(b, (*batch, *b.type.shape[-2:]))
    attributes = (
        f"left_side = true, lower = {'false' if op.upper else 'true'}, "
        f"unit_diagonal = {'true' if op.unit_diagonal else 'false'}, "
        "transpose_a = #stablehlo<transpose NO_TRANSPOSE>"
    )
    return emitter.op("triangular_solve", [a, b], node.result.tensor, attributes)
