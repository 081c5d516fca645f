"""Fold the transpose of a weight into the matrix product that reads it.

A matrix of [inputs, outputs] became one of [outputs, inputs] so that all linear layers look alike
to the passes. Nothing was moved yet (``ir.computed``), and packing reads either way round.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.ir.build import apply
from monograph.ir.data import Data
from monograph.ir.graph import Node, Value
from monograph.ir.lazy_data import LazyData
from monograph.ops.data import Weight
from monograph.ops.linalg import DotGeneral
from monograph.ops.shape import Transpose
from monograph.passes.base import RewritePass
from monograph.rewrite.rule import Rule, rewrite


@dataclass(frozen=True)
class FoldTransposeIntoDot(RewritePass):
    """Contract the other axis of a weight instead of transposing the weight.

        %y = dot_general(%x, %t) {lhs_contracting = [1], rhs_contracting = [1]}
        ─▶ %y = dot_general(%x, %w) {lhs_contracting = [1], rhs_contracting = [0]}

    where ``%t`` is a weight that is still to be computed, as the transpose of ``%w``.
    """

    name: ClassVar[str] = "fold_transpose_into_dot"

    def rules(self) -> tuple[Rule, ...]:
        """The one rule."""
        return (fold_transpose,)


@rewrite("fold_transpose", root=DotGeneral, floats="exact: the same products in the same order")
def fold_transpose(node: Node) -> Value | None:
    """dot_general(x, transpose(w)) → dot_general(x, w), for a weight that is not yet transposed."""
    op = node.op
    assert isinstance(op, DotGeneral)
    x, weight = node.operands
    given = _before_transpose(weight)
    if given is None or len(op.rhs_contracting) != 1 or op.rhs_batch:
        return None
    assert isinstance(weight.op, Weight)
    back = node.graph.add_weight(f"{weight.op.label}.back", given)
    return apply(replace(op, rhs_contracting=(1 - op.rhs_contracting[0],)), x, back)


def _before_transpose(weight: Value) -> Data | None:
    """What a matrix is the transpose of, if it is to be computed."""
    data = weight.op.data if isinstance(weight.op, Weight) else None
    if weight.rank != 2 or not isinstance(data, LazyData) or not isinstance(data.op, Transpose):
        return None
    return data.sources[0] if data.op.permutation[0] % 2 else None
