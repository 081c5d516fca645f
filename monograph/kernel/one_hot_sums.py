"""Sums with a one-hot factor: only the term that it picks is read.

    sum(r < 32000: where(r == label[i], x[i, r], 0))    as it is said: another visit of every row
    where(0 <= label[i] < 32000, x[i, label[i]] + 0, 0) as it is computed

Losses say it so, because their gradients are then sums as well, not scattered writes. The zero that
is added makes 0 of -0, as the sum would.
"""

from __future__ import annotations

from dataclasses import replace

from monograph.ir.dims import Dim, Symbol
from monograph.ir.types import bool_
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Axis, Expr, Index, Literal, Reduce
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel, Store


def with_picks(kernel: Kernel) -> Kernel:
    """The kernel with such sums replaced by the term that they pick."""
    replaced: dict[Expr, Expr] = {}
    for expr in e.walk(tuple(store.value for store in kernel.stores)):
        picked = _pick_term(expr) if isinstance(expr, Reduce) else None
        if picked is not None:
            replaced[expr] = picked
    if not replaced:
        return kernel
    stores = tuple(
        Store(s.buffer, s.position, e.replace(s.value, replaced), s.guard) for s in kernel.stores
    )
    return replace(kernel, stores=stores)


def _pick_term(reduction: Reduce) -> Expr | None:
    """The one term of a sum that is not 0, if that is how the sum is made."""
    body = reduction.body
    if reduction.kind != "sum" or len(reduction.axes) != 1:
        return None
    if not isinstance(body, Apply) or body.function != "where":
        return None
    (axis,) = reduction.axes
    condition, term, other = body.operands
    is_zero = isinstance(other, Literal) and other.value == 0
    place = _place(condition, axis)
    if not is_zero or place is None or not _has_elements(axis.extent):
        return None
    size = e.index(axis.extent)
    inside = e.apply(
        "logical_and",
        e.apply("less_equal", e.index(0), place, dtype=bool_),
        e.apply("less", place, size, dtype=bool_),
    )
    found = _at(term, axis.symbol, e.select(inside, place, e.index(0)))
    return None if found is None else e.select(inside, e.apply("add", found, other), other)


def _place(condition: Expr, axis: Axis) -> Expr | None:
    """What the position along an axis is compared with, if that is the same all along it."""
    if not isinstance(condition, Apply) or condition.function != "equal":
        return None
    sides = condition.operands
    for position, place in (sides, sides[::-1]):
        is_axis = isinstance(position, Index) and position.dim is axis.symbol
        if is_axis and axis.symbol not in place.symbols and place.dtype is position.dtype:
            return place
    return None


def _has_elements(extent: Dim) -> bool:
    least = extent if isinstance(extent, int) else extent.bounds()[0]
    return least is not None and least > 0


def _at(term: Expr, symbol: Symbol, place: Expr) -> Expr | None:
    """A term at a place that is data; None where its positions are not multiples of the axis."""
    done: dict[Expr, Expr] = {}
    for expr in e.walk((term,)):
        if symbol not in expr.symbols:
            continue
        if isinstance(expr, Reduce):
            return None
        if not isinstance(expr, Index):
            done[expr] = expr.rebuilt(tuple(done.get(x, x) for x in expr.operands))
            continue
        step = coefficient(expr.dim, symbol)
        if step is None:
            return None
        done[expr] = e.index(expr.dim - step * symbol) + place * step
    return done.get(term, term)
