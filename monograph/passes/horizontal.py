"""Horizontal fusion: layers that read the same values become one layer with all their outputs.

The projections of an attention (queries, keys, values) and of a gated network (gate, up) multiply
one input by several matrices. With few rows each product is short, and what starting and ending it
costs is paid once instead of three times; the input is read once, and threads share one long run
of columns instead of three short ones. With many rows, nothing of that shows, and the results
would only lie further apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.ir.dims import shape_product
from monograph.ir.graph import Graph, Node, Value
from monograph.ops.data import Constant, Weight
from monograph.ops.joining import concat, split
from monograph.ops.linalg import Linear, Matmul
from monograph.passes.base import Pass, PassResult
from monograph.passes.fold_constants import FoldConstants


@dataclass(frozen=True)
class HorizontalFusion(Pass):
    """Join layers of one input whose weights are known.

        %q = linear(%x, %wq) : f32[1, 64]          %w = concat(%wq, %wk) : f32[128, 8]
        %k = linear(%x, %wk) : f32[1, 64]    ─▶    %j = linear(%x, %w) : f32[1, 128]
                                                   %q, %k = split(%j) {…} : f32[1, 64], …

    Only inputs of at most ``rows`` rows are worth it, and a weight that something else reads too
    stays as it is: it would be kept twice. The new weight is left as a ``concat`` of constants, for
    ``fold_constants`` to carry out (so it is no larger than that pass makes them).
    """

    name: ClassVar[str] = "horizontal"
    rows: int = 32

    def run(self, graph: Graph) -> PassResult:
        """Join, in regions too."""
        counters = {"joined": 0, "layers": 0}
        self._run(graph, counters)
        return PassResult(counters["joined"] > 0, counters)

    def _run(self, graph: Graph, counters: dict[str, int]) -> None:
        order = {node: number for number, node in enumerate(graph.nodes)}
        found: dict[object, list[Node]] = {}
        for node in graph.nodes:
            for region in node.regions:
                self._run(region, counters)
            if self._can_join(node):
                found.setdefault(_kind(node), []).append(node)
        for first, *others in found.values():
            place = order[first]
            layers = [first, *(each for each in others if _can_move(each, place, order))]
            if len(layers) > 1 and _size(layers) <= FoldConstants.limit:
                _join(layers, order)
                counters["joined"] += 1
                counters["layers"] += len(layers)

    def _can_join(self, node: Node) -> bool:
        if not isinstance(node.op, Linear | Matmul):
            return False
        x, weight, *bias = node.operands
        if weight.rank != 2 or x.rank < 1 or not all(map(_is_known, (weight, *bias))):
            return False
        if len(weight.uses) > 1:
            return False
        rows = shape_product(x.shape[:-1])
        is_short = isinstance(rows, int) and rows <= self.rows
        return is_short and not _is_known(x)


def _is_known(value: Value) -> bool:
    return isinstance(value.op, Constant | Weight)


def _kind(node: Node) -> object:
    """What layers must have in common."""
    return node.op, node.operands[0], len(node.operands), node.operands[1].dtype


def _size(layers: Sequence[Node]) -> int:
    """Elements of all weights."""
    return sum(math.prod(layer.operands[1].tensor.static_shape()) for layer in layers)


def _can_move(layer: Node, place: int, order: Mapping[Node, int]) -> bool:
    """Whether a layer's parameters are made before a place, or can be made there instead."""
    makers = [(value.producer, len(value.uses)) for value in layer.operands[1:]]
    return all(maker is not None and (order[maker] < place or uses == 1) for maker, uses in makers)


def _join(layers: Sequence[Node], order: Mapping[Node, int]) -> None:
    """Put one layer in the place of several, and parts of its result in that of theirs."""
    first = layers[0]
    graph = first.graph
    with graph.inserting_before(first, first.location):
        for layer in layers[1:]:
            for value in layer.operands[1:]:
                _move_constant(value, order[first], order)
        weights = [layer.operands[1] for layer in layers]
        parameters = [concat(weights, 0 if isinstance(first.op, Linear) else 1)]
        if len(first.operands) > 2:
            parameters.append(concat([layer.operands[2] for layer in layers]))
        joined = graph.create(first.op, (first.operands[0], *parameters)).result
        sizes = [layer.result.shape[-1] for layer in layers]
        parts = split(joined, sizes, joined.rank - 1)
    for layer, part in zip(layers, parts, strict=True):
        name = layer.result.name
        graph.replace(layer, [part])
        graph.rename(part, name)


def _move_constant(value: Value, place: int, order: Mapping[Node, int]) -> None:
    """Make a constant here, unless it was made before; nobody else reads it."""
    maker = value.producer
    assert maker is not None, "a constant has a node"
    if order[maker] < place:
        return
    graph, name = maker.graph, value.name
    moved = graph.create(maker.op, (), location=maker.location).result
    graph.replace(maker, [moved])
    graph.rename(moved, name)
