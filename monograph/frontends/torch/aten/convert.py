"""Copies, casts and no-ops: to, clone, detach, contiguous…"""

from __future__ import annotations

from monograph import functional as F
from monograph.frontends.torch.node import TorchNode, to_dtype
from monograph.frontends.torch.registry import converter
from monograph.ir.dims import SymbolicDim
from monograph.ir.graph import Value


@converter(
    "aten._to_copy.default",
    "aten.to.dtype",
    "aten.to.device",
    "aten.to.other",
    "aten.to.dtype_layout",
    "aten.to.prim_Device",
    "aten.to.prim_dtype",
    "aten.to.prim_other",
    "aten._to_cpu.default",
    "aten.type_as.default",
    "prims.device_put.default",
    "prims.clone.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.alias.default",
    "aten.alias_copy.default",
    "aten.lift.default",
    "aten.lift_fresh.default",
    "aten.lift_fresh_copy.default",
    "aten.pin_memory.default",
    "aten._lazy_clone.default",
)
def _same(node: TorchNode) -> Value:
    first: Value = next(iter(node.all_arguments().values()))
    return to_dtype(first, node.result_dtype)


@converter("aten.detach.default", "aten.detach_copy.default", "aten.detach_.default")
def _detach(node: TorchNode) -> Value:
    x: Value = node["self"]
    return F.stop_gradient(x) if x.dtype.is_differentiable else x


@converter("prims.convert_element_type.default")
def _convert_element_type(node: TorchNode) -> Value:
    return to_dtype(node["a"], node.result_dtype)


@converter("aten.copy.default")
def _copy(node: TorchNode) -> Value:
    x, source = node["self"], node["src"]
    return F.expand(to_dtype(source, x.dtype), x.shape)


@converter("aten.view.dtype", "aten.view_copy.dtype")
def _bitcast(node: TorchNode) -> Value:
    return F.bitcast(node["self"], node.result_dtype)


@converter("aten.scalar_tensor.default")
def _scalar_tensor(node: TorchNode) -> Value:
    number: Value | SymbolicDim | float = node["s"]
    return node.value(number, node.result_dtype)
