"""StableHLO operations that decompose into others: batch norms, triangles, random bits."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.stablehlo.operation import Operation, converter
from monograph.frontends.xla.random_bits import random_bits
from monograph.ir.graph import Value


def _number(operation: Operation, name: str) -> float:
    return float(ir.FloatAttr(operation.attribute(name)).value)


def _channels(operation: Operation, vector: Value) -> Value:
    """A vector beside the feature axis of the first operand."""
    shape = [1] * operation.operand.rank
    shape[operation.integer("feature_index")] = -1
    return F.reshape(vector, shape)


def _others(operation: Operation) -> tuple[int, ...]:
    """The axes that statistics are taken over: all but the feature axis."""
    feature = operation.integer("feature_index")
    return tuple(axis for axis in range(operation.operand.rank) if axis != feature)


@converter("stablehlo.batch_norm_inference")
def convert_batch_norm_inference(operation: Operation) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, of a known mean and variance."""
    x, scale, offset, mean, variance = operation.operands
    return _normalize(operation, x, scale, offset, mean, variance)


@converter("stablehlo.batch_norm_training")
def convert_batch_norm_training(operation: Operation) -> Sequence[Value]:
    """The same of the batch's own mean and variance, which are results, too."""
    x, scale, offset = operation.operands
    mean, variance = _statistics(operation, x)
    return _normalize(operation, x, scale, offset, mean, variance), mean, variance


def _statistics(operation: Operation, x: Value) -> tuple[Value, Value]:
    return F.mean(x, _others(operation)), F.variance(x, _others(operation))


def _normalize(
    operation: Operation, x: Value, scale: Value, offset: Value, mean: Value, variance: Value
) -> Value:
    deviation = F.sqrt(F.add(variance, _number(operation, "epsilon")))
    centred = F.subtract(x, _channels(operation, mean))
    normed = F.divide(centred, _channels(operation, deviation))
    return F.add(F.multiply(normed, _channels(operation, scale)), _channels(operation, offset))


@converter("stablehlo.batch_norm_grad")
def convert_batch_norm_grad(operation: Operation) -> Sequence[Value]:
    """The gradients of operand, scale and offset in training."""
    x, scale, mean, variance, gradient = operation.operands
    axes = _others(operation)
    deviation = F.sqrt(F.add(variance, _number(operation, "epsilon")))
    normed = F.divide(F.subtract(x, _channels(operation, mean)), _channels(operation, deviation))
    of_offset = F.sum(gradient, axes)
    of_scale = F.sum(F.multiply(gradient, normed), axes)
    centred = F.subtract(gradient, _channels(operation, F.mean(gradient, axes)))
    along = F.mean(F.multiply(gradient, normed), axes)
    of_normed = F.subtract(centred, F.multiply(normed, _channels(operation, along)))
    factor = _channels(operation, F.divide(scale, deviation))
    return F.multiply(of_normed, factor), of_scale, of_offset


@converter("stablehlo.triangular_solve")
def convert_triangular_solve(operation: Operation) -> Value:
    """op(a) x = b, or x op(a) = b, for a triangle a."""
    a, b = operation.operands
    left, upper = operation.flag("left_side"), not operation.flag("lower")
    kind = operation.word("transpose_a")
    a = F.conj(a) if kind == "ADJOINT" and a.dtype.is_complex else a
    is_transposed = (kind in ("TRANSPOSE", "ADJOINT")) == left
    if is_transposed:
        a, upper = F.swapaxes(a, -1, -2), not upper
    b = b if left else F.swapaxes(b, -1, -2)
    x = F.triangular_solve(a, b, upper=upper, unit_diagonal=operation.flag("unit_diagonal"))
    return x if left else F.swapaxes(x, -1, -2)


@converter("stablehlo.map")
def convert_map(operation: Operation) -> Sequence[Value]:
    """A function of scalars, applied element by element: its operations broadcast over tensors."""
    body = operation.source.regions[0].blocks[0].operations
    scalars = {"stablehlo.constant", "stablehlo.return"}
    for each in body:
        elementwise = each.operation.name in scalars or all(
            ir.RankedTensorType(result.type).rank == 0 for result in each.results
        )
        if not elementwise or len(each.operation.regions):
            raise UnsupportedError(f"a map of {each.operation.name} has no meaning here")
    (made,) = operation.region(0, operation.operands)
    return [F.broadcast_to(made, operation.operand.shape)]


@converter("stablehlo.rng_bit_generator")
def convert_random_bits(operation: Operation) -> Sequence[Value]:
    """The next state and random bits, by Threefry or Philox; the default is the latter."""
    is_threefry = operation.word("rng_algorithm") == "THREE_FRY"
    bits = operation.types[1]
    algorithm = "three_fry" if is_threefry else "philox"
    return random_bits(operation.operand, bits.static_shape(), bits.dtype, algorithm)
