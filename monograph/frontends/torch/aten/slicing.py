"""Parts of tensors and tensors from parts: slice, select, cat, split, diagonal, as_strided…"""

from __future__ import annotations

import functools
import operator
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.torch.node import TorchNode, as_list, static
from monograph.frontends.torch.registry import converter
from monograph.ir.build import constant
from monograph.ir.dims import (
    Dim,
    SymbolicDim,
    provably_at_least,
    provably_equal,
    provably_less,
)
from monograph.ir.graph import Value, current_graph
from monograph.ir.types import Array


@converter("aten.slice.Tensor", "aten.slice_copy.Tensor")
def _slice(node: TorchNode) -> Value:
    start = 0 if node["start"] is None else node["start"]
    if isinstance(start, Value):
        return _slice_from(node, start)
    return F.slice(node["self"], [start], [node["end"]], [node["step"]], [node["dim"]])


def _slice_from(node: TorchNode, start: Value) -> Value:
    """A slice that begins where data says; torch has recorded how long it is."""
    x: Value = node["self"]
    axis = node["dim"] % x.rank
    length = node.result_type().shape[axis]
    first = F.where(F.less(start, 0), F.add(start, _number(x.shape[axis])), start)
    places = F.add(F.multiply(F.iota((length,)), node["step"]), first)
    return F.take(x, places, axis)


@converter("aten.narrow.default")
def _narrow(node: TorchNode) -> Value:
    x, start = node["self"], node["start"]
    if provably_less(start, 0):
        start = start + x.shape[node["dim"]]
    return F.slice(x, [start], [start + node["length"]], axes=[node["dim"]])


@converter("aten.select.int", "aten.select_copy.int")
def _select(node: TorchNode) -> Value:
    x, axis, index = node["self"], node["dim"] % node["self"].rank, node["index"]
    if isinstance(index, Value):
        return F.take(x, index, axis)
    first = index + x.shape[axis] if provably_less(index, 0) else index
    return F.squeeze(F.slice(x, [first], [first + 1], axes=[axis]), axis)


@converter("aten.cat.default", "aten.concat.default", "aten.concatenate.default")
def _cat(node: TorchNode) -> Value:
    parts = node.values(node["tensors"], node.result_dtype)
    # torch leaves out empty vectors, whatever the rank of the others.
    kept = [part for part in parts if part.shape != (0,)]
    if not kept:
        return parts[0]
    return F.concat(kept, node["dim"])


@converter("aten.stack.default", "aten._stack.default")
def _stack(node: TorchNode) -> Value:
    return F.stack(node.values(node["tensors"], node.result_dtype), node["dim"])


@converter(
    "aten.split.Tensor",
    "aten.split.sizes",
    "aten.split_copy.Tensor",
    "aten.split_with_sizes.default",
    "aten.split_with_sizes_copy.default",
    "aten.chunk.default",
    "aten.unsafe_split.Tensor",
    "aten.unsafe_split_with_sizes.default",
    "aten.unsafe_chunk.default",
    "aten.tensor_split.sections",
    "aten.tensor_split.indices",
)
def _split(node: TorchNode) -> tuple[Value, ...]:
    x: Value = node["self"]
    axis = node["dim"] % x.rank
    types = [type_ for type_ in node.result_types() if type_ is not None]
    if len(types) == 1 and provably_equal(types[0].shape[axis], x.shape[axis]):
        return (x,)
    return F.split(x, [type_.shape[axis] for type_ in types], axis)


@converter("aten.unbind.int", "aten.unbind_copy.int")
def _unbind(node: TorchNode) -> tuple[Value, ...]:
    return F.unstack(node["self"], node["dim"])


@converter("aten.diagonal.default", "aten.diagonal_copy.default")
def _diagonal(node: TorchNode) -> Value:
    x: Value = node["self"]
    moved = F.moveaxis(x, (node["dim1"], node["dim2"]), (-2, -1))
    *batch, rows, columns = moved.shape
    offset = node["offset"]
    length = node.result_type().shape[-1]
    start = offset if offset >= 0 else -offset * columns
    flat = F.reshape(moved, (*batch, rows * columns))
    places = F.add(F.multiply(F.iota((length,)), _number(columns + 1)), _number(start))
    return F.take(flat, places, -1)


