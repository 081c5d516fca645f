"""How much of what a kernel reads and writes lies side by side along an axis.

A vector is loaded at once where neighbours along its axis are neighbours in memory; elsewhere it is
gathered element by element.
"""

from __future__ import annotations

from collections.abc import Iterable

from monograph.ir.dims import Symbol
from monograph.ir.types import DType
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Expr, Index, Load, Reduce
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel

VECTOR_LOAD_STRIDES = (-1, 2)
"""Distances of neighbours at which a vector is still loaded as a whole; 2 in complex numbers."""


def is_contiguous(kernel: Kernel, symbol: Symbol) -> bool:
    """Whether something lies along an axis."""
    return any(score_position(position, symbol) > 0 for position, _, _ in list_accesses(kernel))


def score_axis(kernel: Kernel, symbol: Symbol, stores: bool = True) -> int:
    """How much is contiguous along an axis, of what is read (and of what is written)."""
    accesses = list_accesses(kernel, stores)
    return sum(
        score_position(position, symbol, VECTOR_LOAD_STRIDES) * weight
        for position, _, weight in accesses
    )


def score_reductions(reductions: list[Reduce]) -> int:
    """How much of what reductions read is contiguous along their last axes."""
    total = 0
    for each in reductions:
        if not each.axes:
            continue
        loads = e.find_loads(each.body)
        for load in leave_out_tables(loads):
            total += 2 * score_position(load.operands[0], each.axes[-1].symbol, VECTOR_LOAD_STRIDES)
    return total


def list_accesses(kernel: Kernel, stores: bool = True) -> Iterable[tuple[Expr, DType, int]]:
    """Every position (or every one that is read), with what is there and how much it counts.

    What a position is read from does not: a table is small beside what is read at its positions.
    """
    for load in leave_out_tables(kernel.loads()):
        yield load.operands[0], load.dtype, 2
    for store in kernel.stores if stores else ():
        yield store.position[0], store.buffer.dtype, 3


def leave_out_tables(loads: Iterable[Load]) -> list[Load]:
    """Loads but for those that only say where others read."""
    found = list(loads)
    tables = {x for load in found for x in e.find_loads(*load.operands)}
    return [load for load in found if load not in tables]


def _summands(position: Expr) -> Iterable[Expr]:
    """What a position is the sum of: of two gathered axes it is a sum of sums."""
    if not isinstance(position, Apply) or position.function != "add":
        yield position
        return
    for operand in position.operands:
        yield from _summands(operand)


def score_position(position: Expr, symbol: Symbol, near: tuple[int, ...] = (-1,)) -> int:
    """2 if neighbours along the axis are neighbours in memory, -1 if they are far apart.

    Those that are as far apart as one of ``near`` are found on the way: they lie the other way
    round, or every other one is left out.
    """
    if symbol not in position.symbols:
        return 0
    steps = [
        coefficient(part.dim, symbol) if isinstance(part, Index) else None
        for part in _summands(position)
        if symbol in part.symbols
    ]
    if steps == [1]:
        return 2
    return 1 if len(steps) == 1 and steps[0] in near else -1
