"""Convolution of 8-bit integers, whose products are summed exactly in 32 bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.ir.build import apply, cast_to
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Op, Sample, Trait, op
from monograph.ir.types import Array, DType, TensorType, i8, i32, u8
from monograph.ops import elementwise, reduce
from monograph.ops import shape as shape_ops
from monograph.ops.conv.convolution import Conv
from monograph.ops.conv.parts import group_of, per_channel
from monograph.ops.rules import require

BYTES: tuple[DType, ...] = (i8, u8)
"""What images and weights are stored in."""


@op("integer_conv", traits=Trait.CONTRACTION)
class IntegerConv(Conv):
    """``conv`` of bytes: sums in i32, and ``padding_value`` around the image instead of zeros.

    A quantized image is padded with its zero point, the byte that stands for the number 0. The
    operands stay as they are stored, so that a target may multiply several bytes at a time.
    """

    def infer(  # type: ignore[override]  # the third operand is another one, and needed
        self, x: TensorType, weight: TensorType, padding_value: TensorType
    ) -> TensorType:
        for name, operand in (("x", x), ("weight", weight)):
            require(
                operand.dtype in BYTES,
                f"{self.name}: {name} does not hold bytes",
                expected="i8 or u8",
                found=operand,
            )
        require(
            padding_value.dtype is x.dtype and padding_value.rank == 0,
            f"{self.name}: the padding is not an element of the image",
            expected=f"{x.dtype}[]",
            found=padding_value,
        )
        return super().infer(x.with_dtype(i32), weight.with_dtype(i32))

    def evaluate(self, x: Array, weight: Array, padding_value: Array) -> Array:  # type: ignore[override]
        around = padding_value.astype(np.int32)
        taps = weight.astype(np.int32)
        centred = super().evaluate(x.astype(np.int32) - around, taps)
        sums = taps.reshape(taps.shape[0], -1).sum(1, dtype=np.int32)
        return np.asarray(centred + around * per_channel(sums, centred.ndim))

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        x, weight = b.operands[0].shape, b.operands[1].shape
        windows = self.windows(weight[2:])
        batch, output, *counts = index
        group = group_of(b, output, weight[0], self.groups)

        def product(along: Position) -> Scalar:
            channel, *taps = along
            inside, places = windows.lower(b, counts, taps, x[2:], b.border(0)[2:])
            element = b.read(0, [batch, group * weight[1] + channel, *places])
            padded = b.select(inside, element, b.read(2, []))
            tap = b.read(1, [output, channel, *taps])
            return b.apply("multiply", b.cast(padded, i32), b.cast(tap, i32))

        return b.reduce("sum", weight[1:], product)

    def decompose(self, x: Value, weight: Value, padding_value: Value) -> Value:
        around, taps = cast_to(padding_value, i32), cast_to(weight, i32)
        plain = Conv(self.stride, self.padding, self.dilation, self.groups)
        centred = apply(plain, elementwise.subtract(cast_to(x, i32), around), taps)
        sums = reduce.sum(taps, tuple(range(1, taps.rank)))
        column = shape_ops.reshape(sums, (sums.shape[0], *(1,) * (taps.rank - 2)))
        return elementwise.add(centred, elementwise.multiply(around, column))

    def vjp(self, node: Node, grad: Value) -> tuple[Value | None, ...]:
        return Op.vjp(self, node, grad)  # type: ignore[no-any-return]  # integers have none

    @classmethod
    def is_differentiable(cls) -> bool:
        return False

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def case(
            x: tuple[int, ...], weight: tuple[int, ...], conv: Op, note: str, signed: bool = False
        ) -> Sample:
            generator = np.random.default_rng(sum(x) + sum(weight))
            low, dtype = (-128, np.int8) if signed else (0, np.uint8)
            image = generator.integers(low, low + 256, x).astype(dtype)
            taps = generator.integers(-128, 128, weight).astype(np.int8)
            return Sample(conv, (image, taps, np.asarray(low + 100, dtype)), note, gradient=False)

        none, one = (0, 0), (1, 1)
        plain = cls((1, 1), (none, none), (1, 1))
        same = cls((1, 1), (one, one), (1, 1))
        yield case((2, 8, 5, 6), (4, 8, 3, 2), plain, "")
        yield case((1, 16, 6, 7), (20, 16, 3, 3), same, "padded")
        yield case((1, 16, 6, 7), (20, 16, 3, 3), same, "signed", signed=True)
        yield case((1, 8, 7, 7), (40, 8, 1, 1), plain, "pointwise")
        yield case((1, 6, 7, 6), (5, 6, 3, 3), cls((2, 2), (one, one), (1, 1)), "stride 2")
        yield case((2, 20, 7, 9), (20, 1, 3, 3), cls((1, 1), (one,) * 2, (1, 1), 20), "depthwise")
        yield case((1, 8, 6, 6), (12, 4, 3, 3), cls((1, 1), (one,) * 2, (1, 1), 2), "groups")
        yield case((1, 4, 9), (3, 4, 3), cls((1,), ((2, 1),), (2,)), "1-d, dilated")
        yield case((0, 4, 5, 5), (4, 4, 3, 3), same, "no batch")
        extreme = (
            np.full((1, 64, 3, 3), 255, np.uint8),
            np.full((8, 64, 3, 3), -128, np.int8),
            np.asarray(255, np.uint8),
        )
        yield Sample(same, extreme, "largest sums", gradient=False)