def _number(dim: Dim) -> Any:
    return F.dim(dim) if isinstance(dim, SymbolicDim) else dim


@converter("aten.diag_embed.default")
def _diag_embed(node: TorchNode) -> Value:
    x: Value = node["self"]
    rank = x.rank + 1
    embedded = _embed(x, node["offset"], x.shape[-1] + abs(node["offset"]), None)
    return F.moveaxis(embedded, (-2, -1), (node["dim1"] % rank, node["dim2"] % rank))


def _embed(x: Value, offset: int, rows: Dim, columns: Dim | None) -> Value:
    """The last dimension of ``x`` on a diagonal of matrices of zeros."""
    width = rows if columns is None else columns
    shape = (*x.shape[:-1], rows, width)
    hot = on_diagonal(rows, width, offset)
    along = rows if offset >= 0 else width
    grown = F.pad(x, [0] * x.rank, [0] * (x.rank - 1) + [along - x.shape[-1]])
    placed = F.unsqueeze(grown, -1 if offset >= 0 else -2)
    return F.where(hot, F.expand(placed, shape), F.zeros((), x.dtype))


def on_diagonal(rows: Dim, columns: Dim, offset: int) -> Value:
    """Where column = row + offset."""
    row = F.add(F.iota((rows, columns), 0), offset)
    return F.equal(row, F.iota((rows, columns), 1))


@converter("aten.unfold.default", "aten.unfold_copy.default")
def _unfold(node: TorchNode) -> Value:
    x, size, step = node["self"], node["size"], node["step"]
    if x.rank == 0:
        return F.reshape(F.slice(F.reshape(x, (1,)), [0], [size]), (size,))
    axis = node["dimension"] % x.rank
    windows = node.result_type().shape[axis]
    starts = F.multiply(F.iota((windows, 1), 0), _number(step))
    places = F.add(starts, F.iota((1, size), 1))
    return F.moveaxis(F.take(x, places, axis), axis + 1, -1)


MOST_PIECES = 16
"""So many shifted pieces are added up; of more, each element is sent to its place."""


@converter("aten.unfold_backward.default")
def _unfold_backward(node: TorchNode) -> Value:
    """Windows laid over one another: what is at the same place is added."""
    windows, shape = node["grad_in"], node.result_type().shape
    if not shape:
        return F.reshape(windows, ())
    axis, size, step = node["dim"] % len(shape), node["size"], node["step"]
    apart = F.moveaxis(windows, -1, axis + 1)
    length, count = shape[axis], apart.shape[axis]
    if isinstance(length, int) and isinstance(count, int) and size <= MOST_PIECES * step:
        found = _overlap_add(apart, axis, size, step, count, length)
    else:
        found = _scatter_add_windows(apart, axis, step, length)
    return found if found.shape == shape else F.broadcast_to(found, shape)


def _overlap_add(apart: Value, axis: int, size: int, step: int, count: int, length: int) -> Value:
    """Pieces of one step of all windows follow one another; shifted, they are added."""
    rest = [0] * (apart.rank - 1 - axis)
    total = F.zeros((*apart.shape[:axis], length, *apart.shape[axis + 2 :]), apart.dtype)
    for start in range(0, size, step):
        piece = F.slice(apart, [start], [min(start + step, size)], axes=[axis + 1])
        missing = max(start + step - size, 0)
        piece = F.pad(piece, [0] * apart.rank, [*[0] * (axis + 1), missing, *rest[1:]])
        row = F.reshape(piece, (*apart.shape[:axis], count * step, *apart.shape[axis + 2 :]))
        low, high = [0] * row.rank, [0] * row.rank
        low[axis], high[axis] = start, length - start - count * step
        total = F.add(total, F.pad(row, low, high))
    return total


