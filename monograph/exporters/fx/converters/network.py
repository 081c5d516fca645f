"""Layers: products, convolutions, pools, norms, attention."""

from __future__ import annotations

import math

import torch

from monograph.exporters.fx.emitter import TABLE, FxEmitter, Term, refuse_empty, refuse_uncomputed
from monograph.ir.dims import provably_equal
from monograph.ir.graph import Node
from monograph.ir.types import Kind, bool_, f32, f64
from monograph.ops.attention import Attention
from monograph.ops.batch_norm import BatchNorm
from monograph.ops.conv.convolution import Conv
from monograph.ops.conv.transpose import ConvTranspose
from monograph.ops.linalg import DotGeneral, Linear, Matmul
from monograph.ops.norm import GroupNorm, LayerNorm, RmsNorm
from monograph.ops.pool import AvgPool, MaxPool
from monograph.ops.windows import Pairs

functional = torch.nn.functional
CONVOLUTIONS = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
TRANSPOSED = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}
MAX_POOLS = {1: torch.max_pool1d, 2: torch.max_pool2d, 3: torch.max_pool3d}
AVERAGE_POOLS = {
    1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d,
}  # fmt: skip


@TABLE.writes(Matmul, unless=refuse_uncomputed)
def _matmul(emitter: FxEmitter, node: Node, op: Matmul) -> Term:
    return _product(emitter, node, *emitter.operands(node))


def _product(emitter: FxEmitter, node: Node, a: Term, b: Term) -> Term:
    """torch multiplies no bools: a sum of logical products is whether there is any."""
    if node.result.dtype is not bool_:
        return emitter.call(torch.matmul, a, b)
    counts = emitter.call(
        torch.matmul, emitter.method("to", a, torch.int64), emitter.method("to", b, torch.int64)
    )
    return emitter.method("to", counts, torch.bool)


@TABLE.writes(Linear, unless=refuse_uncomputed)
def _linear(emitter: FxEmitter, node: Node, op: Linear) -> Term:
    return emitter.call(functional.linear, *emitter.operands(node))


@TABLE.writes(DotGeneral, unless=refuse_uncomputed)
def _dot_general(emitter: FxEmitter, node: Node, op: DotGeneral) -> Term:
    """As a batched product of matrices: [batch, left, inner] @ [batch, inner, right]."""
    lhs, rhs = node.operands
    left_free, right_free = op.free_axes(lhs.rank, rhs.rank)
    order = [axis % lhs.rank for axis in (*op.lhs_batch, *left_free, *op.lhs_contracting)]
    other = [axis % rhs.rank for axis in (*op.rhs_batch, *op.rhs_contracting, *right_free)]
    batch = [lhs.shape[axis] for axis in op.lhs_batch]
    left = [lhs.shape[axis] for axis in left_free]
    right = [rhs.shape[axis] for axis in right_free]
    inner = [lhs.shape[axis] for axis in op.lhs_contracting]
    a, b = (
        term if axes == sorted(axes) else emitter.call(torch.permute, term, axes)
        for term, axes in zip(emitter.operands(node), (order, other), strict=True)
    )
    if len(left) == len(right) == len(inner) == 1:
        return _product(emitter, node, a, b)
    total = {"left": math.prod(left), "inner": math.prod(inner), "right": math.prod(right)}
    a = emitter.call(torch.reshape, a, emitter.shape((*batch, total["left"], total["inner"])))
    b = emitter.call(torch.reshape, b, emitter.shape((*batch, total["inner"], total["right"])))
    made = _product(emitter, node, a, b)
    return emitter.call(torch.reshape, made, emitter.shape(node.result.shape))


def _symmetric(padding: Pairs) -> list[int] | None:
    return [low for low, _ in padding] if all(low == high for low, high in padding) else None


