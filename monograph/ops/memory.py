"""Memory: where tensors live and for how long. These ops appear when memory is planned.

The graph stays functional: a ``copy`` is the same tensor in other memory, an ``alloc`` is a tensor
whose contents nobody has written yet, and ``free`` says that nobody reads a tensor any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.build import Operand, apply, apply_many
from monograph.ir.data import unpack
from monograph.ir.dims import Dim, Shape, is_static, provably_less
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Family, Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, Device, DType, TensorType, bool_, dtype_of, f4e2m1fn, f32
from monograph.ir.types import string as string_dtype
from monograph.ops.rules import format_shape, require

UNWRITTEN_BYTE = 0xAB
"""The byte that fills memory which nobody has written; floats are NaN instead, bools true."""


@op("copy", family=Family.MEMORY)
class Copy(Op):
    """The same elements in memory of their own, row-major."""

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(x.dtype, x.shape, None, x.device, x.quantization)

    def evaluate(self, x: Array) -> Array:
        return np.array(x, order="C")

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return b.read(0, index)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (grad,)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        yield Sample(cls(), (x,))
        yield Sample(cls(), (x[::2, ::-1],), "strided")
        yield Sample(cls(), (np.asarray(True),), "bool scalar")
        yield Sample(cls(), (x[:0],), "empty", False)


@function
def copy(x: Operand) -> Value:
    """``x`` in memory of its own."""
    return apply(Copy(), x)


@op("alloc", family=Family.MEMORY, traits=Trait.EFFECT)
class Alloc(Op):
    """A tensor whose contents are not written yet: never merged with another.

    The interpreter fills it so that reading it shows: floats with NaN, integers with the byte
    0xAB, bools with true. It is never zeros.
    """

    shape: Shape
    dtype: DType = f32
    device: Device | None = None

    def infer(self) -> TensorType:
        require(
            not any(provably_less(dim, 0) for dim in self.shape),
            "alloc: a dimension is negative",
            expected="sizes of at least 0",
            found=format_shape(self.shape),
        )
        require(
            self.dtype is not string_dtype,
            "alloc: strings have no fixed size",
            expected="a number type or bool",
            found=self.dtype,
        )
        return TensorType(self.dtype, self.shape, device=self.device)

    def evaluate(self) -> Array:
        if not is_static(self.shape):
            raise EvaluationError("alloc: a symbol has no value", found=format_shape(self.shape))
        return unwritten(self.shape, self.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls((2, 3)), ())
        yield Sample(cls((), dtype_of("i32")), (), "scalar")
        yield Sample(cls((0, 3), dtype_of("bf16")), (), "empty")
        yield Sample(cls((3,), dtype_of("i4")), (), "packed")


@function
def alloc(
    shape: Sequence[Dim], dtype: DType | str = f32, device: Device | str | None = None
) -> Value:
    """A tensor that nobody has written yet."""
    return apply(Alloc(tuple(shape), dtype_of(dtype), as_device(device)))


@op("free", family=Family.MEMORY, traits=Trait.EFFECT)
class Free(Op):
    """The end of a tensor's life: its memory may be used again. It has no results."""

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return ()

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return ()

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls(), (np.ones((2, 3), np.float32),), "", False)
        yield Sample(cls(), (np.asarray(1),), "scalar", False)


@function
def free(x: Operand) -> None:
    """Declare that ``x`` is read no more."""
    apply_many(Free(), x)


@op("to_device", family=Family.MEMORY)
class ToDevice(Op):
    """The same elements on a device; on no particular one if it is none."""

    device: Device | None

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(x.dtype, x.shape, x.layout, self.device, x.quantization)

    def evaluate(self, x: Array) -> Array:
        return x

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return b.read(0, index)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (to_device(grad, node.operands[0].tensor.device),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        yield Sample(cls(Device("gpu", 1)), (x,))
        yield Sample(cls(Device("cpu")), (x.T,), "strided")
        yield Sample(cls(None), (np.asarray(1.0, np.float32),), "nowhere")
        yield Sample(cls(Device("gpu")), (x[:0],), "empty", False)


@function
def to_device(x: Operand, device: Device | str | None) -> Value:
    """``x`` on a device: ``to_device(x, "gpu:1")``."""
    return apply(ToDevice(as_device(device)), x)


def as_device(spelling: Device | str | None) -> Device | None:
    """The device that a caller means: ``"gpu:1"``, or ``"gpu"`` for the first."""
    if not isinstance(spelling, str):
        return spelling
    kind, colon, index = spelling.partition(":")
    require(
        kind.isidentifier() and (not colon or (index.isascii() and index.isdecimal())),
        f"{spelling!r} is not a device",
        expected="a kind and a number, such as cpu or gpu:1",
        found=spelling,
    )
    return Device(kind, int(index or 0))


def unwritten(shape: tuple[int, ...], dtype: DType) -> Array:
    """An array that shows that nobody has written it."""
    if dtype.is_differentiable and dtype is not f4e2m1fn:
        return np.full(shape, np.nan).astype(dtype.numpy)
    if dtype is bool_:
        return np.ones(shape, np.bool_)
    count = int(np.prod(shape, dtype=np.int64))
    if dtype.is_packed:
        packed = np.full(-(-count * dtype.bits // 8), UNWRITTEN_BYTE, np.uint8)
        return unpack(packed, dtype, shape)
    filled = np.full(count * dtype.numpy.itemsize, UNWRITTEN_BYTE, np.uint8)
    return filled.view(dtype.numpy).reshape(shape)
