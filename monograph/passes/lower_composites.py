"""Lowering: replace composite ops by the primitives that they are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from monograph.ir.decompose import decompose_node
from monograph.ir.graph import Graph
from monograph.passes.base import Pass, PassResult


@dataclass(frozen=True)
class LowerComposites(Pass):
    """Decompose composites, and what they decompose into, until only primitives are left.

        %y = silu(%x) : f32[4]     ─▶     %sigmoid = sigmoid(%x) : f32[4]
                                          %y = multiply(%x, %sigmoid) : f32[4]

    Lowering is gradual: ``keep`` names composites that the target has kernels for, and that stay.
    """

    name: ClassVar[str] = "lower_composites"
    keep: tuple[str, ...] = ()

    def run(self, graph: Graph) -> PassResult:
        """Decompose, in regions too."""
        counters: dict[str, int] = {}
        self._lower(graph, counters)
        return PassResult(bool(counters), counters)

    def _lower(self, graph: Graph, counters: dict[str, int]) -> None:
        pending = list(reversed(graph.nodes))
        while pending:
            node = pending.pop()
            for region in node.regions:
                self._lower(region, counters)
            if node.op.is_composite() and node.op.name not in self.keep:
                counters[node.op.name] = counters.get(node.op.name, 0) + 1
                pending.extend(reversed(decompose_node(node)))
