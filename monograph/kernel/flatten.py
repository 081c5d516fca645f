"""Make a kernel's index space as small in dimensions as its memory accesses allow.

Subscripts become one offset in elements, and neighbouring axes that every access walks through
in one stride become a single axis: a pointwise kernel over ``[64, 128, 768]`` is one long loop.
Where values lie otherwise than row-major, the axes are first put in the order of their strides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from monograph.ir.dims import (
    Dim,
    FloorDiv,
    Mod,
    Operation,
    Symbol,
    SymbolicDim,
    likely_size,
    shape_product,
    substitute_dim,
)
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Axis, Buffer, Expr, Index, Load, Reduce
from monograph.kernel.kernel import Kernel, Store


def flatten(kernel: Kernel) -> Kernel:
    """The kernel with flat buffers and merged axes; nothing is stored in an empty buffer."""
    done: dict[Expr, Expr] = {}
    stores = tuple(
        Store(
            flat_buffer(store.buffer),
            (offset(store.buffer, tuple(flat_expr(p, done) for p in store.position)),),
            flat_expr(store.value, done),
        )
        for store in kernel.stores
        if not _is_empty(store.buffer)
    )
    flat = Kernel(
        kernel.name,
        tuple(map(flat_buffer, kernel.inputs)),
        tuple(map(flat_buffer, kernel.outputs)),
        kernel.axes,
        stores,
    )
    flat = _drop_unit_axes(flat)
    if any(buffer.layout is not None for buffer in kernel.buffers):
        flat = _in_order_of_strides(flat)
    return merge_axes(flat)


def offset(buffer: Buffer, position: Sequence[Expr]) -> Expr:
    """The offset in elements of a position."""
    total: Expr = e.index(buffer.offset)
    for place, stride in _rejoin_divided(
        list(zip(position, buffer.element_strides(), strict=True))
    ):
        total = total + place * stride
    return e.index(_cancel_division(total.dim)) if isinstance(total, Index) else total


def _cancel_division(dim: Dim) -> Dim:
    """``n * (x // n) + x % n`` as ``x``: a place that was divided and not moved since."""
    if not isinstance(dim, SymbolicDim):
        return dim
    divided = {a for atoms, _ in dim.terms() for a in atoms if isinstance(a, FloorDiv)}
    if not divided:
        return dim
    for atoms, factor in dim.terms():
        for rest in (atom for atom in atoms if isinstance(atom, Mod)):
            step = shape_product((factor, *_without(atoms, rest)))
            whole = next((x for x in divided if _is_same_division(x, rest)), None)
            if whole is None:
                continue
            numerator, size = whole.arguments
            without = dim - step * size * whole
            if len(_terms(without)) < len(dim.terms()):
                return _cancel_division(without - step * rest + step * numerator)
    return dim


def _is_same_division(quotient: FloorDiv, rest: Mod) -> bool:
    (numerator, size), (other, divisor) = quotient.arguments, rest.arguments
    return size == divisor and (numerator - other) % size == 0


def _without(atoms: Sequence[Dim], one: Dim) -> list[Dim]:
    left = list(atoms)
    left.remove(one)
    return left


def _terms(dim: Dim) -> Sequence[object]:
    return dim.terms() if isinstance(dim, SymbolicDim) else ()


def _rejoin_divided(places: list[tuple[Expr, Dim]]) -> list[tuple[Expr, Dim]]:
    """Places and strides, with ``(q // n) * n + q % n`` as ``q``: nothing need be divided.

    A position that is data comes so, where what is read was reshaped before.
    """
    for k in range(len(places) - 1):
        (upper, far), (lower, near) = places[k : k + 2]
        if not isinstance(upper, Apply) or not isinstance(lower, Apply):
            continue
        parts = (upper.function, lower.function) == ("index_divide", "index_remainder")
        if not parts or upper.operands != lower.operands:
            continue
        whole, size = upper.operands
        if isinstance(size, Index) and near * size.dim == far:
            return _rejoin_divided([*places[:k], (whole, near), *places[k + 2 :]])
    return places


def coefficient(dim: Dim, symbol: Symbol) -> Dim | None:
    """How much ``dim`` grows when ``symbol`` does by one; None if that is not constant."""
    if not isinstance(dim, SymbolicDim) or symbol not in dim.symbols():
        return 0
    found: Dim = 0
    for atoms, factor in dim.terms():
        count = sum(atom is symbol for atom in atoms)
        inside = any(symbol in atom.symbols() for atom in atoms if atom is not symbol)
        if inside or count > 1:
            return None
        if count:
            rest: Dim = factor
            for atom in atoms:
                rest = rest if atom is symbol else rest * atom
            found = found + rest
    return found


def flat_buffer(buffer: Buffer) -> Buffer:
    """A flat buffer: how many elements it spans."""
    return Buffer(buffer.name, buffer.dtype, (0 if _is_empty(buffer) else buffer.reach(),))


def _is_empty(buffer: Buffer) -> bool:
    return any(dim == 0 for dim in buffer.shape)


def flat_expr(root: Expr, done: dict[Expr, Expr]) -> Expr:
    """An expression that reads flat buffers; ``done`` remembers what has been seen."""
    found = done.get(root)
    if found is not None:
        return found
    operands = tuple(flat_expr(operand, done) for operand in root.operands)
    if isinstance(root, Load):
        new: Expr = e.load(flat_buffer(root.buffer), (offset(root.buffer, operands),))
    else:
        new = root if operands == root.operands else root.rebuilt(operands)
    done[root] = new
    return new


def _drop_unit_axes(kernel: Kernel) -> Kernel:
    """Without the axes of size one, and those along which nothing is stored."""
    used = frozenset[Symbol]().union(
        *(expr.symbols for store in kernel.stores for expr in (*store.position, store.value))
    )
    units: dict[Symbol, Dim] = {each.symbol: 0 for each in kernel.axes if each.extent == 1}
    axes = tuple(each for each in kernel.axes if each.extent != 1 and each.symbol in used)
    return replace_axes(kernel, axes, units)


def _in_order_of_strides(kernel: Kernel) -> Kernel:
    """The axes of the index space as they are stored, those of reductions as they are read."""
    stored = max((s.position[0] for s in kernel.stores), key=lambda p: len(p.symbols), default=None)
    axes = kernel.axes if stored is None else _sort_axes(kernel.axes, stored)
    done: dict[Expr, Expr] = {}

    def visit(expr: Expr) -> Expr:
        found = done.get(expr)
        if found is None:
            operands = tuple(map(visit, expr.operands))
            found = expr if operands == expr.operands else expr.rebuilt(operands)
            if isinstance(found, Reduce) and found.kind not in ("argmax", "argmin"):
                found = _order_reduction(found)
            done[expr] = found
        return found

    stores = tuple(Store(s.buffer, s.position, visit(s.value)) for s in kernel.stores)
    return replace(kernel, axes=axes, stores=stores)


def _order_reduction(reduction: Reduce) -> Expr:
    """The reduction over the same axes in the order of the largest buffer that it reads."""
    own = {axis.symbol for axis in reduction.axes}
    loads = [load for load in e.find_loads(reduction.body) if own & load.symbols]
    if not loads or len(own) < 2:
        return reduction
    largest = max(
        loads, key=lambda load: (len(own & load.symbols), likely_size(load.buffer.shape[0]))
    )
    axes = _sort_axes(reduction.axes, largest.operands[0])
    return e.reduce(reduction.kind, axes, reduction.body)


def _sort_axes(axes: tuple[Axis, ...], position: Expr) -> tuple[Axis, ...]:
    """Axes from the largest stride to the smallest; those without one stay in front."""

    def stride(axis: Axis) -> int:
        step = _coefficient_in(position, axis.symbol)
        return 1 << 62 if step is None or step == 0 else likely_size(step)

    return tuple(sorted(axes, key=stride, reverse=True))


def _coefficient_in(position: Expr, symbol: Symbol) -> Dim | None:
    """How much a position grows with a symbol, also where a part of it is clamped."""
    if isinstance(position, Index):
        return coefficient(position.dim, symbol)
    if isinstance(position, Apply) and position.function == "add":
        parts = [_coefficient_in(part, symbol) for part in position.operands]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None
    if isinstance(position, Apply) and position.function == "multiply":
        factor, stride = position.operands
        if isinstance(stride, Index) and symbol in factor.symbols:
            return stride.dim
    return None if symbol in position.symbols else 0


def merge_axes(kernel: Kernel) -> Kernel:
    """Merge neighbours of the index space, then neighbours of each reduction."""
    changed = True
    while changed:
        changed = False
        for outer, inner in zip(kernel.axes, kernel.axes[1:], strict=False):
            if all(_is_mergeable(dim, outer, inner) for dim in _positions(kernel)):
                kernel = _merge_axes(kernel, outer, inner)
                changed = True
                break
    return _merge_reductions(kernel)


def _positions(kernel: Kernel) -> Iterable[Dim]:
    return [expr.dim for expr in kernel.expressions() if isinstance(expr, Index)]


def _is_mergeable(dim: Dim, outer: Axis, inner: Axis) -> bool:
    """Whether one step of the outer axis is ``extent`` steps of the inner one, everywhere."""
    step, small = coefficient(dim, outer.symbol), coefficient(dim, inner.symbol)
    if step is not None and small is not None:
        return step == small * inner.extent
    joined = _join_axes(outer, inner)
    merged = substitute_dim(dim, {outer.symbol: 0, inner.symbol: joined.symbol})
    back = {joined.symbol: outer.symbol * inner.extent + inner.symbol}
    return substitute_dim(merged, back) == dim


def _join_axes(outer: Axis, inner: Axis) -> Axis:
    """One axis for two."""
    return e.axis(inner.symbol.name, outer.extent * inner.extent)


def _merge_axes(kernel: Kernel, outer: Axis, inner: Axis) -> Kernel:
    joined = _join_axes(outer, inner)
    axes = tuple(joined if each is inner else each for each in kernel.axes if each is not outer)
    return replace_axes(kernel, axes, {outer.symbol: 0, inner.symbol: joined.symbol})


def replace_axes(kernel: Kernel, axes: tuple[Axis, ...], bindings: Mapping[Symbol, Dim]) -> Kernel:
    """A kernel over other axes, with its variables replaced in every place and value."""
    stores = tuple(
        store.mapped(lambda expr: e.substitute(expr, bindings)) for store in kernel.stores
    )
    return replace(kernel, axes=axes, stores=stores)


def _merge_reductions(kernel: Kernel) -> Kernel:
    done: dict[Expr, Expr] = {}

    def visit(expr: Expr) -> Expr:
        if expr in done:
            return done[expr]
        operands = tuple(visit(operand) for operand in expr.operands)
        new = expr if operands == expr.operands else expr.rebuilt(operands)
        if isinstance(new, Reduce):
            new = _merge_reduction(new)
        done[expr] = new
        return new

    stores = tuple(
        Store(store.buffer, tuple(map(visit, store.position)), visit(store.value))
        for store in kernel.stores
    )
    return replace(kernel, stores=stores)


def _merge_reduction(reduction: Reduce) -> Expr:
    """Merge neighbouring axes of one reduction; those of size one go.

    A reduction over one element is that element, and its position is the first.
    """
    body, axes = reduction.body, list(reduction.axes)
    for each in [each for each in axes if each.extent == 1]:
        body = e.substitute(body, {each.symbol: 0})
        axes.remove(each)
    if not axes:
        return e.index(0) if reduction.kind in ("argmax", "argmin") else body
    changed = True
    while changed:
        changed = False
        dims = [expr.dim for expr in e.walk((body,)) if isinstance(expr, Index)]
        for k, (outer, inner) in enumerate(pairwise(axes)):
            if all(_is_mergeable(dim, outer, inner) for dim in dims):
                joined = _join_axes(outer, inner)
                body = e.substitute(body, {outer.symbol: 0, inner.symbol: joined.symbol})
                axes[k : k + 2] = [joined]
                changed = True
                break
    return e.reduce(reduction.kind, tuple(axes), body)


def operations(dim: Dim, symbol: Symbol) -> Iterator[Operation]:
    """The quotients, remainders and extremes in a position that depend on a symbol."""
    if not isinstance(dim, SymbolicDim):
        return
    for atoms, _ in dim.terms():
        for atom in atoms:
            if isinstance(atom, Operation) and symbol in atom.symbols():
                yield atom
                for argument in atom.arguments:
                    yield from operations(argument, symbol)