def _scatter_add_windows(apart: Value, axis: int, step: Dim, length: Dim) -> Value:
    """Every element of a window is added where it belongs."""
    count, size = apart.shape[axis : axis + 2]
    starts = F.multiply(F.iota((count, 1), 0), _number(step))
    places = F.reshape(F.add(starts, F.iota((1, size), 1)), (count * size, 1))
    first = F.moveaxis(F.moveaxis(apart, axis + 1, 0), axis + 1, 0)
    updates = F.reshape(first, (count * size, *first.shape[2:]))
    zeros = F.zeros((length, *first.shape[2:]), apart.dtype)
    return F.moveaxis(F.scatter(zeros, places, updates, "add"), 0, axis)


@converter("aten.im2col.default")
def _im2col(node: TorchNode) -> Value:
    """Patches of one image or a batch, as columns."""
    x = node["self"]
    images = x if x.rank == 4 else F.unsqueeze(x, 0)
    options = [node[name] for name in ("stride", "padding", "dilation")]
    columns = F.unfold(images, node["kernel_size"], *options)
    return columns if x.rank == 4 else F.squeeze(columns, 0)


@converter("aten.col2im.default")
def _col2im(node: TorchNode) -> Value:
    """Patches added up to one image or a batch."""
    x = node["self"]
    columns = x if x.rank == 3 else F.unsqueeze(x, 0)
    options = [node[name] for name in ("stride", "padding", "dilation")]
    images = F.fold(columns, node["output_size"], node["kernel_size"], *options)
    return images if x.rank == 3 else F.squeeze(images, 0)


@converter("aten.combinations.default")
def _combinations(node: TorchNode) -> Value:
    x, length = node["self"], node["r"]
    size = static(x.shape[0], "the number of elements to combine")
    choose = combinations_with_replacement if node["with_replacement"] else combinations
    places = np.array(list(choose(range(size), length)), np.int64).reshape(-1, length)
    return F.take(x, _constant(places), 0)


# Writing into a copy: what functionalized views become.


@converter("aten.slice_scatter.default")
def _slice_scatter(node: TorchNode) -> Value:
    x, source = node["self"], node["src"]
    axis = node["dim"] % x.rank
    whole = x.shape[axis]
    start = 0 if node["start"] is None else node["start"]
    region = F.slice(F.iota((whole,)), [start], [node["end"]], [node["step"]])
    written = F.expand(node.value(source, x.dtype), _replace_dim(x, axis, region))
    joined = _insert_slice(x, written, start, axis) if node["step"] == 1 else None
    return _put(x, written, region, axis) if joined is None else joined


def _insert_slice(x: Value, middle: Value, start: Any, axis: int) -> Value | None:
    """``middle`` between what stands before and after it in ``x``; None if that is not known."""
    if not isinstance(start, int | SymbolicDim) or not provably_at_least(start, 0):
        return None
    end = start + middle.shape[axis]
    before = F.slice(x, [0], [start], axes=[axis])
    after = F.slice(x, [end], [x.shape[axis]], axes=[axis])
    joined = F.concat([before, middle, after], axis)
    return joined if provably_equal(joined.shape[axis], x.shape[axis]) else None


@converter("aten.select_scatter.default")
def _select_scatter(node: TorchNode) -> Value:
    x, index = node["self"], node["index"]
    axis = node["dim"] % x.rank
    first = index + x.shape[axis] if provably_less(index, 0) else index
    here = F.equal(F.iota(x.shape, axis), _number(first))
    return F.where(here, F.unsqueeze(node.value(node["src"], x.dtype), axis), x)


@converter("aten.diagonal_scatter.default")
def _diagonal_scatter(node: TorchNode) -> Value:
    x, offset = node["self"], node["offset"]
    axes = (node["dim1"] % x.rank, node["dim2"] % x.rank)
    moved = F.moveaxis(x, axes, (-2, -1))
    rows, columns = moved.shape[-2:]
    source = node.value(node["src"], x.dtype)
    placed = _embed(source, offset, rows, columns)
    written = F.where(on_diagonal(rows, columns, offset), placed, moved)
    return F.moveaxis(written, (-2, -1), axes)


