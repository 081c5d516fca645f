"""Gather, scatter, top-k, and the positions of elements that hold a condition."""

from __future__ import annotations

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import apply, apply_many, cast_to
from monograph.ir.dims import Dim
from monograph.ir.graph import Value
from monograph.ir.types import i64
from monograph.ops.index import Gather, Nonzero, PutAlongAxis, Scatter, Take, TakeAlongAxis
from monograph.ops.rules import normalize_axis
from monograph.ops.sorting import TopK
from monograph.ops.statistics import Unique

_MODES = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}


# Reading.


@converter("Gather")
def gather(node: OnnxNode) -> Value:
    """The slices at indices along an axis."""
    x = node.input(0)
    axis = normalize_axis("Gather", node.integer("axis", 0), x.rank)
    return apply(Take(axis), x, node.input(1))


@converter("GatherElements")
def gather_elements(node: OnnxNode) -> Value:
    """For each index the element there along an axis, other positions kept."""
    x = node.input(0)
    axis = normalize_axis("GatherElements", node.integer("axis", 0), x.rank)
    return apply(TakeAlongAxis(axis), x, node.input(1))


@converter("GatherND")
def gather_nd(node: OnnxNode) -> Value:
    """The parts that vectors of indices name."""
    _need_vectors(node)
    return apply(Gather(node.integer("batch_dims", 0)), node.input(0), node.input(1))


def _need_vectors(node: OnnxNode) -> None:
    """Indices whose last dimension, the length of the vectors, is known."""
    indices = node.input(1)
    if indices.rank and not isinstance(indices.shape[-1], int):
        raise NotStatic(f"{node.name}: how many axes are indexed is not known before it runs")


@converter("ReverseSequence")
def reverse_sequence(node: OnnxNode) -> Value:
    """The first elements of each sequence of a batch in reverse, as many as its length says."""
    x, lengths = node.input(0), node.input(1)
    time = normalize_axis("ReverseSequence", node.integer("time_axis", 0), x.rank)
    batch = normalize_axis("ReverseSequence", node.integer("batch_axis", 1), x.rank)
    if time == batch or lengths.rank != 1:
        raise node.error(
            "two axes and a length for each sequence are needed",
            found=f"axes {time} and {batch} with {x.type} and {lengths.type}",
        )
    ramp = F.iota(_beside(x.rank, time, x.shape[time]), time)
    ends = F.reshape(cast_to(lengths, i64), _beside(x.rank, batch, lengths.shape[0]))
    places = F.where(F.less(ramp, ends), ends - ramp - 1, ramp)
    return F.take_along_axis(x, places, time)


def _beside(rank: int, axis: int, size: Dim) -> tuple[Dim, ...]:
    """A shape of ones but for one axis."""
    return (*[1] * axis, size, *[1] * (rank - axis - 1))


# Writing.


@converter("Scatter", "ScatterElements")
def scatter_elements(node: OnnxNode) -> Value:
    """Updates written at indices along an axis, other positions kept."""
    x = node.input(0)
    axis = normalize_axis(node.op_type, node.integer("axis", 0), x.rank)
    return apply(PutAlongAxis(axis, _mode(node)), x, node.input(1), node.input(2))


@converter("ScatterND")
def scatter_nd(node: OnnxNode) -> Value:
    """Updates written where vectors of indices say."""
    _need_vectors(node)
    return apply(Scatter(_mode(node)), node.input(0), node.input(1), node.input(2))


def _mode(node: OnnxNode) -> str:
    """How an update joins what stands in its place."""
    reduction = node.string("reduction", "none")
    if reduction not in _MODES:
        raise node.error("an unknown reduction", expected=", ".join(_MODES), found=reduction)
    return _MODES[reduction]


@converter("TensorScatter")
def tensor_scatter(node: OnnxNode) -> Value:
    """A key-value cache with new elements written at each sample's own place of the sequence."""
    cache, update, starts = node.input(0), node.input(1), node.optional(2)
    axis = normalize_axis("TensorScatter", node.integer("axis", -2), cache.rank)
    if axis == 0 or update.rank != cache.rank:
        raise node.error(
            "an update of the cache's rank and an axis behind the batch are needed",
            found=f"axis {axis}, {cache.type} and {update.type}",
        )
    places = F.iota(_beside(cache.rank, axis, update.shape[axis]), axis)
    if starts is not None:
        places = F.add(places, F.reshape(starts, _beside(cache.rank, 0, cache.shape[0])))
    mode = node.string("mode", "linear")
    if mode not in ("linear", "circular"):
        raise node.error("an unknown mode", expected="linear or circular", found=mode)
    if mode == "circular":
        size = cache.shape[axis]
        places = F.remainder(places, size if isinstance(size, int) else F.dim(size))
    return apply(PutAlongAxis(axis), cache, F.expand(places, update.shape), update)


