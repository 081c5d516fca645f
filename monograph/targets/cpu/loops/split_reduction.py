"""Split a long reduction among threads, without letting their number change the result.

    total = sum(r < 16777216: x[r])                    one row keeps one thread busy

    partial[c] = sum(r < 16384: x[16384*c + r])        1024 pieces, shared among the threads
    total = sum(c < 1024: partial[c])

The pieces depend on the size alone, so the same input gives the same bits on any number of threads.
"""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.fusion.limits import FusionLimits
from monograph.ir.dims import Dim, Symbol, SymbolicDim, dim_min, shape_product
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Buffer, Expr, Reduce
from monograph.kernel.kernel import Kernel, Store
from monograph.targets.cpu.loops.index_space import precise_sum

ELEMENTS_PER_PARTIAL = 1 << 14
"""Elements in a piece: no machine's, so that the same input gives the same bits everywhere."""
PARTIAL_AXIS = "_i_piece"


@dataclass(frozen=True)
class SplitKernel:
    """The kernel of the pieces, whose outputs are the partial results, and that of the rest.

    The second one's inputs are the original inputs that it still reads (by position among the
    original ones), then the partial results.
    """

    pieces: Kernel
    rest: Kernel
    rest_inputs: tuple[int, ...]


def split_reductions(kernel: Kernel, limits: FusionLimits) -> SplitKernel | None:
    """The kernel as two, if few long rows would keep most threads idle."""
    reductions = [expr for expr in kernel.expressions() if isinstance(expr, Reduce)]
    if not reductions or not _worth_splitting(kernel, reductions, limits):
        return None
    axes = {axis for each in reductions for axis in each.axes[:1]}
    if len(axes) != 1 or any(_holds_reduction(each) for each in reductions):
        return None
    (long_axis,) = axes
    return _split(kernel, reductions, long_axis)


def _worth_splitting(kernel: Kernel, reductions: list[Reduce], limits: FusionLimits) -> bool:
    used = frozenset[Symbol]().union(*(each.symbols for each in reductions))
    rows = shape_product(axis.extent for axis in kernel.axes if axis.symbol in used)
    if not isinstance(rows, int) or rows >= limits.min_parallel_rows:
        return False
    if any(axis.symbol not in used for axis in kernel.axes):
        return False
    lengths = [shape_product(axis.extent for axis in each.axes) for each in reductions]
    return all(isinstance(n, SymbolicDim) or n >= limits.min_split_row_elements for n in lengths)


def _holds_reduction(reduction: Reduce) -> bool:
    return any(isinstance(x, Reduce) for x in e.walk((reduction.body,)))


def _piece_length(long_axis: Axis, reductions: list[Reduce]) -> int:
    """How much of the first axis makes a piece of about ``ELEMENTS_PER_PARTIAL`` elements."""
    inner = max((n for each in reductions if isinstance(n := _inner(each), int)), default=1)
    return max(1, ELEMENTS_PER_PARTIAL // max(inner, 1))


def _inner(reduction: Reduce) -> Dim:
    return shape_product(axis.extent for axis in reduction.axes[1:])


def _split(kernel: Kernel, reductions: list[Reduce], long_axis: Axis) -> SplitKernel:
    length = _piece_length(long_axis, reductions)
    count = (long_axis.extent + length - 1) // length
    piece = e.axis(PARTIAL_AXIS, count)
    start = piece.symbol * length
    left = long_axis.extent - start
    whole = isinstance(long_axis.extent, int) and long_axis.extent % length == 0
    short = Axis(long_axis.symbol, length if whole else dim_min(length, left))
    rows = tuple(axis.extent for axis in kernel.axes)
    place = e.linear((*kernel.axes, piece))
    stores: list[Store] = []
    replaced: dict[Expr, Expr] = {}
    for k, each in enumerate(reductions):
        dtype = each.dtype
        buffer = Buffer(f"p{k}", dtype, (shape_product((*rows, count)),))
        moved = e.substitute(each.body, {long_axis.symbol: long_axis.symbol + start})
        partial = e.reduce(each.kind, (short, *each.axes[1:]), moved)
        if each.kind in ("argmax", "argmin"):
            partial = partial + start * _inner(each)
        stores.append(Store(buffer, (place,), partial))
        replaced[each] = _combine_partials(each, buffer, kernel.axes, count)
    outputs = tuple(store.buffer for store in stores)
    pieces = Kernel(kernel.name, kernel.inputs, outputs, (*kernel.axes, piece), tuple(stores))
    return SplitKernel(pieces, *kernel.with_replaced(replaced, *outputs))


def _combine_partials(
    reduction: Reduce, buffer: Buffer, axes: tuple[Axis, ...], count: Dim
) -> Expr:
    """The reduction over the partial results."""
    over = e.axis("_r0_0", count)
    partial = e.load(buffer, (e.linear((*axes, over)),))
    if reduction.kind == "sum":
        return precise_sum(over, partial)
    if reduction.kind not in ("argmax", "argmin"):
        return e.reduce(reduction.kind, (over,), partial)
    names = [axis.symbol for axis in reduction.axes]
    value = _at(reduction, partial, names)
    best = e.reduce(reduction.kind, (over,), value)
    first: Expr = e.index(0)
    for axis in axes:
        first = first * axis.extent + e.index(axis.symbol)
    return e.load(buffer, (first * count + best,))


def _at(reduction: Reduce, position: Expr, names: list[Symbol]) -> Expr:
    """The body of an argmax at a position that was found."""
    places: dict[Expr, Expr] = {}
    rest = position
    for axis in reversed(reduction.axes[1:]):
        places[e.index(axis.symbol)] = rest % axis.extent
        rest = rest // axis.extent
    places[e.index(names[0])] = rest
    return _with_positions(reduction.body, places)


def _with_positions(body: Expr, places: dict[Expr, Expr]) -> Expr:
    """The body with index variables replaced by positions that were read from memory."""
    done: dict[Expr, Expr] = {}
    symbols = {p.dim: q for p, q in places.items() if isinstance(p, e.Index)}

    def visit(expr: Expr) -> Expr:
        if expr in done:
            return done[expr]
        if isinstance(expr, e.Index):
            new: Expr = _rebuild_index(expr.dim, symbols)
        else:
            operands = tuple(visit(operand) for operand in expr.operands)
            new = expr if operands == expr.operands else expr.rebuilt(operands)
        done[expr] = new
        return new

    return visit(body)


def _rebuild_index(dim: Dim, symbols: dict[Dim, Expr]) -> Expr:
    if isinstance(dim, int):
        return e.index(dim)
    if dim in symbols:
        return symbols[dim]
    if not any(symbol in symbols for symbol in dim.symbols()):
        return e.index(dim)
    total: Expr = e.index(0)
    for atoms, factor in dim.terms():
        term: Expr = e.index(factor)
        for atom in atoms:
            found = symbols.get(atom)
            term = term * (e.index(atom) if found is None else found)
        total = total + term
    return total
