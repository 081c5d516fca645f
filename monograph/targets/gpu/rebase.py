"""Moves constant offsets out of kernels into launches, so that equal layers share one kernel.

layer 0 reads cache[0, …], layer 5 reads cache[5, …]         two kernels that differ in a number
both read b0[…], which begins so many bytes into the slot    one kernel, launched with two offsets
"""

from __future__ import annotations

from dataclasses import replace

from monograph.ir.dims import SymbolicDim
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Expr, Index
from monograph.kernel.kernel import Kernel

ALIGNMENT = 16
"""Bytes that every buffer's address is a multiple of."""


def rebase(kernel: Kernel) -> tuple[Kernel, dict[str, int]]:
    """A flat kernel without what all reads of an input begin with, and those bytes by buffer."""
    if kernel.sizes:
        return kernel, {}
    least: dict[str, int] = {}
    loads = list(kernel.loads())
    for load in loads:
        begin = _constant(load.operands[0])
        least[load.buffer.name] = min(begin, least.get(load.buffer.name, begin))
    shifts: dict[str, int] = {}
    for buffer in kernel.inputs:
        width = max(1, buffer.dtype.numpy.itemsize)
        unit = max(1, ALIGNMENT // width)
        shift = least.get(buffer.name, 0) // unit * unit
        if shift > 0:
            shifts[buffer.name] = shift
    if not shifts:
        return kernel, {}
    changed: dict[Expr, Expr] = {}
    for load in loads:  # operands come before what they are in
        shift = shifts.get(load.buffer.name, 0)
        place = e.replace(load.operands[0], changed)
        if shift or place is not load.operands[0]:
            changed[load] = e.load(load.buffer, (_shift(place, shift),))
    stores = tuple(store.mapped(lambda x: e.replace(x, changed)) for store in kernel.stores)
    begins = {
        buffer.name: shifts[buffer.name] * buffer.dtype.numpy.itemsize
        for buffer in kernel.inputs
        if buffer.name in shifts
    }
    return replace(kernel, stores=stores), begins


def _constant(place: Expr) -> int:
    """The number that a position has as a term of its sum."""
    if isinstance(place, Index):
        if not isinstance(place.dim, SymbolicDim):
            return place.dim
        return sum(factor for atoms, factor in place.dim.terms() if not atoms)
    if isinstance(place, Apply) and place.function == "add":
        return sum(map(_constant, place.operands))
    return 0


def _shift(place: Expr, by: int) -> Expr:
    """A position that is so much less."""
    if by == 0:
        return place
    if isinstance(place, Index):
        return e.index(place.dim - by)
    assert isinstance(place, Apply), "its terms have the number"
    one, other = place.operands
    first = max(0, min(_constant(one), by))
    return place.rebuilt((_shift(one, first), _shift(other, by - first)))
