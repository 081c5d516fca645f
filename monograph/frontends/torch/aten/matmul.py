"""Products of matrices: mm, bmm, addmm, matmul, linear, einsum and their relatives."""

from __future__ import annotations

from typing import Any

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value


@converter("aten.mm.default", "aten.bmm.default", "aten.mv.default")
def _mm(node: TorchNode) -> Value:
    other = node.get("mat2") if node.get("mat2") is not None else node["vec"]
    return F.matmul(node["self"], other)


@converter("aten.matmul.default", "aten.linalg_matmul.default")
def _matmul(node: TorchNode) -> Value:
    return F.matmul(node["self"], node["other"])


@converter("aten.dot.default", "aten.inner.default")
def _dot(node: TorchNode) -> Value:
    x = node["self"]
    other = node.get("tensor") if node.get("tensor") is not None else node["other"]
    if x.rank == 0 or other.rank == 0:
        return F.multiply(x, other)
    return F.inner(x, other)


@converter("aten.vdot.default")
def _vdot(node: TorchNode) -> Value:
    return F.inner(F.conj(node["self"]), node["other"])


@converter("aten.linear.default")
def _linear(node: TorchNode) -> Value:
    x, weight, bias = node["input"], node["weight"], node["bias"]
    if weight.rank == 1:
        product = F.matmul(x, weight)
        return product if bias is None else product + bias
    return F.linear(x, weight, bias)


def _add_scaled(node: TorchNode, product: Value) -> Value:
    """beta * self + alpha * product; a beta of 0 keeps NaNs of self out."""
    beta, alpha = node.get("beta", 1), node.get("alpha", 1)
    total = product if alpha == 1 else F.multiply(product, node.value(alpha, product.dtype))
    if beta == 0:
        return F.expand(total, node.result_type().shape)
    start: Value = node["self"]
    if beta != 1:
        start = F.multiply(start, node.value(beta, start.dtype))
    return F.add(start, total)


@converter("aten.addmm.default", "aten.addmv.default", "aten._addmm_activation.default")
def _addmm(node: TorchNode) -> Value:
    left: Any = node.get("mat1") if node.get("mat1") is not None else node["mat"]
    right: Any = node.get("mat2") if node.get("mat2") is not None else node["vec"]
    total = _add_scaled(node, F.matmul(left, right))
    if not node.op_name.startswith("aten._addmm_activation"):
        return total
    return F.gelu(total, "tanh") if node["use_gelu"] else F.relu(total)


@converter("aten.baddbmm.default")
def _baddbmm(node: TorchNode) -> Value:
    return _add_scaled(node, F.matmul(node["batch1"], node["batch2"]))


@converter("aten.addbmm.default")
def _addbmm(node: TorchNode) -> Value:
    return _add_scaled(node, F.sum(F.matmul(node["batch1"], node["batch2"]), 0))


@converter("aten.addr.default")
def _addr(node: TorchNode) -> Value:
    return _add_scaled(node, F.outer(*node.as_result(node["vec1"], node["vec2"])))


@converter("aten.outer.default", "aten.ger.default")
def _outer(node: TorchNode) -> Value:
    return F.outer(*node.promote(node["self"], node["vec2"]))


@converter("aten.einsum.default")
def _einsum(node: TorchNode) -> Value:
    return F.einsum(node["equation"].replace(" ", ""), *node["tensors"])


@converter("aten.tensordot.default")
def _tensordot(node: TorchNode) -> Value:
    a, b = node["self"], node["other"]
    axes = [axis % a.rank for axis in node["dims_self"]]
    other_axes = [axis % b.rank for axis in node["dims_other"]]
    for axis, other in zip(axes, other_axes, strict=True):
        # One element on one side meets every element on the other: it meets their sum.
        if a.shape[axis] == 1 and b.shape[other] != 1:
            b = F.sum(b, (other,), keepdims=True)
        elif b.shape[other] == 1 and a.shape[axis] != 1:
            a = F.sum(a, (axis,), keepdims=True)
    return F.tensordot(a, b, (axes, other_axes))


@converter("aten.bilinear.default", "aten._trilinear.default")
def _bilinear(node: TorchNode) -> Value:
    if node.op_name.startswith("aten._trilinear"):
        return _trilinear(node)
    product = F.einsum("...i,oij,...j->...o", node["input1"], node["weight"], node["input2"])
    return product if node["bias"] is None else product + node["bias"]


def _trilinear(node: TorchNode) -> Value:
    """The product of three tensors with axes put in, summed over some."""
    factors = []
    for name, places in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        value = node[name]
        for axis in sorted(node[places]):
            value = F.unsqueeze(value, axis)
        factors.append(value)
    product = F.multiply(F.multiply(factors[0], factors[1]), factors[2])
    return F.sum(product, tuple(node["sumdim"])) if node["sumdim"] else product
