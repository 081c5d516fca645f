"""Pooling: the maximum or the mean of windows that slide over the trailing dimensions.

The windows run over the last ``len(kernel)`` dimensions; whatever stands before them is batch.
Padding never wins a maximum. With ``ceil_mode`` a last, overhanging window counts if it starts
inside the operand or its low padding, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from monograph.ir.build import Operand, apply, apply_many, cast_to, constant
from monograph.ir.dims import Dim, Shape, provably_less, shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.lower import Lowering, Position, Scalar
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, DType, TensorType, i64, u8, wide
from monograph.ops import conv, data, elementwise, index, reduce, rules
from monograph.ops import shape as shape_ops
from monograph.ops.rules import require, same_dim
from monograph.ops.windows import (
    Padding,
    Pairs,
    PerAxis,
    Windows,
    as_padding,
    per_axis,
)


class MaxWindows(Op):
    """What the ops on maxima of windows share: the attributes and where they lead."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Pairs
    dilation: tuple[int, ...]
    ceil_mode: bool = False

    def windows(self) -> Windows:
        """Where the windows lie."""
        return Windows(self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)

    def pooled_shape(self, x: TensorType) -> Shape:
        """The shape of one element for each window, once everything is checked."""
        require(
            x.dtype.is_float or x.dtype.is_integer,
            f"{self.name}: real numbers are needed",
            expected="a float or integer dtype",
            found=x,
        )
        return pool_shape(self.name, x, self.windows())

    def winners(self, x: Array) -> Array:
        """The place of each window's first maximum, flat over the spatial dimensions.

        -1 where a window lies in the padding altogether. A NaN is a maximum.
        """
        rank = len(self.kernel)
        kernel = clip_kernel(self.windows(), x.shape)
        windows = replace(self.windows(), kernel=kernel)
        flat = (*x.shape[: x.ndim - rank], *windows.static(x.shape[-rank:])[1], prod(kernel))
        inside = windows.view(np.ones(x.shape[-rank:], np.bool_), False).reshape(flat[-rank - 1 :])
        places = windows.view(x, lowest(x.dtype)).reshape(flat)
        best = (places == places.max(-1, keepdims=True)) | (places != places)
        chosen = np.argmax(best & inside, axis=-1)
        offsets = np.unravel_index(chosen, kernel)
        place = np.zeros(chosen.shape, np.int64)
        for axis, size in enumerate(x.shape[-rank:]):
            positions = windows.positions(axis, size)
            along = np.arange(positions.shape[0]).reshape(-1, *(1,) * (rank - 1 - axis))
            place = place * size + positions[along, offsets[axis]]
        return np.where(inside.any(-1), place, -1)

    def lower_maximum(self, b: Lowering, index: Position) -> Scalar:
        """The largest element of one window; padding never wins."""
        return b.reduce("max", self.kernel, lambda taps: self._candidate(b, index, taps)[0])

    def _candidate(
        self, b: Lowering, index: Position, taps: Position
    ) -> tuple[Scalar, Scalar, list[Scalar]]:
        """The element under a tap of a window, whether there is one, and its spatial place."""
        leading = len(index) - len(self.kernel)
        sizes = b.operands[0].shape[leading:]
        inside, places = self.windows().lower(b, index[leading:], taps, sizes)
        element = b.read(0, [*index[:leading], *places])
        least = b.literal(lowest(element.dtype.numpy), element.dtype)
        return b.select(inside, element, least), inside, places

    def lower_winner(self, b: Lowering, index: Position) -> Scalar:
        """The place of a window's first maximum, flat over the spatial dimensions."""
        maximum = self.lower_maximum(b, index)

        def wins(taps: Position) -> Scalar:
            element, inside, _ = self._candidate(b, index, taps)
            largest = b.apply("equal", element, maximum)
            if element.dtype.is_float:
                largest = b.apply("logical_or", largest, b.apply("is_nan", element))
            return b.cast(b.both(largest, inside), u8)

        chosen = b.reduce("argmax", self.kernel, wins)
        taps: list[Scalar] = []
        for size in reversed(self.kernel):
            taps.insert(0, chosen % size)
            chosen = chosen // size
        return self.flat(b, self._candidate(b, index, taps)[2])

    def flat(self, b: Lowering, places: Position) -> Scalar:
        """A spatial place, row-major, as one number."""
        sizes = b.operands[0].shape[b.operands[0].rank - len(self.kernel) :]
        position = b.index(0)
        for place, size in zip(places, sizes, strict=True):
            position = position * size + place
        return position


