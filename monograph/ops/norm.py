"""Normalisation of each example by its own statistics: layer, root-mean-square, group, instance.

The statistics of narrow floats are computed in f32. The parameters may have another float dtype
than the operand (f32 beside bf16, say); the result has the operand's. ``epsilon`` is added to the
mean square before the root. Normalisation by statistics of the batch is in ``batch_norm``.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from monograph.ir.build import Operand, apply, cast_to
from monograph.ir.dims import Shape
from monograph.ir.graph import Node, Value
from monograph.ir.op import Gradients, Op, Sample, op
from monograph.ir.operators import function
from monograph.ir.types import Array, DType, TensorType, promote, wide
from monograph.ops import math as math_ops
from monograph.ops import reduce
from monograph.ops import shape as shape_ops
from monograph.ops.rules import format_shape, normalize_axis, require, same_dim


@op("layer_norm")
class LayerNorm(Op):
    """(x - mean) / sqrt(variance + epsilon) over the axes from ``axis`` to the last.

    Then times ``scale`` and plus ``bias``, whose shape is that of those axes.
    """

    axis: int
    epsilon: float = 1e-5

    def infer(
        self, x: TensorType, scale: TensorType | None = None, bias: TensorType | None = None
    ) -> TensorType:
        check_float(self.name, x)
        axis = normalize_axis(self.name, self.axis, x.rank)
        check_parameters(self.name, x.shape[axis:], scale=scale, bias=bias)
        check_epsilon(self.name, self.epsilon)
        return x

    def evaluate(self, x: Array, scale: Array | None = None, bias: Array | None = None) -> Array:
        y = standardize_array(x, self._axes(x.ndim), self.epsilon)
        y = y if scale is None else y * scale
        return y if bias is None else y + bias

    def decompose(self, x: Value, scale: Value | None = None, bias: Value | None = None) -> Value:
        dtype = statistics_dtype(x, scale, bias)
        y, _ = standardize(cast_to(x, dtype), self._axes(x.rank), self.epsilon)
        y = y if scale is None else y * cast_to(scale, dtype)
        y = y if bias is None else y + cast_to(bias, dtype)
        return cast_to(y, x.dtype)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x, *parameters = node.operands
        dtype = statistics_dtype(*node.operands)
        axes = self._axes(x.rank)
        normal, inverse = standardize(cast_to(x, dtype), axes, self.epsilon)
        arriving = cast_to(grad, dtype)
        scaled = arriving * cast_to(parameters[0], dtype) if parameters else arriving
        along = reduce.mean(scaled * normal, axes, keepdims=True)
        by_x = inverse * (scaled - reduce.mean(scaled, axes, keepdims=True) - normal * along)
        return cast_to(by_x, x.dtype), *by_parameters(parameters, arriving, normal)

    def _axes(self, rank: int) -> tuple[int, ...]:
        return tuple(range(normalize_axis(self.name, self.axis, rank), rank))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls(2), (draw(2, 3, 8), draw(8), draw(8)))
        yield Sample(cls(1), (draw(2, 3, 4), draw(3, 4), draw(3, 4)), "two axes")
        yield Sample(cls(1), (draw(4, 5),), "no parameters")
        yield Sample(cls(1), (draw(4, 5), draw(5)), "no bias")
        yield Sample(cls(-1, 0.1), (draw(6)[::-1], draw(6)), "vector, negative axis, strided")
        yield Sample(cls(1), (draw(2, 1),), "rows of one", False)
        yield Sample(cls(1), (np.zeros((0, 4), np.float32), draw(4), draw(4)), "no rows", False)
        yield Sample(cls(1), (np.zeros((3, 0), np.float32),), "empty rows", False)
        yield Sample(cls(1), (SPECIAL,), "special", False)


@function
def layer_norm(
    x: Operand,
    scale: Operand | None = None,
    bias: Operand | None = None,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> Value:
    """Standardise over the axes from ``axis`` to the last; times ``scale``, plus ``bias``."""
    value = reduce.as_float(x)
    made = LayerNorm(normalize_axis("layer_norm", axis, value.rank), epsilon)
    if scale is None:
        return apply(made, value) if bias is None else _plus(apply(made, value), bias)
    return apply(made, value, *list_parameters(scale, bias))


@op("rms_norm")
class RmsNorm(Op):
    """x / sqrt(mean(x²) + epsilon) over the axes from ``axis`` to the last, times ``scale``."""

    axis: int
    epsilon: float = 1e-6

    def infer(self, x: TensorType, scale: TensorType | None = None) -> TensorType:
        check_float(self.name, x)
        axis = normalize_axis(self.name, self.axis, x.rank)
        check_parameters(self.name, x.shape[axis:], scale=scale)
        check_epsilon(self.name, self.epsilon)
        return x

    def evaluate(self, x: Array, scale: Array | None = None) -> Array:
        squares = _mean(np.square(x), self._axes(x.ndim))
        y = x / np.sqrt(squares + x.dtype.type(self.epsilon))
        return np.asarray(y if scale is None else y * scale)

    def decompose(self, x: Value, scale: Value | None = None) -> Value:
        dtype = statistics_dtype(x, scale)
        exact = cast_to(x, dtype)
        y = exact * self._inverse(exact)
        return cast_to(y if scale is None else y * cast_to(scale, dtype), x.dtype)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x, *parameters = node.operands
        dtype = statistics_dtype(*node.operands)
        exact, arriving = cast_to(x, dtype), cast_to(grad, dtype)
        inverse = self._inverse(exact)
        normal = exact * inverse
        scaled = arriving * cast_to(parameters[0], dtype) if parameters else arriving
        along = reduce.mean(scaled * normal, self._axes(x.rank), keepdims=True)
        by_x = inverse * (scaled - normal * along)
        return cast_to(by_x, x.dtype), *by_parameters(parameters, arriving, normal)

    def _inverse(self, x: Value) -> Value:
        squares = reduce.mean(x * x, self._axes(x.rank), keepdims=True)
        return math_ops.rsqrt(squares + self.epsilon)

    def _axes(self, rank: int) -> tuple[int, ...]:
        return tuple(range(normalize_axis(self.name, self.axis, rank), rank))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls(2), (draw(2, 3, 8), draw(8)))
        yield Sample(cls(1), (draw(2, 3, 4), draw(3, 4)), "two axes")
        yield Sample(cls(1), (draw(4, 5),), "no scale")
        yield Sample(cls(-1, 0.1), (draw(6)[::-1], draw(6)), "vector, negative axis, strided")
        yield Sample(cls(1), (np.zeros((2, 3), np.float32),), "zeros")
        yield Sample(cls(1), (np.zeros((0, 4), np.float32), draw(4)), "no rows", False)
        yield Sample(cls(1), (np.zeros((3, 0), np.float32),), "empty rows", False)
        yield Sample(cls(1), (SPECIAL,), "special", False)


@function
def rms_norm(
    x: Operand, scale: Operand | None = None, axis: int = -1, epsilon: float = 1e-6
) -> Value:
    """x over its root mean square along the axes from ``axis`` to the last, times ``scale``."""
    value = reduce.as_float(x)
    made = RmsNorm(normalize_axis("rms_norm", axis, value.rank), epsilon)
    return apply(made, value, *list_parameters(scale, None))


@op("group_norm")
class GroupNorm(Op):
    """Standardises each example over the channels of each of ``groups`` groups and all positions.

    ``x`` is [batch, channels, ...]; ``scale`` and ``bias`` have one element for each channel.
    """

    groups: int
    epsilon: float = 1e-5

    def infer(
        self, x: TensorType, scale: TensorType | None = None, bias: TensorType | None = None
    ) -> TensorType:
        check_channels(self.name, x, least=2)
        require(
            self.groups >= 1,
            "group_norm: groups must be positive",
            expected="an integer of at least 1",
            found=self.groups,
        )
        channels = x.shape[1]
        require(
            not isinstance(channels, int) or channels % self.groups == 0,
            "group_norm: the channels do not divide into groups",
            expected=f"a multiple of {self.groups}",
            found=channels,
        )
        check_parameters(self.name, (channels,), scale=scale, bias=bias)
        check_epsilon(self.name, self.epsilon)
        return x

    def evaluate(self, x: Array, scale: Array | None = None, bias: Array | None = None) -> Array:
        batch, channels, *sizes = x.shape
        grouped = x.reshape(batch, self.groups, channels // self.groups, *sizes)
        axes = tuple(range(2, grouped.ndim))
        y = standardize_array(grouped, axes, self.epsilon).reshape(x.shape)
        y = y if scale is None else y * per_channel(scale, x.ndim)
        return y if bias is None else y + per_channel(bias, x.ndim)

    def decompose(self, x: Value, scale: Value | None = None, bias: Value | None = None) -> Value:
        dtype = statistics_dtype(x, scale, bias)
        batch, channels, *sizes = x.shape
        grouped = (batch, self.groups, channels // self.groups, *sizes)
        y = apply(LayerNorm(2, self.epsilon), shape_ops.reshape(cast_to(x, dtype), grouped))
        # Scaled while it is in groups, so that all of it happens in one index space.
        by_group = (*grouped[1:3], *(1,) * len(sizes))
        if scale is not None:
            y = y * shape_ops.reshape(cast_to(scale, dtype), by_group)
        if bias is not None:
            y = y + shape_ops.reshape(cast_to(bias, dtype), by_group)
        return cast_to(shape_ops.reshape(y, x.shape), x.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls(2), (draw(2, 4, 3, 3), draw(4), draw(4)))
        yield Sample(cls(1), (draw(2, 4, 5), draw(4)), "one group, no bias")
        yield Sample(cls(3), (draw(2, 3, 4),), "a group for each channel")
        yield Sample(cls(2, 0.1), (draw(3, 6), draw(6), draw(6)), "no positions")
        yield Sample(cls(2), (draw(4, 8, 6)[::2, ::-2, ::3],), "strided")
        yield Sample(cls(2), (np.zeros((0, 4, 3), np.float32), draw(4), draw(4)), "empty", False)


@function
def group_norm(
    x: Operand,
    groups: int,
    scale: Operand | None = None,
    bias: Operand | None = None,
    epsilon: float = 1e-5,
) -> Value:
    """Standardise x[batch, channels, ...] within ``groups`` groups of channels."""
    value = reduce.as_float(x)
    made = GroupNorm(groups, epsilon)
    if scale is None and bias is not None:
        return _plus(apply(made, value), column(shape_ops.one_value(bias), value.rank))
    return apply(made, value, *list_parameters(scale, bias))


@op("instance_norm")
class InstanceNorm(Op):
    """Standardises each channel of each example over its positions.

    ``x`` is [batch, channels, ...]; ``scale`` and ``bias`` have one element for each channel.
    """

    epsilon: float = 1e-5

    def infer(
        self, x: TensorType, scale: TensorType | None = None, bias: TensorType | None = None
    ) -> TensorType:
        check_channels(self.name, x, least=3)
        check_parameters(self.name, (x.shape[1],), scale=scale, bias=bias)
        check_epsilon(self.name, self.epsilon)
        return x

    def evaluate(self, x: Array, scale: Array | None = None, bias: Array | None = None) -> Array:
        y = standardize_array(x, tuple(range(2, x.ndim)), self.epsilon)
        y = y if scale is None else y * per_channel(scale, x.ndim)
        return y if bias is None else y + per_channel(bias, x.ndim)

    def decompose(self, x: Value, scale: Value | None = None, bias: Value | None = None) -> Value:
        dtype = statistics_dtype(x, scale, bias)
        normal = apply(LayerNorm(2, self.epsilon), cast_to(x, dtype))
        return cast_to(affine(normal, scale, bias), x.dtype)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls(), (draw(2, 3, 4, 3), draw(3), draw(3)))
        yield Sample(cls(0.1), (draw(2, 3, 5), draw(3)), "1-d, no bias")
        yield Sample(cls(), (draw(1, 2, 3, 2, 2),), "3-d, no parameters")
        yield Sample(cls(), (draw(2, 6, 8)[:, ::2, ::-1],), "strided")
        yield Sample(cls(), (np.zeros((0, 3, 4), np.float32), draw(3), draw(3)), "empty", False)


@function
def instance_norm(
    x: Operand,
    scale: Operand | None = None,
    bias: Operand | None = None,
    epsilon: float = 1e-5,
) -> Value:
    """Standardise each channel of x[batch, channels, ...] over its positions."""
    value = reduce.as_float(x)
    made = InstanceNorm(epsilon)
    if scale is None and bias is not None:
        return _plus(apply(made, value), column(shape_ops.one_value(bias), value.rank))
    return apply(made, value, *list_parameters(scale, bias))


# The arithmetic that the norms share: in NumPy, then as graph -------------------------------------


def standardize_array(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """(x - mean) / sqrt(variance + epsilon)."""
    centred = x - _mean(x, axes)
    deviation = np.sqrt(_mean(np.square(centred), axes) + x.dtype.type(epsilon))
    return np.asarray(centred / deviation)


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    count = prod(x.shape[axis] for axis in axes)
    with np.errstate(invalid="ignore"):
        return np.asarray(reduce.sum_axes(x, axes, keepdims=True) / x.dtype.type(count))


def per_channel(parameter: Array, rank: int) -> Array:
    """A vector that lies along axis 1 of an operand of this rank."""
    return parameter.reshape(-1, *(1,) * (rank - 2))


def standardize(x: Value, axes: tuple[int, ...], epsilon: float) -> tuple[Value, Value]:
    """(x - mean) * inverse and the inverse, 1 / sqrt(variance + epsilon), which keeps the axes."""
    centred = x - reduce.mean(x, axes, keepdims=True)
    variance = reduce.mean(centred * centred, axes, keepdims=True)
    inverse = math_ops.rsqrt(variance + epsilon)
    return centred * inverse, inverse


def affine(x: Value, scale: Value | None, bias: Value | None) -> Value:
    """``x * scale + bias`` with one element of each for every channel (axis 1)."""
    y = x if scale is None else x * column(cast_to(scale, x.dtype), x.rank)
    return y if bias is None else y + column(cast_to(bias, x.dtype), x.rank)


def by_parameters(parameters: list[Value], grad: Value, normal: Value) -> list[Value]:
    """The gradients of a scale and a bias that broadcast along the leading axes."""
    if not parameters:
        return []
    leading = tuple(range(grad.rank - parameters[0].rank))
    sums = [reduce.sum(grad * normal, leading), reduce.sum(grad, leading)]
    return [
        cast_to(total, parameter.dtype) for total, parameter in zip(sums, parameters, strict=False)
    ]


def statistics_dtype(*values: Value | None) -> DType:
    """The dtype to compute in: wide enough for every operand, f32 at least."""
    dtypes = [wide(value.dtype) for value in values if value is not None]
    common = dtypes[0]
    for dtype in dtypes[1:]:
        common = promote(common, dtype)
    return common


def list_parameters(scale: Operand | None, bias: Operand | None) -> list[Operand]:
    """The parameters that there are."""
    return [item for item in (scale, bias) if item is not None]


def _plus(x: Value, bias: Operand) -> Value:
    return cast_to(x + bias, x.dtype)


def column(vector: Value, rank: int) -> Value:
    """A vector that lies along axis 1 of an operand of this rank."""
    return shape_ops.reshape(vector, (*vector.shape, *(1,) * (rank - 2)))


# Type rules ---------------------------------------------------------------------------------------


def check_float(name: str, x: TensorType) -> None:
    """The operand must be a real float."""
    require(
        x.dtype.is_float,
        f"{name}: a real float operand is needed",
        expected="a float dtype",
        found=x,
    )


def check_channels(name: str, x: TensorType, least: int) -> None:
    """The operand must be a float [batch, channels, ...]."""
    check_float(name, x)
    require(
        x.rank >= least,
        f"{name}: the operand has too few dimensions",
        expected=f"rank {least} or more: [batch, channels{', *spatial' if least > 2 else ', ...'}]",
        found=x,
    )


def check_parameters(name: str, shape: Shape, **parameters: TensorType | None) -> None:
    """Parameters must be floats of this shape."""
    for label, type_ in parameters.items():
        if type_ is None:
            continue
        check_float(name, type_)
        require(
            type_.rank == len(shape),
            f"{name}: the {label} does not fit",
            expected=format_shape(shape),
            found=type_,
        )
        for wanted, found in zip(shape, type_.shape, strict=True):
            same_dim(name, f"the dimensions of operand and {label}", wanted, found)


def check_epsilon(name: str, epsilon: float) -> None:
    """epsilon must not be negative."""
    require(
        epsilon >= 0,
        f"{name}: epsilon is negative",
        expected="a number of at least 0",
        found=epsilon,
    )


def draw(*shape: int) -> Array:
    """Sample data: the same for the same shape."""
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32) + 0.5


SPECIAL = np.array(
    [[1, np.nan, 2], [np.inf, 0, 1], [-np.inf, 0, np.inf], [-0.0, 0.0, -0.0], [3, 3, 3]],
    np.float32,
)
