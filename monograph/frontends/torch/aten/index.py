"""Reading and writing by index or mask: index, gather, scatter, index_put, embedding…"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monograph import functional as F
from monograph.frontends.torch.aten.reduce import axis_of, truth
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.dims import Dim, SymbolicDim
from monograph.ir.graph import Value
from monograph.ir.types import bool_, i64
from monograph.ops.rules import require

MODES = {
    "add": "add",
    "sum": "add",
    "multiply": "multiply",
    "prod": "multiply",
    "amax": "max",
    "amin": "min",
}
"""torch's names of reductions, and ours of the ways in which a write joins what is there."""

NEUTRAL = {"add": 0, "multiply": 1}


@converter("aten.index.Tensor", "aten._unsafe_index.Tensor")
def _index(node: TorchNode) -> Value:
    x = node["self"]
    indices = [_as_index(index) for index in node["indices"]]
    key = tuple(slice(None) if index is None else index for index in indices)
    return F.getitem(x, key)


def _as_index(index: Value | None) -> Value | None:
    """u8 masks are masks, as they once were all."""
    if index is None or index.dtype is bool_:
        return index
    return F.not_equal(index, 0) if index.dtype.name == "u8" else index


@converter(
    "aten.index_put.default", "aten._unsafe_index_put.default", "aten._index_put_impl.default"
)
def _index_put(node: TorchNode) -> Value:
    x = node["self"]
    indices = _without_masks([_as_index(index) for index in node["indices"]])
    mode = "add" if node["accumulate"] else "set"
    return put(x, indices, node.value(node["values"], x.dtype), mode)


@converter("aten._unsafe_masked_index.default")
def _masked_index(node: TorchNode) -> Value:
    x: Value = node["self"]
    key = tuple(slice(None) if index is None else index for index in _inside(node))
    read = F.getitem(x, key)
    fill = node.value(node["fill"], read.dtype)
    return F.where(F.expand(node["mask"], read.shape), read, fill)


@converter("aten._unsafe_masked_index_put_accumulate.default")
def _masked_index_put(node: TorchNode) -> Value:
    x: Value = node["self"]
    values = node.value(node["values"], x.dtype)
    masked = F.where(node["mask"], values, F.zeros((), x.dtype))
    return put(x, _inside(node), masked, "add")


def _inside(node: TorchNode) -> list[Value | None]:
    """The indices moved inside their axes: a mask hides what those outside would have read."""
    sizes = node["self"].shape
    return [
        None
        if index is None
        else F.maximum(F.minimum(index, as_number(size - 1)), as_number(-size))
        for index, size in zip(node["indices"], sizes, strict=False)
    ]


def as_number(dim: Dim) -> Value | int:
    """A dimension as an operand."""
    return F.dim(dim) if isinstance(dim, SymbolicDim) else dim


def _without_masks(indices: Sequence[Value | None]) -> list[Value | None]:
    """Each mask as the integer indices of its true elements, one an axis."""
    plain: list[Value | None] = []
    for index in indices:
        if index is None or index.dtype is not bool_:
            plain.append(index)
            continue
        places = F.nonzero(index)
        plain.extend(F.getitem(places, (slice(None), axis)) for axis in range(index.rank))
    return plain


def put(x: Value, indices: Sequence[Value | None], values: Value, mode: str) -> Value:
    """``x`` with ``values`` written at ``x[indices]``."""
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if not given:
        written = F.expand(values, x.shape)
        return x + written if mode == "add" else written
    shape = _common_shape(given)
    vectors = F.stack([F.expand(F.cast(index, i64), shape) for index in given], -1)
    rest = [axis for axis in range(x.rank) if axis not in axes]
    front = F.transpose(x, (*axes, *rest))
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    before = axes[0] if adjacent else 0
    rest_shape = tuple(x.shape[axis] for axis in rest)
    read_shape = (*rest_shape[:before], *shape, *rest_shape[before:])
    spread = F.expand(values, read_shape)
    places = range(before, before + len(shape))
    others = [axis for axis in range(spread.rank) if axis not in places]
    updates = F.transpose(spread, (*places, *others))
    result = F.scatter(front, vectors, updates, mode)
    back = sorted(range(x.rank), key=lambda axis: (*axes, *rest)[axis])
    return F.transpose(result, back)


