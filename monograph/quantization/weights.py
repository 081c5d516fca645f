"""Weights as small integers: one scale for a tensor, for a channel, or for a group of inputs."""

from __future__ import annotations

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.graph import Value
from monograph.ir.types import Array, DType
from monograph.ops.data import Constant, Full, Weight, integer_range
from monograph.quantization.calibrate import F8_LARGEST, LEAST_SCALE

SHRINKS = np.linspace(1.0, 0.6, 17)
"""The fractions of a group's range that are tried where a few bits have to hold it."""


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
    most = F8_LARGEST[dtype.name] if dtype.is_float else float(integer_range(dtype)[1])
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
    from monograph.ir.types import dtype_of

    return dtype_of(array.dtype).bits
