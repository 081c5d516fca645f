"""Embedding bags: sums, means or maxima of rows of a table, bag by bag."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.torch.aten.index import as_number
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.dims import Dim, provably_equal
from monograph.ir.graph import Value
from monograph.ir.types import i64

Join: TypeAlias = Callable[[Value, str], Value]
"""Rows, one an index, joined bag by bag: ``add`` or ``max``."""
SUM, MEAN, MAX = range(3)
_ARANGE = torch.ops.aten.arange.start_step
_BACKWARD = (
    torch.ops.aten._embedding_bag_backward.default,
    torch.ops.aten._embedding_bag_per_sample_weights_backward.default,
)
"""They look at the offsets again: of what the forward pass has saved they read the winners of
``max`` alone.
"""


def _require_only_output(node: TorchNode) -> None:
    """The other results serve torch's own backward pass, and half of them are left unwritten."""
    for user in node.fx_node.users:
        if user.target is operator.getitem and (user.args[1] == 0 or _only_backward(user)):
            continue
        if user.users or user.op == "output":
            raise UnsupportedError(f"{node.op_name}: only the first result can be used")


def _only_backward(result: Any) -> bool:
    return all(user.target in _BACKWARD for user in result.users)


@converter(
    "aten._embedding_bag.default",
    "aten._embedding_bag_forward_only.default",
    "aten.embedding_bag.default",
    "aten.embedding_bag.padding_idx",
)
def _embedding_bag(node: TorchNode) -> tuple[Value, ...]:
    _require_only_output(node)
    rest = [type_ for type_ in node.result_types()[1:] if type_ is not None]
    saved = [F.zeros(type_.shape, type_.dtype) for type_ in rest]
    bags, winners = _bags(node)
    if winners is not None and saved and saved[-1].rank == 2:
        saved[-1] = winners
    return bags, *saved


def _bags(node: TorchNode) -> tuple[Value, Value | None]:
    """The bags; of ``max`` also which row of the table each element is from, -1 for none."""
    table, indices, offsets = node["weight"], node["indices"], F.cast(node["offsets"], i64)
    if node["include_last_offset"]:
        offsets = F.slice(offsets, [0], [offsets.shape[0] - 1], axes=[0])
    count, bags = indices.shape[0], offsets.shape[0]
    if 0 in (count, bags):
        return F.zeros((bags, table.shape[1]), table.dtype), None
    equal = _join_equal(node, bags, count)
    if equal is None and _is_plain(node):
        return _sum_bags(node, indices, offsets), None
    join = equal or _join_from(indices, offsets)
    counts = _mask_padding(node, indices)
    rows = F.take(table, indices, axis=0)
    some = join(F.cast(counts, i64), "add")
    mode = int(node["mode"])
    if mode == MAX:
        largest = join(F.where(counts, rows, float("-inf")), "max")
        joined = F.where(F.equal(some, 0), 0, largest)
        if not _tells_winners(node):
            return joined, None
        return joined, _winners(indices, counts, rows, largest, F.bag_numbers(indices, offsets))
    if node["per_sample_weights"] is not None:
        rows = rows * F.unsqueeze(F.cast(node["per_sample_weights"], table.dtype), -1)
    total = join(F.where(counts, rows, 0), "add")
    if mode == MEAN:
        total = total / F.cast(F.maximum(some, 1), table.dtype)
    return total, None


def _is_plain(node: TorchNode) -> bool:
    """Whether every index counts, in a sum or a mean."""
    padding = node.get("padding_idx")
    return int(node["mode"]) != MAX and (padding is None or int(padding) < 0)


def _sum_bags(node: TorchNode, indices: Value, offsets: Value) -> Value:
    """The sums or means of bags in which every index counts."""
    table, weights = node["weight"], node["per_sample_weights"]
    if weights is not None:
        weights = F.cast(weights, table.dtype)
    total = F.bag_sums(table, indices, offsets, weights)
    if int(node["mode"]) == SUM:
        return total
    count = F.reshape(F.cast(as_number(indices.shape[0]), i64), (1,))
    ends = F.concat([F.slice(offsets, [1], [offsets.shape[0]], axes=[0]), count], 0)
    sizes = F.cast(F.maximum(ends - offsets, 1), table.dtype)
    return total / F.unsqueeze(sizes, -1)


def _mask_padding(node: TorchNode, indices: Value) -> Value:
    """Which indices count, [indices, 1]: all that are not the padding."""
    padding = node.get("padding_idx")
    if padding is None or int(padding) < 0:
        return F.full((indices.shape[0], 1), True, "bool")
    return F.not_equal(F.unsqueeze(indices, -1), int(padding))


def _tells_winners(node: TorchNode) -> bool:
    """Whether a backward pass reads which rows were the largest."""
    return any(user.args[1] == 3 and user.users for user in node.fx_node.users)


def _winners(indices: Value, counts: Value, rows: Value, largest: Value, bag: Value) -> Value:
    """The index of the first row of each bag that holds the largest element, depth by depth."""
    hit = F.logical_and(counts, F.equal(rows, F.take(largest, bag, axis=0)))
    none = as_number(indices.shape[0])
    places = F.where(hit, F.iota(rows.shape, 0), none)
    first = F.expand(F.cast(none, i64), largest.shape)
    spread = F.expand(F.unsqueeze(bag, -1), rows.shape)
    found = F.put_along_axis(first, spread, places, 0, "min")
    table = F.concat([F.cast(indices, i64), F.full((1,), -1, i64)], 0)
    return F.take(table, found, axis=0)


