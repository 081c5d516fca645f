"""Resizing, sampling at grids, and pools whose windows are not regular."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Literal

import numpy as np

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.interpolation import Weights, interpolate, interpolation_weights
from monograph.frontends.torch.node import TorchNode, as_list, static, to_dtype
from monograph.frontends.torch.registry import converter
from monograph.ir.build import apply, constant
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import i32, i64, u8, wide
from monograph.ops.resize import Coordinates, Mode, Resize, Rounding


def _spatial(node: TorchNode) -> int:
    """How many spatial axes there are, from the op's own name."""
    return int(next(letter for letter in node.op_name.split(".")[1] if letter.isdigit()))


# Resizing.


def _image(node: TorchNode) -> Value:
    image: Value = node.get("self", node.get("input"))
    return image


def _scales(node: TorchNode) -> tuple[float, ...]:
    """The factors that the caller gave, for the coordinates to be computed with; or none."""
    given = [node.get(name) for name in ("scales", "scales_d", "scales_h", "scales_w")]
    factors = [factor for factor in given if factor is not None]
    if node.get("scale_factors") is not None:
        factors = as_list(node["scale_factors"])
    if factors and len(factors) != _spatial(node):
        raise UnsupportedError(f"{node.op_name} with a scale for some axes only")
    return tuple(float(factor) for factor in factors)


def _resize(
    node: TorchNode, mode: Mode, coordinates: Coordinates, rounding: Rounding = "floor"
) -> Value:
    spatial, x = _spatial(node), _image(node)
    if mode != "nearest" and not x.dtype.is_float:
        raise UnsupportedError(f"{node.op_name} of {x.dtype}")
    axes = tuple(range(2, 2 + spatial))
    sizes = node.result_type().shape[2:]
    return apply(Resize(axes, sizes, _scales(node), mode, coordinates, rounding), x)


def _nearest(node: TorchNode) -> Value:
    return _resize(node, "nearest", "asymmetric", "floor")


def _nearest_exact(node: TorchNode) -> Value:
    return _resize(node, "nearest", "half_pixel", "round_prefer_ceil")


def _linear(node: TorchNode) -> Value:
    return _resize(node, "linear", "align_corners" if node["align_corners"] else "half_pixel")


def _cubic(node: TorchNode) -> Value:
    return _resize(node, "cubic", "align_corners" if node["align_corners"] else "half_pixel")


def _register() -> None:
    kinds: Sequence[tuple[str, Callable[[TorchNode], Value]]] = (
        *((f"upsample_nearest{axes}d", _nearest) for axes in (1, 2, 3)),
        *((f"_upsample_nearest_exact{axes}d", _nearest_exact) for axes in (1, 2, 3)),
        ("upsample_linear1d", _linear),
        ("upsample_bilinear2d", _linear),
        ("upsample_trilinear3d", _linear),
        ("upsample_bicubic2d", _cubic),
    )
    for name, convert in kinds:
        converter(f"aten.{name}.default", f"aten.{name}.vec")(convert)


_register()


ANTIALIASED_CUBIC = -0.5
"""The coefficient of Keys' kernel in antialiased images; elsewhere torch has -0.75."""
ANTIALIASED_SIZE = "the size of an antialiased image"
WEIGHT_BITS = 15
"""Bits of a weight of bytes, beside its sign."""
MAX_FRACTION_BITS = 22
"""Bits behind the point that a weight of bytes may have."""


def _resize_antialiased(node: TorchNode, mode: Literal["linear", "cubic"]) -> Value:
    """Images whose elements all count; torch's cubic kernel is then another one, with -0.5."""
    x, scales = _image(node), _scales(node)
    if not x.dtype.is_float and x.dtype is not u8:
        raise UnsupportedError(f"{node.op_name} of {x.dtype}")
    result = to_dtype(x, i32 if x.dtype is u8 else wide(x.dtype))
    blend = _blend_bytes if x.dtype is u8 else interpolate
    sizes = [
        (static(given, ANTIALIASED_SIZE), static(wanted, ANTIALIASED_SIZE))
        for given, wanted in zip(x.shape[2:], node.result_type().shape[2:], strict=True)
    ]
    # Rows are the cheaper ones to blend, and first if there are fewer then; not so among bytes.
    rows_first = x.dtype is not u8 and sizes[0][1] < sizes[0][0]
    for position in (0, 1) if rows_first else (1, 0):
        given, wanted = sizes[position]
        if node["align_corners"]:
            scale = (given - 1) / (wanted - 1) if wanted > 1 else 0.0
        else:
            scale = 1.0 / scales[position] if scales else given / wanted
        centres = scale * (np.arange(wanted) + 0.5)
        stretch = max(scale, 1.0)
        weights = interpolation_weights(
            centres, given, mode, stretch, ANTIALIASED_CUBIC, exclude_outside=True
        )
        result = blend(result, 2 + position, weights)
    return to_dtype(result, x.dtype)


def _blend_bytes(x: Value, axis: int, weights: Weights) -> Value:
    """Bytes blended by whole numbers, as torch does it: weights of 16 bits, each axis rounded."""
    largest = float(weights.max(initial=0.0))
    bits = (
        n for n in range(MAX_FRACTION_BITS) if int(0.5 + largest * (2 << n)) >= 1 << WEIGHT_BITS
    )
    precision = next(bits, MAX_FRACTION_BITS)
    scaled = weights * (1 << precision)
    whole = np.trunc(scaled + np.copysign(0.5, scaled))
    total = interpolate(x, axis, whole) + (1 << precision >> 1)
    return F.clip(F.shift_right(total, precision), 0, 255)


@converter("aten._upsample_bilinear2d_aa.default", "aten._upsample_bilinear2d_aa.vec")
def _bilinear_antialiased(node: TorchNode) -> Value:
    return _resize_antialiased(node, "linear")


