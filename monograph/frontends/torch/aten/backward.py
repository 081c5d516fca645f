"""Backward ops, which AOTAutograd's graphs hold: the gradient of the forward op's converter.

The forward op is read into a small graph of its own, our reverse mode differentiates it, and the
result is put in place of the backward op. What it computes again is what the forward graph has
computed already where both are one graph; otherwise it is the price of not saving it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from monograph import functional as F
from monograph.autodiff.vjp import pullback
from monograph.frontends.torch.aten.reduce import axis_of
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Graph, Value, current_graph
from monograph.ir.types import u8
from monograph.ops.pool import add_at_places


def gradients(
    node: TorchNode, forward: str, wanted: Mapping[str, Value], grad: Value, **others: Any
) -> list[Value]:
    """The gradients of the ``wanted`` arguments of a forward op, given that of its first result."""
    graph = Graph("forward")
    tensors = {name: value for name, value in others.items() if isinstance(value, Value)}
    operands = {**wanted, **tensors}
    inputs = {name: graph.add_input(name, value.type) for name, value in operands.items()}
    location = node.location
    with graph.inserting_before(None, location):
        made = node.call(forward, results=[grad.tensor], **{**others, **inputs})
        output = made[0] if isinstance(made, list | tuple) else made
        graph.set_outputs([F.reshape(output, grad.shape)])
    back = pullback(graph, range(len(wanted)))
    return back.copy_into(current_graph(), [*operands.values(), grad])


@converter("aten.convolution_backward.default")
def _convolution(node: TorchNode) -> tuple[Value | None, ...]:
    grad: Value = node["grad_output"]
    masks: Sequence[bool] = node["output_mask"]
    wanted = {
        name: node[name] for name, mask in zip(("input", "weight"), masks, strict=False) if mask
    }
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    arguments = {name: node[name] for name in ("input", "weight", *names) if name not in wanted}
    made = iter(gradients(node, "aten.convolution.default", wanted, grad, bias=None, **arguments))
    found: list[Value | None] = [next(made) if mask else None for mask in masks[:2]]
    axes = [axis for axis in range(grad.rank) if axis != 1]
    return (*found, F.sum(grad, axes) if masks[2] else None)


_POOLS = {
    "aten.avg_pool2d_backward.default": "aten.avg_pool2d.default",
    "aten.avg_pool3d_backward.default": "aten.avg_pool3d.default",
    "aten.replication_pad1d_backward.default": "aten.replication_pad1d.default",
    "aten.replication_pad2d_backward.default": "aten.replication_pad2d.default",
    "aten.replication_pad3d_backward.default": "aten.replication_pad3d.default",
    "aten.reflection_pad1d_backward.default": "aten.reflection_pad1d.default",
    "aten.reflection_pad2d_backward.default": "aten.reflection_pad2d.default",
    "aten.reflection_pad3d_backward.default": "aten.reflection_pad3d.default",
    "aten.softshrink_backward.default": "aten.softshrink.default",
    "aten.hardshrink_backward.default": "aten.hardshrink.default",
}
"""Backward ops that take the forward op's arguments after the gradient."""


@converter(*_POOLS)
def _same_arguments(node: TorchNode) -> Value:
    given = dict(node.all_arguments())
    grad = given.pop("grad_output", None)
    grad = given.pop("grad_out") if grad is None else grad
    x = given.pop("self")
    return gradients(node, _POOLS[node.op_name], {"self": x}, grad, **given)[0]


_MAX_POOLS = {
    "aten.max_pool2d_with_indices_backward.default": 2,
    "aten.max_pool3d_with_indices_backward.default": 3,
    "aten.adaptive_max_pool2d_backward.default": 2,
    "aten.adaptive_max_pool3d_backward.default": 3,
}
"""Backward ops that are given where each window's maximum stood, and how many axes that is over."""


@converter(*_MAX_POOLS)
def _max_pool(node: TorchNode) -> Value:
    spatial = _MAX_POOLS[node.op_name]
    return add_at_places(node["self"], node["indices"], node["grad_output"], spatial)


_ADAPTIVE = {
    "aten._adaptive_avg_pool2d_backward.default": ("aten._adaptive_avg_pool2d.default", 2),
    "aten._adaptive_avg_pool3d_backward.default": ("aten._adaptive_avg_pool3d.default", 3),
}