def _join_equal(node: TorchNode, bags: Dim, count: Dim) -> Join | None:
    """How rows are joined where every bag is known to have as many: indices came as a matrix."""
    given = node.fx_node.args[2] if len(node.fx_node.args) > 2 else None
    if given is None or getattr(given, "target", None) is not _ARANGE:
        return None
    start, _, *step = given.args
    size = step[0] if step else 1
    if start != 0 or not isinstance(size, int) or not provably_equal(bags * size, count):
        return None

    def join(rows: Value, how: str) -> Value:
        apart = F.reshape(rows, (bags, size, rows.shape[1]))
        return F.max(apart, 1) if how == "max" else F.sum(apart, 1)

    return join


def _join_from(indices: Value, offsets: Value) -> Join:
    """How rows are joined in bags that begin at offsets."""
    count, bags = indices.shape[0], offsets.shape[0]
    bag = F.bag_numbers(indices, offsets)

    def join(rows: Value, how: str) -> Value:
        depth = rows.shape[1]
        first = F.full((bags, depth), float("-inf") if how == "max" else 0, rows.dtype)
        places = F.expand(F.unsqueeze(bag, -1), (count, depth))
        return F.put_along_axis(first, places, rows, 0, how)

    return join


# The way back.


@converter("aten._embedding_bag_backward.default")
def _embedding_bag_backward(node: TorchNode) -> Value:
    """The gradient of the table: each row's bag's, added up over the places that read the row."""
    grad, indices = node["grad"], F.cast(node["indices"], i64)
    if node["sparse"]:
        raise UnsupportedError("a sparse gradient of an embedding bag")
    if node[
        "scale_grad_by_freq"
    ]:  # torch divides by the counts of other rows than those it adds to
        raise UnsupportedError("a gradient of an embedding bag that is scaled by frequency")
    table = F.zeros((node["num_weights"], grad.shape[1]), grad.dtype)
    if 0 in (indices.shape[0], grad.shape[0]):
        return table
    if int(node["mode"]) == MAX:
        winners = node["maximum_indices"]
        read = F.where(F.less(winners, 0), 0, grad)
        return F.put_along_axis(table, F.maximum(winners, 0), read, 0, "add")
    bag = F.bag_numbers(indices, _offsets_of(node))
    counts = _mask_padding(node, indices)
    rows = F.take(grad, bag, axis=0)
    if node["per_sample_weights"] is not None:
        rows = rows * F.unsqueeze(F.cast(node["per_sample_weights"], grad.dtype), -1)
    if int(node["mode"]) == MEAN:
        amounts = F.cast(F.squeeze(counts, (1,)), grad.dtype)
        none = F.zeros((grad.shape[0],), grad.dtype)
        sizes = F.take(F.put_along_axis(none, bag, amounts, 0, "add"), bag, axis=0)
        rows = rows / F.unsqueeze(F.maximum(sizes, 1), -1)
    places = F.expand(F.unsqueeze(indices, -1), rows.shape)
    return F.put_along_axis(table, places, F.where(counts, rows, 0), 0, "add")


@converter("aten._embedding_bag_per_sample_weights_backward.default")
def _sample_weights_backward(node: TorchNode) -> Value:
    """The gradient of each weight: its row times its bag's gradient."""
    grad, indices = node["grad"], F.cast(node["indices"], i64)
    if 0 in (indices.shape[0], grad.shape[0]):
        return F.zeros(indices.shape, grad.dtype)
    bag = F.bag_numbers(indices, _offsets_of(node))
    products = F.take(grad, bag, axis=0) * F.take(node["weight"], indices, axis=0)
    return F.sum(F.where(_mask_padding(node, indices), products, 0), 1)


def _offsets_of(node: TorchNode) -> Value:
    """Where the bags begin; there may be one more, where the last ends."""
    return F.slice(F.cast(node["offsets"], i64), [0], [node["grad"].shape[0]], axes=[0])


@converter("aten.embedding_renorm.default")
def _embedding_renorm(node: TorchNode) -> Value:
    table, limit, p = node["self"], float(node["max_norm"]), float(node["norm_type"])
    indices = F.cast(F.reshape(node["indices"], (-1,)), i64)
    used = F.put_along_axis(
        F.zeros((table.shape[0],), i64), indices, F.ones(indices.shape, i64), 0, "max"
    )
    size = F.abs(table)
    if p == float("inf"):
        norm = F.max(size, 1, keepdims=True)
    elif p == 2.0:
        norm = F.sqrt(F.sum(F.square(size), 1, keepdims=True))
    else:
        norm = F.power(F.sum(F.power(size, p), 1, keepdims=True), 1.0 / p)
    long = F.logical_and(F.greater(norm, limit), F.unsqueeze(F.greater(used, 0), -1))
    return F.where(long, table * (limit / (norm + 1e-7)), table)
