"""Regions of images."""

from __future__ import annotations

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, exports
from monograph.ir.types import f32, i64
from monograph.ops import detection as d
from monograph.ops.solve import Determinant


@exports(d.RoiAlign)
def roi_align(node: ExportContext[d.RoiAlign]) -> Exported:
    """roi_align → RoiAlign, which ONNX Runtime has a kernel for up to opset 21."""
    op = node.op
    height, width = op.sizes
    indices = node.cast(node.inputs[2], i64)
    return node.emit(
        "RoiAlign",
        *node.inputs[:2],
        indices,
        mode=op.mode,
        output_height=height,
        output_width=width,
        sampling_ratio=op.sampling,
        spatial_scale=op.spatial_scale,
        coordinate_transformation_mode="half_pixel" if op.half_pixel else "output_half_pixel",
    )


@exports(d.NonMaxSuppression)
def non_max_suppression(node: ExportContext[d.NonMaxSuppression]) -> Exported:
    """non_max_suppression → NonMaxSuppression."""
    boxes, scores, most, overlap, least = node.inputs
    if not all(term.dtype is f32 for term in (boxes, scores, overlap, least)):
        return None
    operands = [boxes, scores, node.cast(most, i64), overlap, least]
    centered = {"center_point_box": int(node.op.centered)}
    return node.write("NonMaxSuppression", operands, [i64], centered)[0]


@exports(Determinant)
def determinant(node: ExportContext[Determinant]) -> Exported:
    """determinant → Det."""
    return node.emit("Det", *node.inputs)
