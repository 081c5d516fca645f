"""Batch normalisation: by statistics that were learned (inference) or are the batch's (training).

Channels lie along axis 1. Statistics of narrow floats are computed in f32; the parameters may have
another float dtype than the operand, and the result has the operand's.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from monograph.ir.build import Operand, apply, apply_many, cast_to
from monograph.ir.dims import Dim, shape_product
from monograph.ir.graph import Node, Value
from monograph.ir.op import Gradients, Op, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, f32, f64, wide
from monograph.ops import data, norm, reduce
from monograph.ops import math as math_ops
from monograph.ops import shape as shape_ops


@op("batch_norm", traits=Trait.KEEPS_AXES)
class BatchNorm(Op):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, with one of each for every channel."""

    epsilon: float = 1e-5

    def infer(
        self,
        x: TensorType,
        scale: TensorType,
        bias: TensorType,
        mean: TensorType,
        variance: TensorType,
    ) -> TensorType:
        norm.check_channels(self.name, x, least=2)
        norm.check_parameters(
            self.name, (x.shape[1],), scale=scale, bias=bias, mean=mean, variance=variance
        )
        norm.check_epsilon(self.name, self.epsilon)
        return x

    def evaluate(self, x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
        deviation = np.sqrt(variance + variance.dtype.type(self.epsilon))
        centred = x - norm.per_channel(mean, x.ndim)
        normal = centred / norm.per_channel(deviation, x.ndim)
        scaled = normal * norm.per_channel(scale, x.ndim)
        return np.asarray(scaled + norm.per_channel(bias, x.ndim))

    def decompose(self, x: Value, scale: Value, bias: Value, mean: Value, variance: Value) -> Value:
        dtype = norm.statistics_dtype(x, scale, bias, mean, variance)
        centred = cast_to(x, dtype) - norm.column(cast_to(mean, dtype), x.rank)
        normal = centred * norm.column(self._inverse(cast_to(variance, dtype)), x.rank)
        return cast_to(norm.affine(normal, scale, bias), x.dtype)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        dtype = norm.statistics_dtype(*node.operands)
        x, scale, _, mean, variance = (cast_to(operand, dtype) for operand in node.operands)
        arriving = cast_to(grad, dtype)
        inverse = self._inverse(variance)
        slope = scale * inverse
        total = _over_batch(arriving)
        along = _over_batch(arriving * (x - norm.column(mean, x.rank))) * inverse
        gradients = (
            arriving * norm.column(slope, x.rank),
            along,
            total,
            -total * slope,
            along * slope * inverse * -0.5,
        )
        return tuple(
            cast_to(gradient, operand.dtype)
            for gradient, operand in zip(gradients, node.operands, strict=True)
        )

    def _inverse(self, variance: Value) -> Value:
        return math_ops.rsqrt(variance + self.epsilon)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        def learned(channels: int) -> tuple[Array, ...]:
            generator = np.random.default_rng(channels)
            parameters = generator.normal(size=(3, channels)).astype(np.float32)
            return *parameters, generator.uniform(0.5, 2, channels).astype(np.float32)

        yield Sample(cls(), (norm.draw(2, 3, 4, 5), *learned(3)))
        yield Sample(cls(0.1), (norm.draw(4, 3), *learned(3)), "matrix")
        yield Sample(cls(), (norm.draw(2, 2, 6)[:, :, ::-2], *learned(2)), "strided")
        yield Sample(cls(), (norm.draw(1, 2, 2, 3, 2), *learned(2)), "3-d")
        yield Sample(cls(), (np.zeros((0, 3, 2), np.float32), *learned(3)), "empty", False)
        special = np.array([[np.nan, np.inf, -np.inf], [0.0, -0.0, 1.0]], np.float32)
        yield Sample(cls(), (special, *learned(3)), "special", False)


@function
def batch_norm(
    x: Operand,
    scale: Operand | None,
    bias: Operand | None,
    mean: Operand,
    variance: Operand,
    epsilon: float = 1e-5,
) -> Value:
    """Normalise x[batch, channels, ...] by statistics that are given; None scales by 1, adds 0."""
    value = reduce.as_float(x)
    parameters = _parameters(value, scale, bias)
    return apply(BatchNorm(epsilon), value, *parameters, mean, variance)


@op("batch_norm_training")
class BatchNormTraining(Op):
    """Normalises by the mean and (biased) variance of each channel over the batch.

    Returns the result and the two statistics, which have the dtype that they were computed in.
    """

    epsilon: float = 1e-5

    def infer(
        self, x: TensorType, scale: TensorType, bias: TensorType
    ) -> tuple[TensorType, TensorType, TensorType]:
        norm.check_channels(self.name, x, least=2)
        norm.check_parameters(self.name, (x.shape[1],), scale=scale, bias=bias)
        norm.check_epsilon(self.name, self.epsilon)
        statistic = TensorType(wide(x.dtype), (x.shape[1],), device=x.device)
        return x, statistic, statistic

    def evaluate(self, x: Array, scale: Array, bias: Array) -> tuple[Array, Array, Array]:
        axes = _batch_axes(x.ndim)
        count = x.dtype.type(x.size // max(x.shape[1], 1))
        mean = reduce.sum_axes(x, axes) / count
        centred = x - norm.per_channel(mean, x.ndim)
        variance = reduce.sum_axes(np.square(centred), axes) / count
        deviation = np.sqrt(variance + x.dtype.type(self.epsilon))
        normal = centred / norm.per_channel(deviation, x.ndim)
        y = normal * norm.per_channel(scale, x.ndim) + norm.per_channel(bias, x.ndim)
        return y, mean, variance

    def decompose(self, x: Value, scale: Value, bias: Value) -> tuple[Value, Value, Value]:
        exact = cast_to(x, norm.statistics_dtype(x, scale, bias))
        normal, _, mean, variance = self._normal(exact)
        statistic = wide(x.dtype)
        return (
            cast_to(norm.affine(normal, scale, bias), x.dtype),
            cast_to(mean, statistic),
            cast_to(variance, statistic),
        )

    def vjp(self, node: Node, grad: Value, grad_mean: Value, grad_variance: Value) -> Gradients:
        dtype = norm.statistics_dtype(*node.operands)
        x, scale, _ = (cast_to(operand, dtype) for operand in node.operands)
        arriving = cast_to(grad, dtype)
        normal, inverse, mean, _ = self._normal(x)
        count = shape_product(x.shape[axis] for axis in _batch_axes(x.rank))
        total, along = _over_batch(arriving), _over_batch(arriving * normal)
        slope = norm.column(_over(along, count), x.rank)
        shared = norm.column(_over(total, count), x.rank) + normal * slope
        by_x = (arriving - shared) * norm.column(scale * inverse, x.rank)
        if not _is_zero(grad_mean):
            by_x = by_x + norm.column(_over(cast_to(grad_mean, dtype), count), x.rank)
        if not _is_zero(grad_variance):
            doubled = _over(cast_to(grad_variance, dtype) * 2.0, count)
            by_x = by_x + (x - norm.column(mean, x.rank)) * norm.column(doubled, x.rank)
        return tuple(
            cast_to(gradient, operand.dtype)
            for gradient, operand in zip((by_x, along, total), node.operands, strict=True)
        )

    def _normal(self, x: Value) -> tuple[Value, Value, Value, Value]:
        """The standardised operand, 1 / deviation, mean and variance of each channel."""
        count = shape_product(x.shape[axis] for axis in _batch_axes(x.rank))
        mean = _over(_over_batch(x), count)
        centred = x - norm.column(mean, x.rank)
        variance = _over(_over_batch(centred * centred), count)
        inverse = math_ops.rsqrt(variance + self.epsilon)
        return centred * norm.column(inverse, x.rank), inverse, mean, variance

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        draw = norm.draw
        yield Sample(cls(), (draw(2, 3, 4, 5), draw(3), draw(3)))
        yield Sample(cls(0.1), (draw(4, 3), draw(3), draw(3)), "matrix")
        yield Sample(cls(), (draw(3, 4, 6)[:, ::-2, ::2], draw(2), draw(2)), "strided")
        yield Sample(cls(), (np.zeros((2, 0, 3), np.float32), draw(0), draw(0)), "empty", False)


@function
def batch_norm_training(
    x: Operand,
    scale: Operand | None = None,
    bias: Operand | None = None,
    epsilon: float = 1e-5,
) -> tuple[Value, ...]:
    """Normalise by the batch's own statistics: (result, batch mean, batch variance).

    Running statistics are state, and state is explicit: they are inputs of the graph, their new
    values are outputs, and ``graph.updates`` says which output replaces which input. PyTorch keeps
    the unbiased variance, so with ``n`` elements in each channel:

        y, mean, variance = batch_norm_training(x, scale, bias)
        new_mean = running_mean * (1 - momentum) + mean * momentum
        new_variance = running_variance * (1 - momentum) + variance * (momentum * n / (n - 1))
        graph.set_outputs([y, new_mean, new_variance])
        graph.updates = {1: 3, 2: 4}  # outputs 1 and 2 replace inputs 3 and 4
    """
    value = reduce.as_float(x)
    return apply_many(BatchNormTraining(epsilon), value, *_parameters(value, scale, bias))


def _parameters(x: Value, scale: Operand | None, bias: Operand | None) -> tuple[Operand, Operand]:
    norm.check_channels("batch_norm", x.tensor, least=2)
    with x.graph.as_current():
        return (
            data.ones((x.shape[1],), f32) if scale is None else scale,
            data.zeros((x.shape[1],), f32) if bias is None else bias,
        )


def _batch_axes(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank))


def _over_batch(x: Value) -> Value:
    """The sum of each channel, in double precision: a batch is many elements, and their mean is
    subtracted from each of them.
    """
    return cast_to(reduce.sum(cast_to(x, f64), _batch_axes(x.rank)), x.dtype)


def _over(total: Value, count: Dim) -> Value:
    """``total / count``, where the count may be symbolic."""
    if isinstance(count, int):
        return total / float(count)
    return total / cast_to(data.dim(count), total.dtype)


def _is_zero(value: Value) -> bool:
    """Whether a gradient is known to be zeros, as it is where the loss ignores a result."""
    source = value
    if isinstance(value.op, shape_ops.Expand) and value.producer is not None:
        (source,) = value.producer.operands
    return isinstance(source.op, data.Constant) and bool(source.op.data.splat == 0)