@op("max_pool", traits=Trait.REDUCTION | Trait.WINDOW | Trait.KEEPS_AXES)
class MaxPool(MaxWindows):
    """The maximum of each window; NaN if there is one; -inf (or the lowest integer) of padding."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Pairs
    dilation: tuple[int, ...]
    ceil_mode: bool = False

    def infer(self, x: TensorType) -> TensorType:
        return x.with_shape(self.pooled_shape(x))

    def evaluate(self, x: Array) -> Array:
        windows = replace(self.windows(), kernel=clip_kernel(self.windows(), x.shape))
        axes = tuple(range(-windows.rank, 0))
        return np.asarray(windows.view(x, lowest(x.dtype)).max(axis=axes))

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        return self.lower_maximum(b, index)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        (x,) = node.operands
        return (apply(MaxPoolGradient(**self.attributes()), x, grad),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield from max_samples(cls)


def max_samples(cls: type[MaxPool] | type[MaxPoolWithIndices]) -> Iterator[Sample]:
    """Inputs for the ops on maxima; no two elements tie where the gradient is asked for."""
    none = (0, 0)

    def distinct(*shape: int) -> Array:
        order = np.random.default_rng(len(shape)).permutation(prod(shape))
        return order.reshape(shape).astype(np.float32) / 4 - 3

    plain = cls((2, 3), (2, 1), (none, none), (1, 1))
    yield Sample(plain, (distinct(2, 3, 6, 5),))
    yield Sample(cls((3,), (2,), ((1, 1),), (1,)), (distinct(2, 2, 7),), "1-d, padded")
    yield Sample(cls((2, 2), (2, 2), ((1, 0), (0, 1)), (1, 1)), (distinct(1, 2, 5, 4),), "sides")
    yield Sample(cls((2, 2), (3, 3), (none, none), (1, 1), True), (distinct(1, 1, 6, 7),), "ceil")
    ceiling = cls((3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1), True)
    yield Sample(ceiling, (distinct(1, 2, 6, 7),), "ceil, padded")
    yield Sample(cls((2, 3), (1, 2), ((1, 1), (1, 1)), (2, 2)), (distinct(1, 2, 6, 8),), "dilated")
    yield Sample(cls((2,) * 3, (2,) * 3, (none,) * 3, (1,) * 3), (distinct(1, 2, 4, 5, 4),), "3-d")
    yield Sample(plain, (distinct(2, 3, 12, 10)[:, :, ::2, ::-2],), "strided")
    yield Sample(plain, (np.zeros((0, 3, 6, 5), np.float32),), "no batch", False)
    special = np.full((1, 1, 4, 4), -np.inf, np.float32)
    special[0, 0, 0] = [0.0, -0.0, np.inf, np.nan]
    padded = cls((2, 2), (2, 2), ((1, 1), (1, 1)), (1, 1))
    yield Sample(padded, (special,), "special", False)
    yield Sample(plain, (np.ones((1, 1, 4, 4), np.float32),), "ties", False)
    yield Sample(padded, (np.arange(-8, 8, dtype=np.int32).reshape(1, 1, 4, 4) - 100,), "i32")


@function
def max_pool(
    x: Operand,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
) -> Value:
    """The maximum of each window of ``kernel`` elements; ``stride`` is the kernel if not given.

    An int ``kernel`` runs over every dimension after the first two.
    """
    value = shape_ops.one_value(x)
    geometry = _geometry("max_pool", value, kernel, stride, padding, dilation)
    return apply(MaxPool(*geometry, ceil_mode), value)


@op("max_pool_with_indices", traits=Trait.REDUCTION | Trait.WINDOW | Trait.KEEPS_AXES)
class MaxPoolWithIndices(MaxWindows):
    """The maximum of each window, and where it first stands: flat over the spatial dimensions.

    The index of a window that lies in the padding altogether is -1.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Pairs
    dilation: tuple[int, ...]
    ceil_mode: bool = False

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        values = x.with_shape(self.pooled_shape(x))
        return values, values.with_dtype(i64)

    def evaluate(self, x: Array) -> tuple[Array, Array]:
        return MaxPool(**self.attributes()).evaluate(x), self.winners(x)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        if result == 0:
            return self.lower_maximum(b, index)
        found = b.reduce("any", self.kernel, lambda taps: self._candidate(b, index, taps)[1])
        return b.select(found, self.lower_winner(b, index), b.index(-1))

    def vjp(self, node: Node, grad: Value, _indices: Value | None = None) -> Gradients:
        (x,) = node.operands
        return (apply(MaxPoolGradient(**self.attributes()), x, grad),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield from max_samples(cls)


@function
def max_pool_with_indices(
    x: Operand,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
) -> tuple[Value, ...]:
    """``max_pool``, and the position of each maximum, flat over the spatial dimensions."""
    value = shape_ops.one_value(x)
    geometry = _geometry("max_pool_with_indices", value, kernel, stride, padding, dilation)
    return apply_many(MaxPoolWithIndices(*geometry, ceil_mode), value)


def add_at_places(x: Value, places: Value, updates: Value, spatial: int) -> Value:
    """Zeros like ``x`` with updates added at places, flat over its last dimensions; -1 is none."""
    leading = x.shape[: x.rank - spatial]
    windows = (*leading, shape_product(updates.shape[len(leading) :]))
    flat = shape_ops.reshape(places, windows)
    given = elementwise.where(elementwise.less(flat, 0), 0, shape_ops.reshape(updates, windows))
    zeros = data.zeros((*leading, shape_product(x.shape[len(leading) :])), updates.dtype)
    first = elementwise.maximum(flat, 0)
    return shape_ops.reshape(
        index.put_along_axis(zeros, first, given, len(leading), "add"), x.shape
    )


@op("max_pool_gradient")
class MaxPoolGradient(MaxWindows):
    """The gradient of ``max_pool`` by its operand: each window's goes to its first maximum."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Pairs
    dilation: tuple[int, ...]
    ceil_mode: bool = False

    def infer(self, x: TensorType, grad: TensorType) -> TensorType:
        rules.same_dtype(self.name, x, grad)
        pooled = self.pooled_shape(x)
        require(
            grad.rank == x.rank,
            "max_pool_gradient: the gradient has the wrong rank",
            expected=str(x.rank),
            found=grad,
        )
        for one, other in zip(pooled, grad.shape, strict=True):
            same_dim(self.name, "the shapes of the pooled operand and the gradient", one, other)
        return x

    def evaluate(self, x: Array, grad: Array) -> Array:
        rank = len(self.kernel)
        size = prod(x.shape[-rank:])
        batch = prod(x.shape[:-rank])
        places = self.winners(x).reshape(batch, prod(grad.shape[-rank:]))
        rows = np.arange(batch)[:, None] * size
        flat, given = (places + rows).reshape(-1), grad.reshape(-1)
        valid = places.reshape(-1) >= 0
        result = np.zeros(x.size, grad.dtype)
        np.add.at(result, flat[valid], given[valid])
        return result.reshape(x.shape)

    def decompose(self, x: Value, grad: Value) -> Value:
        """Each window's winner is found once, and its gradient added there."""
        _, places = apply_many(MaxPoolWithIndices(**self.attributes()), x)
        return add_at_places(x, places, grad, len(self.kernel))

    def vjp(self, node: Node, grad: Value) -> Gradients:
        """By ``grad`` it is a choice of elements; by ``x`` it is flat almost everywhere."""
        x, outputs = node.operands
        _, places = apply_many(MaxPoolWithIndices(**self.attributes()), x)
        leading = x.shape[: x.rank - len(self.kernel)]
        flat = shape_ops.reshape(places, (*leading, shape_product(outputs.shape[len(leading) :])))
        source = shape_ops.reshape(grad, (*leading, shape_product(x.shape[len(leading) :])))
        first = elementwise.maximum(flat, 0)
        chosen = index.take_along_axis(source, first, axis=len(leading))
        inside = elementwise.where(elementwise.less(flat, 0), 0.0, chosen)
        return None, shape_ops.reshape(inside, outputs.shape)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        generator = np.random.default_rng(1)
        for sample in MaxPool.samples():
            pool, (x,) = sample.apply, sample.operands
            if isinstance(pool, MaxPool) and x.dtype == np.float32:
                shape = pool.evaluate(x).shape
                grad = generator.normal(size=shape).astype(np.float32)
                yield Sample(cls(**pool.attributes()), (x, grad), sample.note, sample.gradient)


@op("avg_pool", traits=Trait.REDUCTION | Trait.WINDOW | Trait.KEEPS_AXES)
class AvgPool(Op):
    """The mean of each window.

    Padding counts as zeros with ``count_include_pad``, and not at all without; what overhangs the
    padding never counts. A window of which nothing counts has mean 0.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Pairs
    count_include_pad: bool = True
    ceil_mode: bool = False

    def infer(self, x: TensorType) -> TensorType:
        require(
            x.dtype.is_float,
            "avg_pool: a float operand is needed",
            expected="a float dtype",
            found=x,
        )
        return x.with_shape(pool_shape(self.name, x, self.windows()))

    def windows(self) -> Windows:
        """Where the windows lie."""
        together = (1,) * len(self.kernel)
        return Windows(self.kernel, self.stride, self.padding, together, self.ceil_mode)

    def evaluate(self, x: Array) -> Array:
        rank = len(self.kernel)
        windows = replace(self.windows(), kernel=clip_kernel(self.windows(), x.shape))
        total = windows.view(x, 0).sum(axis=tuple(range(-rank, 0)), dtype=x.dtype)
        for axis, size in enumerate(x.shape[-rank:]):
            low, high = self.padding[axis] if self.count_include_pad else (0, 0)
            positions = windows.positions(axis, size)
            counts = ((positions >= -low) & (positions < size + high)).sum(1)
            along = np.maximum(counts, 1).reshape(-1, *(1,) * (rank - 1 - axis))
            total = total / along.astype(x.dtype)
        return np.asarray(total)

    def lower(self, b: Lowering, index: Position, result: int = 0) -> Scalar:
        leading = len(index) - len(self.kernel)
        sizes = b.operands[0].shape[leading:]
        windows = self.windows()

        def element(taps: Position) -> Scalar:
            inside, places = windows.lower(b, index[leading:], taps, sizes)
            found = b.read(0, [*index[:leading], *places])
            return b.select(inside, found, b.literal(0, found.dtype))

        total = b.reduce("sum", self.kernel, element)
        count = b.index(1)
        for axis, (window, size) in enumerate(zip(index[leading:], sizes, strict=True)):
            count = count * self._lower_count(b, axis, window, size)
        return b.apply("divide", total, b.cast(count, total.dtype))

    def _lower_count(self, b: Lowering, axis: int, window: Scalar, size: Dim) -> Scalar:
        """How many elements count in a window along an axis, 1 if none do."""
        kernel, (low, high) = self.kernel[axis], self.padding[axis]
        padded = self.count_include_pad and bool(low or high)
        if not self.ceil_mode and (padded or not (low or high)):
            return b.index(kernel)
        first, last = (-low, high) if self.count_include_pad else (0, 0)
        start = window * self.stride[axis] - low
        end = b.clamp(start + kernel, -low, size + last + 1)
        return b.clamp(end - b.clamp(start, first, size + last + 1), 1, kernel + 1)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        """Spread each window's share over it: a transposed convolution with ones.

        The stride may leave elements over that no window covers, or a window may overhang: the
        result is made long enough for both and cut.
        """
        (x,) = node.operands
        leading = x.rank - len(self.kernel)
        batch = shape_product(x.shape[:leading])
        exact = cast_to(grad, wide(grad.dtype))
        share = shape_ops.reshape(self._shares(x, exact), (batch, 1, *grad.shape[leading:]))
        spread = conv.ConvTranspose(
            self.stride,
            tuple((low, 0) for low, _ in self.padding),
            tuple(step - 1 for step in self.stride),
            (1,) * len(self.kernel),
        )
        kernel = clip_kernel(self.windows(), x.shape)
        ones = constant(np.ones((1, 1, *kernel)), exact.dtype, grad.graph)
        whole = conv.cut_to(apply(spread, share, ones), (batch, 1, *x.shape[leading:]))
        return (cast_to(shape_ops.reshape(whole, x.shape), x.dtype),)

    def _shares(self, x: Value, grad: Value) -> Value:
        """The gradient over the number of elements that count in each window."""
        rank = len(self.kernel)
        whole = not self.ceil_mode and (
            self.count_include_pad or all(pair == (0, 0) for pair in self.padding)
        )
        if whole:
            return grad / float(prod(self.kernel))
        for axis in range(rank):
            count = self._count_along(axis, x.shape[x.rank - rank + axis], grad.dtype)
            grad = grad / shape_ops.reshape(count, (-1, *(1,) * (rank - 1 - axis)))
        return grad

    def _count_along(self, axis: int, size: Dim, dtype: DType) -> Value:
        low, high = self.padding[axis]
        first, last = (-low, high) if self.count_include_pad else (0, 0)
        starts = data.iota((self.windows().count(axis, size),)) * self.stride[axis] - low
        ends = elementwise.minimum(starts + self.kernel[axis], data.dim(size) + last)
        counts = elementwise.maximum(ends - elementwise.maximum(starts, first), 1)
        return cast_to(counts, dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def draw(*shape: int) -> Array:
            return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)

        none = ((0, 0), (0, 0))
        one = ((1, 1), (1, 1))
        yield Sample(cls((2, 3), (2, 1), none), (draw(2, 3, 6, 5),))
        yield Sample(cls((3,), (2,), ((1, 1),)), (draw(2, 2, 8),), "1-d, padded")
        yield Sample(cls((3, 3), (2, 2), one, False), (draw(1, 2, 6, 7),), "padding left out")
        yield Sample(cls((3, 2), (2, 3), ((1, 1), (0, 0)), True, True), (draw(1, 2, 6, 7),), "ceil")
        yield Sample(cls((3, 3), (2, 2), one, False, True), (draw(1, 2, 6, 5),), "ceil, left out")
        yield Sample(cls((2, 2), (3, 3), none), (draw(1, 1, 7, 6),), "gaps")
        yield Sample(cls((2,) * 3, (1,) * 3, ((1, 0),) * 3, False), (draw(1, 2, 3, 4, 3),), "3-d")
        yield Sample(cls((2, 2), (2, 2), none), (draw(1, 2, 8, 8)[:, ::-1, ::2, ::2],), "strided")
        empty = np.zeros((0, 2, 4, 4), np.float32)
        yield Sample(cls((2, 2), (2, 2), none), (empty,), "empty", False)
        special = np.array([[[np.nan, np.inf, -np.inf, 1.0, -0.0, 2.0]]], np.float32)
        yield Sample(cls((2,), (1,), ((1, 1),)), (special,), "special", False)


@function
def avg_pool(
    x: Operand,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
) -> Value:
    """The mean of each window of ``kernel`` elements; ``stride`` is the kernel if not given.

    An int ``kernel`` runs over every dimension after the first two.
    """
    value = reduce.as_float(x)
    sizes, strides, pairs, _ = _geometry("avg_pool", value, kernel, stride, padding, 1)
    return apply(AvgPool(sizes, strides, pairs, count_include_pad, ceil_mode), value)


def pool_shape(name: str, x: TensorType, windows: Windows) -> Shape:
    """The shape of one element for each window, once everything is checked."""
    require(
        not any(provably_less(size, 1) for size in windows.kernel),
        f"{name}: a kernel is empty",
        expected="sizes of at least 1",
        found=windows.kernel,
    )
    require(
        1 <= windows.rank <= x.rank,
        f"{name}: the kernel does not fit the operand",
        expected=f"1 to {x.rank} kernel sizes, as many as spatial dimensions",
        found=f"{windows.kernel} for {x}",
    )
    windows.check(name)
    leading = x.rank - windows.rank
    return (*x.shape[:leading], *windows.counts(name, x.shape[leading:]))


def clip_kernel(windows: Windows, shape: Shape) -> tuple[int, ...]:
    """The kernel without what lies beyond an operand and its padding, where there is one window.

    What overhangs the padding never counts, and "as large as it comes" is spelled so: a kernel of
    1000 over a plane of 7, rounding up.
    """
    kernel = []
    for axis, size in enumerate(shape[len(shape) - windows.rank :]):
        taps, whole = windows.kernel[axis], windows.slack(axis, size) + windows.span(axis)
        assert isinstance(taps, int), "pools have kernels of known sizes"
        if isinstance(whole, int) and windows.count(axis, size) == 1:
            taps = min(taps, max(1, -(-whole // windows.dilation[axis])))
        kernel.append(taps)
    return tuple(kernel)


def lowest(dtype: np.dtype[Any]) -> float | int:
    """The number that no other one is less than."""
    return int(np.iinfo(dtype).min) if dtype.kind in "iu" else -np.inf


def _geometry(
    name: str,
    x: Value,
    kernel: PerAxis,
    stride: PerAxis | None,
    padding: Padding,
    dilation: PerAxis,
) -> tuple[tuple[int, ...], tuple[int, ...], Pairs, tuple[int, ...]]:
    """Kernel, stride, padding and dilation for each spatial dimension, from what a caller gave."""
    shape = x.shape
    rank = len(shape) - 2 if isinstance(kernel, int) else len(kernel)
    require(
        1 <= rank <= len(shape),
        f"{name}: the kernel does not fit the operand",
        expected="a spatial dimension for each kernel size",
        found=f"kernel {kernel} for {rules.format_shape(shape)}",
    )
    sizes = per_axis(name, "kernel", kernel, rank)
    strides = sizes if stride is None else per_axis(name, "stride", stride, rank)
    dilations = per_axis(name, "dilation", dilation, rank)
    pairs = as_padding(name, padding, shape[len(shape) - rank :], sizes, strides, dilations)
    return sizes, strides, pairs, dilations
