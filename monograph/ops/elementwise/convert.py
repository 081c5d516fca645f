"""Changing what an element is: cast between dtypes, complex numbers and their parts."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from monograph.ir.build import (
    Operand,
    Tracer,
    apply,
    as_operands,
    cast_to,
    graph_of,
    promote_operands,
)
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import (
    Array,
    DType,
    Kind,
    TensorType,
    bool_,
    c64,
    c128,
    dtype_of,
    f32,
    f64,
    string,
)
from monograph.ops import reduce
from monograph.ops.elementwise.base import (
    ANYTHING,
    COMPLEX,
    ELEMENTWISE,
    FLOATS,
    Binary,
    Unary,
    complex_operand,
    limits,
    require_kind,
)
from monograph.ops.rules import require


@op("cast", traits=ELEMENTWISE | Trait.KEEPS_AXES)
class Cast(Op):
    """The same number in another dtype, the same on every machine.

    - float to integer: truncates towards zero, saturates at the ends of the range, NaN gives 0;
    - integer to integer: keeps the low bits (wraps);
    - anything to bool: whether it is not 0 (NaN is true);
    - to a float: rounds to nearest, ties to even. What is too large becomes infinite, or NaN where
      the type has no infinity (``f8e4m3fn`` and the ``fnuz`` kinds). ``f4e2m1fn`` has neither: it
      saturates at ±6 and holds NaN as zero. ``f8e8m0fnu`` holds powers of two alone: zero and
      negative numbers become NaN;
    - real to complex: the imaginary part is 0. The other way is refused: take ``real`` or ``abs``;
    - strings to numbers, as Python reads them, and back in eight digits, as ONNX Runtime writes
      them: ``1``, ``0.33333333``, ``1e+10``, ``NaN``, ``-INF``; a bool is ``1`` or ``0``.
    """

    dtype: DType

    def infer(self, x: TensorType) -> TensorType:
        require_kind(self.name, ANYTHING, x)
        drops_imaginary = x.dtype.is_complex and self.dtype.kind not in (Kind.COMPLEX, Kind.BOOL)
        require(
            not drops_imaginary,
            "cast: a complex number has two parts",
            expected=f"real(x), imag(x) or abs(x) before the cast to {self.dtype}",
            found=x,
        )
        from_text = x.dtype is string and self.dtype.kind in (Kind.COMPLEX, Kind.BOOL)
        to_text = self.dtype is string and x.dtype.is_complex
        require(
            not (from_text or to_text),
            "cast: strings hold real numbers",
            expected="an integer or float dtype",
            found=f"{x} to {self.dtype}",
        )
        return x.with_dtype(self.dtype)

    def evaluate(self, x: Array) -> Any:
        if x.dtype == object:
            return _from_text(x, self.dtype)
        if self.dtype is string:
            return _to_text(x)
        if self.dtype is bool_:
            return np.not_equal(x, 0)
        if self.dtype.is_integer and dtype_of(x.dtype).is_float:
            return _saturate(x, self.dtype)
        return x.astype(self.dtype.numpy)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return b.cast(b.read(0, index), self.dtype)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        if not (x.dtype.is_differentiable and self.dtype.is_differentiable):
            return (None,)
        real_to_complex = grad.dtype.is_complex and not x.dtype.is_complex
        return (cast(real(grad) if real_to_complex else grad, x.dtype),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
        for dtype in ("f64", "f16", "bf16", "f8e4m3fn", "f8e5m2", "f4e2m1fn", "c64", "bool", "i4"):
            yield Sample(cls(dtype_of(dtype)), (x * 3,), f"f32 to {dtype}", dtype == "f64")
        edges = np.array([np.nan, np.inf, -np.inf, -0.0, 0.5, -1.5, 2.5, 3e9, -3e9, 1e20])
        for dtype in ("i64", "i32", "i8", "u64", "u8", "u4", "i2", "bool", "f32", "f16", "f8e5m2"):
            yield Sample(cls(dtype_of(dtype)), (edges,), f"edges to {dtype}", False)
        integers = np.array([-(2**31), -129, -1, 0, 1, 127, 300, 2**31 - 1], np.int32)
        for dtype in ("i8", "u8", "i4", "u2", "u32", "i64", "f32", "f16", "bool", "c128"):
            yield Sample(cls(dtype_of(dtype)), (integers,), f"i32 to {dtype}", False)
        packed = integers.astype(ml_dtypes.int4)
        yield Sample(cls(f32), (packed,), "i4 to f32", False)
        yield Sample(cls(f32), (np.array([False, True]),), "bool to f32", False)
        yield Sample(cls(f64), (np.full((), 1.5, np.float32),), "scalar")
        yield Sample(cls(f64), (x[:0],), "empty", False)
        yield Sample(cls(f64), (x.T[::-2],), "strided")


def _saturate(x: Array, dtype: DType) -> Array:
    """Floats as integers: truncated, held within the range, NaN as 0."""
    low, high = map(int, limits(dtype))
    whole = np.trunc(x.astype(np.float64))
    inside = (whole >= float(low)) & (whole < float(high + 1))  # both powers of two: exact
    widest = np.int64 if low < 0 else np.uint64
    result = np.where(inside, whole, 0.0).astype(widest)
    result = np.where(whole >= float(high + 1), widest(high), result)
    return np.where(whole < float(low), widest(low), result).astype(dtype.numpy)


def _from_text(x: Array, dtype: DType) -> Array:
    if dtype.is_integer:
        return x.astype(np.int64 if dtype.kind is Kind.SIGNED else np.uint64).astype(dtype.numpy)
    return x if dtype is string else x.astype(np.float64).astype(dtype.numpy)


def _to_text(x: Array) -> Array:
    if dtype_of(x.dtype).is_float:
        texts = [f"{float(each):.8g}" for each in x.reshape(-1)]
        known = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}
        return np.array([known.get(text, text) for text in texts], object).reshape(x.shape)
    return (x.astype(np.uint8) if x.dtype == np.bool_ else x).astype(np.str_).astype(object)


@function
def cast(x: Operand, dtype: DType | str) -> Value:
    """``x`` in another dtype; itself if it already has it."""
    if isinstance(x, Tracer):
        return apply(Cast(dtype_of(dtype)), x)
    (value,) = as_operands(graph_of([x]), [x])
    return cast_to(value, dtype_of(dtype))


def real_part_dtype(dtype: DType) -> DType:
    """The float that the parts of a complex dtype are."""
    return f64 if dtype is c128 else f32


COMPLEX_EDGES = np.array([builtins.complex(np.nan, -0.0), builtins.complex(-np.inf, np.inf)])


class Part(Unary):
    """A real part of a complex number."""

    kinds: ClassVar[frozenset[Kind]] = COMPLEX

    def infer(self, x: TensorType) -> TensorType:
        """The float of half the width."""
        return super().infer(x).with_dtype(real_part_dtype(x.dtype))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Complex matrices, strided and empty."""
        yield from _complex_samples(cls())


