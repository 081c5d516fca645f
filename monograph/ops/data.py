"""Sources of data: constants, weights, and values made from a shape alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from monograph.errors import TypeRuleError
from monograph.ir.build import Operand, apply, cast_to
from monograph.ir.data import ArrayData, Data
from monograph.ir.dims import Dim, Shape, SymbolicDim, dim_max
from monograph.ir.graph import Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Family, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import (
    Array,
    DType,
    TensorType,
    bool_,
    dtype_of,
    f32,
    f64,
    i64,
    integer_limits,
    string,
)
from monograph.ops import elementwise
from monograph.ops import shape as shape_ops
from monograph.ops.rules import format_shape, is_never_negative, normalize_axis, require


@op("constant", family=Family.DATA)
class Constant(Op):
    """A tensor known when the graph is built; small, or filled with one element."""

    data: Data

    def infer(self) -> TensorType:
        return self.data.type

    def evaluate(self) -> Array:
        return self.data.array()

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for array in (np.float32(2.5), np.arange(6).reshape(2, 3), np.zeros((0, 3), np.float32)):
            yield Sample(cls(ArrayData(array)), ())


@op("weight", family=Family.DATA)
class Weight(Op):
    """A named tensor of the model; its storage is shared and read when needed.

    The name is part of what it is: two weights with equal contents stay two.
    """

    label: str
    data: Data

    def __hash__(self) -> int:
        """Of the name and type alone: the contents may be gigabytes that nobody has read yet."""
        return hash((self.name, self.label, self.data.type))

    def infer(self) -> TensorType:
        return self.data.type

    def evaluate(self) -> Array:
        return self.data.array()

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls("layer.weight", ArrayData(np.ones((3, 2), np.float32))), ())


@op("iota", family=Family.DATA, traits=Trait.GENERATOR)
class Iota(Op):
    """Counts 0, 1, 2… along ``axis`` of ``shape``."""

    shape: Shape
    axis: int = 0
    dtype: DType = i64

    def infer(self) -> TensorType:
        require(
            self.dtype.is_integer or self.dtype.is_float,
            "iota: counts need a number type",
            expected="an integer or float dtype",
            found=self.dtype,
        )
        shape_ops.require_shape(self.name, self.shape)
        normalize_axis(self.name, self.axis, len(self.shape))
        return TensorType(self.dtype, self.shape)

    def holds_at_all_sizes(self) -> bool:
        return is_never_negative(self.shape)

    def evaluate(self) -> Array:
        sizes = static_sizes(self.name, self.shape)
        ramp = np.arange(sizes[self.axis]).astype(self.dtype.numpy)
        position = self.axis % len(sizes)
        column = ramp.reshape([-1 if axis == position else 1 for axis in range(len(sizes))])
        return np.broadcast_to(column, sizes)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return b.cast(index[self.axis], self.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls((5,)), ())
        yield Sample(cls((2, 3), 1, dtype_of("f32")), ())
        yield Sample(cls((0, 3), -1), (), "empty")


@op("dim", family=Family.SHAPE, traits=Trait.GENERATOR)
class DimValue(Op):
    """The value of a symbolic dimension expression, as an ``i64`` scalar."""

    value: Dim

    def infer(self) -> TensorType:
        return TensorType(i64, ())

    def evaluate(self) -> Array:
        return np.asarray(static_sizes(self.name, (self.value,))[0], np.int64)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return b.index(self.value)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls(7), ())


@function
def iota(shape: Shape, axis: int = 0, dtype: DType | str = i64) -> Value:
    """Counts 0, 1, 2… along ``axis`` of ``shape``."""
    return apply(Iota(tuple(shape), axis, dtype_of(dtype)))


@function
def dim(value: Dim) -> Value:
    """A dimension as an ``i64`` scalar of the graph: ``dim(x.shape[0] * 2)``."""
    return apply(DimValue(value))


def static_sizes(name: str, shape: Shape) -> tuple[int, ...]:
    """Attributes that symbols have been replaced in, as ints."""
    sizes = tuple(size for size in shape if isinstance(size, int))
    if len(sizes) != len(shape):
        raise TypeRuleError(
            f"{name}: a symbol has no value here", expected="ints", found=format_shape(shape)
        )
    return sizes


@op("full", family=Family.DATA, traits=Trait.GENERATOR)
class Full(Op):
    """One number everywhere."""

    shape: Shape
    value: bool | int | float
    dtype: DType

    def infer(self) -> TensorType:
        shape_ops.require_shape(self.name, self.shape)
        check_fill(self.name, self.value, self.dtype)
        return TensorType(self.dtype, self.shape)

    def holds_at_all_sizes(self) -> bool:
        return is_never_negative(self.shape)

    def evaluate(self) -> Array:
        return np.full(static_sizes(self.name, self.shape), self.element())

    def element(self) -> Array:
        """The number in the dtype, as an array without dimensions; beyond its range, infinite."""
        with np.errstate(over="ignore"):
            return np.asarray(self.value).astype(self.dtype.numpy)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return b.literal(self.value, self.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls((2, 3), 1.5, f32), ())
        yield Sample(cls((), -7, i64), (), "scalar")
        yield Sample(cls((0, 3), 0.0, f32), (), "empty")
        yield Sample(cls((3,), True, bool_), (), "bool")
        yield Sample(cls((2,), -0.0, f32), (), "-0")
        yield Sample(cls((2,), float("nan"), f32), (), "NaN")
        yield Sample(cls((2,), float("-inf"), f32), (), "inf")
        yield Sample(cls((2,), 2**64 - 1, dtype_of("u64")), (), "u64")


def check_fill(name: str, value: bool | int | float, dtype: DType) -> None:
    """Refuse an attribute that does not stand for an element of ``dtype``."""
    if dtype is bool_:
        fits = isinstance(value, bool)
    elif dtype.is_integer:
        low, high = integer_limits(dtype)
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    else:
        fits = dtype is not string and isinstance(value, int | float)
    require(
        fits,
        f"{name}: the value is not one of the dtype",
        expected=f"an element of {dtype}",
        found=repr(value),
    )


def as_attribute(value: bool | int | float, dtype: DType) -> bool | int | float:
    """A number as the attribute that stands for it in ``dtype``: bool, int or float.

    A number that the dtype cannot hold stays as it is, for the type rule to refuse.
    """
    if dtype is bool_:
        return bool(value) if value in (0, 1) else value
    if dtype.is_integer:
        return int(value) if isinstance(value, int) or value.is_integer() else value
    return float(value)


@function
def full(
    shape: Sequence[Dim],
    value: Operand,
    dtype: DType | str | None = None,
) -> Value:
    """``value``, a number or a scalar of the graph, everywhere; in its own dtype unless given."""
    if not isinstance(value, bool | int | float):
        scalar = shape_ops.one_value(value)
        typed = scalar if dtype is None else cast_to(scalar, dtype_of(dtype))
        return shape_ops.expand(typed, tuple(shape))
    chosen = _natural_dtype(value) if dtype is None else dtype_of(dtype)
    return apply(Full(tuple(shape), as_attribute(value, chosen), chosen))


def _natural_dtype(value: bool | int | float) -> DType:
    if isinstance(value, bool):
        return bool_
    return i64 if isinstance(value, int) else f32


@function
def zeros(shape: Sequence[Dim], dtype: DType | str = f32) -> Value:
    """Zeros."""
    return full(shape, 0, dtype)


@function
def ones(shape: Sequence[Dim], dtype: DType | str = f32) -> Value:
    """Ones."""
    return full(shape, 1, dtype)


@function
def full_like(x: Operand, value: Operand, dtype: DType | str | None = None) -> Value:
    """``value`` everywhere in the shape of ``x``, in its dtype unless another is given."""
    like = shape_ops.one_value(x)
    with like.graph.as_current():
        return full(like.shape, value, like.dtype if dtype is None else dtype)


@function
def zeros_like(x: Operand, dtype: DType | str | None = None) -> Value:
    """Zeros in the shape of ``x``."""
    return full_like(x, 0, dtype)


@function
def ones_like(x: Operand, dtype: DType | str | None = None) -> Value:
    """Ones in the shape of ``x``."""
    return full_like(x, 1, dtype)


@function
def arange(
    start: Dim | float,
    stop: Dim | float | None = None,
    step: int | float = 1,
    dtype: DType | str | None = None,
) -> Value:
    """``start``, ``start + step``… up to, not including, ``stop``; from 0 if one bound is given."""
    first, last = (0, start) if stop is None else (start, stop)
    require(step != 0, "arange: the step is zero", expected="a step that moves", found=step)
    if isinstance(first, float) or isinstance(last, float) or isinstance(step, float):
        return _float_range(first, last, step, dtype_of(f32 if dtype is None else dtype))
    distance = last - first if step > 0 else first - last
    size = dim_max((distance + abs(step) - 1) // abs(step), 0)
    chosen = dtype_of(i64 if dtype is None else dtype)
    ramp = iota((size,), 0, chosen)
    scaled = ramp if step == 1 else elementwise.multiply(ramp, step)
    if first == 0:
        return scaled
    offset = first if isinstance(first, int) else cast_to(dim(first), chosen)
    return elementwise.add(scaled, offset)


def _float_range(first: Dim | float, last: Dim | float, step: float, dtype: DType) -> Value:
    if isinstance(first, SymbolicDim) or isinstance(last, SymbolicDim):
        raise TypeRuleError(
            "arange: symbolic bounds count in integers",
            expected="an int or dimension for start, stop and step",
            found=f"{first}, {last}, {step}",
        )
    size = max(math.ceil((last - first) / step), 0)
    ramp = iota((size,), 0, f64)
    return cast_to(elementwise.add(elementwise.multiply(ramp, float(step)), float(first)), dtype)


@function
def linspace(start: float, stop: float, num: Dim, dtype: DType | str = f32) -> Value:
    """``num`` numbers evenly spaced from ``start`` to ``stop``, both included."""
    ramp = iota((num,), 0, f64)
    gaps = dim_max(num - 1, 1)
    count = float(gaps) if isinstance(gaps, int) else cast_to(dim(gaps), f64)
    fraction = elementwise.divide(ramp, count)
    inner = fraction * (float(stop) - float(start)) + float(start)
    # The last is exactly `stop`, whatever the rounding of the difference.
    exact = elementwise.where(elementwise.equal(fraction, 1.0), float(stop), inner)
    return cast_to(exact, dtype_of(dtype))


@function
def eye(
    rows: Dim, columns: Dim | None = None, diagonal: int = 0, dtype: DType | str = f32
) -> Value:
    """Ones on a diagonal, moved up by ``diagonal``, and zeros elsewhere."""
    shape = (rows, rows if columns is None else columns)
    row = elementwise.add(iota(shape, 0), diagonal)
    return cast_to(elementwise.equal(row, iota(shape, 1)), dtype_of(dtype))