def _common_shape(values: Sequence[Value]) -> tuple[Any, ...]:
    total = values[0]
    for value in values[1:]:
        total = F.cast(total, i64) + F.cast(value, i64)
    return total.shape


@converter("aten.index_select.default", "aten.index_select_copy.default")
def _index_select(node: TorchNode) -> Value:
    x, index = node["self"], F.reshape(node["index"], (-1,))
    if x.rank == 0:
        return F.reshape(F.take(F.reshape(x, (1,)), index, 0), ())
    return F.take(x, index, axis_of(x, node["dim"]))


@converter("aten.take.default")
def _take(node: TorchNode) -> Value:
    return F.take(F.reshape(node["self"], (-1,)), node["index"], 0)


@converter("aten.put.default")
def _put(node: TorchNode) -> Value:
    x = node["self"]
    places = F.reshape(node["index"], (-1, 1))
    values = F.reshape(node["source"], (-1,))
    mode = "add" if node["accumulate"] else "set"
    return F.reshape(F.scatter(F.reshape(x, (-1,)), places, values, mode), x.shape)


@converter("aten.gather.default", "aten.take_along_dim.default")
def _gather(node: TorchNode) -> Value:
    x = node["self"]
    index = node.get("index") if node.get("index") is not None else node["indices"]
    if node["dim"] is None:
        return F.take(F.reshape(x, (-1,)), F.reshape(index, (-1,)), 0)
    if x.rank == 0:
        return F.expand(x, node.result_type().shape)
    if index.rank > x.rank or index.shape == (0,):  # an empty index may have any rank
        return F.zeros(node.result_type().shape, x.dtype)
    if index.rank == 0:
        index = F.reshape(index, (1,))
        read = F.take_along_axis(x, index, 0)
        return F.reshape(read, node.result_type().shape)
    return F.take_along_axis(x, index, axis_of(x, node["dim"]))


@converter("aten.embedding.default")
def _embedding(node: TorchNode) -> Value:
    return F.take(node["weight"], node["indices"], 0)


# Writing along one axis.


def _along(node: TorchNode, source: Any, mode: str) -> Value:
    """Write a source, cut to the size of the index, at the index along an axis."""
    x: Value = node["self"]
    index: Value = node["index"]
    if x.rank == 0:
        source = F.reshape(node.value(source, x.dtype), (-1,))[:1]
        line = F.reshape(x, (1,))
        written = F.put_along_axis(line, F.reshape(index, (-1,)), source, 0, mode)
        return F.reshape(written, ())
    values = node.value(source, x.dtype)
    if index.rank < x.rank:  # an empty index may have any rank
        return x
    cut = values
    if values.rank:
        bounds = tuple(slice(0, size) for size in index.shape)
        cut = F.getitem(values, bounds)
    return F.put_along_axis(x, index, cut, axis_of(x, node["dim"]), mode)


@converter("aten.scatter.src", "aten.scatter.value")
def _scatter(node: TorchNode) -> Value:
    source = node["src"] if node.get("src") is not None else node["value"]
    return _along(node, source, "set")


@converter("aten.scatter.reduce", "aten.scatter.value_reduce")
def _scatter_with(node: TorchNode) -> Value:
    source = node["src"] if node.get("src") is not None else node["value"]
    return _along(node, source, MODES[node["reduce"]])


@converter("aten.scatter_add.default")
def _scatter_add(node: TorchNode) -> Value:
    return _along(node, node["src"], "add")


@converter("aten.scatter_reduce.two")
def _scatter_reduce(node: TorchNode) -> Value:
    x, index, reduce = node["self"], node["index"], node["reduce"]
    axis = axis_of(x, node["dim"])
    if x.rank == 0:
        flat = _Scattered(F.reshape(x, (1,)), F.reshape(index, (-1,)), node)
        return F.reshape(flat.reduced(F.reshape(node["src"], (-1,)), 0, reduce), ())
    bounds = tuple(slice(0, size) for size in index.shape)
    return _Scattered(x, index, node).reduced(F.getitem(node["src"], bounds), axis, reduce)


