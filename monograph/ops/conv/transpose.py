"""Transposed convolution: each element adds its weights to a window.

The three ops of the family are each other's gradients: they know one another by their modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import gcd, prod

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.build import Operand, apply, promote_operands
from monograph.ir.dims import Dim, Shape, provably_less
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, bool_
from monograph.ops import shape as shape_ops
from monograph.ops import slicing
from monograph.ops.conv import convolution, weight_gradient
from monograph.ops.conv.parts import (
    check_operands,
    check_ranks,
    cut_to,
    draw,
    group_channels,
    group_of,
    if_inside,
    per_channel,
    require_multiple,
    sum_to_channels,
    with_bias,
)
from monograph.ops.data import static_sizes
from monograph.ops.rules import require, same_dim
from monograph.ops.windows import (
    Padding,
    Pairs,
    PerAxis,
    Windows,
    as_padding,
    per_axis,
    require_per_axis,
)


@dataclass(frozen=True)
class _Turns:
    """Taps ``first``, ``first + apart``, … of a transposed convolution, ``count`` of them."""

    first: Scalar
    apart: int
    count: Dim


@op("conv_transpose", traits=Trait.CONTRACTION)
class ConvTranspose(Op):
    """The transpose of the linear map that ``conv`` is: each element adds its weights to a window.

    ``x`` is [batch, channels, *spatial], ``weight`` [channels, outputs / groups, *kernel], ``bias``
    [outputs]. ``padding`` removes elements of the result; ``output_padding`` adds some at the high
    end, to reach a size that a stride makes ambiguous.

    Compiled programs read zeros around ``x``, as those of ``conv`` do, and multiply them by weights
    that reach them. So a weight that is NaN or infinite may make NaN of elements near the border
    that no window of its own covers; elements that it does belong to are what they always are.
    """

    stride: tuple[int, ...]
    padding: Pairs
    output_padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    def infer(
        self, x: TensorType, weight: TensorType, bias: TensorType | None = None
    ) -> TensorType:
        check_operands(self.name, x, weight, bias, self.groups)
        Windows(weight.shape[2:], self.stride, self.padding, self.dilation).check(self.name)
        require_per_axis(
            self.name, "output_padding", self.output_padding, len(self.stride), least=0
        )
        limits = tuple(map(max, self.stride, self.dilation))
        require(
            all(extra < limit for extra, limit in zip(self.output_padding, limits, strict=True)),
            "conv_transpose: output_padding is too large",
            expected="less than the stride or the dilation",
            found=f"{self.output_padding}, stride {self.stride}, dilation {self.dilation}",
        )
        channels = same_dim(self.name, "the channels of x and weight", x.shape[1], weight.shape[0])
        require_multiple(self.name, "channels", channels, self.groups)
        outputs = weight.shape[1] * self.groups
        if bias is not None:
            same_dim(self.name, "the output channels and the bias", outputs, bias.shape[0])
        sizes = self._sizes(x.shape[2:], weight.shape[2:])
        for size in sizes:
            require(
                not provably_less(size, 0),
                "conv_transpose: the padding removes more than there is",
                expected="sizes of at least 0",
                found=sizes,
            )
        return x.with_shape((x.shape[0], outputs, *sizes))

    def _sizes(self, sizes: Shape, kernel: Shape) -> Shape:
        return tuple(
            (size - 1) * self.stride[axis]
            - sum(self.padding[axis])
            + self.dilation[axis] * (kernel[axis] - 1)
            + self.output_padding[axis]
            + 1
            for axis, size in enumerate(sizes)
        )

    def evaluate(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        batch, channels, *sizes = x.shape
        per_group, kernel = weight.shape[1], weight.shape[2:]
        positions = group_channels(x, self.groups)  # [group, batch * positions, channels]
        taps = weight.reshape(self.groups, channels // self.groups, per_group * prod(kernel))
        spread = np.matmul(positions, taps).reshape(self.groups, batch, *sizes, per_group, *kernel)
        y = self._add_windows(spread, tuple(sizes), kernel)
        y = y.reshape(batch, per_group * self.groups, *y.shape[3:])
        return y if bias is None else y + per_channel(bias, y.ndim)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        """What each place takes from the windows that cover it, every ``stride``-th tap of theirs.

        Of a place whose residue by the stride is known, it is known which taps those are. They are
        visited backwards, which is forwards through ``x``.
        """
        x, weight = b.operands[0].shape, b.operands[1].shape
        windows = Windows(weight[2:], self.stride, self.padding, self.dilation)
        batch, output, *places = index
        group = group_of(b, output, weight[1] * self.groups, self.groups)
        channels = x[1] // self.groups
        turns = [self._turns(b, axis, place, weight[2:]) for axis, place in enumerate(places)]
        reach = self.reach(weight[2:])
        border = zip(b.border(0)[2:], reach, strict=True)
        covered = [need is not None and have >= need for have, need in border]

        def product(along: Position) -> Scalar:
            own, *steps = along
            channel = group * channels + own
            inside, taps = b.literal(True, bool_), []
            for axis, (step, turn) in enumerate(zip(steps, turns, strict=True)):
                tap = turn.first + (turn.count - 1 - step) * turn.apart
                inside = b.both(inside, b.within(tap, 0, weight[2 + axis]))
                taps.append(b.clamp(tap, 0, weight[2 + axis]))
            exists, positions = windows.lower_back(b, places, taps, x[2:], covered)
            element = b.read(0, [batch, channel, *positions])
            tap = b.read(1, [channel, output - group * weight[1], *taps])
            return if_inside(b, b.both(inside, exists), element, tap)

        extents = (channels, *(turn.count for turn in turns))
        return with_bias(b, b.reduce("sum", extents, product), output)

    def _turns(self, b: Lowering, axis: int, place: Scalar, kernel: Shape) -> _Turns:
        """Which taps along an axis may fall on a place.

        Those for which ``dilation * tap`` and ``place + low`` have the same residue by the stride.
        """
        stride, dilation = self.stride[axis], self.dilation[axis]
        common = gcd(stride, dilation)
        apart = stride // common
        inverse = pow(dilation // common, -1, apart)
        first = (place + self.padding[axis][0]) // common * inverse % apart
        taps = kernel[axis]
        if not isinstance(taps, int):  # the most that it may be would be far too many
            return _Turns(first, apart, (taps + (apart - 1)) // apart)
        count = b.most((taps + (apart - 1) - first) // apart)
        return _Turns(first, apart, taps if count is None else count)

    def reach(self, kernel: Shape) -> tuple[int | None, ...]:
        """How far past either end of ``x`` windows would have to lie; None if it is not known."""
        found: list[int | None] = []
        for axis, taps in enumerate(kernel):
            if not isinstance(taps, int):
                found.append(None)
                continue
            last, stride = self.dilation[axis] * (taps - 1), self.stride[axis]
            low, high = self.padding[axis]
            above = (last - high + self.output_padding[axis]) // stride
            found.append(max(0, -((low - last) // stride), above))
        return tuple(found)

    def _add_windows(self, spread: Array, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> Array:
        """Add [group, batch, *sizes, outputs, *kernel] up to [batch, group, outputs, *result]."""
        rank = len(sizes)
        axes = (*range(rank + 3, 2 * rank + 3), *range(2, rank + 2), 1, 0, rank + 2)
        taps = spread.transpose(axes)  # [*kernel, *sizes, batch, group, outputs]
        wanted = static_sizes(self.name, self._sizes(sizes, kernel))
        lows = [low for low, _ in self.padding]
        needed = [
            max(low + want, (size - 1) * stride + apart * (places - 1) + 1 if size else 0)
            for low, want, size, stride, apart, places in zip(
                lows, wanted, sizes, self.stride, self.dilation, kernel, strict=True
            )
        ]
        total = np.zeros((*needed, *taps.shape[-3:]), spread.dtype)
        for tap in product(*map(range, kernel)):
            along = zip(tap, self.dilation, sizes, self.stride, strict=True)
            total[
                tuple(
                    slice(place * apart, place * apart + size * stride if size else 0, stride)
                    for place, apart, size, stride in along
                )
            ] += taps[tap]
        cut = total[tuple(slice(low, low + want) for low, want in zip(lows, wanted, strict=True))]
        return cut.transpose(*range(rank, rank + 3), *range(rank))

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x, weight, *bias = node.operands
        forward = convolution.Conv(self.stride, self.padding, self.dilation, self.groups)
        by_x = cut_to(apply(forward, grad, weight), x.shape)
        # More output padding than a stride makes room for windows that no element of x belongs to.
        extras = zip(self.output_padding, self.stride, strict=True)
        beyond = [extra // step for extra, step in extras]
        elements = slicing.pad(x, (0,) * x.rank, (0, 0, *beyond)) if any(beyond) else x
        by_weight = apply(
            weight_gradient.ConvWeightGradient(
                weight.shape[2:], self.stride, self.padding, self.dilation, self.groups
            ),
            grad,
            elements,
        )
        by_bias = [sum_to_channels(grad)] if bias else []
        return by_x, shape_ops.reshape(by_weight, weight.shape), *by_bias

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def case(
            x: tuple[int, ...], weight: tuple[int, ...], op_: ConvTranspose, note: str
        ) -> Sample:
            operands = [draw(*x), draw(*weight)]
            if "bias" in note:
                operands.append(draw(weight[1] * op_.groups))
            return Sample(op_, tuple(operands), note, gradient=0 not in x)

        none = ((0, 0), (0, 0))
        plain = cls((1, 1), none, (0, 0), (1, 1))
        yield case((2, 3, 4, 3), (3, 2, 3, 2), plain, "")
        yield case((2, 3, 4, 3), (3, 2, 3, 2), plain, "bias")
        yield case((2, 2, 5), (2, 3, 3), cls((2,), ((1, 1),), (1,), (1,)), "1-d, bias")
        padded = cls((2, 3), ((1, 0), (2, 1)), (1, 2), (1, 1))
        yield case((1, 2, 3, 4), (2, 2, 3, 4), padded, "stride")
        yield case((1, 2, 4, 4), (2, 1, 2, 3), cls((1, 2), none, (1, 0), (2, 1)), "dilated")
        beyond = cls((2, 1), ((1, 2), (0, 1)), (2, 2), (3, 3))
        yield case((1, 2, 4, 4), (2, 1, 2, 2), beyond, "output padding past the stride")
        yield case((1, 4, 3, 3), (4, 3, 3, 3), cls((2, 2), none, (0, 0), (1, 1), 2), "groups, bias")
        solid = cls((1,) * 3, ((0, 0),) * 3, (0,) * 3, (1,) * 3)
        yield case((1, 1, 2, 3, 2), (1, 2, 2, 2, 3), solid, "3-d")
        yield case((2, 2, 3, 3), (2, 2, 2, 2), cls((3, 3), none, (0, 0), (1, 1)), "gaps")
        yield case((0, 3, 4, 3), (3, 2, 3, 2), plain, "no batch")
        yield case((1, 3, 0, 3), (3, 2, 3, 2), plain, "no elements")
        strided = (draw(1, 3, 8)[:, ::-1, ::2], draw(3, 2, 6)[:, :, ::2])
        yield Sample(cls((1,), ((0, 0),), (0,), (1,)), strided, "strided")


@function
def conv_transpose(
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    stride: PerAxis = 1,
    padding: Padding = 0,
    output_padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Value:
    """Transposed convolution of x[batch, channels, *] with weight[channels, outputs/groups, *]."""
    operands = promote_operands(*(item for item in (x, weight, bias) if item is not None))
    check_ranks("conv_transpose", *(operand.tensor for operand in operands[:2]))
    spatial, kernel = operands[0].shape[2:], operands[1].shape[2:]
    strides = per_axis("conv_transpose", "stride", stride, len(spatial))
    dilations = per_axis("conv_transpose", "dilation", dilation, len(spatial))
    extra = per_axis("conv_transpose", "output_padding", output_padding, len(spatial))
    require(
        padding != "same",
        "conv_transpose: 'same' padding has no one meaning here",
        expected="an integer, integers, pairs or 'valid'",
        found=padding,
    )
    pairs = as_padding("conv_transpose", padding, spatial, kernel, strides, dilations)
    return apply(ConvTranspose(strides, pairs, extra, dilations, groups), *operands)
