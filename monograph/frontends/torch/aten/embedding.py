"""Bags of embeddings: rows of a table, summed, averaged or maximised bag by bag."""

from __future__ import annotations

import operator

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.graph import Value
from monograph.ir.types import i64

SUM, MEAN, MAX = range(3)


def _require_only_output(node: TorchNode) -> None:
    """The other results serve torch's own backward pass, and half of them are left unwritten."""
    for user in node.fx_node.users:
        if user.target is operator.getitem and (user.args[1] == 0 or not user.users):
            continue
        if user.users or user.op == "output":
            raise UnsupportedError(f"{node.op_name}: only the first result can be used")


@converter(
    "aten._embedding_bag.default",
    "aten._embedding_bag_forward_only.default",
    "aten.embedding_bag.default",
    "aten.embedding_bag.padding_idx",
)
def _embedding_bag(node: TorchNode) -> tuple[Value, ...]:
    _require_only_output(node)
    rest = [type_ for type_ in node.result_types()[1:] if type_ is not None]
    return _bags(node), *(F.zeros(type_.shape, type_.dtype) for type_ in rest)


def _bags(node: TorchNode) -> Value:
    table, indices, offsets = node["weight"], node["indices"], F.cast(node["offsets"], i64)
    if node["include_last_offset"]:
        offsets = F.slice(offsets, [0], [offsets.shape[0] - 1], axes=[0])
    count, bags = indices.shape[0], offsets.shape[0]
    depth = table.shape[1]
    if 0 in (count, bags):
        return F.zeros((bags, depth), table.dtype)
    bag = F.cast(F.searchsorted(offsets, F.arange(count), right=True), i64) - 1
    rows = F.take(table, indices, axis=0)
    padding = node.get("padding_idx")
    counts = F.full((count,), True, "bool")
    if padding is not None and int(padding) >= 0:
        counts = F.not_equal(indices, int(padding))
    places = F.expand(F.unsqueeze(bag, -1), (count, depth))
    some = F.put_along_axis(F.zeros((bags,), i64), bag, F.cast(counts, i64), 0, "add")
    mode = int(node["mode"])
    if mode == MAX:
        kept = F.where(F.unsqueeze(counts, -1), rows, float("-inf"))
        lowest = F.full((bags, depth), float("-inf"), table.dtype)
        largest = F.put_along_axis(lowest, places, kept, 0, "max")
        return F.where(F.unsqueeze(F.equal(some, 0), -1), 0, largest)
    if node["per_sample_weights"] is not None:
        rows = rows * F.unsqueeze(F.cast(node["per_sample_weights"], table.dtype), -1)
    kept = F.where(F.unsqueeze(counts, -1), rows, 0)
    total = F.put_along_axis(F.zeros((bags, depth), table.dtype), places, kept, 0, "add")
    if mode == SUM:
        return total
    return total / F.cast(F.unsqueeze(F.maximum(some, 1), -1), table.dtype)


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
