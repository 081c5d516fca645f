"""Constant folding: do at compile time what depends on nothing but constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import EvaluationError
from monograph.ir.data import ArrayData, Data
from monograph.ir.graph import Graph, Node, Value
from monograph.ir.interpret import evaluate_node, evaluate_op
from monograph.ir.lazy_data import LazyData
from monograph.ir.op import Family, Trait
from monograph.ir.types import Array, TensorType
from monograph.ops.data import Constant, Full, Weight
from monograph.ops.joining import Concat
from monograph.ops.linalg import DotGeneral, Linear, Matmul
from monograph.ops.shape import Reshape, Transpose
from monograph.ops.slicing import Slice
from monograph.passes.base import Pass, PassResult
from monograph.rewrite.constant_evaluator import find_contents

MAX_ALWAYS_FOLDED_ELEMENTS = 64
"""Results of at most this many elements fold whatever they replace."""
MIN_LAZY_ELEMENTS = 1 << 14
"""A result of a weight that has so many elements is computed when it is read."""
PRODUCTS = (DotGeneral, Linear, Matmul)


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replace nodes whose operands are all known (constants, weights, fills) by their results.

        %a = constant(2.0) : f32[]
        %b = constant(3.0) : f32[]                %c = constant(6.0) : f32[]
        %c = multiply(%a, %b) : f32[]      ─▶     %y = multiply(%x, %c) : f32[4]
        %y = multiply(%x, %c) : f32[4]

    A result of more than ``limit`` elements stays as it is. So does one that would make the
    program larger: an ``expand`` of a scalar, or a transpose of a weight that is still needed the
    other way round; slices fold if all that is read of a weight are slices, no larger together. A
    product of weights takes far longer than reading its result, so it stays only if that is larger
    than its operands together, whoever else needs them. Nodes with regions or effects, and those
    whose evaluation fails (an index out of range fails when the program runs, not when it is
    compiled), stay too. A large weight is not read: what becomes of it is computed
    when the program is loaded (``ir.computed``).
    """

    name: ClassVar[str] = "fold_constants"
    limit: int = 1 << 26

    def run(self, graph: Graph) -> PassResult:
        """Fold, in regions too."""
        folded = 0
        while True:
            counters = {"folded": 0, "too_large": 0, "would_grow": 0, "failed": 0}
            self._fold(graph, counters)
            folded += counters["folded"]
            # Folding takes readers away from constants, which may then die with one that stayed.
            if not counters["folded"] or not counters["would_grow"]:
                break
        return PassResult(folded > 0, {**counters, "folded": folded})

    def _fold(self, graph: Graph, counters: dict[str, int]) -> None:
        labels = {node.op.label for node in graph.nodes if isinstance(node.op, Weight)}
        apart: dict[Value, bool] = {}
        for node in graph.nodes:
            for region in node.regions:
                self._fold(region, counters)
            if not _is_foldable(node):
                continue
            refusal = self._refusal(node, apart)
            whole = _defer_evaluation(node) if refusal is None else _evaluate_filled(node)
            if whole is not None:
                _replace(node, [whole], labels)
                counters["folded"] += 1
                continue
            if refusal is not None:
                counters[refusal] += 1
                continue
            try:
                with np.errstate(all="ignore"):
                    results = evaluate_node(
                        node, [find_contents(value) for value in node.operands], {}
                    )
            except EvaluationError:
                counters["failed"] += 1
                continue
            made = [ArrayData(np.asarray(result, order="C")) for result in results]
            _replace(node, made, labels)
            counters["folded"] += 1

    def _refusal(self, node: Node, apart: dict[Value, bool]) -> str | None:
        """The reason to leave a node alone, as the name of a counter.

        ``apart`` remembers which operands are read in slices alone: folding one changes nothing.
        """
        size = sum(int(np.prod(result.tensor.static_shape())) for result in node.results)
        if size > self.limit:
            return "too_large"
        if size <= MAX_ALWAYS_FOLDED_ELEMENTS:
            return None
        if isinstance(node.op, Slice):
            (whole,) = node.operands
            if whole not in apart:
                apart[whole] = _is_taken_apart(whole)
            if apart[whole]:
                return None
        is_product = isinstance(node.op, PRODUCTS)
        freed = sum(
            _bytes(operand)
            for operand in set(node.operands)
            if is_product or _dies_with(operand, node)
        )
        kept = sum(_bytes(result) for result in node.results if result.uses)
        return "would_grow" if kept > freed else None