def _replace_dim(x: Value, axis: int, region: Value) -> tuple[Dim, ...]:
    return (*x.shape[:axis], region.shape[0], *x.shape[axis + 1 :])


def _put(x: Value, source: Value, places: Value, axis: int) -> Value:
    """``x`` with ``source`` written at these places along an axis."""
    moved = F.moveaxis(x, axis, 0)
    updates = F.moveaxis(source, axis, 0)
    written = F.scatter(moved, F.unsqueeze(places, -1), updates)
    return F.moveaxis(written, 0, axis)


# Strides.


@converter("aten.as_strided.default", "aten.as_strided_copy.default")
def _as_strided(node: TorchNode) -> Value:
    x: Value = node["self"]
    counted = _view_positions(node)
    if counted is not None:
        return F.take(F.reshape(x, (-1,)), counted, 0)
    places = _element_positions(node)
    if (places < 0).any():
        memory = node.memory_behind(0)
        if memory is None:
            raise UnsupportedError("as_strided reads memory that is not in its operand")
        return F.take(memory, _constant(_memory_offsets(node)), 0)
    return F.take(F.reshape(x, (-1,)) if x.rank != 1 else x, _constant(places), 0)


@converter("aten.as_strided_scatter.default")
def _as_strided_scatter(node: TorchNode) -> Value:
    x, source = node["self"], node["src"]
    places = _element_positions(node)
    if (places < 0).any():
        raise UnsupportedError("as_strided_scatter writes memory that is not in its operand")
    flat = F.reshape(x, (-1,))
    updates = F.reshape(node.value(source, x.dtype), (-1,))
    written = F.scatter(flat, _constant(places.reshape(-1, 1)), updates)
    return F.reshape(written, x.shape)


def _constant(array: Array) -> Value:
    return constant(array, graph=current_graph())


def _view_positions(node: TorchNode) -> Value | None:
    """Which element of ``self`` each element of the view is, by arithmetic: frames, for one.

    Only where the elements lie in memory in their own order, and none is known to lie beyond them.
    """
    x, fake = node["self"], node.fx_node.args[0].meta["val"]
    offset = node["storage_offset"]
    sizes, strides = as_list(node["size"]), as_list(node["stride"])
    if not fake.is_contiguous() or type(fake.storage_offset()) is not int or fake.storage_offset():
        return None
    start = 0 if offset is None else offset
    last = start + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if not sizes or 0 in sizes or provably_at_least(last, x.tensor.size):
        return None
    steps = [F.iota(tuple(sizes), axis) * _number(step) for axis, step in enumerate(strides)]
    found: Value = functools.reduce(operator.add, steps) + _number(start)
    return found


def _element_positions(node: TorchNode) -> Array:
    """Which element of ``self``, in its own order, each element of the view is; -1 for none."""
    fake = node.fx_node.args[0].meta["val"]
    if any(type(size) is not int for size in (*fake.shape, *fake.stride())):
        raise UnsupportedError("as_strided of sizes that are not known before the model runs")
    wanted = _memory_offsets(node)
    memory = _spots(tuple(fake.shape), fake.stride(), fake.storage_offset())
    table = np.full(max(memory.max(initial=0), wanted.max(initial=0)) + 1, -1, np.int64)
    table[memory.reshape(-1)] = np.arange(memory.size)
    return np.asarray(table[wanted])


def _memory_offsets(node: TorchNode) -> Array:
    """Where in memory each element of the view lies."""
    offset = node["storage_offset"]
    start = node.fx_node.args[0].meta["val"].storage_offset() if offset is None else offset
    sizes, strides = node["size"], node["stride"]
    if any(type(number) is not int for number in (*sizes, *strides, start)):
        raise UnsupportedError("as_strided with sizes that are not known before the model runs")
    return _spots(tuple(sizes), tuple(strides), start)


def _spots(sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Array:
    """The position in memory of each element."""
    spots = np.full(sizes, offset, np.int64)
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        shape = [1] * len(sizes)
        shape[axis] = size
        spots = spots + (np.arange(size) * stride).reshape(shape)
    return spots
