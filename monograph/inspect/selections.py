"""Judges indices by what they choose: of numbers equal but for rounding, any may be chosen.

An output of ``argsort``, ``top_k``, ``argmax`` or pooling, also one that was reshaped, sliced or
cast since, is followed back to the op that chose. The numbers behind the indices are then compared
as double precision has them, each with the reach of its own noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from monograph.dataclass import dataclass
from monograph.inspect.evaluate import Evaluator
from monograph.inspect.precise import NOISE_DRAWS, NOISE_FACTOR
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.interpret import bind_inputs, evaluate_op
from monograph.ir.types import Array
from monograph.ops.elementwise.convert import Cast
from monograph.ops.index.reading import Gather, Take, TakeAlongAxis
from monograph.ops.pool import MaxPoolWithIndices
from monograph.ops.reduce.extremum import ArgExtremum
from monograph.ops.shape import Expand, Reshape, Squeeze, Transpose, Unsqueeze
from monograph.ops.slicing import Slice
from monograph.ops.sorting import Argsort, TopK, TopKIndices

_ORDERS = (Argsort, TopK, TopKIndices)
"""Ops that choose no element twice."""
_MOVES = (Reshape, Expand, Transpose, Squeeze, Unsqueeze, Slice, Cast, Gather, Take, TakeAlongAxis)
"""Ops whose results are elements of their first operand."""


@dataclass(frozen=True)
class Chosen:
    """Indices among the outputs of a graph: the node that chose, and those that moved them."""

    node: Node
    moves: tuple[Node, ...]
    """From the choice to the output."""


def find_choice(output: Value) -> Chosen | None:
    """The choice that an output tells of; None if it is no index."""
    moves: list[Node] = []
    value = output
    while (node := value.producer) is not None:
        if isinstance(node.op, ArgExtremum | Argsort | TopKIndices):
            return Chosen(node, tuple(reversed(moves)))
        if isinstance(node.op, TopK | MaxPoolWithIndices):
            is_index = value is node.results[1]
            return Chosen(node, tuple(reversed(moves))) if is_index else None
        if not isinstance(node.op, _MOVES):
            return None
        moves.append(node)
        value = node.operands[0]
    return None


def choices_of(
    evaluator: Evaluator, graph: Graph, inputs: Sequence[Any], output: int
) -> Callable[[Array], Array] | None:
    """Says which elements of an output of indices choose well; None if it is not such an output."""
    found = find_choice(graph.outputs[output])
    if found is None:
        return None
    known: list[_Choice] = []

    def choose_well(got: Array) -> Array:
        if not known:
            known.append(_choice(evaluator, graph, inputs, found))
        return known[0].is_as_good(got)

    return choose_well


@dataclass(frozen=True)
class _Choice:
    """What was to be chosen of, in rows of candidates, and what the reference chose."""

    candidates: Array
    reach: Array
    """How far noise moves each of them."""
    rows: Array
    """For each element of the output, the row that it chooses of."""
    places: Array
    """For each element of the output, its place among all the choices."""
    right: Array
    """For each element of the output, what the reference chose."""
    is_order: bool

    def is_as_good(self, got: Array) -> Array:
        """Where indices choose a number that noise cannot tell from the right one."""
        count = self.candidates.shape[-1]
        with np.errstate(invalid="ignore"):
            indices = got.astype(np.int64)
        inside = (indices >= 0) & (indices < count) & (indices == got)
        at, rightly = (self.rows, np.where(inside, indices, 0)), (self.rows, self.right)
        mine, its = self.candidates[at], self.candidates[rightly]
        with np.errstate(invalid="ignore"):
            near = abs(mine - its) <= NOISE_FACTOR * (self.reach[at] + self.reach[rightly])
        alike = (mine == its) | near | (np.isnan(mine) & np.isnan(its))
        return np.asarray(inside & alike & ~self._is_repeated(indices))

    def _is_repeated(self, indices: Array) -> Array:
        """Where an order names an element of a row that it has named in another place."""
        if not self.is_order:
            return np.zeros(indices.shape, bool)
        _, first = np.unique(self.places, return_index=True)
        named = self.rows * self.candidates.shape[-1] + indices
        names, times = np.unique(named.reshape(-1)[first], return_counts=True)
        return np.isin(named, names[times > 1])


def _choice(evaluator: Evaluator, graph: Graph, inputs: Sequence[Any], found: Chosen) -> _Choice:
    keys = found.node.operands[0]
    beside = [operand for node in found.moves for operand in node.operands[1:]]
    probe = _probe(graph, [keys, found.node.results[-1], *beside])
    candidates, right, *others = evaluator.run_wide(probe, inputs)
    draws = [evaluator.run_noisy(probe, inputs, seed)[0] for seed in range(NOISE_DRAWS)]
    exact = np.asarray(candidates, np.float64)
    with np.errstate(invalid="ignore"):
        reach = np.fmax.reduce([abs(np.asarray(each, np.float64) - exact) for each in draws])
    _, bindings = bind_inputs(graph, inputs)
    places = np.arange(right.size).reshape(right.shape)
    for node in found.moves:
        operands, others = others[: len(node.operands) - 1], others[len(node.operands) - 1 :]
        if not isinstance(node.op, Cast):
            places = evaluate_op(node.op.substitute(bindings), [places, *operands])
    return _Choice(
        _in_rows(found.node, exact),
        _in_rows(found.node, np.nan_to_num(reach)),
        _row_numbers(found.node, exact.shape, right.shape).reshape(-1)[places],
        places,
        right.reshape(-1)[places],
        isinstance(found.node.op, _ORDERS),
    )


def _probe(graph: Graph, wanted: Sequence[Value]) -> Graph:
    """A copy of the graph with other outputs."""
    copy = graph.clone()
    twins = dict(zip(graph.inputs, copy.inputs, strict=True))
    for node, twin in zip(graph.nodes, copy.nodes, strict=True):
        twins.update(zip(node.results, twin.results, strict=True))
    copy.set_outputs([twins[value] for value in wanted])
    return copy


def _in_rows(node: Node, keys: Array) -> Array:
    """The numbers that a node chooses of: a row for each choice."""
    op = node.op
    if isinstance(op, MaxPoolWithIndices):
        return keys.reshape(-1, int(np.prod(keys.shape[-len(op.kernel) :])))
    assert isinstance(op, ArgExtremum | Argsort | TopK | TopKIndices)
    return np.moveaxis(keys, op.axis, -1).reshape(-1, keys.shape[op.axis])


def _row_numbers(node: Node, keys: tuple[int, ...], result: tuple[int, ...]) -> Array:
    """For each element of a node's indices, the number of the row that it chooses from."""
    op = node.op
    if isinstance(op, MaxPoolWithIndices):
        leading = keys[: -len(op.kernel)]
        rows = np.arange(int(np.prod(leading))).reshape(leading + (1,) * len(op.kernel))
        return np.broadcast_to(rows, result)
    assert isinstance(op, ArgExtremum | Argsort | TopK | TopKIndices)
    axis = op.axis % len(keys)
    others = keys[:axis] + keys[axis + 1 :]
    rows = np.arange(int(np.prod(others))).reshape(others)
    if len(result) == len(keys):
        rows = np.expand_dims(rows, axis)
    return np.broadcast_to(rows, result)
