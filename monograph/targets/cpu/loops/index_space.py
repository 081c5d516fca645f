"""Transforms a kernel's index space before loops are made: reshaping, merging, splitting axes.

jam(i, 4)      o[i] = f(i), i < 4*n    →   o[4*i] = f(4*i), … o[4*i+3] = f(4*i+3), i < n
block(i, 8)    o[i] = f(i), i < 8*n    →   o[8*ib+ii] = f(8*ib+ii), ib < n, ii < 8
partial(16)    sum(r: x[r])            →   sum(r8: sum(r9 < 16: x[16*r8+r9]))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from monograph.ir.dims import Dim, Symbol, dim_min
from monograph.ir.types import f32, f64
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Expr, Reduce
from monograph.kernel.flatten import replace_axes
from monograph.kernel.kernel import Kernel, Store
from monograph.targets.cpu.loops.schedule import Schedule

MAX_PARTIAL_SUMS = 8
"""Partial sums that are added up before their sum is added to another, with more digits."""


def with_partial_sums(kernel: Kernel, size: int) -> Kernel:
    """Long sums as sums of shorter ones, in two or three levels.

    Each rounds less, and what they lose does not add up. It is the last level that loses most,
    so where there are many partial sums they are themselves summed in parts, and those of f32 are
    added up in f64.
    """
    replaced: dict[Expr, Expr] = {}
    for expr in kernel.expressions():
        if isinstance(expr, Reduce) and _is_long_sum(expr, size):
            replaced[expr] = _in_shorter_sums(expr, replaced, size)
    if not replaced:
        return kernel
    stores = tuple(
        Store(s.buffer, s.position, e.replace(s.value, replaced), s.guard) for s in kernel.stores
    )
    return replace(kernel, stores=stores)


def _is_long_sum(expr: Reduce, size: int) -> bool:
    """Whether it is a sum of many terms, none of which is a sum along the same axes."""
    if expr.kind != "sum" or not expr.dtype.is_float:
        return False
    extent = expr.axes[0].extent
    if isinstance(extent, int) and extent <= 2 * size:
        return False
    moving = {axis.symbol for axis in expr.axes}
    inner = (x for x in e.walk((expr.body,)) if isinstance(x, Reduce))
    return not any(moving & x.symbols for x in inner)


def _in_shorter_sums(expr: Reduce, replaced: Mapping[Expr, Expr], size: int) -> Expr:
    """A sum of partial sums; what its terms are made of has been replaced before."""
    number = len(replaced)
    first, *others = expr.axes
    body = e.replace(expr.body, replaced)
    outer, inner = _in_parts(first, size, f"_r8_{number}", f"_r9_{number}")
    place = outer.symbol * size + inner.symbol
    partial = e.reduce("sum", (inner, *others), e.substitute(body, {first.symbol: place}))
    if not isinstance(outer.extent, int) or outer.extent > MAX_PARTIAL_SUMS:
        whole = outer
        outer, inner = _in_parts(whole, MAX_PARTIAL_SUMS, f"_r6_{number}", f"_r7_{number}")
        place = outer.symbol * MAX_PARTIAL_SUMS + inner.symbol
        partial = e.reduce("sum", (inner,), e.substitute(partial, {whole.symbol: place}))
        return precise_sum(outer, partial)
    return e.reduce("sum", (outer,), partial)


def precise_sum(axis: Axis, term: Expr) -> Expr:
    """The sum of a few terms that are sums themselves; those of f32 are added up in f64."""
    if term.dtype is not f32:
        return e.reduce("sum", (axis,), term)
    return e.cast(e.reduce("sum", (axis,), e.cast(term, f64)), f32)


def _in_parts(axis: Axis, size: int, outer_name: str, inner_name: str) -> tuple[Axis, Axis]:
    """An axis as parts of a size, the last of them perhaps shorter, and positions in a part."""
    outer = e.axis(outer_name, (axis.extent + size - 1) // size)
    whole = isinstance(axis.extent, int) and axis.extent % size == 0
    extent = size if whole else dim_min(size, axis.extent - outer.symbol * size)
    return outer, Axis(Symbol(inner_name, 0, size - 1), extent)


def block_axis(
    kernel: Kernel, schedule: Schedule, symbol: Symbol, size: int
) -> tuple[Kernel, Schedule]:
    """An axis as blocks and positions inside a block, the latter just outside the vector loop."""
    axis = next(axis for axis in kernel.axes if axis.symbol is symbol)
    outer = e.axis(f"{symbol.name}b", (axis.extent + size - 1) // size)
    left = axis.extent - outer.symbol * size
    whole = isinstance(axis.extent, int) and axis.extent % size == 0
    inner = Axis(Symbol(f"{symbol.name}i", 0, size - 1), size if whole else dim_min(size, left))
    bindings: dict[Symbol, Dim] = {symbol: outer.symbol * size + inner.symbol}
    axes = tuple(each for each in kernel.axes if each is not axis)
    changed = replace_axes(kernel, (*axes, outer, inner), bindings)
    leading = tuple(outer.symbol if s is symbol else s for s in schedule.order[: schedule.rows])
    order = (*leading, inner.symbol, *schedule.order[schedule.rows :])
    return changed, replace(schedule, order=order, rows=schedule.rows + 1, block=None)


def unroll_and_jam(kernel: Kernel, schedule: Schedule) -> Kernel:
    """Copies of the stores for several iterations of an axis at once.

    The last ones are clamped to the final iteration: it is then computed more than once, by one
    thread, with one result; it is not written over what it is computed from. Where the last two
    lots belong to one thread, the last begins early enough to be whole instead, so that its copies
    are neighbours as those of the others are.
    """
    stores = kernel.stores
    axes = kernel.axes
    for symbol, copies in schedule.jam:
        axis = next(axis for axis in axes if axis.symbol is symbol)
        whole = isinstance(axis.extent, int) and axis.extent % copies == 0
        shorter = Axis(
            symbol, axis.extent // copies if whole else (axis.extent + copies - 1) // copies
        )
        places: Iterable[Dim] = (symbol * copies + copy for copy in range(copies))
        if not whole and _has_last_together(kernel, schedule, axis, copies):
            start = dim_min(symbol * copies, axis.extent - copies)
            places = [start + copy for copy in range(copies)]
        elif not whole:
            places = [dim_min(place, axis.extent - 1) for place in places]
        bindings = [{symbol: place} for place in places]
        stores = tuple(
            Store(
                store.buffer,
                tuple(e.substitute(place, each) for place in store.position),
                e.substitute(store.value, each),
            )
            for store in stores
            for each in bindings
        )
        axes = tuple(shorter if each is axis else each for each in axes)
    return replace(kernel, axes=axes, stores=stores)


def _has_last_together(kernel: Kernel, schedule: Schedule, axis: Axis, copies: int) -> bool:
    """Whether the last two lots of an axis are in one block, and may share some elements.

    What is written over what it is computed from may not be computed twice.
    """
    if schedule.block is None or schedule.block[0] is not axis.symbol:
        return False
    if not isinstance(axis.extent, int) or axis.extent < copies:
        return False
    written = {store.position for store in kernel.stores}
    if any(load.operands in written for load in kernel.loads()):
        return False
    return -(-axis.extent // copies) % schedule.block[1] != 1
