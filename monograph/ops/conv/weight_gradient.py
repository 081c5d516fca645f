"""The gradient of a convolution by its weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.ir.build import apply
from monograph.ir.dims import Shape
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.types import Array, TensorType
from monograph.ops import shape as shape_ops
from monograph.ops.conv import convolution
from monograph.ops.conv.parts import (
    check_operands,
    cut_to,
    draw,
    group_channels,
    group_of,
    if_inside,
    require_multiple,
    window_patches,
)
from monograph.ops.rules import require, same_dim
from monograph.ops.windows import Pairs, Windows


@op("conv_weight_gradient", traits=Trait.CONTRACTION)
class ConvWeightGradient(Op):
    """The gradient of ``conv`` by its weight, [outputs, channels / groups, *kernel].

    Every tap of the kernel gets the product of ``grad`` with the elements of ``x`` that it met,
    summed over batch and windows. It is a convolution of x by grad with batch and channels
    exchanged, and stride and dilation too.
    """

    kernel: Shape
    stride: tuple[int, ...]
    padding: Pairs
    dilation: tuple[int, ...]
    groups: int = 1

    def infer(self, x: TensorType, grad: TensorType) -> TensorType:
        check_operands(self.name, x, grad, None, self.groups)
        require(
            len(self.kernel) == x.rank - 2,
            "conv_weight_gradient: kernel does not fit",
            expected=f"{x.rank - 2} sizes, one a spatial dimension",
            found=self.kernel,
        )
        windows = self.windows()
        windows.check(self.name)
        same_dim(self.name, "the batches of x and grad", x.shape[0], grad.shape[0])
        require_multiple(self.name, "channels", x.shape[1], self.groups)
        require_multiple(self.name, "output channels", grad.shape[1], self.groups)
        for count, size in zip(windows.counts(self.name, x.shape[2:]), grad.shape[2:], strict=True):
            same_dim(self.name, "the number of windows and the size of grad", count, size)
        return x.with_shape((grad.shape[1], x.shape[1] // self.groups, *self.kernel))

    def windows(self) -> Windows:
        """Where the windows of the convolution lay."""
        return Windows(self.kernel, self.stride, self.padding, self.dilation)

    def evaluate(self, x: Array, grad: Array) -> Array:
        kernel, _ = self.windows().static(x.shape[2:])
        patches = window_patches(x, self.windows(), self.groups)
        outputs = group_channels(grad, self.groups)
        taps = np.matmul(outputs.swapaxes(1, 2), patches)  # [group, outputs, channels * kernel]
        return np.asarray(taps.reshape(grad.shape[1], x.shape[1] // self.groups, *kernel))

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        """What each tap saw, times the gradient of what it made there."""
        x, grad = b.operands[0].shape, b.operands[1].shape
        windows = self.windows()
        output, own, *taps = index
        group = group_of(b, output, grad[1], self.groups)
        channel = group * (x[1] // self.groups) + own

        def product(along: Position) -> Scalar:
            batch, *places = along
            inside, positions = windows.lower(b, places, taps, x[2:], b.border(0)[2:])
            element = b.read(0, [batch, channel, *positions])
            return if_inside(b, inside, element, b.read(1, [batch, output, *places]))

        return b.reduce("sum", (grad[0], *grad[2:]), product)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x, outputs = node.operands
        forward = convolution.Conv(self.stride, self.padding, self.dilation, self.groups)
        return forward.by_operand(x, grad, outputs), apply(forward, x, grad)

    def decompose(self, x: Value, grad: Value) -> Value:
        batch, channels, *sizes = x.shape
        spatial = tuple(range(3, x.rank + 1))
        grouped = shape_ops.reshape(x, (batch, self.groups, channels // self.groups, *sizes))
        images = shape_ops.reshape(
            shape_ops.transpose(grouped, (2, 1, 0, *spatial)),
            (channels // self.groups, self.groups * batch, *sizes),
        )
        exchanged = (1, 0, *range(2, x.rank))
        filters = shape_ops.transpose(grad, exchanged)
        taps = apply(
            convolution.Conv(self.dilation, self.padding, self.stride, self.groups), images, filters
        )
        whole = shape_ops.transpose(taps, exchanged)
        return cut_to(whole, (grad.shape[1], channels // self.groups, *self.kernel))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for sample in convolution.Conv.samples():
            conv_ = sample.apply
            if not isinstance(conv_, convolution.Conv) or sample.note in ("bias", "i32"):
                continue
            x, weight = sample.operands[:2]
            _, counts = conv_.windows(weight.shape[2:]).static(x.shape[2:])
            gradient = cls(
                weight.shape[2:], conv_.stride, conv_.padding, conv_.dilation, conv_.groups
            )
            grad = draw(x.shape[0], weight.shape[0], *counts)
            yield Sample(gradient, (x, grad), sample.note, gradient=sample.gradient)