@converter("OneHot")
def one_hot(node: OnnxNode) -> Value:
    """A new axis that holds one value at each index, and another elsewhere."""
    indices, values = node.input(0), node.input(2)
    places = indices if indices.dtype.is_integer else cast_to(indices, i64)
    depth = _depth(node)
    axis = normalize_axis("OneHot", node.integer("axis", -1), places.rank + 1)
    if values.rank != 1:
        raise node.error("two values are needed, off and on", found=str(values.type))
    known = node.constant(2)
    if known is not None and known.size == 2 and known.dtype.kind in "biuf":
        off, on = known.tolist()
        return F.one_hot(places, depth, axis, on, off, values.dtype)
    off_value, on_value = (F.reshape(each, ()) for each in F.split(values, (1, 1)))
    return F.where(F.one_hot(places, depth, axis, True, False, "bool"), on_value, off_value)


def _depth(node: OnnxNode) -> Dim:
    """The size of the new axis: a scalar or a vector of one element, of any number type."""
    found = node.need_dims(1) if node.input(1).dtype.is_integer else node.need_ints(1)
    if len(found) != 1:
        raise node.error("one depth is needed", found=str(node.input(1).type))
    return found[0]


# The places of what is wanted.


@converter("NonZero")
def nonzero(node: OnnxNode) -> Value:
    """The positions of what is not zero, a row an axis."""
    return F.transpose(positions(node, 0), (1, 0))


def positions(node: OnnxNode, index: int) -> Value:
    """The positions of what is not zero in an operand; how many is known if its contents are."""
    x, known = node.input(index), node.constant(index)
    if known is not None:
        return apply(Nonzero(int(np.count_nonzero(known))), x)
    size = x.tensor.size
    upper = size if isinstance(size, int) else size.bounds()[1]
    return apply(Nonzero(node.fresh("nonzero", 0, upper)), x)


@converter("Compress")
def compress(node: OnnxNode) -> Value:
    """The slices along an axis where a condition holds; elements if there is no axis."""
    x, condition = node.input(0), node.input(1)
    if condition.rank != 1:
        raise node.error("a vector of conditions is needed", found=str(condition.type))
    found = positions(node, 1)
    places = F.reshape(found, (found.shape[0],))
    if not node.has("axis"):
        return apply(Take(0), F.flatten(x), places)
    return apply(Take(normalize_axis("Compress", node.integer("axis"), x.rank)), x, places)


@converter("TopK")
def top_k(node: OnnxNode) -> tuple[Value, ...]:
    """The largest or smallest elements along an axis, and their indices."""
    x = node.input(0)
    axis = normalize_axis("TopK", node.integer("axis", -1), x.rank)
    counts: tuple[Dim, ...] = (node.integer("k"),) if node.opset < 10 else node.need_dims(1)
    if len(counts) != 1:
        raise node.error("one number is needed", found=str(node.input(1).type))
    largest, ordered = bool(node.integer("largest", 1)), bool(node.integer("sorted", 1))
    return apply_many(TopK(counts[0], axis, largest, ordered), x)


@converter("Unique")
def unique(node: OnnxNode) -> tuple[Value, ...]:
    """Distinct elements or slices, where each first occurs, which each is, and how often."""
    x = node.input(0)
    axis = normalize_axis("Unique", node.integer("axis"), x.rank) if node.has("axis") else None
    return distinct(node, axis, ordered=bool(node.integer("sorted", 1)))


def distinct(node: OnnxNode, axis: int | None, *, ordered: bool) -> tuple[Value, ...]:
    """The four results of ``Unique``: sorted, or in the order in which they occur."""
    x, known = node.input(0), node.constant(0)
    if known is not None:
        count: Dim = len(Unique(0, axis, ordered, True).evaluate(known)[1])
    else:
        size = x.tensor.size if axis is None else x.shape[axis]
        count = node.fresh("unique", 0, size if isinstance(size, int) else size.bounds()[1])
    return apply_many(Unique(count, axis, ordered, True), x)
