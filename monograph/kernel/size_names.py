"""Kernels that are equal up to the names of their sizes.

The experts of a mixture each take as many rows as chose them, a size of its own for each; what
they compute is the same otherwise. Sizes are counted in the order in which a kernel mentions them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from monograph.ir.dims import Dim, Symbol, SymbolicDim, substitute_dim
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Buffer, Expr, Index, Load, Reduce
from monograph.kernel.kernel import Kernel, Store


def list_sizes(kernel: Kernel) -> tuple[Symbol, ...]:
    """The symbolic sizes of a kernel, in the order in which it mentions them."""
    sizes = set(kernel.sizes)
    if not sizes:
        return ()
    found = dict.fromkeys(
        symbol
        for dim in _dims(kernel)
        if isinstance(dim, SymbolicDim)
        for symbol in dim.symbols()
        if symbol in sizes
    )
    return tuple(found)


def number_sizes(kernel: Kernel, sizes: tuple[Symbol, ...]) -> Kernel:
    """The kernel with numbers for names: what all kernels that differ in names have in common."""
    return rename_sizes(kernel, {old: _number(k, old) for k, old in enumerate(sizes)})


def _number(place: int, symbol: Symbol) -> Symbol:
    lower, upper = symbol.bounds()
    assert lower is not None, f"{symbol.name} is a size, and sizes have a lower bound"
    return Symbol(f"size_{place}", lower, upper)


def _dims(kernel: Kernel) -> Iterator[Dim]:
    """Every size in it: those of loops first, of which each is most often one symbol."""
    expressions = list(kernel.expressions())
    yield from (axis.extent for axis in kernel.axes)
    for expr in expressions:
        if isinstance(expr, Reduce):
            yield from (axis.extent for axis in expr.axes)
    for buffer in kernel.buffers:
        yield from buffer.shape
    yield from (expr.dim for expr in expressions if isinstance(expr, Index))


def rename_sizes(kernel: Kernel, names: Mapping[Symbol, Dim]) -> Kernel:
    """A flat kernel with other symbols for its sizes."""
    done: dict[Expr, Expr] = {}

    def sized(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(each.symbol, substitute_dim(each.extent, names)) for each in axes)

    def shaped(buffer: Buffer) -> Buffer:
        return replace(buffer, shape=tuple(substitute_dim(dim, names) for dim in buffer.shape))

    def visit(expr: Expr) -> Expr:
        found = done.get(expr)
        if found is None:
            operands = tuple(map(visit, expr.operands))
            match expr:
                case Index():
                    found = e.index(substitute_dim(expr.dim, names))
                case Load():
                    found = e.load(shaped(expr.buffer), operands)
                case Reduce():
                    found = e.reduce(expr.kind, sized(expr.axes), operands[0])
                case _:
                    found = expr if operands == expr.operands else expr.rebuilt(operands)
            done[expr] = found
        return found

    stores = tuple(
        Store(
            shaped(store.buffer),
            tuple(map(visit, store.position)),
            visit(store.value),
            None if store.guard is None else visit(store.guard),
        )
        for store in kernel.stores
    )
    return Kernel(
        kernel.name,
        tuple(map(shaped, kernel.inputs)),
        tuple(map(shaped, kernel.outputs)),
        sized(kernel.axes),
        stores,
    )