@converter(*_ADAPTIVE)
def _adaptive(node: TorchNode) -> Value:
    forward, spatial = _ADAPTIVE[node.op_name]
    grad: Value = node["grad_output"]
    size = list(grad.shape[-spatial:])
    return gradients(node, forward, {"self": node["self"]}, grad, output_size=size)[0]


_UPSAMPLES = (
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
)


@converter(*(f"aten.{name}_backward.default" for name in _UPSAMPLES))
def _upsample(node: TorchNode) -> Value:
    given = dict(node.all_arguments())
    grad: Value = given.pop("grad_output")
    # A linear function: its gradient does not depend on where it is taken.
    x = F.zeros(given.pop("input_size"), grad.dtype)
    forward = node.op_name.replace("_backward", "")
    return gradients(node, forward, {"self": x}, grad, **given)[0]


@converter("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default")
def _grid_sampler(node: TorchNode) -> tuple[Value | None, ...]:
    given = dict(node.all_arguments())
    grad, masks = given.pop("grad_output"), given.pop("output_mask")
    forward = node.op_name.replace("_backward", "")
    wanted = {name: given.pop(name) for name in ("input", "grid")}
    made = gradients(node, forward, wanted, grad, **given)
    return tuple(value if mask else None for value, mask in zip(made, masks, strict=True))


@converter(
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
    "aten._scaled_dot_product_flash_attention_backward.default",
    "aten._scaled_dot_product_cudnn_attention_backward.default",
    "aten._scaled_dot_product_efficient_attention_backward.default",
)
def _attention(node: TorchNode) -> tuple[Value | None, ...]:
    given = node.all_arguments()
    mask = given.get("attn_mask", given.get("attn_bias"))
    wanted = {name: given[name] for name in ("query", "key", "value")}
    others = {"is_causal": given["is_causal"], "scale": given["scale"]}
    flags = given.get("grad_input_mask", (True, True, True))
    if len(flags) > 3 and flags[3] and mask is not None:
        wanted["attn_mask"] = mask
    else:
        others["attn_mask"] = mask
    forward = "aten.scaled_dot_product_attention.default"
    grad = given.get("grad_out", given.get("grad_out_"))
    made = list(gradients(node, forward, wanted, grad, **others))
    return (*made, *(None for _ in range(len(flags) - len(made))))


@converter("aten._cdist_backward.default")
def _cdist(node: TorchNode) -> Value:
    others = {"x2": node["x2"], "p": node["p"], "compute_mode": None}
    forward = "aten._cdist_forward.default"
    return gradients(node, forward, {"x1": node["x1"]}, node["grad"], **others)[0]


@converter("aten._pdist_backward.default")
def _pdist(node: TorchNode) -> Value:
    forward = "aten._pdist_forward.default"
    return gradients(node, forward, {"self": node["self"]}, node["grad"], p=node["p"])[0]


@converter("aten._weight_norm_interface_backward.default")
def _weight_norm(node: TorchNode) -> tuple[Value, Value]:
    """Of ``v * g / norm``, the gradients of ``v`` and ``g``; the norm is over all axes but one."""
    grad, v, g, norm = (node[name] for name in ("grad_w", "saved_v", "saved_g", "saved_norms"))
    kept = axis_of(v, node["dim"])
    axes = [axis for axis in range(v.rank) if axis != kept]
    norm = F.cast(norm, v.dtype)
    along = F.divide(F.sum(F.multiply(grad, v), axes, True), norm)
    across = F.subtract(grad, F.multiply(F.divide(v, norm), along))
    return F.multiply(F.divide(g, norm), across), along


@converter("aten.masked_scatter_backward.default")
def _masked_scatter(node: TorchNode) -> Value:
    """What arrived at the places of a mask, one after the other, then zeros."""
    grad, mask = node["grad_output"], node["mask"]
    shape = node.result_type().shape
    flat = F.reshape(F.expand(mask, grad.shape), (grad.tensor.size,))
    values = F.reshape(grad, (grad.tensor.size,))
    order = F.argsort(node.value(F.logical_not(flat), u8), 0)
    taken = F.where(F.take(flat, order), F.take(values, order), 0.0)
    size = node.result_type().size
    return F.reshape(F.slice(taken, [0], [size]), shape)
