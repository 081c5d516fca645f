"""Products of complex matrices are four products of real ones.

Real products have register tiles and packed operands; a sum of complex products has neither.
"""

from __future__ import annotations

from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.ir.build import apply
from monograph.ir.graph import Node, Value
from monograph.ops import elementwise
from monograph.ops.linalg import DotGeneral
from monograph.passes.base import RewritePass
from monograph.rewrite.rule import Rule, rewrite


@dataclass(frozen=True)
class SplitComplexProducts(RewritePass):
    """Say a product of complex numbers by the products of their parts.

        %y = dot_general(%a, %b) : c64   ─▶   %y = complex(aᵣ·bᵣ - aᵢ·bᵢ, aᵣ·bᵢ + aᵢ·bᵣ)

    The sums are the same terms in another order: parts that are not finite meet later.
    """

    name: ClassVar[str] = "split_complex_products"

    def rules(self) -> tuple[Rule, ...]:
        """The one rule."""
        return (split_parts,)


@rewrite("split_parts", root=DotGeneral, floats="rounding")
def split_parts(node: Node) -> Value | None:
    """dot_general of complex operands → complex of four of real ones."""
    if not all(operand.dtype.is_complex for operand in node.operands):
        return None
    left, right = ((elementwise.real(x), elementwise.imag(x)) for x in node.operands)
    straight, crossed, outer, inner = (
        apply(node.op, a, b)
        for a, b in (
            (left[0], right[0]),
            (left[1], right[1]),
            (left[0], right[1]),
            (left[1], right[0]),
        )
    )
    return elementwise.complex(straight - crossed, outer + inner)
