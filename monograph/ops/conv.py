"""Convolution, its transpose and its gradient by the weight, in one to three dimensions.

The three are the partial derivatives of one trilinear form: with ``y = conv(x, w)`` and a gradient
``g`` of y, ``sum(y * g)`` is linear in x, w and g. Its derivative by g is ``conv(x, w)``, by x
``conv_transpose(g, w)``, by w ``conv_weight_gradient(x, g)``; so each op's gradients are the other
two, and higher derivatives never leave the family. Weights are shared without any rearrangement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import gcd, prod

import numpy as np

from monograph.ir.build import Operand, apply, promoted
from monograph.ir.dims import Dim, Shape, provably_at_least, provably_less
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Gradients, Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, DType, TensorType, bool_
from monograph.ops import reduce, slicing
from monograph.ops import shape as shape_ops
from monograph.ops.data import static_sizes
from monograph.ops.rules import require, same_dim, same_dtype
from monograph.ops.windows import (
    Padding,
    Pairs,
    PerAxis,
    Windows,
    as_padding,
    per_axis,
    require_per_axis,
)


@op("conv")
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
        _check_operands(self.name, x, weight, bias, self.groups)
        windows = self.windows(weight.shape[2:])
        windows.check(self.name)
        outputs = weight.shape[0]
        same_dim(
            self.name,
            "the channels of x and groups * weight dimension 1",
            x.shape[1],
            weight.shape[1] * self.groups,
        )
        _require_multiple(self.name, "output channels", outputs, self.groups)
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
        patches = _patches(x, windows, self.groups)
        per_group = weight.shape[0] // self.groups
        rows = weight.reshape(self.groups, per_group, prod(weight.shape[1:]))
        outputs = _matmul(patches, rows.swapaxes(1, 2))  # [group, batch * windows, outputs]
        y = _channels_back(outputs, x.shape[0], counts)
        return y if bias is None else y + _per_channel(bias, y.ndim)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        x, weight = b.operands[0].shape, b.operands[1].shape
        windows = self.windows(weight[2:])
        batch, output, *counts = index
        group = _group(b, output, weight[0], self.groups)

        def product(along: Position) -> Scalar:
            channel, *taps = along
            inside, places = windows.lower(b, counts, taps, x[2:], b.border(0)[2:])
            element = b.read(0, [batch, group * weight[1] + channel, *places])
            return _if_inside(b, inside, element, b.read(1, [output, channel, *taps]))

        return _with_bias(b, b.reduce("sum", weight[1:], product), output)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x, weight, *bias = node.operands
        by_weight = apply(
            ConvWeightGradient(
                weight.shape[2:], self.stride, self.padding, self.dilation, self.groups
            ),
            x,
            grad,
        )
        by_bias = [_sum_to_channels(grad)] if bias else []
        whole = shape_ops.reshape(by_weight, weight.shape)
        return self._by_operand(x, weight, grad), whole, *by_bias

    def _by_operand(self, x: Value, weight: Value, grad: Value) -> Value:
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
        transposed = ConvTranspose(
            self.stride, self.padding, output_padding, self.dilation, self.groups
        )
        return cut_to(apply(transposed, grad, weight), x.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def case(
            x: tuple[int, ...], weight: tuple[int, ...], conv: Conv, note: str, bias: bool = False
        ) -> Sample:
            operands = [_draw(*x), _draw(*weight)] + ([_draw(weight[0])] if bias else [])
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
        strided = (_draw(2, 6, 10)[:, ::2, ::-1], _draw(2, 4, 3).swapaxes(1, 2))
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
    operands = promoted(*(item for item in (x, weight, bias) if item is not None))
    _check_ranks("conv", *(operand.tensor for operand in operands[:2]))
    spatial, kernel = operands[0].shape[2:], operands[1].shape[2:]
    strides = per_axis("conv", "stride", stride, len(spatial))
    dilations = per_axis("conv", "dilation", dilation, len(spatial))
    pairs = as_padding("conv", padding, spatial, kernel, strides, dilations)
    return apply(Conv(strides, pairs, dilations, groups), *operands)


@dataclass(frozen=True)
class _Turns:
    """Taps ``first``, ``first + apart``, … of a transposed convolution, ``count`` of them."""

    first: Scalar
    apart: int
    count: Dim


@op("conv_transpose")
class ConvTranspose(Op):
    """The transpose of the linear map that ``conv`` is: each element adds its weights to a window.

    ``x`` is [batch, channels, *spatial], ``weight`` [channels, outputs / groups, *kernel], ``bias``
    [outputs]. ``padding`` removes elements of the result; ``output_padding`` adds some at the high
    end, to reach a size that a stride makes ambiguous.
    """

    stride: tuple[int, ...]
    padding: Pairs
    output_padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    def infer(
        self, x: TensorType, weight: TensorType, bias: TensorType | None = None
    ) -> TensorType:
        _check_operands(self.name, x, weight, bias, self.groups)
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
        _require_multiple(self.name, "channels", channels, self.groups)
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
        positions = _group_channels(x, self.groups)  # [group, batch * positions, channels]
        taps = weight.reshape(self.groups, channels // self.groups, per_group * prod(kernel))
        spread = np.matmul(positions, taps).reshape(self.groups, batch, *sizes, per_group, *kernel)
        y = self._add_windows(spread, tuple(sizes), kernel)
        y = y.reshape(batch, per_group * self.groups, *y.shape[3:])
        return y if bias is None else y + _per_channel(bias, y.ndim)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        """What each place takes from the windows that cover it, every ``stride``-th tap of theirs.

        Of a place whose residue by the stride is known, it is known which taps those are. They are
        visited backwards, which is forwards through ``x``.
        """
        x, weight = b.operands[0].shape, b.operands[1].shape
        windows = Windows(weight[2:], self.stride, self.padding, self.dilation)
        batch, output, *places = index
        group = _group(b, output, weight[1] * self.groups, self.groups)
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
            return _if_inside(b, b.both(inside, exists), element, tap)

        extents = (channels, *(turn.count for turn in turns))
        return _with_bias(b, b.reduce("sum", extents, product), output)

    def _turns(self, b: Lowering, axis: int, place: Scalar, kernel: Shape) -> _Turns:
        """Which taps along an axis may fall on a place.

        Those for which ``dilation * tap`` and ``place + low`` have the same residue by the stride.
        """
        stride, dilation = self.stride[axis], self.dilation[axis]
        common = gcd(stride, dilation)
        apart = stride // common
        inverse = pow(dilation // common, -1, apart)
        first = (place + self.padding[axis][0]) // common * inverse % apart
        count = b.most((kernel[axis] + (apart - 1) - first) // apart)
        return _Turns(first, apart, kernel[axis] if count is None else count)

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
        forward = Conv(self.stride, self.padding, self.dilation, self.groups)
        by_x = cut_to(apply(forward, grad, weight), x.shape)
        # More output padding than a stride makes room for windows that no element of x belongs to.
        extras = zip(self.output_padding, self.stride, strict=True)
        beyond = [extra // step for extra, step in extras]
        elements = slicing.pad(x, (0,) * x.rank, (0, 0, *beyond)) if any(beyond) else x
        by_weight = apply(
            ConvWeightGradient(
                weight.shape[2:], self.stride, self.padding, self.dilation, self.groups
            ),
            grad,
            elements,
        )
        by_bias = [_sum_to_channels(grad)] if bias else []
        return by_x, shape_ops.reshape(by_weight, weight.shape), *by_bias

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def case(
            x: tuple[int, ...], weight: tuple[int, ...], op_: ConvTranspose, note: str
        ) -> Sample:
            operands = [_draw(*x), _draw(*weight)]
            if "bias" in note:
                operands.append(_draw(weight[1] * op_.groups))
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
        strided = (_draw(1, 3, 8)[:, ::-1, ::2], _draw(3, 2, 6)[:, :, ::2])
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
    operands = promoted(*(item for item in (x, weight, bias) if item is not None))
    _check_ranks("conv_transpose", *(operand.tensor for operand in operands[:2]))
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


@op("conv_weight_gradient")
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
        _check_operands(self.name, x, grad, None, self.groups)
        require(
            len(self.kernel) == x.rank - 2,
            "conv_weight_gradient: kernel does not fit",
            expected=f"{x.rank - 2} sizes, one a spatial dimension",
            found=self.kernel,
        )
        windows = self.windows()
        windows.check(self.name)
        same_dim(self.name, "the batches of x and grad", x.shape[0], grad.shape[0])
        _require_multiple(self.name, "channels", x.shape[1], self.groups)
        _require_multiple(self.name, "output channels", grad.shape[1], self.groups)
        for count, size in zip(windows.counts(self.name, x.shape[2:]), grad.shape[2:], strict=True):
            same_dim(self.name, "the number of windows and the size of grad", count, size)
        return x.with_shape((grad.shape[1], x.shape[1] // self.groups, *self.kernel))

    def windows(self) -> Windows:
        """Where the windows of the convolution lay."""
        return Windows(self.kernel, self.stride, self.padding, self.dilation)

    def evaluate(self, x: Array, grad: Array) -> Array:
        kernel, _ = self.windows().static(x.shape[2:])
        patches = _patches(x, self.windows(), self.groups)
        outputs = _group_channels(grad, self.groups)
        taps = np.matmul(outputs.swapaxes(1, 2), patches)  # [group, outputs, channels * kernel]
        return np.asarray(taps.reshape(grad.shape[1], x.shape[1] // self.groups, *kernel))

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        """What each tap saw, times the gradient of what it made there."""
        x, grad = b.operands[0].shape, b.operands[1].shape
        windows = self.windows()
        output, own, *taps = index
        group = _group(b, output, grad[1], self.groups)
        channel = group * (x[1] // self.groups) + own

        def product(along: Position) -> Scalar:
            batch, *places = along
            inside, positions = windows.lower(b, places, taps, x[2:], b.border(0)[2:])
            element = b.read(0, [batch, channel, *positions])
            return _if_inside(b, inside, element, b.read(1, [batch, output, *places]))

        return b.reduce("sum", (grad[0], *grad[2:]), product)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x, outputs = node.operands
        forward = Conv(self.stride, self.padding, self.dilation, self.groups)
        return forward._by_operand(x, grad, outputs), apply(forward, x, grad)

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
        taps = apply(Conv(self.dilation, self.padding, self.stride, self.groups), images, filters)
        whole = shape_ops.transpose(taps, exchanged)
        return cut_to(whole, (grad.shape[1], channels // self.groups, *self.kernel))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        for sample in Conv.samples():
            conv_ = sample.apply
            if not isinstance(conv_, Conv) or sample.note in ("bias", "i32"):
                continue
            x, weight = sample.operands[:2]
            _, counts = conv_.windows(weight.shape[2:]).static(x.shape[2:])
            gradient = cls(
                weight.shape[2:], conv_.stride, conv_.padding, conv_.dilation, conv_.groups
            )
            grad = _draw(x.shape[0], weight.shape[0], *counts)
            yield Sample(gradient, (x, grad), sample.note, gradient=sample.gradient)


def _group(b: Lowering, channel: Scalar, channels: Dim, groups: int) -> Scalar:
    """The group that a channel belongs to."""
    return b.index(0) if groups == 1 else channel // (channels // groups)


def _if_inside(b: Lowering, inside: Scalar, element: Scalar, tap: Scalar) -> Scalar:
    """The product of a tap with an element, or with zero in the padding."""
    padded = b.select(inside, element, b.literal(0, element.dtype))
    return b.apply("multiply", padded, tap)


def _with_bias(b: Lowering, total: Scalar, channel: Scalar) -> Scalar:
    return b.apply("add", total, b.read(2, [channel])) if len(b.operands) > 2 else total


def cut_to(x: Value, shape: Shape) -> Value:
    """The leading elements of ``x`` along every axis, up to ``shape``."""
    if x.shape == shape:
        return x
    return shape_ops.reshape(slicing.slice(x, (0,) * len(shape), shape), shape)


def _matmul(a: Array, b: Array) -> Array:
    """Products of f32 matrices, added up in f64 and rounded once.

    A library adds in an order that depends on where in the matrix an element stands, so that equal
    rows and columns may give results that differ; rounded from f64 they are the same.
    """
    if a.dtype != np.float32:
        return np.asarray(np.matmul(a, b))
    exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return np.asarray(exact, np.float32)


def _patches(x: Array, windows: Windows, groups: int) -> Array:
    """What each window sees: [group, batch * windows, channels of the group * kernel]."""
    rank = windows.rank
    view = windows.view(x, 0)  # [batch, channels, *counts, *kernel]
    batch, channels, *rest = view.shape
    counts, kernel = rest[:rank], rest[rank:]
    grouped = view.reshape(batch, groups, channels // groups, *counts, *kernel)
    axes = (1, 0, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
    width = channels // groups * prod(kernel)
    return grouped.transpose(axes).reshape(groups, batch * prod(counts), width)


def _group_channels(x: Array, groups: int) -> Array:
    """[batch, channels, *sizes] as [group, batch * positions, channels of the group]."""
    batch, channels, *sizes = x.shape
    grouped = x.reshape(batch, groups, channels // groups, prod(sizes)).transpose(1, 0, 3, 2)
    return grouped.reshape(groups, batch * prod(sizes), channels // groups)


def _channels_back(outputs: Array, batch: int, counts: tuple[int, ...]) -> Array:
    """[group, batch * windows, outputs] as [batch, group * outputs, *counts]."""
    groups, _, width = outputs.shape
    apart = outputs.reshape(groups, batch, prod(counts), width).transpose(1, 0, 3, 2)
    return apart.reshape(batch, groups * width, *counts)


def _per_channel(bias: Array, rank: int) -> Array:
    return bias.reshape(1, -1, *(1,) * (rank - 2))


def _sum_to_channels(grad: Value) -> Value:
    return reduce.sum(grad, (0, *range(2, grad.rank)))


def _check_ranks(name: str, x: TensorType, weight: TensorType) -> None:
    require(
        3 <= x.rank <= 5,
        f"{name}: one to three spatial dimensions are needed",
        expected="an operand of rank 3 to 5: [batch, channels, *spatial]",
        found=x,
    )
    require(
        weight.rank == x.rank,
        f"{name}: the ranks of the operands differ",
        expected=f"rank {x.rank}, as {x}",
        found=weight,
    )


def _check_operands(
    name: str, x: TensorType, weight: TensorType, bias: TensorType | None, groups: int
) -> None:
    dtype: DType = same_dtype(name, x, weight, *(() if bias is None else (bias,)))
    require(
        dtype.is_float or dtype.is_integer,
        f"{name}: real numbers are needed",
        expected="a float or integer dtype",
        found=x,
    )
    _check_ranks(name, x, weight)
    require(
        groups >= 1,
        f"{name}: groups must be positive",
        expected="an integer of at least 1",
        found=groups,
    )
    if bias is not None:
        require(bias.rank == 1, f"{name}: the bias is not a vector", expected="rank 1", found=bias)


def _require_multiple(name: str, what: str, size: Dim, groups: int) -> None:
    rest = size % groups
    require(
        not provably_at_least(rest, 1),
        f"{name}: the {what} do not divide into groups",
        expected=f"a multiple of {groups}",
        found=size,
    )


def _draw(*shape: int) -> Array:
    """Sample data: the same for the same shape."""
    seed = sum((axis + 1) * size for axis, size in enumerate(shape))
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)
