"""Resize, where ONNX Runtime looks at the same elements.

Which neighbour is nearest is decided by the last bit of a coordinate, and ONNX Runtime works it out
in another order. So its arithmetic is repeated here for the sizes at hand: if every element comes
out the same, there is one ``Resize``; if not, or if a size is not known, the op is decomposed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monograph.exporters.onnx.context import ExportContext
from monograph.exporters.onnx.registry import Exported, exports
from monograph.ir.types import Array, f32
from monograph.ops.resize import Resize


@exports(Resize)
def resize(node: ExportContext[Resize]) -> Exported:
    """resize → Resize."""
    op = node.op
    axes = [axis % node.rank for axis in op.axes]
    sizes = [(node.shape()[axis], size) for axis, size in zip(axes, op.sizes, strict=True)]
    known = [(a, b) for a, b in sizes if isinstance(a, int) and isinstance(b, int) and a and b]
    if len(known) < len(sizes) or not axes or 0 in node.shape() or not _runs(node, axes):
        return None
    if op.mode == "nearest" and not _same_neighbours(op, known):
        return None
    attributes: dict[str, Any] = {
        "mode": op.mode,
        "axes": axes,
        "coordinate_transformation_mode": op.coordinates,
        "nearest_mode": op.rounding,
        "cubic_coeff_a": op.cubic_coefficient,
        "exclude_outside": int(op.exclude_outside),
    }
    if op.scales:
        scales = node.constant(op.scales, f32)
        return node.emit("Resize", node.inputs[0], None, scales, **attributes)
    return node.emit("Resize", node.inputs[0], None, None, node.sizes(op.sizes), **attributes)


def _runs(node: ExportContext[Resize], axes: list[int]) -> bool:
    """Whether ONNX Runtime has the mode for these axes and this dtype."""
    op = node.op
    if not node.runs("Resize", node.dtype):
        return False
    if op.coordinates == "half_pixel_symmetric" and node.opset < 19:
        return False
    if op.mode == "nearest":
        return True
    planes = node.rank == 4 and sorted(axes) == [2, 3]
    boxes = node.rank == 5 and sorted(axes) == [2, 3, 4] and op.mode == "linear"
    return node.dtype is f32 and (planes or boxes)


def _same_neighbours(op: Resize, sizes: list[tuple[int, int]]) -> bool:
    """Whether both take the same elements along every axis."""
    for position, (size, count) in enumerate(sizes):
        numbers = np.arange(size, dtype=np.float32)
        alone = Resize(
            (0,), (count,), op.scales[position : position + 1], op.mode, op.coordinates, op.rounding
        )
        ours = alone.evaluate(numbers)
        scale = np.float32(op.scales[position]) if op.scales else np.float32(count / size)
        theirs = numbers[_neighbours(op, size, count, scale)]
        if not np.array_equal(ours, theirs):
            return False
    return True


def _neighbours(op: Resize, size: int, count: int, scale: np.float32) -> Array:
    """The elements that ONNX Runtime takes, worked out in f32 in its order."""
    places = np.arange(count, dtype=np.float32)
    half = np.float32(0.5)
    if op.coordinates == "asymmetric":
        source = places / scale
    elif op.coordinates == "align_corners":
        source = places * np.float32(size - 1) / np.float32(max(count - 1, 1))
    else:
        source = (places + half) / scale - half
    if op.coordinates == "pytorch_half_pixel" and count == 1:
        source = np.zeros_like(source)
    if op.coordinates == "half_pixel_symmetric":
        return np.full(count, -1)  # not worth repeating: it is decomposed
    rounded: Array = {
        "floor": np.floor(source),
        "ceil": np.ceil(source),
        "round_prefer_floor": np.ceil(source - half),
        "round_prefer_ceil": np.floor(source + half),
    }[op.rounding]
    return np.clip(rounded, 0, size - 1).astype(np.int64)