def _pad(emitter: FxEmitter, x: Term, padding: Pairs, value: float) -> tuple[Term, list[int]]:
    """The operand with what torch's own padding cannot say, and that padding."""
    same = _symmetric(padding)
    if same is not None and min(same, default=0) >= 0:
        return x, same
    amounts = [amount for pair in reversed(padding) for amount in pair]
    return emitter.call(torch.ops.aten.constant_pad_nd, x, amounts, value), [0] * len(padding)


def _refuse_windows(node: Node) -> str | None:
    rank = node.operands[0].rank - 2
    if rank not in CONVOLUTIONS:
        return f"torch has no {node.op.name} of {rank} dimensions"
    if node.operands[0].dtype.kind is not Kind.FLOAT:
        return f"torch has no {node.op.name} of {node.operands[0].dtype}"
    return refuse_empty(node)


@TABLE.writes(Conv, unless=_refuse_windows)
def _conv(emitter: FxEmitter, node: Node, op: Conv) -> Term:
    x, weight, *rest = emitter.operands(node)
    x, padding = _pad(emitter, x, op.padding, 0.0)
    bias = rest[0] if rest else None
    function = CONVOLUTIONS[len(op.stride)]
    strides, dilation = list(op.stride), list(op.dilation)
    return emitter.call(function, x, weight, bias, strides, padding, dilation, op.groups)


def _refuse_transposed(node: Node) -> str | None:
    op = node.op
    if isinstance(op, ConvTranspose) and _symmetric(op.padding) is None:
        return "torch pads a transposed convolution alike on both sides"
    return _refuse_windows(node)


@TABLE.writes(ConvTranspose, unless=_refuse_transposed)
def _conv_transpose(emitter: FxEmitter, node: Node, op: ConvTranspose) -> Term:
    x, weight, *rest = emitter.operands(node)
    return emitter.call(
        TRANSPOSED[len(op.stride)],
        x,
        weight,
        rest[0] if rest else None,
        list(op.stride),
        [low for low, _ in op.padding],
        list(op.output_padding),
        op.groups,
        list(op.dilation),
    )


def _refuse_pool(node: Node) -> str | None:
    """torch has pools of images with a batch and channels, padded by half a window at most."""
    op = node.op
    assert isinstance(op, MaxPool | AvgPool)
    if node.operands[0].rank != len(op.kernel) + 2 or len(op.kernel) not in MAX_POOLS:
        return "torch pools [batch, channels, *spatial] of one to three dimensions"
    same = _symmetric(op.padding)
    if same is None or any(
        2 * low > size or low < 0 for low, size in zip(same, op.kernel, strict=True)
    ):
        return "torch pads a pool alike on both sides, by half a window at most"
    if op.ceil_mode:
        return "torch leaves windows out that begin in the padding"
    return refuse_uncomputed(node)


def _refuse_max_pool(node: Node) -> str | None:
    """Integers are pooled as floats that hold them all; dilation can leave a window all padding."""
    op, dtype = node.op, node.operands[0].dtype
    assert isinstance(op, MaxPool)
    if dtype.kind is not Kind.FLOAT and (
        not dtype.is_integer or dtype.bits > 32 or any(step != 1 for step in op.dilation)
    ):
        return "torch pools floats, and integers of at most 32 bits without dilation through them"
    return _refuse_pool(node)


@TABLE.writes(MaxPool, unless=_refuse_max_pool)
def _max_pool(emitter: FxEmitter, node: Node, op: MaxPool) -> Term:
    (x,) = emitter.operands(node)
    own = node.result.dtype
    if own.is_integer:
        x = emitter.cast(x, f32 if own.bits <= 16 else f64)
    padding = [low for low, _ in op.padding]
    made = emitter.call(
        MAX_POOLS[len(op.kernel)],
        x,
        list(op.kernel),
        list(op.stride),
        padding,
        list(op.dilation),
        op.ceil_mode,
    )
    return emitter.cast(made, own) if own.is_integer else made


