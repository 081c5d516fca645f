"""Bits seen as elements of another dtype."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.build import Operand, apply
from monograph.ir.dims import Dim, provably_different
from monograph.ir.graph import Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import (
    Array,
    DType,
    Kind,
    TensorType,
    bool_,
    dtype_of,
    f32,
    f64,
    i32,
    u8,
    u16,
    u32,
    u64,
)
from monograph.ops.rules import require


@op("bitcast", traits=Trait.STORAGE)
class Bitcast(Op):
    """The same bits as elements of another dtype, the lowest first; a NaN keeps its payload.

    Where the widths differ, the last dimension grows or shrinks: ``f32[3]`` is ``u8[12]``. Types
    under eight bits and strings have no bits of their own.
    """

    dtype: DType

    def infer(self, x: TensorType) -> TensorType:
        for dtype in (x.dtype, self.dtype):
            require(
                not dtype.is_packed and dtype.kind is not Kind.STRING,
                "bitcast: this dtype has no whole bytes",
                expected="a dtype of 8 bits or more",
                found=dtype,
            )
        if x.dtype.bits == self.dtype.bits:
            return x.with_dtype(self.dtype)
        require(
            x.rank > 0,
            "bitcast: a scalar cannot change its width",
            expected=f"a dtype of {x.dtype.bits} bits",
            found=self.dtype,
        )
        return x.with_shape((*x.shape[:-1], self._last(x))).with_dtype(self.dtype)

    def _last(self, x: TensorType) -> Dim:
        bits = x.shape[-1] * x.dtype.bits
        require(
            not provably_different(bits % self.dtype.bits, 0),
            "bitcast: the last dimension does not divide",
            expected=f"a multiple of {self.dtype.bits} bits",
            found=x,
        )
        return bits // self.dtype.bits

    def evaluate(self, x: Array) -> Array:
        target = self.dtype.numpy
        source = np.ascontiguousarray(x).reshape(x.shape)
        if target.itemsize > source.dtype.itemsize and x.shape[-1] % (
            target.itemsize // source.dtype.itemsize
        ):
            raise EvaluationError("bitcast: the last dimension does not divide", found=str(x.shape))
        return source.view(target)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        """A narrower element is cut out of a wider one; a wider one is put together of narrower."""
        source, target = b.operands[0].dtype, self.dtype
        if source.bits == target.bits:
            return _from_bits(b, _bits(b, index), target)
        if source.bits > target.bits:
            count = source.bits // target.bits
            part = b.cast((index[-1] % count) * target.bits, _UNSIGNED[source.bits])
            whole = _bits(b, [*index[:-1], index[-1] // count])
            return _from_bits(b, b.apply("shift_right", whole, part), target)
        count, unsigned = target.bits // source.bits, _UNSIGNED[target.bits]
        joined = b.literal(0, unsigned)
        for place in range(count):
            part = b.cast(_bits(b, [*index[:-1], index[-1] * count + place]), unsigned)
            moved = b.apply("shift_left", part, b.literal(place * source.bits, unsigned))
            joined = b.apply("bitwise_or", joined, moved)
        return _from_bits(b, joined, target)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.array([[1.5, -0.0, np.nan], [np.inf, 1e-42, -2.0]], np.float32)
        yield Sample(cls(u32), (x,), "", False)
        yield Sample(cls(i32), (x[:, ::2],), "strided", False)
        yield Sample(cls(u8), (x,), "narrower", False)
        yield Sample(cls(f64), (np.arange(8, dtype=np.float32).reshape(2, 4),), "wider", False)
        yield Sample(cls(f32), (np.array(0x3FC00000, np.int32),), "scalar", False)
        yield Sample(cls(u16), (x[:0],), "empty", False)


_UNSIGNED = {8: u8, 16: u16, 32: u32, 64: u64}


def _bits(b: Lowering, index: Position) -> Scalar:
    """The bits of an element, as an unsigned integer."""
    element, unsigned = b.stored(0, index), _UNSIGNED[b.operands[0].dtype.bits]
    if element.dtype is bool_:
        return b.cast(element, unsigned)
    return element if element.dtype is unsigned else b.apply("bitcast", element, dtype=unsigned)


def _from_bits(b: Lowering, bits: Scalar, dtype: DType) -> Scalar:
    """The element of ``dtype`` that the lowest bits are."""
    unsigned = _UNSIGNED[dtype.bits]
    lowest = b.cast(bits, unsigned)
    if dtype is bool_:
        return b.cast(lowest, bool_)
    return lowest if dtype is unsigned else b.apply("bitcast", lowest, dtype=dtype)


@function
def bitcast(x: Operand, dtype: DType | str) -> Value:
    """The bits of ``x`` as elements of another dtype; the last dimension changes with the width."""
    return apply(Bitcast(dtype_of(dtype)), x)