def _is_foldable(node: Node) -> bool:
    if not node.operands or node.regions or node.has_effect or not node.is_used:
        return False
    if any(True for _ in node.op.symbols()) or node.op.family is Family.MEMORY:
        return False
    if not all(map(_is_known, node.operands)):
        return False
    return all(isinstance(r.type, TensorType) and r.type.is_static for r in node.results)


def _is_known(value: Value) -> bool:
    """Whether the contents are there at compile time: a constant, a weight, or a ``full``."""
    if isinstance(value.op, Full):
        return value.tensor.is_static
    return isinstance(value.op, Constant | Weight)


def _bytes(value: Value) -> int:
    """What a value's contents take; a constant filled with one element takes only that."""
    op = value.op
    if isinstance(op, Full) or (isinstance(op, Constant) and op.data.splat is not None):
        return value.dtype.bits // 8
    total = value.tensor.nbytes
    assert isinstance(total, int)
    return total


def _evaluate_filled(node: Node) -> Data | None:
    """The result of an elementwise op on operands filled with one element each: as small."""
    if not node.op.has(Trait.ELEMENTWISE) or len(node.results) != 1:
        return None
    elements = [_element(operand) for operand in node.operands]
    if any(element is None for element in elements):
        return None
    try:
        with np.errstate(all="ignore"):
            found = evaluate_op(node.op, elements)
    except EvaluationError:
        return None
    element = np.asarray(found, node.result.dtype.numpy)
    return ArrayData(np.broadcast_to(element, node.result.tensor.static_shape()))


def _element(value: Value) -> Array | None:
    """The one element that fills a value, as an array without dimensions."""
    if isinstance(value.op, Full):
        return value.op.element()
    found = value.op.data.splat if isinstance(value.op, Constant) else None
    return None if found is None else np.asarray(found)


def _dies_with(operand: Value, node: Node) -> bool:
    return all(user is node for user in operand.users)


def _is_taken_apart(whole: Value) -> bool:
    """Whether all that is read of a value are slices that are no larger together.

    Folding all of them then frees what they take.
    """
    users = set(whole.users)
    if not all(isinstance(user.op, Slice) for user in users):
        return False
    return sum(_bytes(user.result) for user in users if user.is_used) <= _bytes(whole)


def _defer_evaluation(node: Node) -> LazyData | None:
    """The result of a node on weights, if that is large and computing it cannot fail."""
    if len(node.results) != 1 or np.prod(node.result.tensor.static_shape()) < MIN_LAZY_ELEMENTS:
        return None
    operands = [value.op for value in node.operands]
    sources = [each.data for each in operands if isinstance(each, Constant | Weight)]
    if len(sources) != len(operands) or not any(isinstance(each, Weight) for each in operands):
        return None
    return LazyData(node.op, tuple(sources)) if _can_wait(node, sources) else None


def _can_wait(node: Node, sources: Sequence[Data]) -> bool:
    """Whether nothing is gained by computing a result at once, and it cannot fail later."""
    op = node.op
    if isinstance(op, Reshape | Slice):  # at once, it is a view of what is there
        return isinstance(sources[0], LazyData)
    if op.has(Trait.ELEMENTWISE) or isinstance(op, PRODUCTS):
        return node.results[0].dtype.is_float
    return isinstance(op, Transpose | Concat)


def _replace(node: Node, results: Sequence[Data], labels: set[str]) -> None:
    """Put constants (or weights, if it was made of one and is not small) in a node's place."""
    graph = node.graph
    origin = next((v.op for v in node.operands if isinstance(v.op, Weight)), None)
    names = [result.name for result in node.results]
    values = []
    with graph.inserting_before(node, node.location):
        for data in results:
            if origin is None or data.size <= MAX_ALWAYS_FOLDED_ELEMENTS:
                values.append(graph.add_constant(data))
            else:
                values.append(
                    graph.add_weight(_label(f"{origin.label}.{node.op.name}", labels), data)
                )
    graph.replace(node, values)
    for value, name in zip(values, names, strict=True):
        graph.rename(value, name)


def _label(hint: str, taken: set[str]) -> str:
    """``hint``, numbered if another weight has that label."""
    label, count = hint, 1
    while label in taken:
        count += 1
        label = f"{hint}.{count}"
    taken.add(label)
    return label
