"""Lowering: replace composite ops by the primitives that they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.ir.decompose import decompose_node
from monograph.ir.graph import Graph
from monograph.ir.op import Op
from monograph.passes.base import Pass, PassResult


@dataclass(frozen=True)
class LowerComposites(Pass):
    """Decompose composites, and what they decompose into, until only primitives are left.

        %y = silu(%x) : f32[4]     ─▶     %sigmoid = sigmoid(%x) : f32[4]
                                          %y = multiply(%x, %sigmoid) : f32[4]

    Lowering is gradual: ``keep`` names composites that the target has kernels for, and that stay.
    With ``keep_lowerable``, so do those that say how their elements are computed, or in what loops;
    without ``keep_loops``, of the latter only those that do not decompose.
    """

    name: ClassVar[str] = "lower_composites"
    keep: tuple[str, ...] = ()
    keep_lowerable: bool = False
    keep_loops: bool = True

    def run(self, graph: Graph) -> PassResult:
        """Decompose, in regions too."""
        counters = decompose_composites(graph, self.is_kept)
        return PassResult(bool(counters), counters)

    def is_kept(self, op: type[Op]) -> bool:
        """Whether ops of this kind stay."""
        if op.name in self.keep:
            return True
        lowerable = op.is_lowerable() if self.keep_loops else op.has_lowering()
        return self.keep_lowerable and lowerable


def decompose_composites(graph: Graph, is_kept: Callable[[type[Op]], bool]) -> dict[str, int]:
    """Decompose all composites but those that are kept; how many of each name there were."""
    counters: dict[str, int] = {}
    _decompose(graph, is_kept, counters)
    return counters


def _decompose(graph: Graph, is_kept: Callable[[type[Op]], bool], counters: dict[str, int]) -> None:
    pending = list(reversed(graph.nodes))
    while pending:
        node = pending.pop()
        for region in node.regions:
            _decompose(region, is_kept, counters)
        if node.op.is_composite() and not is_kept(type(node.op)):
            counters[node.op.name] = counters.get(node.op.name, 0) + 1
            pending.extend(reversed(decompose_node(node)))
