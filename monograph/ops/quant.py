"""Quantization: real numbers stored as small integers or 8- and 4-bit floats, and back.

``real = (stored - zero_point) * scale``. One scale (and zero point) serves the whole tensor, or
each index of ``axis`` has its own, or each ``block`` of consecutive indices along ``axis`` has, as
in ONNX. Arithmetic is in f32, or in f64 where an operand is f64 or 32-bit integers are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from monograph.ir.build import Operand, apply, as_operands, cast_to, constant, graph_of
from monograph.ir.dims import Dim, provably_different
from monograph.ir.graph import Node, Value
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, DType, TensorType, dtype_of, f32, f64, i8
from monograph.ops import elementwise, slicing
from monograph.ops import shape as shape_ops
from monograph.ops.data import Constant, Weight
from monograph.ops.rules import format_shape, normalize_axis, require

STORAGE_DTYPES = tuple(
    dtype_of(name)
    for name in (
        *("i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16", "i32", "u32"),
        *("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1fn"),
    )
)
"""The dtypes that quantized numbers are stored in."""


class Granular(Protocol):
    """What says which elements share a scale: all, those of an index of an axis, or a block."""

    @property
    def name(self) -> str: ...
    @property
    def axis(self) -> int | None: ...
    @property
    def block(self) -> int | None: ...


@op("quantize", traits=Trait.STORAGE)
class Quantize(Op):
    """round(x / scale) + zero_point, ties to even, held within the range of ``dtype``.

    A NaN becomes the integer 0. The float dtypes round to their own precision instead of to whole
    numbers, and saturate at their largest number; a NaN stays one where the dtype has it.
    """

    dtype: DType
    axis: int | None = None
    block: int | None = None

    def infer(
        self, x: TensorType, scale: TensorType, zero_point: TensorType | None = None
    ) -> TensorType:
        _check_stored(self.name, self.dtype)
        _check_real(self.name, x)
        _check_parameters(self, x, self.dtype, scale, zero_point)
        return x.with_dtype(self.dtype)

    def evaluate(self, x: Array, scale: Array, zero_point: Array | None = None) -> Any:
        dtype = _computing(self.dtype, dtype_of(x.dtype), dtype_of(scale.dtype)).numpy
        scaled = x.astype(dtype) / _spread_array(self, scale.astype(dtype), x.shape)
        if self.dtype.is_integer:
            scaled = np.round(scaled)
        if zero_point is not None:
            scaled = scaled + _spread_array(self, zero_point.astype(dtype), x.shape)
        low, high = limits_of(self.dtype)
        held = np.clip(scaled, low, high)
        if self.dtype.is_integer:
            held = np.where(np.isnan(held), 0, held)
        return held.astype(self.dtype.numpy)

    def decompose(self, x: Value, scale: Value, zero_point: Value | None = None) -> Value:
        dtype = _computing(self.dtype, x.dtype, scale.dtype)
        scaled = cast_to(x, dtype)
        if not _is_one(scale):
            scaled = elementwise.divide(scaled, _spread(self, cast_to(scale, dtype), x))
        if self.dtype.is_integer:
            scaled = elementwise.round(scaled)
        if zero_point is not None and not is_zero(zero_point):
            scaled = scaled + _spread(self, cast_to(zero_point, dtype), x)
        if not (self.dtype.is_integer and self.dtype.bits >= 8):  # a cast to those saturates
            scaled = elementwise.clip(scaled, *limits_of(self.dtype))
        return elementwise.cast(scaled, self.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32) * 4
        scale = np.asarray(0.25, np.float32)
        for dtype in STORAGE_DTYPES:
            yield Sample(cls(dtype), (x, scale), dtype.name, False)
        zero_point = np.asarray(100, np.uint8)
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.125, 0.375, -0.125], np.float32)
        yield Sample(cls(dtype_of("u8")), (x, scale, zero_point), "zero point", False)
        yield Sample(cls(i8), (special, scale), "special", False)
        yield Sample(cls(dtype_of("f8e4m3fn")), (special * 1e4, scale), "special f8", False)
        scales = np.linspace(0.1, 0.7, 6, dtype=np.float32)
        points = np.arange(-3, 3, dtype=np.int8)
        yield Sample(cls(i8, 1), (x, scales, points), "per axis", False)
        yield Sample(cls(i8, -2), (x, scales[:4]), "per axis, negative", False)
        blocks = np.linspace(0.1, 0.9, 8, dtype=np.float32).reshape(4, 2)
        yield Sample(cls(i8, 1, 4), (x, blocks), "blocked, the last block short", False)
        yield Sample(cls(i8), (x.T[::-2], scale), "strided", False)
        yield Sample(cls(i8), (x[:0], scale), "empty", False)
        yield Sample(cls(i8), (np.asarray(3.3), np.asarray(0.1)), "f64 scalar", False)
        half = x.astype(np.float16)
        yield Sample(cls(i8), (half, scale.astype(np.float16)), "f16", False)


@function
def quantize(
    x: Operand,
    scale: Operand,
    zero_point: Operand | None = None,
    dtype: DType | str = i8,
    axis: int | None = None,
    block: int | None = None,
) -> Value:
    """``x`` stored in ``dtype``: round(x / scale) + zero_point, saturated. It has no gradient."""
    stored = dtype_of(dtype)
    value, scales, *points = _parameters("quantize", x, scale, zero_point, stored)
    return apply(Quantize(stored, _axis("quantize", axis, value), block), value, scales, *points)


@op("dequantize", traits=Trait.STORAGE)
class Dequantize(Op):
    """(x - zero_point) * scale, as ``dtype``."""

    dtype: DType = f32
    axis: int | None = None
    block: int | None = None

    def infer(
        self, x: TensorType, scale: TensorType, zero_point: TensorType | None = None
    ) -> TensorType:
        _check_stored(self.name, x.dtype)
        require(
            self.dtype.is_float,
            "dequantize: the result is a real number",
            expected="a float dtype",
            found=self.dtype,
        )
        _check_parameters(self, x, x.dtype, scale, zero_point)
        return x.with_dtype(self.dtype)

    def evaluate(self, x: Array, scale: Array, zero_point: Array | None = None) -> Any:
        dtype = _computing(dtype_of(x.dtype), self.dtype, dtype_of(scale.dtype)).numpy
        number = x.astype(dtype)
        if zero_point is not None:
            number = number - _spread_array(self, zero_point.astype(dtype), x.shape)
        return number * _spread_array(self, scale.astype(dtype), x.shape)

    def decompose(self, x: Value, scale: Value, zero_point: Value | None = None) -> Value:
        dtype = _computing(x.dtype, self.dtype, scale.dtype)
        number = cast_to(x, dtype)
        if zero_point is not None:
            number = number - _spread(self, cast_to(zero_point, dtype), x)
        return cast_to(number * _spread(self, cast_to(scale, dtype), x), self.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        numbers = np.random.default_rng(0).integers(-128, 128, (4, 6))
        scale = np.asarray(0.25, np.float32)
        for dtype in STORAGE_DTYPES:
            low, high = limits_of(dtype)
            x = np.clip(numbers, low, high).astype(dtype.numpy)
            yield Sample(cls(), (x, scale), dtype.name, dtype.is_integer)
        x = numbers.astype(np.int8)
        yield Sample(cls(), (x, scale, np.asarray(-7, np.int8)), "zero point")
        scales = np.linspace(0.1, 0.7, 6, dtype=np.float32)
        yield Sample(cls(f32, 1), (x, scales, np.arange(-3, 3, dtype=np.int8)), "per axis")
        blocks = np.linspace(0.1, 0.9, 8, dtype=np.float32).reshape(4, 2)
        yield Sample(cls(f32, -1, 4), (x, blocks), "blocked, the last block short")
        yield Sample(cls(f32, 0, 2), (x[:, :2], blocks[:2]), "blocked")
        yield Sample(cls(), (x.T[::-2], scale), "strided")
        yield Sample(cls(), (x[:0], scale), "empty", False)
        yield Sample(cls(dtype_of("bf16")), (x, scale), "to bf16", False)
        yield Sample(cls(f64), (np.asarray(5, np.int8), np.asarray(0.1)), "f64 scalar")


@function
def dequantize(
    x: Operand,
    scale: Operand,
    zero_point: Operand | None = None,
    dtype: DType | str = f32,
    axis: int | None = None,
    block: int | None = None,
) -> Value:
    """The real numbers that ``x`` stores: (x - zero_point) * scale."""
    stored = shape_ops.one_value(x).dtype
    value, scales, *points = _parameters("dequantize", x, scale, zero_point, stored)
    dequantize_op = Dequantize(dtype_of(dtype), _axis("dequantize", axis, value), block)
    return apply(dequantize_op, value, scales, *points)


@op("fake_quantize", traits=Trait.STORAGE)
class FakeQuantize(Op):
    """What ``x`` becomes when it is quantized to the integers ``low`` to ``high`` and back.

    For training: the gradient passes straight through where ``x`` lies within the range.
    """

    low: int
    high: int
    axis: int | None = None
    block: int | None = None

    def infer(
        self, x: TensorType, scale: TensorType, zero_point: TensorType | None = None
    ) -> TensorType:
        _check_real(self.name, x)
        require(
            self.low <= self.high,
            "fake_quantize: the range is empty",
            expected="low to be at most high",
            found=f"{self.low} to {self.high}",
        )
        stored = None if zero_point is None else zero_point.dtype
        require(
            stored is None or stored.is_integer,
            "fake_quantize: the zero point is not an integer",
            expected="an integer dtype",
            found=zero_point,
        )
        _check_parameters(self, x, stored, scale, zero_point)
        return x

    def evaluate(self, x: Array, scale: Array, zero_point: Array | None = None) -> Any:
        dtype = _computing(dtype_of(x.dtype), dtype_of(scale.dtype)).numpy
        scales = _spread_array(self, scale.astype(dtype), x.shape)
        points = np.zeros((), dtype)
        if zero_point is not None:
            points = _spread_array(self, zero_point.astype(dtype), x.shape)
        whole = np.round(x.astype(dtype) / scales) + points
        return (np.clip(whole, self.low, self.high) - points) * scales

    def vjp(self, node: Node, grad: Value) -> Gradients:
        whole, *_ = self._whole(*node.operands)
        inside = elementwise.logical_and(whole >= self.low, whole <= self.high)
        others = [None] * (len(node.operands) - 1)
        return (elementwise.where(inside, grad, 0.0), *others)

    def decompose(self, x: Value, scale: Value, zero_point: Value | None = None) -> Value:
        whole, scales, points = self._whole(x, scale, zero_point)
        held = elementwise.clip(whole, self.low, self.high)
        return cast_to((held if points is None else held - points) * scales, x.dtype)

    def _whole(
        self, x: Value, scale: Value, zero_point: Value | None = None
    ) -> tuple[Value, Value, Value | None]:
        """x in whole steps before it is held within the range; the scales; the zero points."""
        dtype = _computing(x.dtype, scale.dtype)
        scales = _spread(self, cast_to(scale, dtype), x)
        whole = elementwise.round(elementwise.divide(cast_to(x, dtype), scales))
        if zero_point is None:
            return whole, scales, None
        points = _spread(self, cast_to(zero_point, dtype), x)
        return whole + points, scales, points

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32) * 20
        scale = np.asarray(0.25, np.float32)
        point = np.asarray(3, np.int32)
        yield Sample(cls(-128, 127), (x, scale, point), "", False)
        yield Sample(cls(0, 15), (x, scale), "no zero point", False)
        special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.125, 0.375], np.float32)
        yield Sample(cls(-8, 7), (special, scale, point), "special", False)
        scales = np.linspace(0.1, 0.7, 6, dtype=np.float32)
        points = np.arange(-3, 3, dtype=np.int32)
        yield Sample(cls(-128, 127, 1), (x, scales, points), "per axis", False)
        blocks = np.linspace(0.1, 0.9, 8, dtype=np.float32).reshape(4, 2)
        yield Sample(cls(-8, 7, 1, 4), (x, blocks), "blocked", False)
        yield Sample(cls(-8, 7), (x.T[::-2], scale), "strided", False)
        yield Sample(cls(-8, 7), (x[:0], scale), "empty", False)
        yield Sample(cls(-8, 7), (np.asarray(1.3), np.asarray(0.1)), "f64 scalar", False)


@function
def fake_quantize(
    x: Operand,
    scale: Operand,
    zero_point: Operand | None = None,
    low: int = -128,
    high: int = 127,
    axis: int | None = None,
    block: int | None = None,
) -> Value:
    """``x`` rounded to what quantization to ``low`` to ``high`` can hold, in its own dtype."""
    value, scales, *points = _parameters("fake_quantize", x, scale, zero_point, None)
    fake = FakeQuantize(low, high, _axis("fake_quantize", axis, value), block)
    return apply(fake, value, scales, *points)


def is_zero(zero_point: Value) -> bool:
    """Whether a zero point is known to be 0 everywhere, as most weights' are: it says nothing."""
    value = zero_point
    while isinstance(value.op, shape_ops.Reshape | shape_ops.Unsqueeze):
        assert value.producer is not None
        value = value.producer.operands[0]
    return isinstance(value.op, Constant | Weight) and not np.any(value.op.data.array())


