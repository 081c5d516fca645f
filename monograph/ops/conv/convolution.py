"""Convolution in one to three dimensions.

The three ops of the family are each other's gradients: they know one another by their modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from monograph.ir.build import Operand, apply, promote_operands
from monograph.ir.dims import Shape
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType
from monograph.ops import shape as shape_ops
from monograph.ops.conv import transpose, weight_gradient
from monograph.ops.conv.parts import (
    channels_back,
    check_operands,
    check_ranks,
    cut_to,
    draw,
    exact_matmul,
    group_of,
    if_inside,
    per_channel,
    require_multiple,
    sum_to_channels,
    window_patches,
    with_bias,
)
from monograph.ops.rules import same_dim
from monograph.ops.windows import Padding, Pairs, PerAxis, Windows, as_padding, per_axis


@op("conv", traits=Trait.CONTRACTION)
class Conv(Op):
    """Each output channel slides its weights over the input channels of its group and adds up.

    ``x`` is [batch, channels, *spatial], ``weight`` [outputs, channels / groups, *kernel], ``bias``
    [outputs]. The kernel is not flipped. Padding is with zeros.
    """

    stride: tuple[int, ...]
    padding: Pairs
    dilation: tuple[int, ...]
    groups: int = 1

    def infer(
        self, x: TensorType, weight: TensorType, bias: TensorType | None = None
    ) -> TensorType:
        check_operands(self.name, x, weight, bias, self.groups)
        windows = self.windows(weight.shape[2:])
        windows.check(self.name)
        outputs = weight.shape[0]
        same_dim(
            self.name,
            "the channels of x and groups * weight dimension 1",
            x.shape[1],
            weight.shape[1] * self.groups,
        )
        require_multiple(self.name, "output channels", outputs, self.groups)
        if bias is not None:
            same_dim(self.name, "the output channels and the bias", outputs, bias.shape[0])
        counts = windows.counts(self.name, x.shape[2:])
        return x.with_shape((x.shape[0], outputs, *counts))

    def windows(self, kernel: Shape) -> Windows:
        """Where the windows lie for a kernel of this size."""
        return Windows(kernel, self.stride, self.padding, self.dilation)

    def evaluate(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        windows = self.windows(weight.shape[2:])
        _, counts = windows.static(x.shape[2:])
        patches = window_patches(x, windows, self.groups)
        per_group = weight.shape[0] // self.groups
        rows = weight.reshape(self.groups, per_group, prod(weight.shape[1:]))
        outputs = exact_matmul(patches, rows.swapaxes(1, 2))  # [group, batch * windows, outputs]
        y = channels_back(outputs, x.shape[0], counts)
        return y if bias is None else y + per_channel(bias, y.ndim)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        x, weight = b.operands[0].shape, b.operands[1].shape
        windows = self.windows(weight[2:])
        batch, output, *counts = index
        group = group_of(b, output, weight[0], self.groups)

        def product(along: Position) -> Scalar:
            channel, *taps = along
            inside, places = windows.lower(b, counts, taps, x[2:], b.border(0)[2:])
            element = b.read(0, [batch, group * weight[1] + channel, *places])
            return if_inside(b, inside, element, b.read(1, [output, channel, *taps]))

        return with_bias(b, b.reduce("sum", weight[1:], product), output)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x, weight, *bias = node.operands
        by_weight = apply(
            weight_gradient.ConvWeightGradient(
                weight.shape[2:], self.stride, self.padding, self.dilation, self.groups
            ),
            x,
            grad,
        )
        by_bias = [sum_to_channels(grad)] if bias else []
        whole = shape_ops.reshape(by_weight, weight.shape)
        return self.by_operand(x, weight, grad), whole, *by_bias

    def by_operand(self, x: Value, weight: Value, grad: Value) -> Value:
        """The transposed convolution that undoes this one's shape, whatever the stride left over.

        Where the rest is not known to be some integer, the result is made a little too long and
        cut.
        """
        windows = self.windows(weight.shape[2:])
        slacks = [windows.slack(axis, size) for axis, size in enumerate(x.shape[2:])]
        output_padding = tuple(
            slack % stride if isinstance(slack, int) else stride - 1
            for slack, stride in zip(slacks, self.stride, strict=True)
        )
        transposed = transpose.ConvTranspose(
            self.stride, self.padding, output_padding, self.dilation, self.groups
        )
        return cut_to(apply(transposed, grad, weight), x.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def case(
            x: tuple[int, ...], weight: tuple[int, ...], conv: Conv, note: str, bias: bool = False
        ) -> Sample:
            operands = [draw(*x), draw(*weight)] + ([draw(weight[0])] if bias else [])
            return Sample(conv, tuple(operands), note, gradient=0 not in x)

        none = (0, 0)
        plain = cls((1, 1), (none, none), (1, 1))
        yield case((2, 3, 5, 6), (4, 3, 3, 2), plain, "")
        yield case((2, 3, 5, 6), (4, 3, 3, 2), plain, "bias", bias=True)
        yield case((2, 2, 7), (3, 2, 3), cls((2,), ((1, 1),), (1,)), "1-d, stride 2", bias=True)
        yield case((1, 2, 8, 7), (2, 2, 3, 3), cls((3, 2), ((1, 2), none), (1, 1)), "a rest")
        yield case((1, 2, 9, 9), (2, 2, 3, 2), cls((2, 1), ((2, 2), (0, 1)), (2, 3)), "dilated")
        yield case((2, 4, 5, 5), (6, 2, 3, 3), cls((1, 1), ((1, 1),) * 2, (1, 1), 2), "groups")
        yield case((2, 3, 6, 5), (3, 1, 3, 3), cls((2, 2), ((1, 1),) * 2, (1, 1), 3), "depthwise")
        yield case((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), cls((1,) * 3, (none,) * 3, (1,) * 3), "3-d")
        yield case((2, 3, 4, 4), (5, 3, 1, 1), cls((2, 2), (none, none), (1, 1)), "pointwise")
        yield case((1, 1, 2, 2), (1, 1, 2, 2), cls((1, 1), ((3, 3),) * 2, (1, 1)), "wide padding")
        yield case((0, 3, 5, 5), (4, 3, 3, 3), plain, "no batch")
        yield case((2, 3, 2, 5), (4, 3, 3, 3), plain, "no window")
        strided = (draw(2, 6, 10)[:, ::2, ::-1], draw(2, 4, 3).swapaxes(1, 2))
        yield Sample(cls((2,), ((1, 0),), (1,)), strided, "strided")
        integers = np.arange(-9, 9, dtype=np.int32)
        operands = (integers.reshape(1, 2, 3, 3), integers[:8].reshape(1, 2, 2, 2))
        yield Sample(plain, operands, "i32")


@function
def conv(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Value:
    """Convolution of x[batch, channels, *spatial] with weight[outputs, channels/groups, *kernel].

    ``padding`` is an int, one int or (low, high) pair for each spatial dimension, ``"valid"`` or
    ``"same"`` (the odd element at the high end).
    """
    operands = promote_operands(*(item for item in (x, weight, bias) if item is not None))
    check_ranks("conv", *(operand.tensor for operand in operands[:2]))
    spatial, kernel = operands[0].shape[2:], operands[1].shape[2:]
    strides = per_axis("conv", "stride", stride, len(spatial))
    dilations = per_axis("conv", "dilation", dilation, len(spatial))
    pairs = as_padding("conv", padding, spatial, kernel, strides, dilations)
    return apply(Conv(strides, pairs, dilations, groups), *operands)
