"""The statements of a register tile: guards, accumulations, loops over lanes."""

from __future__ import annotations

from collections.abc import Sequence

from monograph.ir.dims import Dim, Symbol
from monograph.ir.types import bool_
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Expr, Index, Load
from monograph.kernel.flatten import coefficient
from monograph.targets.cpu.loops.vector_parts import in_vector_parts
from monograph.targets.cpu.nests.loop_nest import Loop, LoopKind, Statement


def in_lanes(lane: Axis, body: Sequence[Statement], width: int) -> Loop:
    """A loop over lanes, so many at a time."""
    return in_vector_parts(Loop(lane.symbol, 0, lane.extent, tuple(body), LoopKind.VECTOR, width))


def sum_pairwise(parts: Sequence[Expr]) -> Expr:
    """Neighbours first: ((a + b) + (c + d))."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return e.apply("add", sum_pairwise(parts[:half]), sum_pairwise(parts[half:]))


def equal(a: Dim, b: Dim) -> Expr:
    """Whether two numbers are equal."""
    return e.apply("equal", e.index(a), e.index(b), dtype=bool_)


def less(a: Dim, b: Dim) -> Expr:
    """Whether one number is less than another."""
    return e.apply("less", e.index(a), e.index(b), dtype=bool_)


def is_turned(formula: Expr, lane: Symbol, k: Symbol) -> bool:
    """Whether what is read is contiguous along k rather than along the columns."""
    for each in e.walk((formula,)):
        if isinstance(each, Load) and isinstance(each.operands[0], Index):
            dim = each.operands[0].dim
            if coefficient(dim, k) == 1 and coefficient(dim, lane) not in (0, 1):
                return True
    return False