def _is_one(scale: Value) -> bool:
    """Whether a scale is known to be 1: numbers are in steps already."""
    return isinstance(scale.op, Constant) and scale.op.data.splat == 1


def _parameters(
    name: str, x: Operand, scale: Operand, zero_point: Operand | None, stored: DType | None
) -> list[Value]:
    """The operands as values; a zero point takes the dtype that numbers are stored in.

    One number serves as the zero point of every scale.
    """
    graph = graph_of([x, scale, zero_point])
    values = list(as_operands(graph, [x, scale]))
    if zero_point is None:
        return values
    if isinstance(zero_point, Value):
        (point,) = as_operands(graph, [zero_point])
        values.append(point if stored is None else cast_to(point, stored))
        return values
    low, high = limits_of(stored or dtype_of("i32"))
    numbers = np.asarray(zero_point)
    require(
        bool(np.all((numbers >= low) & (numbers <= high))),
        f"{name}: the zero point does not fit",
        expected=f"{low} to {high}",
        found=zero_point,
    )
    point = constant(numbers, stored or dtype_of("i32"), graph)
    values.append(shape_ops.expand(point, values[1].shape) if numbers.ndim == 0 else point)
    return values


def _axis(name: str, axis: int | None, x: Value) -> int | None:
    return None if axis is None else normalize_axis(name, axis, x.rank)


