"""Splits a kernel's index space until every position is affine in the loop variables.

An axis whose position is divided, ``i // 7`` and ``i % 7``, becomes two axes. An axis along which
the formula changes at some place, as that of a concatenation does, becomes a kernel for each
piece, if more of a piece then lies in one stretch:

    for i0 < 64, i1 < 150, i2 < 30:   o0[…] = where(i1 < 100, b0[…], b1[…])

    for i0 < 64, i2 < 3000:           o0[4500*i0+i2] = b0[3000*i0+i2]
    for i0 < 64, i2 < 1500:           o0[4500*i0+i2+3000] = b1[1500*i0+i2]

Borders along the innermost axis alone stay, for the loop nest to be cut at. An innermost axis of
two positions, as that of two arrays stacked, is no loop at all:

    for i0 < 250, i1 < 2:             o0[2*i0+i1] = where(i1 < 1, b0[i0], b1[i0])

    for i0 < 250:                     o0[2*i0] = b0[i0];  o0[2*i0+1] = b1[i0]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from monograph.ir.dims import Dim, FloorDiv, Mod, Symbol, SymbolicDim, likely_size, shape_product
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Expr, Index, Reduce
from monograph.kernel.flatten import coefficient, merge_axes, operations
from monograph.kernel.kernel import Kernel, Store
from monograph.kernel.rebased import on_pieces, without_unread
from monograph.targets.cpu.loops.borders import AxisPiece, on_piece, pieces, replace_and_fold

MAX_KINDS = 16
"""Kernels that one may become, those that differ only in where they begin counted once."""
MAX_PIECES = 256
"""Kernels that one may become in all."""
MAX_PIECES_AT_ONCE = 4
"""Pieces that are made of a kernel in one go: of more, each half is made first."""
MIN_NEIGHBOURS = 8
"""Neighbours that an axis must have left where its position is divided."""
PAIR_ELEMENTS = 2
"""Neighbours that are stored together, each by a formula of its own."""
MIN_PARALLEL_ELEMENTS = 8192
"""Elements from which an innermost axis is cut into kernels, which threads share."""


def cut_kernel(kernel: Kernel) -> list[Kernel]:
    """Kernels that together store what this one does: itself, if there is nothing to gain."""
    if not kernel.axes or not kernel.stores or not _is_plain(kernel):
        return [kernel]
    whole = _with_pairs(_split_axes(kernel))
    found = _cut(whole, MAX_PIECES)
    if len(found) > MAX_PIECES or (len(found) > MAX_KINDS and _kinds(found) > MAX_KINDS):
        return [whole]
    return found


def _kinds(kernels: list[Kernel]) -> int:
    """How many of them differ in more than where they begin."""
    read = (without_unread(kernel)[0] for kernel in kernels)
    moved = (on_pieces(each, [b.name for b in each.buffers]) for each in read)
    pairs = zip(kernels, moved, strict=True)
    return len({(own if each is None else each.kernel).digest for own, each in pairs})


def _is_plain(kernel: Kernel) -> bool:
    """Whether each element is computed of others without loops, and all are stored."""
    if any(store.guard is not None for store in kernel.stores):
        return False
    return not any(isinstance(expr, Reduce) for expr in kernel.expressions())


# Divided positions -----------------------------------------------------------------------------


def _split_axes(kernel: Kernel) -> Kernel:
    """Axes whose positions are divided as two, as long as the inner one is worth a loop."""
    changed = True
    while changed:
        changed = False
        for axis in kernel.axes:
            size = _divisor(kernel, axis)
            if size is None:
                continue
            if size == axis.extent:
                split = _cancel_division(kernel, axis)
            else:
                split = merge_axes(_split(kernel, axis, size))
                if axis is kernel.axes[-1] and likely_size(split.axes[-1].extent) < MIN_NEIGHBOURS:
                    continue
            if _count_left_to_split(split) >= _count_left_to_split(kernel):
                continue  # it was put together again, or is divided deeper inside
            kernel, changed = split, True
            break
    return kernel


def _count_left_to_split(kernel: Kernel) -> tuple[int, int]:
    """How far it is from having an axis of its own for every position: less is nearer."""
    return sum(len(_divisors(kernel, axis)) for axis in kernel.axes), -len(kernel.axes)


def _divisor(kernel: Kernel, axis: Axis) -> Dim | None:
    """The smallest size that the position along an axis is divided by, if it divides the axis."""
    return min(_divisors(kernel, axis), key=likely_size, default=None)


def _divisors(kernel: Kernel, axis: Axis) -> list[Dim]:
    """What the position along an axis is divided by and divides the axis."""
    found: set[Dim] = set()
    for position in _positions(kernel, axis.symbol):
        for atom in operations(position, axis.symbol):
            if isinstance(atom, FloorDiv | Mod) and atom.arguments[0] is axis.symbol:
                found.add(atom.arguments[1])
    return [size for size in found if size != 1 and axis.extent % size == 0]


def _cancel_division(kernel: Kernel, axis: Axis) -> Kernel:
    """With ``i`` for ``i % n`` and 0 for ``i // n`` where an axis has n positions."""
    plain: dict[Expr, Expr] = {
        expr: e.index(_plain(expr.dim, axis))
        for expr in kernel.expressions()
        if isinstance(expr, Index) and axis.symbol in expr.symbols
    }
    return replace(kernel, stores=_stores(kernel, lambda expr: e.replace(expr, plain)))


