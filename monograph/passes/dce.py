"""Dead code elimination: remove nodes whose results nobody uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from monograph.ir.graph import Graph
from monograph.passes.base import Pass, PassResult


@dataclass(frozen=True)
class DeadCodeElimination(Pass):
    """Remove every node that neither leads to an output nor has an effect.

    One sweep from the last node to the first suffices: when a node is reached, all its users have
    been judged.

        %a = relu(%x) : f32[4]                    %a = relu(%x) : f32[4]
        %b = exp(%x) : f32[4]              ─▶     return %a
        return %a

    Inputs stay, used or not: they are the graph's signature.
    """

    name: ClassVar[str] = "dce"

    def run(self, graph: Graph) -> PassResult:
        """Remove dead nodes, in regions too."""
        removed = _sweep(graph)
        return PassResult(removed > 0, {"removed": removed})


def _sweep(graph: Graph) -> int:
    removed = 0
    for node in reversed(graph.nodes):
        if node.is_removable:
            graph.erase(node)
            removed += 1
        else:
            removed += sum(map(_sweep, node.regions))
    return removed
