"""Dead code elimination: remove nodes whose results nobody uses."""

from __future__ import annotations

from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.ir.dims import Symbol
from monograph.ir.graph import Graph, Node
from monograph.passes.base import Pass, PassResult


@dataclass(frozen=True)
class DeadCodeElimination(Pass):
    """Remove every node that neither leads to an output nor has an effect.

    One sweep from the last node to the first suffices: when a node is reached, all its users have
    been judged.

        %a = relu(%x) : f32[4]                    %a = relu(%x) : f32[4]
        %b = exp(%x) : f32[4]              ─▶     return %a
        return %a

    Inputs stay, used or not: they are the graph's signature. So does a node that alone knows how
    large a shape is (``nonzero``) while the shape is mentioned.
    """

    name: ClassVar[str] = "dce"

    def run(self, graph: Graph) -> PassResult:
        """Remove dead nodes, in regions too."""
        removed = _sweep(graph, set(), frozenset())
        return PassResult(removed > 0, {"removed": removed})


def _sweep(graph: Graph, mentioned: set[Symbol], outer: frozenset[Symbol]) -> int:
    """Remove the dead nodes; ``mentioned`` collects the symbols in attributes of the others.

    ``outer`` are those that the inputs of the graphs around this one bind.
    """
    removed = 0
    given = outer.union(graph.bound_symbols())
    for node in reversed(graph.nodes):
        if _is_dead(node, mentioned, given):
            graph.erase(node)
            removed += 1
            continue
        mentioned.update(node.op.symbols())
        for region in node.regions:
            removed += _sweep(region, mentioned, given)
    return removed


def _is_dead(node: Node, mentioned: set[Symbol], given: frozenset[Symbol]) -> bool:
    """Whether nobody needs the node: neither its results nor the symbols that it alone binds."""
    if node.is_used or node.has_effect:
        return False
    return mentioned.isdisjoint(node.binds() - given)
