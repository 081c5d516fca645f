"""Counts the floating-point operations of a node; a multiply-add is two.

Convolutions and products count as written, whatever the kernel does (Winograd's transform needs
less); an elementary function counts as the dozen instructions that it is about.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from monograph.fusion.cost import work
from monograph.inspect.traffic import Sizes
from monograph.ir.dims import evaluate_dim, shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.op import Trait
from monograph.ir.types import TensorType
from monograph.ops.conv import Conv
from monograph.ops.linalg import DotGeneral

REDUCTIONS = frozenset(
    (
        *("sum", "mean", "prod", "max", "min", "argmax", "argmin", "any", "all"),
        *("var", "std", "logsumexp", "softmax", "log_softmax", "layer_norm", "rms_norm"),
    )
)
"""Ops that look at every element that they read, once."""


def flops(nodes: Iterable[Node], sizes: Sizes) -> int:
    """The arithmetic of some nodes."""
    return sum(flops_of(node, sizes) for node in nodes)


def flops_of(node: Node, sizes: Sizes) -> int:
    """The arithmetic of one node, what is in its regions aside."""
    name = node.op.name
    made = sum(_count(value, sizes) for value in node.results)
    if isinstance(node.op, Conv):
        taps = _count(node.operands[1], sizes) // _size(node.operands[1], 0, sizes)
        return 2 * made * taps
    if name == "conv_transpose":
        taps = _count(node.operands[1], sizes) // _size(node.operands[1], 0, sizes)
        return 2 * _count(node.operands[0], sizes) * taps
    if isinstance(node.op, DotGeneral):
        summed = [_size(node.operands[0], axis, sizes) for axis in node.op.lhs_contracting]
        return 2 * made * prod(summed)
    if name == "attention":
        query, key, value = node.operands[:3]
        rows = _count(query, sizes) // _size(query, -1, sizes)
        keys = _size(key, -2, sizes)
        return 2 * rows * keys * (_size(query, -1, sizes) + _size(value, -1, sizes))
    if node.op.has(Trait.WINDOW) or name in REDUCTIONS:
        return max(made, _count(node.operands[0], sizes))
    return made * work(node)


def _size(value: Value, axis: int, sizes: Sizes) -> int:
    return max(1, evaluate_dim(value.shape[axis], sizes))


def _count(value: Value, sizes: Sizes) -> int:
    if not isinstance(value.type, TensorType):
        return 0
    return evaluate_dim(shape_product(value.shape), sizes)
