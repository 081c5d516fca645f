"""Ops of ``com.microsoft`` that add biases: of relative positions, before softmax and dropout.

ONNX Runtime's optimizer makes them for GPUs and has no kernels for them on a CPU.
"""

from __future__ import annotations

import math

from monograph import functional as F
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.dims import shape_product
from monograph.ir.graph import Value
from monograph.ir.types import bool_, f32, i64
from monograph.ops.rules import normalize_axis

DOMAIN = "com.microsoft"


@converter("BiasSoftmax", domain=DOMAIN)
def bias_softmax(node: OnnxNode) -> Value:
    """The softmax of a sum, over all axes from ``axis`` on; the bias spreads as in any sum."""
    x = node.input(0)
    axis = normalize_axis(node.op_type, node.integer("axis", 1), x.rank)
    rows = (shape_product(x.shape[:axis]), shape_product(x.shape[axis:]))
    total = F.reshape(F.add(x, node.input(1)), rows)
    return F.reshape(F.softmax(total, 1), x.shape)


@converter("BiasDropout", domain=DOMAIN)
def bias_dropout(node: OnnxNode) -> tuple[Value, Value]:
    """x + bias + residual, since nothing is dropped in inference; and a mask that keeps all."""
    training = node.optional(4)
    if training is not None and bool(node.need_constant(4)):
        raise node.error("dropout in training is not supported", expected="training_mode = 0")
    total, residual = F.add(node.input(0), node.input(1)), node.optional(2)
    total = total if residual is None else F.add(total, residual)
    return total, F.full(total.shape, True, bool_)


@converter("RelativePositionBias", domain=DOMAIN)
def relative_position_bias(node: OnnxNode) -> Value:
    """T5's bias: one number per head and bucket of distances, [1, heads, queries, keys].

    Half of the buckets hold one distance each, the others grow logarithmically up to the maximum.
    """
    table = node.input(0)
    buckets = table.shape[0]
    if not isinstance(buckets, int):
        raise node.error("the number of buckets must be known", found=str(table.type))
    (queries,), (keys,) = node.need_dims(1), node.need_dims(2)
    distance = F.subtract(
        F.unsqueeze(F.iota((keys,), 0, "i64"), 0), F.unsqueeze(F.iota((queries,), 0, "i64"), 1)
    )
    if node.integer("is_bidirectional", 0):
        buckets //= 2
        first = F.multiply(cast_to(F.greater(distance, 0), i64), buckets)
        index = F.add(first, _bucket(node, F.abs(distance), buckets))
    else:
        index = _bucket(node, F.negate(F.minimum(distance, 0)), buckets)
    return F.unsqueeze(F.moveaxis(F.take(table, index, 0), 2, 0), 0)


def _bucket(node: OnnxNode, distance: Value, buckets: int) -> Value:
    exact = buckets // 2
    factor = (buckets - exact) / math.log(node.integer("max_distance") / exact)
    ratio = F.divide(cast_to(F.maximum(distance, 1), f32), float(exact))
    far = F.add(cast_to(F.multiply(F.log(ratio), factor), i64), exact)
    return F.where(F.less(distance, exact), distance, F.minimum(far, buckets - 1))


@converter("GatedRelativePositionBias", domain=DOMAIN)
def gated_relative_position_bias(node: OnnxNode) -> Value:
    """WavLM's bias: relative positions times a gate that each query computes of itself."""
    query, positions, weight, bias = (node.input(index) for index in (0, 2, 3, 4))
    if node.optional(6) is not None:
        raise node.error("queries without padding are not supported", expected="no token_offset")
    heads, depth = node.integer("num_heads"), weight.shape[0]
    query = F.add(query, node.input(1))
    query = F.reshape(query, (query.shape[0], query.shape[1], heads, depth))
    gates = F.add(F.matmul(F.moveaxis(query, 2, 1), weight), bias)
    halves = [F.sum(half, 3, keepdims=True) for half in F.split(gates, 2, 3)]
    update, reset = (F.sigmoid(half) for half in halves)
    gate = F.add(F.multiply(update, F.subtract(F.multiply(reset, node.input(5)), 1.0)), 2.0)
    return F.multiply(gate, positions)
