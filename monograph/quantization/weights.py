"""Weights as small integers: one scale for a tensor, for a channel, or for a group of inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.graph import Value
from monograph.ir.types import Array, DType, dtype_of, integer_limits
from monograph.ops.data import Constant, Full, Weight
from monograph.quantization.calibrate import F8_LARGEST, LEAST_SCALE

SHRINKS = np.linspace(1.0, 0.6, 17)
"""The fractions of a group's range that are tried where a few bits have to hold it."""
CACHED_NUMBERS = 1 << 15
"""Numbers that are rounded at a time: a few arrays of them stay in a core's cache."""
MIN_UNIT = 2.0**-120
"""What numbers of a group are divided by at least, which may all be zero."""


@dataclass(frozen=True, eq=False)
class StoredWeight:
    """A weight as it is stored: ``real = (stored - zero_point) * scale`` along ``axis``.

    With a ``block``, each such many indices along the axis have parameters of their own.
    """

    stored: Array
    scale: Array
    axis: int | None
    zero_point: Array | None = None
    block: int | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of what is stored, scales and zero points included; packed where it can be."""
        parts = [self.stored, self.scale] + ([] if self.zero_point is None else [self.zero_point])
        return sum((part.size * _bits(part) + 7) // 8 for part in parts)


def contents(value: Value) -> Array:
    """The numbers of a constant or weight, in f64; an error if they are not finite."""
    op = value.op
    if isinstance(op, Constant | Weight):
        array = op.data.array()
    else:
        assert isinstance(op, Full)
        array = np.broadcast_to(np.asarray(op.value), value.tensor.static_shape())
    numbers = np.asarray(array, np.float64)
    if not np.isfinite(numbers).all():
        raise InputError(
            f"the weight %{value.name} is not finite",
            expected="finite numbers",
            found=f"{int((~np.isfinite(numbers)).sum())} NaN or infinities in {value.type}",
        )
    return numbers


def store_symmetric(weight: Array, dtype: DType, axis: int | None) -> StoredWeight:
    """A weight whose zero is 0 and whose largest number, by channel, is the dtype's largest."""
    others = None if axis is None else tuple(k for k in range(weight.ndim) if k != axis)
    largest = np.abs(weight).max(others, initial=0.0)
    most = F8_LARGEST[dtype.name] if dtype.is_float else float(integer_limits(dtype)[1])
    scale = _scales(largest / most)
    spread = scale if axis is None else scale.reshape(column(weight.ndim, axis))
    scaled = weight / spread.astype(np.float64)
    if not dtype.is_float:
        scaled = np.round(scaled)
    return StoredWeight(np.clip(scaled, -most, most).astype(dtype.numpy), scale, axis)


def restore(weight: StoredWeight) -> Array:
    """The real numbers that are stored by tensor or by channel."""
    scale = weight.scale.astype(np.float64)
    if weight.axis is not None:
        scale = scale.reshape(column(weight.stored.ndim, weight.axis))
    return weight.stored.astype(np.float64) * scale


def column(rank: int, axis: int) -> list[int]:
    """The shape in which a vector lies along an axis."""
    return [-1 if k == axis else 1 for k in range(rank)]


def _scales(steps: Array) -> Array:
    """Scales as f32; 1 where there is nothing but zeros."""
    return np.where(steps > 0, np.maximum(steps, LEAST_SCALE), 1.0).astype(np.float32)


def _bits(array: Array) -> int:
    return dtype_of(array.dtype).bits


def store_groups(weight: Array, bits: int, group: int | None, symmetric: bool) -> StoredWeight:
    """A weight [outputs, inputs] in a few bits; each group of inputs has its own parameters.

    Of several shrunken ranges of each group, the one with the least squared error is taken.
    Without a group every output has one scale. Numbers of 3 bits are one a byte here: see
    ``weight_only`` for how they are packed. Some rows at a time are rounded, in a core's cache.
    """
    outputs, inputs = weight.shape
    size = inputs if group is None else min(group, inputs)
    count = -(-inputs // size)
    numbers = np.empty((outputs, inputs), _group_dtype(bits, symmetric))
    scale, point = np.empty((outputs, count), np.float32), np.empty((outputs, count))
    together = max(1, CACHED_NUMBERS // max(1, count * size))
    for first in range(0, outputs, together):
        rows = slice(first, first + together)
        groups = np.zeros((len(weight[rows]), count * size))
        groups[:, :inputs] = weight[rows]
        groups = groups.reshape(-1, count, size)
        stored, scale[rows], point[rows] = _store_rows(groups, bits, symmetric)
        numbers[rows] = stored.reshape(-1, count * size)[:, :inputs].astype(numbers.dtype)
    points = None if symmetric else point.astype(numbers.dtype)
    if group is None:
        return StoredWeight(numbers, scale[:, 0], 0, None if points is None else points[:, 0])
    return StoredWeight(numbers, scale, 1, points, size)


def _store_rows(groups: Array, bits: int, symmetric: bool) -> tuple[Array, Array, Array]:
    """Whole numbers, scales and zero points of some rows of groups."""
    low, high = np.minimum(groups.min(2), 0), np.maximum(groups.max(2), 0)
    if bits < 8:
        fraction = _find_fractions(groups, low, high, bits, symmetric)
        low, high = low * fraction, high * fraction
    return _round_groups(groups, low, high, bits, symmetric)


def _find_fractions(groups: Array, low: Array, high: Array, bits: int, symmetric: bool) -> Array:
    """The fraction of each group's range that loses least, in units of its largest number."""
    unit = np.maximum(np.maximum(-low, high), MIN_UNIT)
    groups, low, high = groups / unit[..., None], low / unit, high / unit
    errors = np.full(low.shape, np.inf)
    fractions = np.ones(low.shape)
    for shrink in SHRINKS:
        stored, scale, point = _round_groups(groups, low * shrink, high * shrink, bits, symmetric)
        stored -= point[..., None]
        stored *= scale[..., None].astype(np.float64)
        stored -= groups
        error = np.einsum("ogk,ogk->og", stored, stored)
        better = error < errors
        errors, fractions = np.where(better, error, errors), np.where(better, shrink, fractions)
    return fractions


def _round_groups(
    groups: Array, low: Array, high: Array, bits: int, symmetric: bool
) -> tuple[Array, Array, Array]:
    """Whole numbers, scales and zero points for ranges of groups."""
    if symmetric:
        most = (1 << (bits - 1)) - 1
        least, scale = -most - 1, _scales(np.maximum(-low, high) / most)
        point = np.zeros(low.shape)
    else:
        least, most = 0, (1 << bits) - 1
        scale = _scales((high - low) / most)
        point = np.clip(np.round(-low / scale.astype(np.float64)), 0, most)
    stored = groups / scale[..., None].astype(np.float64)
    np.round(stored, out=stored)
    stored += point[..., None]
    return np.clip(stored, least, most, out=stored), scale, point


def _group_dtype(bits: int, symmetric: bool) -> np.dtype[Any]:
    names = {8: ("i8", "u8"), 4: ("i4", "u4"), 3: ("i8", "u8")}
    return dtype_of(names[bits][0 if symmetric else 1]).numpy