def _refuse_average_pool(node: Node) -> str | None:
    if node.operands[0].dtype.kind is not Kind.FLOAT:
        return "torch averages floats"
    return _refuse_pool(node)


@TABLE.writes(AvgPool, unless=_refuse_average_pool)
def _avg_pool(emitter: FxEmitter, node: Node, op: AvgPool) -> Term:
    (x,) = emitter.operands(node)
    padding = [low for low, _ in op.padding]
    return emitter.call(
        AVERAGE_POOLS[len(op.kernel)],
        x,
        list(op.kernel),
        list(op.stride),
        padding,
        op.ceil_mode,
        op.count_include_pad,
    )


def _refuse_symbolic_norm(node: Node) -> str | None:
    op = node.op
    assert isinstance(op, LayerNorm | RmsNorm)
    if not all(isinstance(dim, int) for dim in node.result.shape[op.axis :]):
        return "torch wants to know the sizes that are normalised"
    return refuse_uncomputed(node)


@TABLE.writes(LayerNorm, unless=_refuse_symbolic_norm)
def _layer_norm(emitter: FxEmitter, node: Node, op: LayerNorm) -> Term:
    x, *parameters = emitter.operands(node)
    axis = op.axis % node.result.rank
    scale, bias = (*parameters, None, None)[:2]
    sizes = list(node.result.shape[axis:])
    return emitter.call(functional.layer_norm, x, sizes, scale, bias, op.epsilon)


@TABLE.writes(RmsNorm, unless=_refuse_symbolic_norm)
def _rms_norm(emitter: FxEmitter, node: Node, op: RmsNorm) -> Term:
    x, *parameters = emitter.operands(node)
    sizes = list(node.result.shape[op.axis % node.result.rank :])
    scale = parameters[0] if parameters else None
    return emitter.call(torch.rms_norm, x, sizes, scale, op.epsilon)


@TABLE.writes(GroupNorm, unless=refuse_uncomputed)
def _group_norm(emitter: FxEmitter, node: Node, op: GroupNorm) -> Term:
    x, *parameters = emitter.operands(node)
    scale, bias = (*parameters, None, None)[:2]
    return emitter.call(functional.group_norm, x, op.groups, scale, bias, op.epsilon)


@TABLE.writes(BatchNorm, unless=refuse_uncomputed)
def _batch_norm(emitter: FxEmitter, node: Node, op: BatchNorm) -> Term:
    x, scale, bias, mean, variance = emitter.operands(node)
    return emitter.call(
        functional.batch_norm, x, mean, variance, scale, bias, False, 0.0, op.epsilon
    )


def _refuse_attention(node: Node) -> str | None:
    op = node.op
    assert isinstance(op, Attention)
    if op.fully_masked != "zeros" or op.fill != -math.inf:
        return "torch gives zeros for a query that sees no key"
    if op.causal and len(node.operands) > 3:
        return "torch takes a mask or causality, not both"
    query, key = node.operands[0], node.operands[1]
    if node.result.rank != 4 or query.shape[:-3] != key.shape[:-3]:
        return "torch attends [batch, heads, sequence, depth]"
    if any(dim == 0 for dim in (*query.shape, *key.shape, *node.result.shape)):
        return "torch attends to something"
    if not provably_equal(query.shape[-3], key.shape[-3]):
        return "grouped heads are repeated"
    if len(node.operands) > 3 and node.operands[3].dtype not in (bool_, query.dtype):
        return "torch wants a mask of the query's dtype"
    return refuse_uncomputed(node)


@TABLE.writes(Attention, unless=_refuse_attention)
def _attention(emitter: FxEmitter, node: Node, op: Attention) -> Term:
    query, key, value, *rest = emitter.operands(node)
    return emitter.call(
        functional.scaled_dot_product_attention,
        query,
        key,
        value,
        attn_mask=rest[0] if rest else None,
        is_causal=op.causal,
        scale=op.scale,
    )