def _plain(dim: Dim, axis: Axis) -> Dim:
    for atoms, factor in dim.terms() if isinstance(dim, SymbolicDim) else ():
        for place, atom in enumerate(atoms):
            if not isinstance(atom, FloorDiv | Mod):
                continue
            if atom.arguments[0] is axis.symbol and atom.arguments[1] == axis.extent:
                step = shape_product((factor, *atoms[:place], *atoms[place + 1 :]))
                rest = axis.symbol if isinstance(atom, Mod) else 0
                return _plain(dim - step * atom + step * rest, axis)
    return dim


def _positions(kernel: Kernel, symbol: Symbol) -> Iterator[Dim]:
    for expr in kernel.expressions():
        if isinstance(expr, Index) and symbol in expr.symbols:
            yield expr.dim


def _split(kernel: Kernel, axis: Axis, size: Dim) -> Kernel:
    outer = e.axis(f"{axis.symbol.name}o", axis.extent // size)
    inner = e.axis(f"{axis.symbol.name}i", size)
    bindings: dict[Symbol, Dim] = {axis.symbol: outer.symbol * size + inner.symbol}
    place = kernel.axes.index(axis)
    axes = (*kernel.axes[:place], outer, inner, *kernel.axes[place + 1 :])
    stores = _stores(kernel, lambda expr: e.substitute(expr, bindings))
    return replace(kernel, axes=axes, stores=stores)


def _stores(kernel: Kernel, on: Callable[[Expr], Expr]) -> tuple[Store, ...]:
    """What is stored, and where, with every formula changed."""
    return tuple(store.mapped(on) for store in kernel.stores)


# Pairs -----------------------------------------------------------------------------------------


def _with_pairs(kernel: Kernel) -> Kernel:
    """Without an innermost axis of two positions, if the axis before it leads along memory."""
    *_, last = kernel.axes
    if last.extent != PAIR_ELEMENTS and PAIR_ELEMENTS in _divisors(kernel, last):
        kernel = _split(kernel, last, PAIR_ELEMENTS)
        *_, last = kernel.axes
    if last.extent != PAIR_ELEMENTS or last is kernel.axes[0]:
        return kernel
    before = kernel.axes[-2]
    is_along = all(
        _leads(store.position[0], last, 1) and _leads(store.position[0], before, PAIR_ELEMENTS)
        for store in kernel.stores
    )
    if not is_along or likely_size(before.extent) < MIN_NEIGHBOURS:
        return kernel
    stores = tuple(_at(store, last, k) for store in kernel.stores for k in range(PAIR_ELEMENTS))
    return merge_axes(replace(kernel, axes=kernel.axes[:-1], stores=stores))


def _leads(position: Expr, axis: Axis, step: int) -> bool:
    return isinstance(position, Index) and coefficient(position.dim, axis.symbol) == step


def _at(store: Store, axis: Axis, place: int) -> Store:
    """What is stored at one position of an axis."""

    def on(expr: Expr) -> Expr:
        return replace_and_fold(e.substitute(expr, {axis.symbol: place}), {})

    return Store(store.buffer, tuple(map(on, store.position)), on(store.value))


# Pieces ----------------------------------------------------------------------------------------


def _cut(kernel: Kernel, most: int) -> list[Kernel]:
    """A kernel for each piece of the first axis that gains from it, and so on for those."""
    for axis in kernel.axes:
        found = _pieces(kernel, axis, most - 1)
        if len(found) == 1 or not _gains(kernel, axis, found):
            continue
        parts = _parts(kernel, axis, found)
        rest = most - len(parts) + 1
        return [each for part in parts for each in _cut(part, rest)]
    return [kernel]


def _pieces(kernel: Kernel, axis: Axis, most: int) -> list[AxisPiece]:
    moving = {axis.symbol for axis in kernel.axes}
    roots = tuple(x for store in kernel.stores for x in (*store.position, store.value))
    return pieces(roots, axis, moving, most)


def _parts(kernel: Kernel, axis: Axis, found: list[AxisPiece]) -> list[Kernel]:
    """A kernel for each piece. Of many, the halves are made first, which are half as long each."""
    if len(found) <= MAX_PIECES_AT_ONCE:
        return [merge_axes(_part(kernel, axis, piece)[0]) for piece in found]
    parts: list[Kernel] = []
    middle = len(found) // 2
    for half in (found[:middle], found[middle:]):
        part, inside = _part(kernel, axis, _join(half))
        again = _pieces(part, inside, len(half) - 1)
        parts += _parts(part, inside, again)
    return parts


def _join(found: list[AxisPiece]) -> AxisPiece:
    """Neighbours as one piece, with the comparisons that hold all along it."""
    first, *others = found
    settled = {
        comparison: holds
        for comparison, holds in first.settled.items()
        if all(other.settled.get(comparison) == holds for other in others)
    }
    return AxisPiece(first.start, sum((each.extent for each in others), first.extent), settled)


def _part(kernel: Kernel, axis: Axis, piece: AxisPiece) -> tuple[Kernel, Axis]:
    """The kernel on a piece of an axis, and that piece of the axis."""
    inside = e.axis(axis.symbol.name, piece.extent)

    def on(expr: Expr) -> Expr:
        return on_piece(expr, axis, inside.symbol, piece)

    axes = tuple(inside if each is axis else each for each in kernel.axes)
    stores = tuple(
        Store(store.buffer, tuple(map(on, store.position)), on(store.value))
        for store in kernel.stores
    )
    return _without_units(replace(kernel, axes=axes, stores=stores)), inside


def _without_units(kernel: Kernel) -> Kernel:
    """Without the axes that have one position left."""
    units: dict[Symbol, Dim] = {each.symbol: 0 for each in kernel.axes if each.extent == 1}
    if not units:
        return kernel
    stores = tuple(
        Store(
            store.buffer,
            tuple(e.substitute(position, units) for position in store.position),
            e.substitute(store.value, units),
        )
        for store in kernel.stores
    )
    axes = tuple(each for each in kernel.axes if each.extent != 1)
    return replace(kernel, axes=axes, stores=stores)


def _gains(kernel: Kernel, axis: Axis, found: list[AxisPiece]) -> bool:
    """Whether most of the elements lie in longer stretches, or those are long enough already."""
    if axis is kernel.axes[-1] and likely_size(axis.extent) >= MIN_PARALLEL_ELEMENTS:
        return True
    largest = max(found, key=lambda piece: likely_size(piece.extent))
    return len(merge_axes(_part(kernel, axis, largest)[0]).axes) < len(kernel.axes)
