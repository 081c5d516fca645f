"""Shapes as values, and ops that give the same elements another shape or order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monograph import functional as F
from monograph.frontends.onnx.node import NotStatic, OnnxNode
from monograph.frontends.onnx.registry import converter
from monograph.ir.build import cast_to
from monograph.ir.dims import (
    Dim,
    dim_max,
    dim_min,
    exact_quotient,
    is_static,
    provably_at_least,
    provably_equal,
    provably_less,
    shape_product,
)
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import i64
from monograph.ops.rules import broadcast_shapes, normalize_axes, normalize_axis


def dims_value(dims: Sequence[Dim]) -> Value:
    """Dimensions as a vector of the graph: a constant where all are ints."""
    if is_static(tuple(dims)):
        return current_graph().add_constant(np.array(dims, np.int64), i64)
    parts = [
        current_graph().add_constant(np.array(dim, np.int64), i64)
        if isinstance(dim, int)
        else F.dim(dim)
        for dim in dims
    ]
    return F.stack(parts)


@converter("Shape")
def shape(node: OnnxNode) -> Value:
    """The shape, or since opset 15 a part of it."""
    dims = node.input(0).shape
    start, end = node.integer("start", 0), node.integer("end", len(dims))
    return dims_value(dims[start:end] if end >= -len(dims) else ())


@converter("Size")
def size(node: OnnxNode) -> Value:
    """How many elements there are."""
    count = shape_product(node.input(0).shape)
    if isinstance(count, int):
        return current_graph().add_constant(np.array(count, np.int64), i64)
    return F.dim(count)


@converter("Reshape")
def reshape_attribute(node: OnnxNode) -> Value:
    """Another shape, given as an attribute."""
    return _reshape(node, node.ints("shape"), keep_zero=False)


@converter("Reshape", since=5)
def reshape(node: OnnxNode) -> Value:
    """Another shape, given as an operand; 0 keeps a dimension unless ``allowzero``, -1 fills."""
    return _reshape(node, node.need_dims(1), keep_zero=bool(node.integer("allowzero", 0)))


def _reshape(node: OnnxNode, wanted: Sequence[Dim], *, keep_zero: bool) -> Value:
    x = node.input(0)
    target = _without_zeros(node, x, wanted, keep_zero)
    undecided = [dim for dim in target if not _has_known_sign(dim, x)]
    if undecided and not provably_equal(shape_product(target), shape_product(x.shape)):
        # What is -1 at run time means something else than its size; but where the others leave
        # just that size for it, it means the same.
        raise NotStatic(f"{node.name}: the sign of {undecided[0]} is not known before it runs")
    holes = [axis for axis, dim in enumerate(target) if dim == -1]
    if len(holes) == 1:
        target[holes[0]] = _remaining(node, x, target)
    return F.reshape(x, target)


def _without_zeros(node: OnnxNode, x: Value, wanted: Sequence[Dim], keep_zero: bool) -> list[Dim]:
    """The wanted shape, with the operand's own sizes in the place of zeros."""
    target: list[Dim] = []
    for axis, dim in enumerate(wanted):
        if dim == 0 and not keep_zero:
            if axis >= x.rank:
                raise node.error(
                    "0 keeps a dimension that is not there", found=f"{list(wanted)} for {x.type}"
                )
            dim = x.shape[axis]
        target.append(dim)
    return target


def _has_known_sign(dim: Dim, x: Value) -> bool:
    """Whether the sign of a number is known: sizes of tensors are never negative."""
    return provably_at_least(dim, 0) or provably_less(dim, 0) or dim in x.shape


def _remaining(node: OnnxNode, x: Value, target: Sequence[Dim]) -> Dim:
    """The size that -1 stands for: exact where it can be, since it must divide."""
    known = [dim for dim in target if dim != -1]
    own = list(x.shape)
    for dim in list(known):  # what stands on both sides cancels
        if dim in own:
            own.remove(dim)
            known.remove(dim)
    divisor = shape_product(known)
    if divisor == 0:
        raise node.error("-1 cannot be worked out beside 0", found=f"{list(target)}")
    return exact_quotient(shape_product(own), divisor)


