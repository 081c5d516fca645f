"""Losses."""

from __future__ import annotations

from typing import Any

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, exports
from monograph.ir.dims import provably_at_least
from monograph.ops.loss import CrossEntropy


@exports(CrossEntropy)
def cross_entropy(node: ExportContext[CrossEntropy]) -> Exported:
    """ONNX's has no label smoothing, and no single example."""
    op = node.op
    some = all(provably_at_least(dim, 1) for dim in node.shape())
    runs = node.runs("SoftmaxCrossEntropyLoss", node.dtype)
    if op.label_smoothing or node.rank < 2 or not some or not runs:
        return None
    operands = (node.inputs[0], node.as_i64(1), *node.inputs[2:])
    options: dict[str, Any] = {"reduction": op.reduction, "ignore_index": op.ignore_index}
    return node.emit("SoftmaxCrossEntropyLoss", *operands, **options)
