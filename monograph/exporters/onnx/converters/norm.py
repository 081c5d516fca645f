"""Norms and attention: ONNX's own where the operands are all there and of one dtype.

A missing scale is ones, a missing bias zeros; a size that is not known leaves nothing to fill.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.protos import CODES
from monograph.exporters.onnx.registry import Exported, exports
from monograph.exporters.onnx.scope import Term
from monograph.ir.dims import Shape, is_static, provably_at_least
from monograph.ir.types import bool_, f64
from monograph.ops import attention, batch_norm, norm


def _usable(node: ExportContext[Any], name: str) -> bool:
    """Whether every operand has the first one's dtype, with a kernel, and elements.

    Attributes are f32, so epsilon must be one for f64 to be as exact as it should.
    """
    same = all(term.dtype is node.dtype for term in node.inputs)
    some = all(provably_at_least(dim, 1) for dim in node.shape())
    exact = node.dtype is not f64 or float(np.float32(node.op.epsilon)) == node.op.epsilon
    return same and some and exact and node.runs(name, node.dtype)


def _stash(node: ExportContext[Any]) -> dict[str, Any]:
    """The dtype in which the statistics are computed, where it is not f32."""
    return {"stash_type": CODES[f64]} if node.dtype is f64 else {}


def _parameter(node: ExportContext[Any], index: int, shape: Shape, fill: float) -> Term | None:
    """A scale or bias, or what stands for one that is missing."""
    if index < len(node.inputs):
        return node.inputs[index]
    return node.filled(shape, fill, node.dtype) if is_static(shape) else None


@exports(norm.LayerNorm)
def layer_norm(node: ExportContext[norm.LayerNorm]) -> Exported:
    """layer_norm → LayerNormalization."""
    axis = node.op.axis % node.rank
    if not _usable(node, "LayerNormalization"):
        return None
    scale = _parameter(node, 1, node.shape()[axis:], 1.0)
    if scale is None:
        return None
    others = (node.inputs[0], scale, *node.inputs[2:])
    attributes = {"axis": axis, "epsilon": node.op.epsilon, **_stash(node)}
    return node.emit("LayerNormalization", *others, **attributes)


@exports(norm.RmsNorm)
def rms_norm(node: ExportContext[norm.RmsNorm]) -> Exported:
    """rms_norm → RMSNormalization."""
    axis = node.op.axis % node.rank
    if node.opset < 23 or not _usable(node, "RMSNormalization"):
        return None
    scale = _parameter(node, 1, node.shape()[axis:], 1.0)
    if scale is None:
        return None
    operands = (node.inputs[0], scale)
    attributes = {"axis": axis, "epsilon": node.op.epsilon, **_stash(node)}
    return node.emit("RMSNormalization", *operands, **attributes)


@exports(norm.GroupNorm)
def group_norm(node: ExportContext[norm.GroupNorm]) -> Exported:
    """Since opset 21 there is a scale for each channel, as here; before, one for each group."""
    if node.opset < 21 or node.rank < 3:
        return None
    return _per_channel(node, "GroupNormalization", num_groups=node.op.groups, **_stash(node))


@exports(norm.InstanceNorm)
def instance_norm(node: ExportContext[norm.InstanceNorm]) -> Exported:
    """instance_norm → InstanceNormalization."""
    return _per_channel(node, "InstanceNormalization")


def _per_channel(node: ExportContext[Any], name: str, **attributes: Any) -> Exported:
    if not _usable(node, name):
        return None
    channels = node.shape()[1:2]
    if len(node.inputs) < 3 and not is_static(channels):
        return None
    scale, bias = _parameter(node, 1, channels, 1.0), _parameter(node, 2, channels, 0.0)
    return node.emit(name, node.inputs[0], scale, bias, epsilon=node.op.epsilon, **attributes)


@exports(batch_norm.BatchNorm)
def batch_norm_(node: ExportContext[batch_norm.BatchNorm]) -> Exported:
    """batch_norm → BatchNormalization."""
    if not _usable(node, "BatchNormalization"):
        return None
    return node.emit("BatchNormalization", *node.inputs, epsilon=node.op.epsilon)


@exports(attention.Attention)
def attention_(node: ExportContext[attention.Attention]) -> Exported:
    """ONNX's takes one batch axis, which the operands share, and has no word for hidden keys.

    A query that a mask leaves no key gives zeros there.
    """
    batch = node.shape()[0]
    shared = node.rank == 4 and all(node.shape(index)[0] == batch for index in (1, 2))
    floats = node.inputs[:3]
    some = all(provably_at_least(dim, 1) for term in (0, 1, 2) for dim in node.shape(term))
    runs = all(node.runs("Attention", term.element) for term in floats)
    masked = len(node.inputs) > 3
    zeros = node.op.fully_masked == "zeros"
    fills = masked and node.inputs[3].dtype is bool_ and node.op.fill != -math.inf
    fits = not masked or node.inputs[3].dtype in (bool_, node.dtype)
    if node.opset < 24 or not shared or not some or not runs or not zeros or fills or not fits:
        return None
    attributes: dict[str, Any] = {"is_causal": int(node.op.causal)}
    if node.op.scale is not None:
        attributes["scale"] = node.op.scale
    return node.emit("Attention", *node.inputs, **attributes)
