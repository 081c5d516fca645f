"""Weights stored in few bits, widened to floats in registers.

    right[n, k] = (float(stored[n, k]) - zero_point[n]) * scale[n, k / 128]

Where few rows read a weight, its bytes are what takes time. So panels hold the narrow part of the
formula, and the rest is done as they are read, with numbers that do not change from step to step.
A scale for each group of steps makes k two axes: groups, and the steps of one.
"""

from __future__ import annotations

from dataclasses import replace

from monograph.ir.dims import Dim, FloorDiv, Symbol
from monograph.ir.types import bf16
from monograph.kernel import expr as e
from monograph.kernel.contraction import Contraction
from monograph.kernel.expr import Apply, Expr, Index, Load, Reduce
from monograph.kernel.kernel import Store
from monograph.kernel.scalar import cost
from monograph.targets.cpu.loops.borders import operations

IN_REGISTERS = 5
"""Instructions that may make an element of the right operand of what is stored of it."""
LEAST_GROUP = 16
"""Steps of k that a scale must hold for, so that reading it is seldom."""


def narrowed(contraction: Contraction) -> Expr:
    """The part of the right operand that takes the fewest bits, if the rest costs little to do.

    From the whole formula inwards, as long as only one operand changes with every step of k.
    """
    part = found = contraction.right
    step = contraction.k[-1].symbol
    spent = 0
    while isinstance(part, Apply):
        changing = {operand for operand in part.operands if step in operand.symbols}
        spent += _instructions(part)
        if len(changing) != 1 or spent > IN_REGISTERS:
            break
        (part,) = changing
        if _stored_bits(part) < _stored_bits(found):
            found = part
    return found


def widened(contraction: Contraction, stored: Load) -> Expr:
    """The right operand, of what ``stored`` holds of it: all, or its narrow part."""
    formula = contraction.right
    if stored.dtype is formula.dtype:
        return stored
    return e.replace(formula, {narrowed(contraction): stored})


def in_groups(contraction: Contraction) -> Contraction:
    """The contraction with k as groups of steps that share a scale; itself, if none do."""
    if len(contraction.k) != 1:
        return contraction
    (axis,) = contraction.k
    size = _group(contraction.right, axis.symbol)
    if size is None or not isinstance(axis.extent, int) or axis.extent % size:
        return contraction
    outer = e.axis(f"{axis.symbol.name}o", axis.extent // size)
    inner = e.axis(f"{axis.symbol.name}i", size)
    bindings: dict[Symbol, Dim] = {axis.symbol: outer.symbol * size + inner.symbol}
    left, right = (e.substitute(x, bindings) for x in (contraction.left, contraction.right))
    body = contraction.reduction.body.rebuilt((left, right))
    reduction = e.reduce("sum", (outer, inner), body)
    assert isinstance(reduction, Reduce)
    kernel = contraction.kernel
    known: dict[Expr, Expr] = {contraction.reduction: reduction}
    stores = tuple(
        Store(s.buffer, s.position, e.replace(s.value, known), s.guard) for s in kernel.stores
    )
    split = replace(kernel, stores=stores)
    grouped = replace(contraction, kernel=split, reduction=reduction, left=left, right=right)
    return grouped if narrowed(grouped) is not narrowed(contraction) else contraction


def _group(formula: Expr, step: Symbol) -> int | None:
    """The fewest steps that share what a formula reads, if some do and they are enough."""
    sizes = {
        atom.arguments[1]
        for part in e.walk((formula,))
        if isinstance(part, Index) and step in part.symbols
        for atom in operations(part.dim, step)
        if isinstance(atom, FloorDiv) and atom.arguments[0] is step
    }
    known = [size for size in sizes if isinstance(size, int)]
    return min((size for size in known if size >= LEAST_GROUP), default=None)


def _stored_bits(part: Expr) -> int:
    return max(part.dtype.bits, 8)


def _instructions(part: Apply) -> int:
    """About how many instructions a function takes; rounding to bf16 takes several."""
    return 6 if part.dtype is bf16 else cost(part.function)