@converter("aten._upsample_bicubic2d_aa.default", "aten._upsample_bicubic2d_aa.vec")
def _bicubic_antialiased(node: TorchNode) -> Value:
    return _resize_antialiased(node, "cubic")


# Grids.


@converter(
    "aten.grid_sampler.default", "aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default"
)
def _grid_sampler(node: TorchNode) -> Value:
    return F.grid_sample(
        node["input"],
        node["grid"],
        ("linear", "nearest", "cubic")[int(node["interpolation_mode"])],
        ("zeros", "border", "reflection")[int(node["padding_mode"])],
        bool(node["align_corners"]),
    )


@converter("aten.affine_grid_generator.default")
def _affine_grid(node: TorchNode) -> Value:
    return F.affine_grid(node["theta"], node["size"][2:], bool(node["align_corners"]))


# Pools whose windows have starts of their own.


def _largest(x: Value, places: Value, spatial: int, shape: Sequence[Any]) -> tuple[Value, Value]:
    """The first largest element of each window, and its place.

    ``places`` is [..., windows, elements of a window], counted along the flattened spatial axes.
    """
    leading = x.shape[: x.rank - spatial]
    flat = F.reshape(x, (*leading, -1))
    windows, elements = places.shape[-2:]
    places = F.expand(places, (*leading, windows, elements))
    joined = F.reshape(places, (*leading, windows * elements))
    found = F.reshape(F.take_along_axis(flat, joined, -1), places.shape)
    first = F.argmax(found, -1, keepdims=True)
    values = F.squeeze(F.take_along_axis(found, first, -1), (-1,))
    indices = F.squeeze(F.take_along_axis(places, first, -1), (-1,))
    return F.reshape(values, shape), F.reshape(indices, shape)


@converter(
    "aten.adaptive_max_pool1d.default",
    "aten.adaptive_max_pool2d.default",
    "aten.adaptive_max_pool3d.default",
)
def _adaptive_max_pool(node: TorchNode) -> tuple[Value, Value]:
    x, spatial = node["self"], _spatial(node)
    shape = node.result_type().shape
    if 0 in shape:
        return F.zeros(shape, x.dtype), F.zeros(shape, i64)
    sizes = [static(size, "the size of an adaptive pool") for size in x.shape[-spatial:]]
    counts = [static(size, "the size of an adaptive pool") for size in shape[-spatial:]]
    pairs = zip(sizes, counts, strict=True)
    axes = [_adaptive_places(size, count) for size, count in pairs]
    table = [
        [
            _flat(place, sizes)
            for place in product(*(axis[at] for axis, at in zip(axes, window, strict=True)))
        ]
        for window in product(*(range(count) for count in counts))
    ]
    places = constant(np.array(table, np.int64), i64, current_graph())
    return _largest(x, places, spatial, shape)


def _adaptive_places(size: int, count: int) -> list[list[int]]:
    """The places in each window, the last of them repeated until all windows have as many."""
    starts = [at * size // count for at in range(count)]
    stops = [-(-(at + 1) * size // count) for at in range(count)]
    longest = max(stop - start for start, stop in zip(starts, stops, strict=True))
    return [
        [min(start + step, stop - 1) for step in range(longest)]
        for start, stop in zip(starts, stops, strict=True)
    ]


def _flat(place: Sequence[int], sizes: Sequence[int]) -> int:
    """A place in a box, counted in row-major order."""
    result = 0
    for at, size in zip(place, sizes, strict=True):
        result = result * size + at
    return result


@converter("aten.fractional_max_pool2d.default", "aten.fractional_max_pool3d.default")
def _fractional_max_pool(node: TorchNode) -> tuple[Value, Value]:
    x, spatial, drawn = node["self"], _spatial(node), node["random_samples"]
    shape = node.result_type().shape
    if 0 in shape:
        return F.zeros(shape, x.dtype), F.zeros(shape, i64)
    kernel = [int(size) for size in as_list(node["kernel_size"])]
    sizes = [static(size, "the size of a fractional pool") for size in x.shape[-spatial:]]
    counts = [static(size, "the size of a fractional pool") for size in shape[-spatial:]]
    if x.rank == spatial + 1:
        drawn = F.squeeze(drawn, (0,))
    order = list(range(spatial)) if spatial == 3 else [1, 0]
    windows, elements = math.prod(counts), math.prod(kernel)
    leading = x.shape[: x.rank - spatial]
    places = F.zeros((*leading, windows, elements), i64)
    for axis in range(spatial):
        sample = F.cast(F.take(drawn, order[axis], axis=-1), x.dtype)
        starts = _starts(sample, sizes[axis], counts[axis], kernel[axis])
        window = np.indices(counts).reshape(spatial, -1)[axis]
        element = np.indices(kernel).reshape(spatial, -1)[axis]
        along = F.unsqueeze(F.take(starts, window, axis=-1), -1) + element
        places = places * sizes[axis] + along
    return _largest(x, places, spatial, shape)


def _starts(sample: Value, size: int, count: int, kernel: int) -> Value:
    """Where each window of a fractional pool starts, in steps that are not even."""
    last = F.full((*sample.shape, 1), size - kernel, i64)
    if count == 1:
        return last
    alpha = np.float32((size - kernel) / (count - 1))
    scale = float((size - kernel) / (count - 1)) if sample.dtype.name == "f64" else float(alpha)
    drawn = F.unsqueeze(sample, -1)
    steps = F.cast(np.arange(count - 1), sample.dtype)
    starts = F.trunc((drawn + steps) * scale) - F.trunc(drawn * scale)
    return F.concat([F.cast(starts, i64), last], -1)
