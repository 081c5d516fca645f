"""Collectives: ops that combine values across the devices along one axis of a mesh.

A graph with collectives runs on every device with the device's own part of the data. ``mesh_axis``
names the axis and ``size`` says how many devices lie along it; ``ir.mesh`` simulates the whole.

Gradients are those of the function from the operands of *all* devices to the results of all: the
gradient that arrives on a device belongs to the result on that device, and the loss is the sum of
what every device computes. So an ``all_reduce`` of a sum has an ``all_reduce`` for its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce as fold
from typing import Any, Literal, TypeAlias

import numpy as np

from monograph.ir.build import Operand, apply
from monograph.ir.dims import Dim, provably_different
from monograph.ir.graph import Node, Value
from monograph.ir.lower import LoopBuilder
from monograph.ir.mesh import Collective
from monograph.ir.op import Gradients, Sample, Trait, op
from monograph.ir.operators import function
from monograph.ir.types import Array, TensorType, i64, wide
from monograph.ops import data, elementwise, reduce
from monograph.ops import shape as shape_ops
from monograph.ops.rules import normalize_axis, require
from monograph.ops.shape import one_value

Reduction: TypeAlias = Literal["sum", "mean", "max", "min", "prod"]

_COMBINE: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "mean": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}
_MOVES = Trait.COLLECTIVE | Trait.STORAGE


@op("all_reduce", traits=Trait.COLLECTIVE)
class AllReduce(Collective):
    """The devices' operands combined element by element; every device gets the result."""

    mesh_axis: str
    size: int
    reduction: Reduction = "sum"

    def infer(self, x: TensorType) -> TensorType:
        _check_size(self)
        _check_reduction(self.name, self.reduction, x)
        return x

    def evaluate_group(self, shards: list[Array]) -> list[Array]:
        return [_combine(self.reduction, shards)] * len(shards)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x = node.operands[0]
        total = all_reduce(grad, self.mesh_axis, self.size)
        return (_reduction_gradient(self, self.reduction, x, node.result, total),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = _sample_operand()
        for reduction in ("sum", "mean", "max", "min", "prod"):
            yield Sample(cls("data", 1, reduction), (x,), reduction)
        yield Sample(cls("data", 1), (np.arange(4),), "i64")
        yield Sample(cls("data", 1), (np.asarray(2.0, np.float32),), "scalar")
        yield Sample(cls("data", 1), (x[:0],), "empty", False)


@function
def all_reduce(x: Operand, mesh_axis: str, size: int, reduction: Reduction = "sum") -> Value:
    """The sum (mean, max, min, prod) of ``x`` over the devices along a mesh axis, on each."""
    return apply(AllReduce(mesh_axis, size, reduction), x)


@op("all_gather", traits=_MOVES)
class AllGather(Collective):
    """The devices' operands joined along ``axis``, in order; every device gets the whole."""

    mesh_axis: str
    size: int
    axis: int = 0

    def infer(self, x: TensorType) -> TensorType:
        _check_size(self)
        axis = normalize_axis(self.name, self.axis, x.rank)
        return x.with_shape(_with_dim(x.shape, axis, x.shape[axis] * self.size))

    def evaluate_group(self, shards: list[Array]) -> list[Array]:
        return [np.concatenate(shards, self.axis)] * len(shards)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        return (reduce_scatter(grad, self.mesh_axis, self.size, self.axis),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = _sample_operand()
        yield Sample(cls("model", 1, 1), (x,))
        yield Sample(cls("model", 1, -1), (x.T,), "strided")
        yield Sample(cls("model", 1), (x[:0],), "empty", False)


@function
def all_gather(x: Operand, mesh_axis: str, size: int, axis: int = 0) -> Value:
    """The parts that the devices along a mesh axis hold, joined along ``axis``."""
    value = one_value(x)
    return apply(AllGather(mesh_axis, size, normalize_axis("all_gather", axis, value.rank)), value)


@op("reduce_scatter", traits=Trait.COLLECTIVE)
class ReduceScatter(Collective):
    """The devices' operands combined, and cut along ``axis``: each device gets its own part."""

    mesh_axis: str
    size: int
    axis: int = 0
    reduction: Reduction = "sum"

    def infer(self, x: TensorType) -> TensorType:
        _check_size(self)
        _check_reduction(self.name, self.reduction, x)
        axis = normalize_axis(self.name, self.axis, x.rank)
        _check_divisible(self, x, axis)
        return x.with_shape(_with_dim(x.shape, axis, x.shape[axis] // self.size))

    def evaluate_group(self, shards: list[Array]) -> list[Array]:
        return np.split(_combine(self.reduction, shards), len(shards), self.axis)

    def vjp(self, node: Node, grad: Value) -> Gradients:
        x = node.operands[0]
        total = all_gather(grad, self.mesh_axis, self.size, self.axis)
        whole = node.result
        if self.reduction in ("max", "min"):
            whole = all_gather(whole, self.mesh_axis, self.size, self.axis)
        return (_reduction_gradient(self, self.reduction, x, whole, total),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = _sample_operand()
        for reduction in ("sum", "mean", "max", "min", "prod"):
            yield Sample(cls("data", 1, 1, reduction), (x,), reduction)
        yield Sample(cls("data", 1, -1), (x.T,), "strided")
        yield Sample(cls("data", 1), (x[:0],), "empty", False)


@function
def reduce_scatter(
    x: Operand, mesh_axis: str, size: int, axis: int = 0, reduction: Reduction = "sum"
) -> Value:
    """This device's part, along ``axis``, of the sum over the devices along a mesh axis."""
    value = one_value(x)
    normal = normalize_axis("reduce_scatter", axis, value.rank)
    return apply(ReduceScatter(mesh_axis, size, normal, reduction), value)


@op("all_to_all", traits=_MOVES)
class AllToAll(Collective):
    """Each device cuts its operand along ``split_axis`` and sends part ``i`` to device ``i``.

    What arrives is joined along ``concat_axis``, in the order of the senders.
    """

    mesh_axis: str
    size: int
    split_axis: int
    concat_axis: int

    def infer(self, x: TensorType) -> TensorType:
        _check_size(self)
        split = normalize_axis(self.name, self.split_axis, x.rank)
        concat = normalize_axis(self.name, self.concat_axis, x.rank)
        _check_divisible(self, x, split)
        shape = _with_dim(x.shape, split, x.shape[split] // self.size)
        return x.with_shape(_with_dim(shape, concat, shape[concat] * self.size))

    def evaluate_group(self, shards: list[Array]) -> list[Array]:
        parts = [np.split(shard, len(shards), self.split_axis) for shard in shards]
        return [
            np.concatenate([sent[device] for sent in parts], self.concat_axis)
            for device in range(len(shards))
        ]

    def vjp(self, node: Node, grad: Value) -> Gradients:
        split, concat = self.concat_axis, self.split_axis
        return (all_to_all(grad, self.mesh_axis, self.size, split, concat),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = _sample_operand()
        yield Sample(cls("model", 1, 0, 1), (x,))
        yield Sample(cls("model", 1, -1, -2), (x.T,), "strided")
        yield Sample(cls("model", 1, 0, 0), (x[:0],), "empty", False)


@function
def all_to_all(x: Operand, mesh_axis: str, size: int, split_axis: int, concat_axis: int) -> Value:
    """Trade a cut along ``concat_axis`` for one along ``split_axis``: a distributed transpose."""
    value = one_value(x)
    split, concat = (
        normalize_axis("all_to_all", axis, value.rank) for axis in (split_axis, concat_axis)
    )
    return apply(AllToAll(mesh_axis, size, split, concat), value)


@op("permute", traits=_MOVES)
class Permute(Collective):
    """Send operands between devices as ``pairs`` of (source, target) say.

    A device that nothing is sent to gets zeros.
    """

    mesh_axis: str
    size: int
    pairs: tuple[tuple[int, int], ...]

    def infer(self, x: TensorType) -> TensorType:
        _check_size(self)
        require(
            all(len(pair) == 2 for pair in self.pairs),
            "permute: not a pair",
            expected="(source, target) each",
            found=self.pairs,
        )
        for role, devices in zip(("source", "target"), zip(*self.pairs, strict=True), strict=False):
            require(
                all(0 <= device < self.size for device in devices),
                f"permute: a {role} is not a device of the group",
                expected=f"0 to {self.size - 1}",
                found=devices,
            )
            require(
                len(set(devices)) == len(devices),
                f"permute: a {role} is named twice",
                expected="each device at most once as source and once as target",
                found=self.pairs,
            )
        return x

    def evaluate_group(self, shards: list[Array]) -> list[Array]:
        results = [np.zeros_like(shard) for shard in shards]
        for source, target in self.pairs:
            results[target] = shards[source]
        return results

    def lower_loops(self, b: LoopBuilder) -> None:
        dtype = wide(b.results[0].dtype)
        b.fill(b.result(), lambda at: b.read(0, at) if self.pairs else b.literal(0, dtype))

    def vjp(self, node: Node, grad: Value) -> Gradients:
        back = [(target, source) for source, target in self.pairs]
        return (permute(grad, self.mesh_axis, self.size, back),)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        x = _sample_operand()
        yield Sample(cls("stage", 1, ((0, 0),)), (x,))
        yield Sample(cls("stage", 1, ()), (x.T,), "nothing arrives")
        yield Sample(cls("stage", 1, ((0, 0),)), (x[:0],), "empty", False)


@function
def permute(x: Operand, mesh_axis: str, size: int, pairs: Sequence[tuple[int, int]]) -> Value:
    """What the device that is paired with this one as its source holds; zeros if none is."""
    frozen = tuple((int(source), int(target)) for source, target in pairs)
    return apply(Permute(mesh_axis, size, frozen), x)


@op("axis_index", traits=_MOVES)
class AxisIndex(Collective):
    """Where this device lies along a mesh axis, as an ``i64`` scalar from 0 to ``size - 1``."""

    mesh_axis: str
    size: int

    def infer(self) -> TensorType:
        _check_size(self)
        return TensorType(i64, ())

    def evaluate_group(self, shards: list[Array]) -> list[Array]:
        return [np.asarray(index, np.int64) for index in range(len(shards))]

    def lower_loops(self, b: LoopBuilder) -> None:
        b.fill(b.result(), lambda _: b.index(0))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        yield Sample(cls("data", 1), ())


@function
def axis_index(mesh_axis: str, size: int) -> Value:
    """This device's coordinate along a mesh axis of that size."""
    return apply(AxisIndex(mesh_axis, size))


def _combine(reduction: str, shards: Sequence[Array]) -> Array:
    """Element by element, in the order of the devices."""
    total: Array = np.asarray(fold(_COMBINE[reduction], shards))
    return total / len(shards) if reduction == "mean" else total


def _reduction_gradient(
    op_: AllReduce | ReduceScatter, reduction: str, x: Value, result: Value, total: Value
) -> Value:
    """The gradient of one device's operand ``x``.

    ``result`` is the combined value and ``total`` the gradient of it, both whole and summed over
    the devices that hold it. A tie in a max or min shares the gradient equally.
    """
    axis, size = op_.mesh_axis, op_.size
    if reduction == "sum":
        return total
    if reduction == "mean":
        return elementwise.divide(total, float(size))
    if reduction == "prod":
        everyone = all_gather(shape_ops.unsqueeze(x, 0), axis, size)
        with x.graph.as_current():
            devices = data.iota((size, *[1] * x.rank))
            own = elementwise.equal(devices, axis_index(axis, size))
        others = reduce.prod(elementwise.where(own, 1.0, everyone), 0)
        return total * others
    chosen = elementwise.equal(x, result)
    ties = all_reduce(elementwise.cast(chosen, x.dtype), axis, size)
    return elementwise.where(chosen, total / ties, 0.0)


def _check_size(op_: Collective) -> None:
    require(
        op_.size >= 1,
        f"{op_.name}: a group has at least one device",
        expected="a size of 1 or more",
        found=op_.size,
    )


def _check_reduction(name: str, reduction: str, x: TensorType) -> None:
    require(
        reduction in _COMBINE,
        f"{name}: there is no such reduction",
        expected=", ".join(_COMBINE),
        found=reduction,
    )
    if reduction == "mean":
        fits, expected = x.dtype.is_differentiable, "a float or complex dtype"
    elif reduction in ("max", "min"):
        fits, expected = x.dtype.is_float or x.dtype.is_integer, "a real number type"
    else:
        fits, expected = x.dtype.is_differentiable or x.dtype.is_integer, "a number type"
    require(fits, f"{name}: no {reduction} of this dtype", expected=expected, found=x)


def _check_divisible(op_: Collective, x: TensorType, axis: int) -> None:
    require(
        not provably_different(x.shape[axis] % op_.size, 0),
        f"{op_.name}: the devices' parts are not equal",
        expected=f"dimension {axis} to be a multiple of {op_.size}",
        found=x,
    )


def _with_dim(shape: Sequence[Dim], axis: int, dim: Dim) -> tuple[Dim, ...]:
    return (*shape[:axis], dim, *shape[axis + 1 :])


def _sample_operand() -> Array:
    return np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
