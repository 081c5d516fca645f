"""Splits complex and permuted matrix products into those that kernels exist for.

A product of matrices is four of real ones: those have register tiles and packed operands, and a sum
of complex products has neither. A product along axes is the last of the running products, because
the kernels of reductions keep one real number.
"""

from __future__ import annotations

from typing import ClassVar

from monograph.dataclass import dataclass
from monograph.ir.build import apply
from monograph.ir.dims import provably_less, shape_product
from monograph.ir.graph import Node, Value
from monograph.ops import cumulative, data, elementwise, joining, shape, slicing
from monograph.ops.linalg import DotGeneral
from monograph.ops.reduce.arithmetic import Prod
from monograph.ops.rules import normalize_axes
from monograph.passes.base import RewritePass
from monograph.rewrite.rule import Rule, rewrite


@dataclass(frozen=True)
class SplitComplexProducts(RewritePass):
    """Say a product of complex numbers by the products of their parts.

        %y = dot_general(%a, %b) : c64   ─▶   %y = complex(aᵣ·bᵣ - aᵢ·bᵢ, aᵣ·bᵢ + aᵢ·bᵣ)

        %y = prod(%x) {axes = [0]} : c64[m]  ─▶  %y = cumprod(%x) {axis = 0}, its last row

    The sums are the same terms in another order: parts that are not finite meet later.
    """

    name: ClassVar[str] = "split_complex_products"

    def rules(self) -> tuple[Rule, ...]:
        """One for matrices, one for axes."""
        return (split_parts, multiply_in_turn)


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


@rewrite("multiply_in_turn", root=Prod, floats="rounding")
def multiply_in_turn(node: Node) -> Value | None:
    """prod of complex numbers → the last of their running products, after a 1 if there are none."""
    x, op = node.operands[0], node.op
    assert isinstance(op, Prod)
    if not x.dtype.is_complex:
        return None
    reduced = normalize_axes(op.name, op.axes, x.rank)
    kept = [axis for axis in range(x.rank) if axis not in reduced]
    left = tuple(x.shape[axis] for axis in kept)
    count = shape_product(tuple(x.shape[axis] for axis in reduced))
    rows = shape.reshape(shape.transpose(x, (*reduced, *kept)), (count, *left))
    if not provably_less(0, count):
        rows, count = joining.concat([data.full((1, *left), 1, x.dtype), rows], 0), count + 1
    running = cumulative.cumprod(rows, 0)
    last = slicing.slice(running, (count - 1, *(0 for _ in left)), (count, *left))
    return shape.reshape(last, node.result.shape)
