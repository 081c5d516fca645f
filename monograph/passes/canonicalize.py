"""Canonical form: of the many ways to write a thing keep one, so that passes need know only one."""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.graph import Graph, Node, Value, infer_types
from monograph.ir.op import Trait
from monograph.passes.base import PassResult, RewritePass
from monograph.rewrite.constants import is_constant
from monograph.rewrite.rule import Rule
from monograph.rewrite.rules import canonical_forms


@dataclass(frozen=True)
class Canonicalize(RewritePass):
    """Rewrite to one spelling, and put operands of commutative ops in one order.

        %a = add(%two, %x)                          %a = add(%x, %two)
        %b = subtract(%a, %three)                   %b = add(%a, %minus_three)
        %c = greater(%b, %x)               ──▶      %c = less(%x, %b)
        %d = square(%a)                             %d = multiply(%a, %a)
        %e = squeeze(%d) {axes = [0]}               %e = reshape(%d) {shape = [4]}

    Operands of commutative ops go in the order in which they are defined, constants last. Nothing
    is computed otherwise than before, and a second run changes nothing.
    """

    name = "canonicalize"

    def rules(self) -> tuple[Rule, ...]:
        """The one spelling of each computation."""
        return canonical_forms.RULES

    def run(self, graph: Graph) -> PassResult:
        """Rewrite the graph and its regions; ``reordered`` counts nodes whose operands swapped."""
        report = super().run(graph)
        reordered = _reorder(graph)
        counters = {**report.counters, "reordered": reordered} if reordered else report.counters
        return PassResult(report.changed or reordered > 0, counters, report.rules)


def _reorder(graph: Graph) -> int:
    """Order the operands of commutative ops; how many nodes changed, those in regions too."""
    position: dict[Value, int] = {value: index for index, value in enumerate(graph.inputs)}
    changed = 0
    for node in graph.nodes:
        for result in node.results:
            position[result] = len(position)
        changed += sum(_reorder(region) for region in node.regions)
        if node.op.has(Trait.COMMUTATIVE) and len(node.operands) == 2:
            changed += _swap_if_unordered(node, position)
    return changed


def _swap_if_unordered(node: Node, position: dict[Value, int]) -> bool:
    left, right = node.operands
    if _order(left, position) <= _order(right, position):
        return False
    if left.type != right.type:
        # Where dimensions may or may not be equal, the order decides which of them is printed.
        types = infer_types(node.op, (right.type, left.type), ())
        if types != tuple(result.type for result in node.results):
            return False
    node.set_operand(0, right)
    node.set_operand(1, left)
    return True


def _order(value: Value, position: dict[Value, int]) -> tuple[bool, int]:
    return is_constant(value), position[value]