def _computing(*dtypes: DType) -> DType:
    """The dtype in which the arithmetic is exact enough: see the module."""
    return f64 if any(d is f64 or (d.is_integer and d.bits >= 32) for d in dtypes) else f32


def limits_of(dtype: DType) -> tuple[float, float]:
    """The smallest and largest finite numbers."""
    describe = ml_dtypes.iinfo if dtype.is_integer else ml_dtypes.finfo
    limits = describe(dtype.numpy)
    return float(limits.min), float(limits.max)


def _spread_array(op_: Granular, parameter: Array, shape: tuple[int, ...]) -> Array:
    """A scale or zero point for every element of ``shape``, or one that broadcasts to it."""
    if op_.axis is None:
        return parameter
    axis = op_.axis % len(shape)
    if op_.block is None:
        return parameter.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    repeated = np.repeat(parameter, op_.block, axis)
    return np.take(repeated, np.arange(shape[axis]), axis)


def _spread(op_: Granular, parameter: Value, x: Value) -> Value:
    """``_spread_array`` as graph."""
    if op_.axis is None:
        return parameter
    axis = op_.axis % x.rank
    if op_.block is None:
        column: list[Dim] = [1] * x.rank
        column[axis] = parameter.shape[0]
        return shape_ops.reshape(parameter, column)
    before, count, after = (
        parameter.shape[:axis],
        parameter.shape[axis],
        parameter.shape[axis + 1 :],
    )
    split = shape_ops.reshape(parameter, (*before, count, 1, *after))
    repeated = shape_ops.expand(split, (*before, count, op_.block, *after))
    joined = shape_ops.reshape(repeated, (*before, count * op_.block, *after))
    if joined.shape[axis] == x.shape[axis]:
        return joined
    return slicing.slice(joined, (0,), (x.shape[axis],), axes=(axis,))


