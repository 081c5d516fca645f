"""Regions of images."""

from __future__ import annotations

from typing import Any

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, exports
from monograph.ir.dims import provably_at_least
from monograph.ir.types import f32, f64, i64
from monograph.ops import detection as d
from monograph.ops.solve import Determinant
from monograph.ops.vision import GridSample


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
    if any(term.dtype is f64 for term in node.inputs):
        return None
    boxes, scores, overlap, least = (node.cast(node.inputs[n], f32) for n in (0, 1, 3, 4))
    operands = [boxes, scores, node.cast(node.inputs[2], i64), overlap, least]
    centered = {"center_point_box": int(node.op.centered)}
    return node.write("NonMaxSuppression", operands, [i64], centered)[0]


@exports(GridSample)
def grid_sample(node: ExportContext[GridSample]) -> Exported:
    """ONNX Runtime makes nothing of a position that is no number: only if none is expected."""
    op = node.op
    planes = node.rank == 4 or (node.rank == 5 and op.mode != "cubic")
    some = all(provably_at_least(dim, 1) for index in (0, 1) for dim in node.shape(index))
    floats = all(term.dtype is f32 for term in node.inputs)
    if node.special_values or node.opset < 20 or not (planes and some and floats):
        return None
    attributes: dict[str, Any] = {
        "padding_mode": op.outside,
        "align_corners": int(op.align_corners),
    }
    return node.emit("GridSample", *node.inputs, mode=op.mode, **attributes)


@exports(Determinant)
def determinant(node: ExportContext[Determinant]) -> Exported:
    """determinant → Det."""
    if node.dtype is f64:  # there is no other way to write it
        return node.write("Det", node.inputs, [f64])
    return node.emit("Det", *node.inputs)