class _Scattered:
    """A write along an axis that may leave out what was there before."""

    def __init__(self, x: Value, index: Value, node: TorchNode) -> None:
        self.x = x
        self.index = index
        self.include_self = bool(node["include_self"])

    def reduced(self, source: Value, axis: int, reduce: str) -> Value:
        """The write; ``mean`` divides by how many elements met."""
        if reduce == "mean":
            return self._mean(source, axis)
        mode = MODES[reduce]
        base = self.x if self.include_self else self._clear_targets(source, axis, mode)
        return F.put_along_axis(base, self.index, source, axis, mode)

    def _clear_targets(self, source: Value, axis: int, mode: str) -> Value:
        """``x`` with what does not change a result in the places that are written."""
        if mode in NEUTRAL:
            neutral = F.full_like(source, NEUTRAL[mode])
            return F.put_along_axis(self.x, self.index, neutral, axis, "set")
        return F.put_along_axis(self.x, self.index, source, axis, "set")

    def _mean(self, source: Value, axis: int) -> Value:
        base = self.x if self.include_self else self._clear_targets(source, axis, "add")
        total = F.put_along_axis(base, self.index, source, axis, "add")
        counts = F.zeros_like(self.x) if not self.include_self else F.ones_like(self.x)
        counts = F.put_along_axis(counts, self.index, F.ones_like(source), axis, "add")
        counts = F.where(F.equal(counts, 0), F.ones_like(counts), counts)
        if self.x.dtype.is_integer:
            return F.floor_divide(total, counts)
        return total / counts


# Writing whole slices.


def _rows(node: TorchNode, source: Any, mode: str) -> Value:
    """Write slices of ``source`` at the indices along an axis of ``self``."""
    x = node["self"]
    values = node.value(source, x.dtype)
    index = F.reshape(node["index"], (-1, 1))
    if x.rank == 0:
        line = F.scatter(F.reshape(x, (1,)), index, F.reshape(values, (-1,)), mode)
        return F.reshape(line, ())
    axis = axis_of(x, node["dim"])
    front = F.moveaxis(x, axis, 0)
    if values.rank == x.rank:
        updates = F.moveaxis(values, axis, 0)
    else:
        updates = F.expand(values, (index.shape[0], *front.shape[1:]))
    return F.moveaxis(F.scatter(front, index, updates, mode), 0, axis)


@converter("aten.index_add.default")
def _index_add(node: TorchNode) -> Value:
    x, source = node["self"], node["source"]
    require(
        x.rank == 0 or source.rank in (0, x.rank),
        "index_add: the source does not fit",
        expected=f"rank {x.rank}, as self has",
        found=source.type,
    )
    if node["alpha"] != 1:
        source = F.multiply(source, node.value(node["alpha"], source.dtype))
    return _rows(node, source, "add")


@converter("aten.index_copy.default")
def _index_copy(node: TorchNode) -> Value:
    return _rows(node, node["source"], "set")