def _check_stored(name: str, dtype: DType) -> None:
    require(
        dtype in STORAGE_DTYPES,
        f"{name}: numbers are not stored in this dtype",
        expected=", ".join(dtype.name for dtype in STORAGE_DTYPES),
        found=dtype,
    )


def _check_real(name: str, x: TensorType) -> None:
    require(
        x.dtype.is_float, f"{name}: a real operand is needed", expected="a float dtype", found=x
    )


def _check_parameters(
    op_: Granular,
    x: TensorType,
    stored: DType | None,
    scale: TensorType,
    zero_point: TensorType | None,
) -> None:
    """The scale and zero point must be of the right dtype, and one for each part of ``x``."""
    _check_real(op_.name, scale)
    expected = _parameter_shape(op_, x)
    _check_shape(op_.name, "scale", scale, expected)
    if zero_point is None:
        return
    require(
        zero_point.dtype is stored,
        f"{op_.name}: the zero point has another dtype than what is stored",
        expected=str(stored),
        found=zero_point,
    )
    _check_shape(op_.name, "zero point", zero_point, expected)


def _parameter_shape(op_: Granular, x: TensorType) -> tuple[Dim, ...]:
    require(
        op_.block is None or (op_.axis is not None and op_.block >= 1),
        f"{op_.name}: blocks lie along an axis",
        expected="a block of 1 or more, and an axis",
        found=f"block = {op_.block}, axis = {op_.axis}",
    )
    if op_.axis is None:
        return ()
    axis = normalize_axis(op_.name, op_.axis, x.rank)
    if op_.block is None:
        return (x.shape[axis],)
    blocks = (x.shape[axis] + (op_.block - 1)) // op_.block
    return (*x.shape[:axis], blocks, *x.shape[axis + 1 :])


def _check_shape(name: str, what: str, type_: TensorType, shape: tuple[Dim, ...]) -> None:
    fits = type_.rank == len(shape) and not any(map(provably_different, type_.shape, shape))
    require(
        fits,
        f"{name}: the {what} has the wrong shape",
        expected=format_shape(shape),
        found=type_,
    )