@converter("Flatten")
def flatten(node: OnnxNode) -> Value:
    """A matrix: the dimensions before ``axis``, and the others."""
    x = node.input(0)
    axis = node.integer("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise node.error("the axis is out of range", found=f"{axis} for {x.type}")
    split = axis + x.rank if axis < 0 else axis
    return F.reshape(x, (shape_product(x.shape[:split]), shape_product(x.shape[split:])))


@converter("Transpose")
def transpose(node: OnnxNode) -> Value:
    """Dimensions in another order, reversed if none is given."""
    return F.transpose(node.input(0), node.ints("perm") if node.has("perm") else None)


def axes_of(node: OnnxNode, index: int, since: int) -> tuple[int, ...] | None:
    """Axes that are an attribute before opset ``since`` and operand ``index`` from then on."""
    if node.opset < since:
        return node.ints("axes") if node.has("axes") else None
    return None if node.optional(index) is None else node.need_ints(index)


@converter("Squeeze")
def squeeze(node: OnnxNode) -> Value:
    """Without axes of size 1: those named, or all of them."""
    x, axes = node.input(0), axes_of(node, 1, 13)
    if axes is None:
        unsure = [dim for dim in x.shape if not isinstance(dim, int) and not provably_less(1, dim)]
        if any(not provably_equal(dim, 1) for dim in unsure):
            raise NotStatic(f"{node.name}: which dimensions are 1 is not known before it runs")
        return F.squeeze(x)
    return F.squeeze(x, axes)


@converter("Unsqueeze")
def unsqueeze(node: OnnxNode) -> Value:
    """With new axes of size 1."""
    axes = axes_of(node, 1, 13)
    if axes is None:
        raise node.error("axes are missing")
    return F.unsqueeze(node.input(0), axes)


@converter("Expand")
def expand(node: OnnxNode) -> Value:
    """Broadcast with a shape, which may itself be stretched."""
    x, wanted = node.input(0), node.need_dims(1)
    shape = list(broadcast_shapes("Expand", x.shape, wanted))
    for axis in range(1, len(wanted) + 1):
        if provably_at_least(wanted[-axis], 2):  # the operand's size is that, or 1
            shape[-axis] = wanted[-axis]
    return F.expand(x, shape)


@converter("Tile")
def tile_counts(node: OnnxNode) -> Value:
    """One axis repeated."""
    x = node.input(0)
    (count,), axis = node.need_dims(1), node.need_ints(2)[0]
    counts: list[Dim] = [1] * x.rank
    counts[normalize_axis("Tile", axis, x.rank)] = count
    return F.tile(x, counts)


@converter("Tile", since=6)
def tile(node: OnnxNode) -> Value:
    """The whole repeated along each axis."""
    x, counts = node.input(0), node.need_dims(1)
    if len(counts) != x.rank:
        raise node.error("one count is needed for each axis", found=f"{len(counts)} for {x.type}")
    return F.tile(x, counts)


@converter("Concat")
def concat(node: OnnxNode) -> Value:
    """Operands one after the other."""
    values = node.given()
    if len({value.dtype for value in values}) > 1:
        raise node.error(
            "one dtype is needed", found=", ".join(str(value.type) for value in values)
        )
    default = 1 if node.opset < 4 else None
    return F.concat(values, node.integer("axis", default))


@converter("Split")
def split(node: OnnxNode) -> tuple[Value, ...]:
    """Consecutive parts of an axis: of given sizes, or of one size but for the last."""
    x = node.input(0)
    axis = normalize_axis("Split", node.integer("axis", 0), x.rank)
    sizes = _split_sizes(node)
    count = len(node.proto.output)
    if sizes is None:
        total = x.shape[axis]
        part = -(-total // count) if isinstance(total, int) else total // count
        uneven = isinstance(total, int) and total % count
        if not isinstance(total, int) and not provably_equal(part * count, total):
            raise NotStatic(f"{node.name}: whether the parts are equal is not known")
        if uneven and node.opset < 18:
            raise node.error("the parts are not equal", found=f"{total} in {count} parts")
        last = total - part * (count - 1)
        sizes = (*[part] * (count - 1), last)
    if len(sizes) != count:
        raise node.error("one size is needed for each output", found=f"{len(sizes)} for {count}")
    return F.split(x, sizes, axis)


def _split_sizes(node: OnnxNode) -> tuple[Dim, ...] | None:
    if node.opset >= 13 or (node.opset < 2 and node.optional(1) is not None):
        return None if node.optional(1) is None else node.need_dims(1)
    return node.ints("split") if node.has("split") else None


@converter("Slice")
def slice_attributes(node: OnnxNode) -> Value:
    """A part of a tensor, the bounds given as attributes."""
    starts, ends = node.ints("starts"), node.ints("ends")
    axes = node.ints("axes", range(len(starts)))
    return _slice(node, starts, ends, axes, (1,) * len(starts))


@converter("Slice", since=10)
def slice_(node: OnnxNode) -> Value:
    """A part of a tensor, the bounds given as operands."""
    starts, ends = node.need_dims(1), node.need_dims(2)
    axes = tuple(range(len(starts))) if node.optional(3) is None else node.need_ints(3)
    steps = (1,) * len(starts) if node.optional(4) is None else node.need_ints(4)
    return _slice(node, starts, ends, axes, steps)


def _slice(
    node: OnnxNode,
    starts: Sequence[Dim],
    ends: Sequence[Dim],
    axes: Sequence[int],
    steps: Sequence[int],
) -> Value:
    x = node.input(0)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.error("starts, ends, axes and steps do not fit each other")
    chosen = [normalize_axis("Slice", axis, x.rank) for axis in axes]
    normalize_axes("Slice", chosen, x.rank)
    for bound in (*starts, *ends):
        if not _has_known_sign(bound, x):
            raise NotStatic(f"{node.name}: the sign of {bound} is not known before it runs")
    backwards = [position for position, step in enumerate(steps) if step < 0]
    if backwards:
        return _slice_backwards(x, starts, ends, chosen, steps, backwards)
    return F.slice(x, starts, ends, steps, chosen)


def _slice_backwards(
    x: Value,
    starts: Sequence[Dim],
    ends: Sequence[Dim],
    axes: Sequence[int],
    steps: Sequence[int],
    backwards: Sequence[int],
) -> Value:
    """Flip the axes that are walked from the end, then slice forwards.

    An end before the front, as INT64_MIN is, lies past the end of what is flipped; a start there
    is the first element, since ONNX keeps starts inside the tensor.
    """
    first, last, strides = list(starts), list(ends), list(steps)
    for position in backwards:
        size = x.shape[axes[position]]
        first[position], last[position] = (
            dim_max(size - 1 - (bound + size if provably_less(bound, 0) else bound), 0)
            for bound in (starts[position], ends[position])
        )
        first[position] = dim_min(first[position], dim_max(size - 1, 0))
        strides[position] = -steps[position]
    flipped = F.flip(x, [axes[position] for position in backwards])
    return F.slice(flipped, first, last, strides, axes)


@converter("Range")
def range_(node: OnnxNode) -> Value:
    """Numbers from a start up to a limit."""
    dtype = node.input(0).dtype
    is_exact = dtype.is_integer or dtype.bits >= 32
    bounds = [node.whole_numbers(index) for index in range(3)] if is_exact else [None]
    if all(bound is not None for bound in bounds):
        (start,), (limit,), (step,) = bounds  # type: ignore[misc]  # none is None
        if isinstance(step, int):
            return cast_to(F.arange(start, limit, step, dtype if dtype.is_integer else i64), dtype)
    start_, limit_, step_ = (node.need_constant(index).reshape(()) for index in range(3))
    if dtype.is_float and dtype.bits < 32:
        start_, limit_, step_ = (each.astype(np.float32) for each in (start_, limit_, step_))
    count = max(int(np.ceil((limit_ - start_) / step_)), 0)
    ramp = F.iota((count,), 0, dtype)
    graph = current_graph()
    scaled = F.multiply(ramp, graph.add_constant(step_, dtype))
    return cast_to(F.add(scaled, graph.add_constant(start_, dtype)), dtype)


@converter("Trilu")
def trilu(node: OnnxNode) -> Value:
    """One triangle of the last two axes, zeros elsewhere."""
    x, is_upper = node.input(0), bool(node.integer("upper", 1))
    (diagonal,) = (0,) if node.optional(1) is None else node.need_dims(1)
    if isinstance(diagonal, int):
        return (F.triu if is_upper else F.tril)(x, diagonal)
    return _triangle_from(x, diagonal, is_upper)


def _triangle_from(x: Value, diagonal: Dim, is_upper: bool) -> Value:
    """A triangle whose diagonal follows from sizes: masks of decoders begin after their past."""
    rows, columns = x.shape[-2:]
    row = F.unsqueeze(F.iota((rows,), 0, i64), 1)
    column = F.unsqueeze(F.iota((columns,), 0, i64), 0)
    distance = F.subtract(column, row)
    start = F.dim(diagonal)
    kept = F.greater_equal(distance, start) if is_upper else F.less_equal(distance, start)
    return F.where(kept, x, current_graph().add_constant(np.zeros((), x.dtype.numpy), x.dtype))


@converter("DepthToSpace")
def depth_to_space(node: OnnxNode) -> Value:
    """Blocks of the channels moved into height and width."""
    x, block = node.input(0), node.integer("blocksize")
    if x.rank != 4 or block < 1:
        raise node.error("four dimensions and a block are needed", found=str(x.type))
    batch, channels, height, width = x.shape
    inner = channels // (block * block)
    if node.string("mode", "DCR") == "DCR":
        split = F.reshape(x, (batch, block, block, inner, height, width))
        moved = F.transpose(split, (0, 3, 4, 1, 5, 2))
    else:
        split = F.reshape(x, (batch, inner, block, block, height, width))
        moved = F.transpose(split, (0, 1, 4, 2, 5, 3))
    return F.reshape(moved, (batch, inner, height * block, width * block))


@converter("SpaceToDepth")
def space_to_depth(node: OnnxNode) -> Value:
    """Blocks of height and width moved into the channels."""
    x, block = node.input(0), node.integer("blocksize")
    if x.rank != 4 or block < 1:
        raise node.error("four dimensions and a block are needed", found=str(x.type))
    batch, channels, height, width = x.shape
    split = F.reshape(x, (batch, channels, height // block, block, width // block, block))
    crd = node.string("mode", "DCR") == "CRD"
    moved = F.transpose(split, (0, 1, 3, 5, 2, 4) if crd else (0, 3, 5, 1, 2, 4))
    return F.reshape(moved, (batch, channels * block * block, height // block, width // block))
