"""Resizing by interpolation: ``Resize`` in all its versions, and ``Upsample`` before it.

What our ``resize`` op knows becomes one. Cropping (``tf_crop_and_resize``) and antialiasing need
coordinates and kernels that it has not: their weights are computed here, in f64, and each axis is
multiplied with them (``frontends.interpolation``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor
from typing import Literal, get_args

import numpy as np

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.frontends.interpolation import interpolate, interpolation_weights
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply, cast_to
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import Array, Kind, f32, wide
from monograph.ops.index import Take
from monograph.ops.resize import Coordinates, Resize, Rounding
from monograph.ops.rules import normalize_axis

CROP = "tf_crop_and_resize"
CORNERS = "align_corners"
CORNERS_OF_WHOLE_SIZES = "align_corners_of_whole_sizes"
"""The same where no size is a broken one. ONNX has no such name: ``monograph.onnxruntime`` writes
it, for what its model would mean there."""
MODES = ("nearest", "linear", "cubic")


@dataclass(frozen=True)
class Axis:
    """One axis that changes: its size, by what factor if one is given, and the part looked at."""

    axis: int
    size: Dim
    scale: float | None
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True)
class Method:
    """How elements between elements are made."""

    mode: str
    coordinates: str
    rounding: str
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    outside: float = 0.0


# The versions.


@converter("Upsample")
def upsample(node: OnnxNode) -> Value:
    """``Resize`` before it had coordinates: each element repeated, or lines between them."""
    if node.opset < 7:
        height, width = node.number("height_scale"), node.number("width_scale")
        return _resize_simply(node, (1.0, 1.0, height, width))
    return _resize_simply(node, node.floats("scales") if node.opset < 9 else _floats(node, 1))


@converter("Resize")
def resize_10(node: OnnxNode) -> Value:
    """``Resize`` of opset 10, which can also shrink."""
    return _resize_simply(node, _floats(node, 1))


@converter("Resize", since=11)
def resize(node: OnnxNode) -> Value:
    """An image of other sizes, interpolated.

    With two operands alone, the second is no region but scales, as in opset 10.
    """
    x = node.input(0)
    if len(node.inputs) == 2:
        return _resize_simply(node, _floats(node, 1))
    method = Method(
        node.string("mode", "nearest"),
        node.string("coordinate_transformation_mode", "half_pixel"),
        node.string("nearest_mode", "round_prefer_floor"),
        node.number("cubic_coeff_a", -0.75),
        bool(node.integer("exclude_outside", 0)),
        bool(node.integer("antialias", 0)),
        node.number("extrapolation_value", 0.0),
    )
    is_whole = method.coordinates == CORNERS_OF_WHOLE_SIZES
    if is_whole:
        method = replace(method, coordinates=CORNERS)
    given = node.ints("axes", range(x.rank))
    axes = [normalize_axis("Resize", axis, x.rank) for axis in given]
    regions = _regions(node, len(axes), method)
    if _is_given(node, 2):
        scales = _floats(node, 2)
        _check_count(node, len(scales), len(axes))
        rows = zip(axes, scales, regions, strict=True)
        scaled = [_scale_axis(node, *row) for row in rows]
        if is_whole:
            scaled = [replace(each, scale=None) for each in scaled]
        return _resize(node, method, scaled)
    sizes = _sizes(node, axes)
    policy = node.string("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        return _resize(node, method, _keeping_ratio(node, policy, axes, sizes))
    rows_ = zip(axes, sizes, regions, strict=True)
    return _resize(node, method, [Axis(axis, size, None, *each) for axis, size, each in rows_])


def _resize_simply(node: OnnxNode, scales: Sequence[float]) -> Value:
    """Before opset 11: coordinates from the corner; nearest is below, or above in shrinking."""
    mode = node.string("mode", "nearest")
    _check_count(node, len(scales), node.input(0).rank)
    axes = [_scale_axis(node, axis, scale) for axis, scale in enumerate(scales)]
    growing = [each for each in axes if each.scale is None or each.scale >= 1]
    shrinking = [each for each in axes if each not in growing]
    grown = _resize(node, Method(mode, "asymmetric", "floor"), growing)
    return _resize(node, Method(mode, "asymmetric", "ceil"), shrinking, grown)


def _is_given(node: OnnxNode, index: int) -> bool:
    """Whether an operand is there and not the empty tensor that stood for none once."""
    value = node.optional(index)
    return value is not None and value.shape != (0,)


def _floats(node: OnnxNode, index: int) -> tuple[float, ...]:
    return tuple(float(item) for item in node.need_constant(index).reshape(-1))


def _sizes(node: OnnxNode, axes: Sequence[int]) -> tuple[Dim, ...]:
    """The sizes that are asked for; ONNX's inference fails where their number is not known."""
    x, sizes = node.input(0).tensor, node.dims(3)
    if sizes is None and node.optional(3) is not None:
        shape = [node.fresh() if axis in axes else dim for axis, dim in enumerate(x.shape)]
        raise NotStatic(
            f"{node.name}: the sizes are not known before it runs", [x.with_shape(tuple(shape))]
        )
    found = node.need_dims(3) if sizes is None else sizes
    _check_count(node, len(found), len(axes))
    return found


