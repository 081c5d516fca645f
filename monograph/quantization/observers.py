"""Observers: nodes that measure the activations of a graph while it runs.

    %y = relu(%x) : f32[8, 16]             %y = relu(%x) : f32[8, 16]
    return %y                       ─▶     %range = stack(min(%y), max(%y), mean(%y), …) : f32[5]
                                           %counts = scatter(…) : i32[4096]
                                           return %y, %range, %counts

The histogram's limit is an input of its own, so that one compiled program serves every batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from monograph import functional as F
from monograph.dataclass import dataclass
from monograph.errors import InputError
from monograph.ir.graph import Graph, Value
from monograph.ir.types import TensorType, f32
from monograph.quantization.histogram import BINS
from monograph.quantization.roles import (
    Role,
    input_channel_axis,
    is_fused,
    is_known,
    role_of,
)

LIMITS = "histogram_limits"
"""The name of the input that holds the limit of each histogram."""


@dataclass(frozen=True)
class Observed:
    """An activation that is observed: its name, its type, and the axis of its channels."""

    name: str
    type: str
    axis: int | None


@dataclass(frozen=True)
class ObservedGraph:
    """A graph with observers: after its own outputs come, for each activation, what was seen."""

    graph: Graph
    observed: tuple[Observed, ...]
    by_channel: bool

    def parts(self) -> int:
        """Outputs for each activation."""
        return 3 if self.by_channel else 2


def observable(graph: Graph) -> list[Value]:
    """The activations that a scheme may store as integers, in order."""
    values = [*graph.inputs, *(result for node in graph.nodes for result in node.results)]
    return [value for value in values if _may_be_stored(value)]


def insert_observers(graph: Graph, by_channel: bool = False) -> ObservedGraph:
    """A copy of a prepared graph that also measures its activations."""
    copy = graph.clone()
    values = observable(copy)
    if not values:
        raise InputError(
            "there is nothing to profile",
            expected="a model with convolutions, linear layers or matrix products in f32",
        )
    limits = copy.add_input(LIMITS, TensorType(f32, (len(values),)))
    observed, outputs = [], []
    with copy.inserting_before(None):
        for number, value in enumerate(values):
            axis = _channel_axis(value)
            limit = F.reshape(F.slice(limits, (number,), (number + 1,), axes=(0,)), ())
            outputs += [_measure(value), _count(value, limit)]
            if by_channel:
                outputs.append(_measure_channels(value, axis))
            observed.append(Observed(value.name, str(value.type), axis))
    copy.set_outputs([*copy.outputs, *outputs])
    copy.updates, copy.donated = {}, set()
    return ObservedGraph(copy, tuple(observed), by_channel)


def _may_be_stored(value: Value) -> bool:
    if not isinstance(value.type, TensorType) or value.dtype is not f32 or value.rank == 0:
        return False
    if is_known(value) or is_fused(value):
        return False
    near = list(value.users) + ([] if value.producer is None else [value.producer])
    return any(_handles_integers(node) for node in near if node is not value.graph.output_node)


def _handles_integers(node: object) -> bool:
    from monograph.ir.graph import Node

    return isinstance(node, Node) and role_of(node) is not Role.FLOAT


def _channel_axis(value: Value) -> int | None:
    """The axis along which the first contraction that reads the value sums."""
    for use in value.uses:
        if use.position == 0 and role_of(use.node) is Role.CONTRACTION:
            return input_channel_axis(use.node)
    return 1 if value.rank == 4 else value.rank - 1


def _measure(x: Value) -> Value:
    """The finite range, the mean, and how many NaNs and infinities there are."""
    finite = F.is_finite(x)
    inside = F.where(finite, x, 0.0)
    parts = (
        F.min(F.where(finite, x, float("inf"))),
        F.max(F.where(finite, x, float("-inf"))),
        F.mean(inside),
        F.cast(F.sum(F.cast(F.is_nan(x), "i64")), f32),
        F.cast(F.sum(F.cast(F.is_inf(x), "i64")), f32),
    )
    return F.stack(parts, 0)


def _count(x: Value, limit: Value) -> Value:
    """The histogram between -limit and limit; what is not finite is in a bin behind the last."""
    flat = F.reshape(x, (-1,))
    scaled = F.multiply(F.add(F.divide(flat, limit), 1.0), BINS / 2)
    place = F.clip(F.floor(F.where(F.is_finite(flat), scaled, 0.0)), 0.0, BINS - 1.0)
    chosen = F.where(F.is_finite(flat), F.cast(place, "i64"), BINS)
    zeros = F.zeros((BINS + 1,), "i32")
    counts = F.scatter(zeros, F.unsqueeze(chosen, (1,)), F.ones(chosen.shape, "i32"), "add")
    return F.slice(counts, (0,), (BINS,), axes=(0,))


def _measure_channels(x: Value, axis: int | None) -> Value:
    """The finite range and the mean of each channel: [3, channels]."""
    others = tuple(k for k in range(x.rank) if k != axis)
    finite = F.is_finite(x)
    inside = F.where(finite, x, 0.0)
    parts: Sequence[Value] = (
        F.min(F.where(finite, x, float("inf")), others) if others else inside,
        F.max(F.where(finite, x, float("-inf")), others) if others else inside,
        F.mean(inside, others) if others else inside,
    )
    return F.stack(parts, 0)
