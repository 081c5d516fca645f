"""Common subexpression elimination: compute once what is computed twice."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.ir.compare import structurally_equal
from monograph.ir.graph import Graph, Node
from monograph.ir.op import Trait
from monograph.passes.base import Pass, PassResult


@dataclass(frozen=True)
class CommonSubexpressionElimination(Pass):
    """Let nodes that apply one op to the same operands be one node, the first of them.

        %a = relu(%x) : f32[4]                    %a = relu(%x) : f32[4]
        %b = relu(%x) : f32[4]             ─▶     %c = add(%a, %a) : f32[4]
        %c = add(%a, %b) : f32[4]

    Operands of a commutative op may stand in either order. Constants are equal if their bytes
    are. Nodes with effects are left alone; random ops take a key and so are ordinary nodes.
    Regions are closed, so each is searched by itself.
    """

    name: ClassVar[str] = "cse"

    def run(self, graph: Graph) -> PassResult:
        """Merge equal nodes, in regions too."""
        merged = _merge(graph)
        return PassResult(merged > 0, {"merged": merged})


def _merge(graph: Graph) -> int:
    seen: dict[Hashable, list[Node]] = {}
    merged = 0
    for node in graph.nodes:
        merged += sum(map(_merge, node.regions))
        if node.has_effect:
            continue
        candidates = seen.setdefault(_key(node), [])
        twin = next((earlier for earlier in candidates if _same_regions(earlier, node)), None)
        if twin is None:
            candidates.append(node)
            continue
        graph.replace(node, twin.results)
        merged += 1
    return merged


def _key(node: Node) -> Hashable:
    """Equal for nodes that apply equal ops to the same values."""
    operands = [id(operand) for operand in node.operands]
    if node.op.has(Trait.COMMUTATIVE):
        operands.sort()
    return node.op, tuple(operands)


def _same_regions(a: Node, b: Node) -> bool:
    return all(structurally_equal(x, y) for x, y in zip(a.regions, b.regions, strict=True))
