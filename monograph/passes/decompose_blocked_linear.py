"""Decomposes integer products with blockwise scales to floats, for targets without dot products."""

from __future__ import annotations

from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.ir.decompose import decompose_node
from monograph.ir.graph import Graph
from monograph.ops.blocked_linear import BlockedLinear
from monograph.passes.base import Pass, PassResult


@dataclass(frozen=True)
class DecomposeBlockedLinear(Pass):
    """Decompose blocked products whose weights are wider than the target multiplies.

        %y = blocked_linear(%x, %step, %w, %s)  ─▶  %a = dequantize(%x, %step)
                                                    %b = dequantize(%w, %s)
                                                    %y = linear(%a, %b)

    ``bits`` is the width of the widest weights that it does; 0 decomposes all.
    """

    name: ClassVar[str] = "decompose_blocked_linear"
    bits: int = 0

    def run(self, graph: Graph) -> PassResult:
        """Decompose, in regions too."""
        found = [
            node
            for node in graph.walk()
            if isinstance(node.op, BlockedLinear) and node.operands[2].dtype.bits > self.bits
        ]
        for node in found:
            decompose_node(node)
        return PassResult(bool(found), {"blocked_linear": len(found)} if found else {})