def _complex_samples(op_: Op) -> Iterator[Sample]:
    x = complex_operand()
    yield Sample(op_, (x,), "c64", False)
    yield Sample(op_, (x.astype(np.complex128).T[::2],), "c128, strided", False)
    yield Sample(op_, (x[0, 0].reshape(()),), "scalar", False)
    yield Sample(op_, (x[:0],), "empty", False)
    yield Sample(op_, (COMPLEX_EDGES,), "edges", False)


@op("real", traits=ELEMENTWISE)
class Real(Part):
    """The real part."""

    def evaluate(self, x: Array) -> Any:
        return np.real(x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (cast(grad, node.operands[0].dtype),)


@function
def real(x: Operand) -> Value:
    """The real part; a real number is its own."""
    return _unless_real(Real(), x)


@op("imag", traits=ELEMENTWISE)
class Imag(Part):
    """The imaginary part."""

    def evaluate(self, x: Array) -> Any:
        return np.imag(x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (cast(grad, node.operands[0].dtype) * 1j,)


@function
def imag(x: Operand) -> Value:
    """The imaginary part of a complex number."""
    return apply(Imag(), x)


@op("conj", traits=ELEMENTWISE | Trait.INVOLUTION)
class Conj(Unary):
    """The complex conjugate."""

    kinds: ClassVar[frozenset[Kind]] = COMPLEX

    def evaluate(self, x: Array) -> Any:
        return np.conj(x)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (conj(grad),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield from _complex_samples(cls())


@function
def conj(x: Operand) -> Value:
    """The complex conjugate; a real number is its own."""
    return _unless_real(Conj(), x)


def _unless_real(op_: Op, x: Operand) -> Value:
    if isinstance(x, Tracer):
        return apply(op_, x)
    (value,) = as_operands(graph_of([x]), [x])
    return apply(op_, value) if value.dtype.is_complex else value


@op("complex", traits=ELEMENTWISE)
class Complex(Binary):
    """a + bi from two floats: c64 from f32, c128 from f64."""

    kinds: ClassVar[frozenset[Kind]] = FLOATS

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        own = super().infer(a, b)
        require(
            own.dtype in (f32, f64),
            "complex: there is no complex number of such parts",
            expected="f32 or f64",
            found=a,
        )
        return own.with_dtype(c64 if own.dtype is f32 else c128)

    def evaluate(self, a: Array, b: Array) -> Any:
        a, b = np.broadcast_arrays(a, b)
        result = np.empty(a.shape, np.complex64 if a.dtype == np.float32 else np.complex128)
        result.real, result.imag = a, b
        return result

    def vjp(self, node: Node, grad: Value) -> Gradients:
        a, b = node.operands
        return reduce.sum_to(real(grad), a.shape), reduce.sum_to(imag(grad), b.shape)


@function
def complex(a: Operand, b: Operand) -> Value:
    """a + bi; parts narrower than f32, and integers, become f32 first."""
    if isinstance(a, Tracer) or isinstance(b, Tracer):
        return apply(Complex(), a, b)
    parts = promote_operands(a, b)
    return apply(Complex(), *(part if part.dtype is f64 else cast_to(part, f32) for part in parts))


@op("stop_gradient", traits=ELEMENTWISE | Trait.IDEMPOTENT)
class StopGradient(Op):
    """The operand itself, through which no gradient flows."""

    def infer(self, x: TensorType) -> TensorType:
        return x

    def evaluate(self, x: Array) -> Any:
        return x

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (None,)

    def decompose(self, x: Value) -> Value:
        return x

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls(), (np.arange(6, dtype=np.float32).reshape(2, 3),), "", False)
        yield Sample(cls(), (np.arange(3),), "i64", False)
        yield Sample(cls(), (np.full((), 1.0, np.float32),), "scalar", False)


@function
def stop_gradient(x: Operand) -> Value:
    """``x``, as a constant to differentiation."""
    return apply(StopGradient(), x)
