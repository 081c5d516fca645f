"""Instruction counts: the cost of a kernel for each of its elements."""

from __future__ import annotations

from functools import cache

from monograph.ir.types import DType
from monograph.kernel import expr as e
from monograph.kernel import mathlib
from monograph.kernel.expr import Apply, Expr, Load
from monograph.kernel.kernel import Kernel
from monograph.kernel.scalar import APPROXIMATED, cost


def work_of(kernel: Kernel) -> int:
    """Instructions that one element of a kernel takes."""
    return 1 + sum(map(instructions_of, kernel.expressions()))


def instructions_of(expr: Expr) -> int:
    """Instructions that an expression takes beside its operands."""
    if isinstance(expr, Apply):
        return _instruction_count(expr)
    return 1 if isinstance(expr, Load) else 0


def _instruction_count(applied: Apply) -> int:
    """How many basic functions a function is made of."""
    if applied.function not in APPROXIMATED:
        return cost(applied.function)
    return _count_expansion(applied.function, applied.dtype, len(applied.operands))


@cache
def _count_expansion(function: str, dtype: DType, operands: int) -> int:
    variables = [e.variable(f"x{k}", dtype) for k in range(operands)]
    applied = e.apply(function, *variables, dtype=dtype)
    assert isinstance(applied, Apply)
    return len(_usually_applied(mathlib.expand(applied)))


def _usually_applied(root: Expr) -> set[Expr]:
    """The functions that an expression applies to nearly every element."""
    found: set[Expr] = set()
    waiting = [root]
    while waiting:
        expr = waiting.pop()
        if not isinstance(expr, Apply) or expr in found:
            continue
        found.add(expr)
        is_choice = expr.function == "rarely"
        waiting += (expr.operands[0], expr.operands[2]) if is_choice else expr.operands
    return found