@converter("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def _index_fill(node: TorchNode) -> Value:
    return _rows(node, node["value"], "set")


@converter("aten.index_reduce.default")
def _index_reduce(node: TorchNode) -> Value:
    x, reduce, source = node["self"], node["reduce"], node["source"]
    if x.rank == 0:
        line = _Scattered(F.reshape(x, (1,)), F.reshape(node["index"], (-1,)), node)
        return F.reshape(line.reduced(F.reshape(source, (-1,)), 0, reduce), ())
    ones = F.ones_like(source)
    if reduce == "mean":
        base = _rows(node, source, "add") if node["include_self"] else None
        if base is None:
            cleared = _rows(node, F.zeros_like(source), "set")
            base = _rows_of(node, cleared, source, "add")
        start = F.ones_like(x) if node["include_self"] else F.zeros_like(x)
        counts = _rows_of(node, start, ones, "add")
        counts = F.where(F.equal(counts, 0), F.ones_like(counts), counts)
        return F.floor_divide(base, counts) if x.dtype.is_integer else base / counts
    mode = MODES[reduce]
    if node["include_self"]:
        return _rows(node, source, mode)
    neutral = F.full_like(source, NEUTRAL[mode]) if mode in NEUTRAL else source
    return _rows_of(node, _rows(node, neutral, "set"), source, mode)


def _rows_of(node: TorchNode, x: Value, source: Value, mode: str) -> Value:
    """``_rows`` on another target than the node's own."""
    axis = axis_of(x, node["dim"])
    index = F.reshape(node["index"], (-1, 1))
    written = F.scatter(F.moveaxis(x, axis, 0), index, F.moveaxis(source, axis, 0), mode)
    return F.moveaxis(written, 0, axis)


# Masks.


@converter("aten.masked_select.default")
def _masked_select(node: TorchNode) -> Value:
    x, mask = node["self"], node["mask"]
    both = F.add(F.cast(mask, i64), F.zeros(x.shape, i64)).shape or (1,)
    return F.getitem(F.expand(x, both), (F.expand(mask, both),))


@converter("aten.masked_scatter.default")
def _masked_scatter(node: TorchNode) -> Value:
    x, mask = node["self"], node["mask"]
    require(
        mask.dtype is bool_,
        "masked_scatter: a mask is bool",
        expected="bool",
        found=mask.type,
    )
    shape = node.result_type().shape
    spread, chosen = F.expand(x, shape), F.reshape(F.expand(mask, shape), (-1,))
    order = F.cumsum(F.cast(chosen, i64), 0) - 1
    source = F.reshape(node["source"], (-1,))
    if _may_be_empty(source):  # what is not chosen reads a number that is there in any case
        source, order = F.concat([F.reshape(spread, (-1,))[:1], source], 0), order + 1
    picked = F.take(source, F.maximum(F.where(chosen, order, 0), 0), 0)
    return F.where(F.reshape(chosen, shape), F.reshape(picked, shape), spread)


def _may_be_empty(x: Value) -> bool:
    (size,) = x.shape
    return (size if isinstance(size, int) else size.bounds()[0]) in (0, None)


@converter("aten.nonzero.default", "aten.argwhere.default")
def _nonzero(node: TorchNode) -> Value:
    return F.nonzero(node["self"])


@converter("aten.nonzero_static.default")
def _nonzero_static(node: TorchNode) -> Value:
    """The first ``size`` places; what is left over holds the fill value."""
    x = node["self"]
    size = node["size"]
    flat = F.reshape(truth(x), (-1,))
    order = F.cumsum(F.cast(flat, i64), 0) - 1
    kept = F.logical_and(flat, F.less(order, F.dim(size)))
    count = flat.shape[0]
    slots = F.where(kept, order, F.dim(size))
    places = F.expand(F.dim(count), (size + 1,))
    places = F.scatter(places, F.unsqueeze(slots, -1), F.iota((count,)), "min")
    found = F.getitem(places, slice(0, size))
    columns = [F.reshape(F.iota(x.shape, axis), (-1,)) for axis in range(x.rank)]
    if not columns:
        return F.zeros((size, 0), i64)
    table = F.concat([F.stack(columns, -1), F.full((1, x.rank), node["fill_value"], i64)], 0)
    return F.take(table, found, 0)


@converter("aten.nonzero_numpy.default")
def _nonzero_numpy(node: TorchNode) -> tuple[Value, ...]:
    return _places_by_axis(node["self"])


@converter("aten.where.default")
def _where_alone(node: TorchNode) -> tuple[Value, ...]:
    return _places_by_axis(node["condition"])


def _places_by_axis(x: Value) -> tuple[Value, ...]:
    """Where ``x`` is not zero: a vector of positions for each axis."""
    places = F.nonzero(F.reshape(x, (1,)) if x.rank == 0 else x)
    return tuple(F.getitem(places, (slice(None), axis)) for axis in range(max(x.rank, 1)))
