"""Weights that other quantizers packed: GGUF's blocks, and the layouts of GPTQ and AWQ.

All are read into one form: whole numbers of a few bits for a weight [outputs, inputs], with a scale
and a zero point or a minimum for each group of inputs. ``PackedWeight.value`` puts it into a graph,
where it stays packed in memory.
"""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.graph import Graph, Value
from monograph.ir.types import Array, dtype_of

SCALE_DTYPES = tuple(np.dtype(each) for each in (np.float16, ml_dtypes.bfloat16, np.float32))
GPTQ_ORDER = (0, 1, 2, 3, 4, 5, 6, 7)
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Which nibble of a word holds each of eight neighbours."""


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """``real = (stored - zero_point) * scale - minimum``, by groups of ``group`` inputs."""

    stored: Array
    scale: Array
    group: int
    zero_point: Array | None = None
    minimum: Array | None = None

    def value(self, graph: Graph, name: str) -> Value:
        """The weight in a graph, dequantized where it is read."""
        numbers = graph.add_weight(name, self.stored)
        with graph.as_current():
            real = F.dequantize(numbers, self.scale, self.zero_point, axis=1, block=self.group)
            if self.minimum is None:
                return real
            low = F.dequantize(
                F.ones(self.stored.shape, "i8"), self.minimum, axis=1, block=self.group
            )
            return F.subtract(real, low)

    def array(self) -> Array:
        """The real numbers, in f32."""
        inputs = self.stored.shape[1]

        def spread(parts: Array) -> Array:
            return np.repeat(parts.astype(np.float32), self.group, 1)[:, :inputs]

        real = self.stored.astype(np.float32)
        if self.zero_point is not None:
            real = real - spread(self.zero_point)
        real = real * spread(self.scale)
        return real if self.minimum is None else real - spread(self.minimum)


def read_gptq(tensors: Mapping[str, Array], prefix: str) -> PackedWeight:
    """A linear layer of GPTQ: words of eight along the inputs, zero points less one.

    ``tensors`` are those of a safetensors file; the layer's are ``prefix`` with ``.qweight``,
    ``.qzeros``, ``.scales`` and perhaps ``.g_idx``, which must leave the inputs in order.
    """
    words, zeros, scales = _layer(tensors, prefix)
    groups, outputs = scales.shape
    numbers = _nibbles(words.T, GPTQ_ORDER)
    points = _nibbles(zeros, GPTQ_ORDER).T.astype(np.int64) + 1
    inputs = numbers.shape[1]
    group = _group_size(prefix, inputs, groups)
    if numbers.shape[0] != outputs or points.shape != (outputs, groups):
        raise _wrong(prefix, f"{words.shape}, {zeros.shape} and {scales.shape}")
    order = tensors.get(f"{prefix}.g_idx")
    if order is not None and not np.array_equal(order, np.arange(inputs) // group):
        raise InputError(
            f"{prefix}: the inputs of this layer are reordered by activation",
            expected="groups of neighbouring inputs",
            hint="quantize it without desc_act",
        )
    return _finish(numbers, scales.T, points, group)


def read_awq(tensors: Mapping[str, Array], prefix: str) -> PackedWeight:
    """A linear layer of AWQ: words of eight along the outputs, in an order of their own."""
    words, zeros, scales = _layer(tensors, prefix)
    groups, outputs = scales.shape
    numbers = _nibbles(words, AWQ_ORDER).T
    points = _nibbles(zeros, AWQ_ORDER).T.astype(np.int64)
    if numbers.shape[0] != outputs or points.shape != (outputs, groups):
        raise _wrong(prefix, f"{words.shape}, {zeros.shape} and {scales.shape}")
    return _finish(numbers, scales.T, points, _group_size(prefix, numbers.shape[1], groups))


def _layer(tensors: Mapping[str, Array], prefix: str) -> tuple[Array, Array, Array]:
    names = [f"{prefix}.{part}" for part in ("qweight", "qzeros", "scales")]
    missing = [name for name in names if name not in tensors]
    if missing:
        raise InputError(f"there is no tensor {missing[0]!r}", expected=", ".join(names))
    words, zeros, scales = (np.asarray(tensors[name]) for name in names)
    is_right = all(each.ndim == 2 and each.dtype == np.int32 for each in (words, zeros))
    is_right = is_right and scales.ndim == 2 and scales.dtype in SCALE_DTYPES
    if not is_right or 0 in words.shape or 0 in scales.shape:
        parts = ", ".join(f"{each.dtype}{each.shape}" for each in (words, zeros, scales))
        raise _wrong(prefix, parts)
    scales = scales.astype(np.float32)
    if not np.isfinite(scales).all():
        raise InputError(f"{prefix}: not all scales are finite", expected="finite numbers")
    return words, zeros, scales


def _nibbles(words: Array, order: tuple[int, ...]) -> Array:
    """The eight numbers of each word along the last axis."""
    shifts = np.array(order, np.uint32) * np.uint32(4)
    numbers = (np.ascontiguousarray(words).view(np.uint32)[..., None] >> shifts) & np.uint32(15)
    return numbers.reshape(*words.shape[:-1], words.shape[-1] * 8).astype(np.uint8)


def _group_size(prefix: str, inputs: int, groups: int) -> int:
    if inputs % groups:
        raise _wrong(prefix, f"{inputs} inputs in {groups} groups")
    return inputs // groups


def _finish(numbers: Array, scale: Array, points: Array, group: int) -> PackedWeight:
    """Four bits where they hold the zero points too; GPTQ's may be 16."""
    dtype = dtype_of("u4" if points.max(initial=0) < 16 else "u8").numpy
    scales = np.ascontiguousarray(scale)
    return PackedWeight(numbers.astype(dtype), scales, group, points.astype(dtype))


def _wrong(prefix: str, found: str) -> InputError:
    return InputError(
        f"{prefix}: these tensors are not a layer of 4 bits",
        expected="words i32 of weights and zero points, and scales [groups, outputs]",
        found=found,
    )
