"""Images: cropping, sampling between elements, and boxes."""

from __future__ import annotations

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.node import OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply, cast_to
from monograph.ir.dims import Dim, dim_max
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import f32, i64, wide
from monograph.ops import patches, vision
from monograph.ops.detection import NonMaxSuppression, RoiAlign
from monograph.ops.resize import Mode
from monograph.ops.rules import normalize_axes, normalize_axis
from monograph.ops.vision import GridSample


@converter("CenterCropPad")
def center_crop_pad(node: OnnxNode) -> Value:
    """The middle of a tensor, or the tensor in the middle of zeros."""
    x, sizes = node.input(0), node.need_dims(1)
    given = node.ints("axes", range(x.rank))
    axes = [normalize_axis("CenterCropPad", axis, x.rank) for axis in given]
    normalize_axes("CenterCropPad", axes, x.rank)
    if len(sizes) != len(axes):
        raise node.error("a size is needed for each axis", found=f"{len(sizes)} for {len(axes)}")
    low: list[Dim] = [0] * x.rank
    high: list[Dim] = [0] * x.rank
    for axis, size in zip(axes, sizes, strict=True):
        change = size - x.shape[axis]
        low[axis] = _half(change)
        high[axis] = change - low[axis]
    return F.pad(x, low, high) if any(dim != 0 for dim in (*low, *high)) else x


def _half(change: Dim) -> Dim:
    """Half of what is added or taken away, rounded towards zero."""
    return dim_max(change, 0) // 2 - dim_max(-change, 0) // 2


# Sampling.

_MODES: dict[str, Mode] = {
    "linear": "linear",
    "bilinear": "linear",
    "cubic": "cubic",
    "bicubic": "cubic",
    "nearest": "nearest",
}


@converter("GridSample")
def grid_sample(node: OnnxNode) -> Value:
    """An image sampled at positions that are data."""
    mode = node.string("mode", "linear")
    if mode not in _MODES:
        raise node.error("an unknown mode", expected=", ".join(_MODES), found=mode)
    outside = node.string("padding_mode", "zeros")
    corners = bool(node.integer("align_corners", 0))
    op = GridSample(_MODES[mode], outside, corners)  # type: ignore[arg-type]  # checked by the op
    return apply(op, node.input(0), node.input(1))


@converter("AffineGrid")
def affine_grid(node: OnnxNode) -> Value:
    """The positions that an affine map makes of those of an image."""
    theta, sizes = node.input(0), node.need_dims(1)
    if len(sizes) not in (4, 5):
        raise node.error("four or five sizes are needed", found=str(sizes))
    exact = cast_to(theta, wide(theta.dtype))
    grid = vision.affine_grid(exact, sizes[2:], bool(node.integer("align_corners", 0)))
    return cast_to(grid, theta.dtype)


@converter("Col2Im")
def col2im(node: OnnxNode) -> Value:
    """Patches added up to an image."""
    sizes, kernel = node.need_dims(1), node.need_ints(2)
    rank = len(sizes)
    pads = node.ints("pads", [0] * (2 * rank))
    if len(pads) != 2 * rank:
        raise node.error("two pads are needed for each axis", found=str(pads))
    return patches.fold(
        node.input(0),
        sizes,
        kernel,
        node.ints("strides", [1] * rank),
        tuple(zip(pads[:rank], pads[rank:], strict=True)),
        node.ints("dilations", [1] * rank),
    )


# Boxes.


@converter("RoiAlign")
def roi_align(node: OnnxNode) -> Value:
    """Regions of images, each pooled to one size."""
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    coordinates = node.string("coordinate_transformation_mode", default)
    if coordinates not in ("half_pixel", "output_half_pixel"):
        expected = "half_pixel or output_half_pixel"
        raise node.error("unknown coordinates", expected=expected, found=coordinates)
    op = RoiAlign(
        (node.integer("output_height", 1), node.integer("output_width", 1)),
        node.integer("sampling_ratio", 0),
        node.number("spatial_scale", 1.0),
        node.string("mode", "avg").lower(),  # type: ignore[arg-type]  # checked by the op
        coordinates == "half_pixel",
    )
    return apply(op, node.input(0), node.input(1), node.input(2))


@converter("NonMaxSuppression")
def non_max_suppression(node: OnnxNode) -> Value:
    """The boxes that overlap none of a higher score too much."""
    boxes, scores = node.input(0), node.input(1)
    size = scores.tensor.size
    upper = size if isinstance(size, int) else size.bounds()[1]
    limits = [
        current_graph().add_constant(np.array(default), dtype)
        if node.optional(index) is None
        else F.reshape(node.input(index), ())
        for index, default, dtype in ((2, 0, i64), (3, 0.0, f32), (4, -np.inf, f32))
    ]
    op = NonMaxSuppression(
        node.fresh("selected", 0, upper), bool(node.integer("center_point_box", 0))
    )
    return apply(op, boxes, scores, *limits)
