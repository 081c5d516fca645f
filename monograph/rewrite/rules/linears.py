"""Linear layers, spelled out with matmul, transpose and add."""

from __future__ import annotations

from monograph.ir.graph import Node, Value
from monograph.ops.data import Constant, Weight
from monograph.ops.elementwise import Add
from monograph.ops.linalg import Linear, Matmul, linear
from monograph.ops.shape import Transpose, transpose
from monograph.rewrite.rule import Rule, rewrite

SWAPPED = ((1, 0), (-1, 0), (1, -2), (-1, -2))


@rewrite("linear_transposed", root=Matmul, floats="exact: the same products in the same order")
def linear_transposed(node: Node) -> Value | None:
    """x @ transpose(weight) → linear(x, weight) for a weight of two axes."""
    x, weight = node.operands
    inner = weight.producer
    if inner is None or not isinstance(inner.op, Transpose) or weight.rank != 2:
        return None
    if inner.op.permutation not in SWAPPED:
        return None
    return linear(x, inner.operands[0])


@rewrite("linear_bias", root=Add, floats="narrow floats round once instead of twice")
def linear_bias(node: Node) -> Value | None:
    """linear(x, weight) + bias → linear(x, weight, bias); x @ weight + bias as well.

    A product with a plain weight of [inputs, outputs] becomes one with its transpose, which is
    folded into the weight; so it must be a constant or a weight.
    """
    for product, bias in (node.operands, node.operands[::-1]):
        parts = _product(product)
        if parts is None or len(product.uses) != 1:
            continue
        x, weight, transposed = parts
        outputs = weight.shape[0 if transposed else 1]
        if bias.shape == (outputs,) and bias.dtype is x.dtype:
            return linear(x, weight if transposed else transpose(weight), bias)
    return None


def _product(value: Value) -> tuple[Value, Value, bool] | None:
    """(x, weight, whether the weight is [outputs, inputs]) of a product without a bias."""
    node = value.producer
    if node is None or len(node.operands) != 2:
        return None
    x, weight = node.operands
    if isinstance(node.op, Linear):
        return x, weight, True
    if not isinstance(node.op, Matmul) or not isinstance(weight.op, Constant | Weight):
        return None
    return (x, weight, False) if weight.rank == 2 else None


RULES: tuple[Rule, ...] = (linear_transposed, linear_bias)
