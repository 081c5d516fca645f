"""Unrolls windows of few taps, separately at the borders and inside.

    o0[i] = max(r < 3: where(2*i + r - 1 >= 0, b0[where(2*i + r - 1 >= 0, 2*i + r - 1, 0)], -inf))

    o0[i] = maximum(maximum(where(2*i - 1 >= 0, b0[where(2*i - 1 >= 0, 2*i - 1, 0)], -inf),
                            b0[2*i]), b0[2*i + 1])

In a loop over the taps the border moves with the tap, so every lane asks where it is and gathers.
Of a single tap it stays in one place: the axis is cut there (``borders``), and all but the pieces
at the ends read whole vectors without a question.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod

from monograph.ir.dims import Dim, Symbol
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Axis, Expr, Index, Reduce
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel
from monograph.targets.cpu.loops.borders import replace_and_fold

MOST_TAPS = 81
"""Taps up to which each is worth code of its own: windows of nine by nine."""
_COMPARISONS = frozenset(("less", "less_equal", "greater", "greater_equal"))
_COMBINE = {"max": "maximum", "min": "minimum", "sum": "add", "prod": "multiply"}


def write_out_taps(kernel: Kernel) -> Kernel:
    """The kernel without loops over taps, if each of them is at the border of the last axis."""
    reductions = {x for x in kernel.expressions() if isinstance(x, Reduce)}
    if not kernel.axes or not reductions or any(store.guard is not None for store in kernel.stores):
        return kernel
    last = kernel.axes[-1]
    lies_along = all(_leads(store.position[-1], last) for store in kernel.stores)
    if not lies_along or not all(_is_window(x, last) for x in reductions):
        return kernel
    written: dict[Expr, Expr] = {x: _write_out_taps(x) for x in reductions}
    stores = tuple(replace(store, value=e.replace(store.value, written)) for store in kernel.stores)
    return replace(kernel, stores=stores)


def _leads(position: Expr, axis: Axis) -> bool:
    return isinstance(position, Index) and coefficient(position.dim, axis.symbol) == 1


def _is_window(reduction: Reduce, last: Axis) -> bool:
    """Whether it has few taps, and a border that moves with them along the last axis."""
    sizes = [axis.extent for axis in reduction.axes if isinstance(axis.extent, int)]
    is_known = len(sizes) == len(reduction.axes) and reduction.kind in _COMBINE
    if not is_known or not 0 < prod(sizes) <= MOST_TAPS:
        return False
    if any(isinstance(x, Reduce) for x in e.walk((reduction.body,))):
        return False
    taps = {axis.symbol for axis in reduction.axes}
    return any(
        last.symbol in each and taps & each for each in _list_compared_symbols(reduction.body)
    )


def _list_compared_symbols(body: Expr) -> Iterator[frozenset[Symbol]]:
    """The symbols of each comparison of positions."""
    for x in e.walk((body,)):
        is_comparison = isinstance(x, Apply) and x.function in _COMPARISONS
        if is_comparison and all(isinstance(each, Index) for each in x.operands):
            yield x.symbols


def _write_out_taps(reduction: Reduce) -> Expr:
    """The taps combined one after the other; there is at least one."""
    places = product(*(_positions(axis) for axis in reduction.axes))
    symbols = [axis.symbol for axis in reduction.axes]
    first, *rest = (_at(reduction.body, dict(zip(symbols, at, strict=True))) for at in places)
    for each in rest:
        first = e.apply(_COMBINE[reduction.kind], first, each)
    return first


def _positions(axis: Axis) -> range:
    assert isinstance(axis.extent, int)
    return range(axis.extent)


def _at(body: Expr, place: dict[Symbol, Dim]) -> Expr:
    return replace_and_fold(e.substitute(body, place), {})
