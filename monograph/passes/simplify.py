"""Algebraic simplification: the same results from fewer and cheaper ops."""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.passes.base import RewritePass
from monograph.rewrite.rule import Rule
from monograph.rewrite.rules import (
    arithmetic,
    casts,
    control,
    fast_math,
    logic,
    pools,
    reductions,
    shapes,
)

EXACT: tuple[Rule, ...] = (
    *arithmetic.RULES,
    *logic.RULES,
    *shapes.RULES,
    *casts.RULES,
    *reductions.RULES,
    *pools.RULES,
    *control.RULES,
)


@dataclass(frozen=True)
class Simplify(RewritePass):
    """Apply the algebra of ``monograph.rewrite.rules`` until nothing more of it applies.

        %one = constant(1.0)
        %a = multiply(%x, %one)
        %b = transpose(%a) {permutation = [1, 0]}          %d = multiply(%x, %x)
        %c = transpose(%b) {permutation = [1, 0]}   ──▶    %e = relu(%d)
        %two = constant(2.0)                               return %e
        %d = power(%c, %two)
        %e = relu(%d)
        %f = relu(%e)
        return %f

    By default every rule is exact: NaN, infinities and both zeros come out as before. With
    ``fast_math`` the rules of real numbers that floats only nearly obey apply as well
    (``x * 0 → 0``, ``exp(log(x)) → x``); each says what it bends.
    """

    name = "simplify"

    fast_math: bool = False

    def rules(self) -> tuple[Rule, ...]:
        """The exact rules, and those of real numbers if they are asked for."""
        return (*EXACT, *fast_math.RULES) if self.fast_math else EXACT
