"""Weights as small integers: one scale for a tensor, for a channel, or for a group of inputs."""

from __future__ import annotations

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.graph import Value
from monograph.ir.types import Array, DType, dtype_of, integer_limits
from monograph.ops.data import Constant, Full, Weight
from monograph.quantization.calibrate import F8_LARGEST, LEAST_SCALE
from monograph.quantization.group_rounding import GroupRounding

MIN_COMPILED_NUMBERS = 1 << 18
"""Weights of a layer from which on a compiled program rounds them, and not NumPy."""
INTERPRETED_NUMBERS = 1 << 15
"""Numbers that NumPy rounds at a time: a few arrays of them stay in a core's cache."""
COMPILED_NUMBERS = 1 << 22
"""Numbers that a compiled program rounds at a time: 16 MiB of f32."""


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
    """The numbers of a constant or weight, in f32; an error if they are not finite."""
    op = value.op
    if isinstance(op, Constant | Weight):
        array = op.data.array()
    else:
        assert isinstance(op, Full)
        array = np.broadcast_to(np.asarray(op.value), value.tensor.static_shape())
    numbers = np.asarray(array, np.float32)
    # A NaN is the least and the largest of what holds it; this way nothing of the size is made.
    if not np.isfinite([numbers.min(initial=0), numbers.max(initial=0)]).all():
        raise InputError(
            f"the weight %{value.name} is not finite",
            expected="finite numbers",
            found=f"{int((~np.isfinite(numbers)).sum())} NaN or infinities in {value.type}",
        )
    return numbers


def store_symmetric(weight: Array, dtype: DType, axis: int | None) -> StoredWeight:
    """A weight whose zero is 0 and whose largest number, by channel, is the dtype's largest."""
    others = None if axis is None else tuple(k for k in range(weight.ndim) if k != axis)
    largest = np.maximum(weight.max(others, initial=0.0), -weight.min(others, initial=0.0))
    most = F8_LARGEST[dtype.name] if dtype.is_float else float(integer_limits(dtype)[1])
    scale = _scales(largest / most)
    spread = scale if axis is None else scale.reshape(column(weight.ndim, axis))
    scaled = weight / spread
    if not dtype.is_float:
        np.round(scaled, out=scaled)
    return StoredWeight(np.clip(scaled, -most, most, out=scaled).astype(dtype.numpy), scale, axis)


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
    ``weight_only`` for how they are packed. Some rows at a time are rounded, in bounded memory.
    """
    outputs, inputs = weight.shape
    size = max(1, inputs if group is None else min(group, inputs))
    count = -(-inputs // size)
    rounding = GroupRounding(bits, symmetric, None if group is None else size)
    compiled = weight.size >= MIN_COMPILED_NUMBERS
    numbers = np.zeros((outputs, inputs), np.int8 if symmetric else np.uint8)
    scale = np.ones((outputs, count), np.float32)
    point = np.zeros_like(numbers, shape=(outputs, count))
    together = COMPILED_NUMBERS if compiled else INTERPRETED_NUMBERS
    together = max(1, together // max(1, count * size))
    for first in range(0, outputs if count else 0, together):
        rows = slice(first, first + together)
        groups = np.asarray(weight[rows], np.float32)
        if inputs % size:
            groups = np.pad(groups, ((0, 0), (0, count * size - inputs)))
        stored, scales, *points = rounding.round(groups.reshape(-1, size), compiled)
        numbers[rows] = stored.reshape(groups.shape)[:, :inputs]
        scale[rows] = scales.reshape(-1, count)
        if points:
            point[rows] = points[0].reshape(-1, count)
    stored = _in_bits(numbers, bits)
    zeros = None if symmetric else _in_bits(point, bits)
    if group is None:
        return StoredWeight(stored, scale[:, 0], 0, None if zeros is None else zeros[:, 0])
    return StoredWeight(stored, scale, 1, zeros, size)


def _in_bits(numbers: Array, bits: int) -> Array:
    """Whole numbers of 8 bits in the dtype of their bits, in the same memory; 3 stay in bytes."""
    if bits != 4:
        return numbers
    return numbers.view(dtype_of("i4" if numbers.dtype == np.int8 else "u4").numpy)