def _check_count(node: OnnxNode, found: int, expected: int) -> None:
    if found != expected:
        raise node.error(
            "one size or scale is needed for each axis", expected=str(expected), found=str(found)
        )


def _regions(node: OnnxNode, count: int, method: Method) -> list[tuple[float, float]]:
    """The part of each axis to look at, from 0 to 1; only cropping has one."""
    if method.coordinates != CROP or not _is_given(node, 1):
        return [(0.0, 1.0)] * count
    bounds = _floats(node, 1)
    _check_count(node, len(bounds), 2 * count)
    return list(zip(bounds[:count], bounds[count:], strict=True))


def _scale_axis(
    node: OnnxNode, axis: int, scale: float, region: tuple[float, float] = (0.0, 1.0)
) -> Axis:
    """An axis whose size is a multiple of what it was, rounded down.

    ONNX's text has the part that is looked at in the product as well; its own shape inference, its
    reference and ONNX Runtime have not.
    """
    if not 0 < scale < np.inf:
        raise node.error("a scale must be positive", found=str(scale))
    dim = node.input(0).shape[axis]
    if isinstance(dim, int):
        return Axis(axis, floor(dim * scale), scale, *region)
    exact = Fraction(scale)
    if exact.denominator > 2**16:
        raise NotStatic(f"{node.name}: {dim} times {scale} is not known before it runs")
    return Axis(axis, dim * exact.numerator // exact.denominator, scale, *region)


def _keeping_ratio(
    node: OnnxNode, policy: str, axes: Sequence[int], sizes: Sequence[Dim]
) -> list[Axis]:
    """Sizes with one scale for all axes: the smallest or largest of those that were asked for."""
    choose = {"not_larger": min, "not_smaller": max}.get(policy)
    if choose is None:
        expected = "stretch, not_larger or not_smaller"
        raise node.error("an unknown policy", expected=expected, found=policy)
    pairs = [(_static(node, node.input(0).shape[a]), s) for a, s in zip(axes, sizes, strict=True)]
    scale = choose(_static(node, size) / old for old, size in pairs)
    rows = zip(axes, pairs, strict=True)
    return [Axis(axis, floor(scale * old + 0.5), scale) for axis, (old, _) in rows]


def _static(node: OnnxNode, dim: Dim) -> int:
    if not isinstance(dim, int):
        raise NotStatic(f"{node.name}: {dim} is not known before it runs")
    return dim


# Building.


def _resize(node: OnnxNode, method: Method, axes: Sequence[Axis], x: Value | None = None) -> Value:
    """Interpolate along the axes that change; integers are rounded, and held in their range."""
    x = node.input(0) if x is None else x
    if method.mode not in MODES:
        raise node.error("an unknown mode", expected=", ".join(MODES), found=method.mode)
    if method.rounding not in get_args(Rounding):
        expected = ", ".join(get_args(Rounding))
        raise node.error("an unknown rounding", expected=expected, found=method.rounding)
    changing = [each for each in axes if _changes(x, each)]
    if not changing:
        return x
    if method.mode == "nearest":
        return _interpolate(node, method, changing, x)
    if x.dtype.is_float:
        y = _interpolate(node, method, changing, cast_to(x, wide(x.dtype)))
        return cast_to(y, x.dtype)
    y = F.round(_interpolate(node, method, changing, cast_to(x, f32)))
    if x.dtype.kind in (Kind.SIGNED, Kind.UNSIGNED) and x.dtype.bits < 32:
        limits = np.iinfo(x.dtype.numpy)
        y = F.clip(y, float(limits.min), float(limits.max))
    return cast_to(y, x.dtype)


def _changes(x: Value, each: Axis) -> bool:
    same = each.size == x.shape[each.axis] and each.scale in (None, 1.0)
    return not same or (each.start, each.end) != (0.0, 1.0)


def _interpolate(node: OnnxNode, method: Method, axes: Sequence[Axis], x: Value) -> Value:
    known = _for_op(method, axes, x)
    if known is not None:
        return apply(known, x)
    for each in axes:
        size, old = _static(node, each.size), _static(node, x.shape[each.axis])
        scale = size / old if each.scale is None else each.scale
        source = _coordinates(node, method, each, np.arange(size, dtype=np.float64), old, scale)
        x = _sample(x, each.axis, source, method, scale)
        outside = (source < 0) | (source > old - 1)
        if method.coordinates == CROP and outside.any():
            column = outside.reshape(-1, *[1] * (x.rank - 1 - each.axis))
            x = F.where(column, np.asarray(method.outside).astype(x.dtype.numpy), x)
    return x


def _for_op(method: Method, axes: Sequence[Axis], x: Value) -> Resize | None:
    """Our own op, if it can do this."""
    scales = [each.scale for each in axes if each.scale is not None]
    coordinates, rounding = method.coordinates, method.rounding
    if method.antialias and method.mode != "nearest":
        return None
    if (coordinates, rounding, method.mode) == ("tf_half_pixel_for_nn", "floor", "nearest"):
        coordinates, rounding = "half_pixel", "round_prefer_ceil"
    if coordinates == CORNERS and all(scale.is_integer() for scale in scales):
        scales = []
    if coordinates == CORNERS and scales:
        # A scale may mean a broken length, and the last corner is at the end of that.
        coordinates, scales = "asymmetric", []
        for each in axes:
            old = x.shape[each.axis]
            if not isinstance(old, int) or each.scale is None:
                return None
            last = each.scale * old - 1
            scales.append(last / (old - 1) if old > 1 and last > 0 else 1.0)
    if coordinates not in get_args(Coordinates):
        return None
    return Resize(
        tuple(each.axis for each in axes),
        tuple(each.size for each in axes),
        tuple(scales),
        method.mode,  # type: ignore[arg-type]  # checked before
        coordinates,  # type: ignore[arg-type]  # the same
        rounding,  # type: ignore[arg-type]  # the same
        method.cubic,
        method.exclude_outside,
    )


def _coordinates(
    node: OnnxNode, method: Method, each: Axis, place: Array, old: int, scale: float
) -> Array:
    """Where in the operand each element of the result looks."""
    length = scale * old
    if method.coordinates == "half_pixel":
        return (place + 0.5) / scale - 0.5
    if method.coordinates == "pytorch_half_pixel":
        return (place + 0.5) / scale - 0.5 if place.size > 1 else place * 0.0
    if method.coordinates == "half_pixel_symmetric":
        return old / 2 * (1 - place.size / length) + (place + 0.5) / scale - 0.5
    if method.coordinates == "asymmetric":
        return place / scale
    if method.coordinates == "tf_half_pixel_for_nn":
        return (place + 0.5) / scale
    if method.coordinates == CORNERS:
        return place * (old - 1) / (length - 1) if length > 1 else place * 0.0
    if method.coordinates == CROP:
        first, width = each.start * (old - 1), (each.end - each.start) * (old - 1)
        steps = place / (place.size - 1) if place.size > 1 else place + 0.5
        return first + steps * width
    raise node.error(
        "an unknown coordinate transformation",
        expected=", ".join((*get_args(Coordinates), "tf_half_pixel_for_nn", CROP)),
        found=method.coordinates,
    )


_ROUND: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda source: np.ceil(source - 0.5),
    "round_prefer_ceil": lambda source: np.floor(source + 0.5),
}


def _sample(x: Value, axis: int, source: Array, method: Method, scale: float) -> Value:
    """The elements at source coordinates along one axis, whose size is known."""
    size = x.tensor.static_shape()[axis]
    if method.mode == "nearest":
        places = np.clip(_ROUND[method.rounding](source), 0, size - 1).astype(np.int64)
        return apply(Take(axis), x, places)
    stretch = 1.0 / min(scale, 1.0) if method.antialias else 1.0
    mode: Literal["linear", "cubic"] = "cubic" if method.mode == "cubic" else "linear"
    weights = interpolation_weights(
        source + 0.5, size, mode, stretch, method.cubic, exclude_outside=method.exclude_outside
    )
    return interpolate(x, axis, weights)
