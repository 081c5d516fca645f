"""Bags of embeddings: rows of a table, summed, averaged or maximised bag by bag."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TypeAlias

import torch

from monograph import functional as F
from monograph.errors import UnsupportedError
from monograph.frontends.torch.node import TorchNode
from monograph.frontends.torch.registry import converter
from monograph.ir.dims import Dim, provably_equal
from monograph.ir.graph import Value
from monograph.ir.types import i64

Join: TypeAlias = Callable[[Value, str], Value]
"""Rows, one an index, joined bag by bag: ``add`` or ``max``."""
SUM, MEAN, MAX = range(3)
_ARANGE = torch.ops.aten.arange.start_step


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
    if 0 in (count, bags):
        return F.zeros((bags, table.shape[1]), table.dtype)
    join = _join_equal(node, bags, count) or _join_from(offsets, count)
    padding = node.get("padding_idx")
    counts = F.full((count, 1), True, "bool")
    if padding is not None and int(padding) >= 0:
        counts = F.not_equal(F.unsqueeze(indices, -1), int(padding))
    rows = F.take(table, indices, axis=0)
    some = join(F.cast(counts, i64), "add")
    mode = int(node["mode"])
    if mode == MAX:
        largest = join(F.where(counts, rows, float("-inf")), "max")
        return F.where(F.equal(some, 0), 0, largest)
    if node["per_sample_weights"] is not None:
        rows = rows * F.unsqueeze(F.cast(node["per_sample_weights"], table.dtype), -1)
    total = join(F.where(counts, rows, 0), "add")
    return total if mode == SUM else total / F.cast(F.maximum(some, 1), table.dtype)


def _join_equal(node: TorchNode, bags: Dim, count: Dim) -> Join | None:
    """How rows are joined where every bag is known to have as many: indices came as a matrix."""
    given = node.fx_node.args[2] if len(node.fx_node.args) > 2 else None
    if given is None or getattr(given, "target", None) is not _ARANGE:
        return None
    start, _, size = given.args
    if start != 0 or not isinstance(size, int) or not provably_equal(bags * size, count):
        return None

    def join(rows: Value, how: str) -> Value:
        apart = F.reshape(rows, (bags, size, rows.shape[1]))
        return F.max(apart, 1) if how == "max" else F.sum(apart, 1)

    return join


def _join_from(offsets: Value, count: Dim) -> Join:
    """How rows are joined in bags that begin at offsets: the number of a row's bag is found by
    counting the bags that have begun.
    """
    bags = offsets.shape[0]
    begun = F.put_along_axis(F.zeros((count + 1,), i64), offsets, F.ones((bags,), i64), 0, "add")
    bag = F.slice(F.cumsum(begun, 0), [0], [count]) - 1

    def join(rows: Value, how: str) -> Value:
        depth = rows.shape[1]
        first = F.full((bags, depth), float("-inf") if how == "max" else 0, rows.dtype)
        places = F.expand(F.unsqueeze(bag, -1), (count, depth))
        return F.put_along_axis(first, places, rows, 0, how)

    return join


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
