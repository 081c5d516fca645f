"""Transposes an operand that a reduction reads along rows, so that neighbours share a vector.

    for i < 300, j < 400:   o0[i, j] = sum(r < 20: square(b0[i, r] - b1[j, r]))

    for r < 20, j < 400:    t[r, j] = b1[j, r]                              once, a small part of it
    for i < 300, j < 400:   o0[i, j] = sum(r < 20: square(b0[i, r] - t[r, j]))

Along ``r`` a short row fills no vector and its lanes must be added up in the end; along ``j`` every
lane is a result of its own. Products have their own packing; this is for distances and the like.
"""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.dims import Symbol, likely_size, shape_product
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Buffer, Expr, Index, Load, Reduce
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel, Store, write_kernel

MIN_READS_PER_ELEMENT = 16
"""Times that an element is read from which on it is worth being moved first."""
MIN_LANES = 8
"""Neighbouring results that are worth a vector."""
TRANSPOSED_NAME = "turned"


@dataclass(frozen=True)
class Turned:
    """The kernel that moves an input (``source`` among them), and the one that reads it moved.

    The second one's inputs are those of the original that it still reads (``kept``, by position),
    then what was moved.
    """

    move: Kernel
    source: int
    rest: Kernel
    kept: tuple[int, ...]


def turn_operand(kernel: Kernel) -> Turned | None:
    """The kernel as two, if it reads an input along its rows that would better lie across."""
    reductions = [x for x in kernel.expressions() if isinstance(x, Reduce)]
    if len(kernel.axes) < 2 or len(reductions) != 1 or len(kernel.stores) != 1:
        return None
    (reduction,), (store,) = reductions, kernel.stores
    column = kernel.axes[-1]
    is_plain = len(reduction.axes) == 1 and store.guard is None
    if (
        not is_plain
        or likely_size(column.extent) < MIN_LANES
        or not _along(store.position[0], column)
    ):
        return None
    loads = [x for x in kernel.loads() if column.symbol in x.symbols]
    if len(loads) != 1 or not _lies_along(loads[0], reduction.axes[0], column):
        return None
    (load,) = loads
    kept = tuple(axis for axis in kernel.axes[:-1] if axis.symbol in load.symbols)
    others = [axis.extent for axis in kernel.axes[:-1] if axis not in kept]
    if likely_size(shape_product(others)) < MIN_READS_PER_ELEMENT:
        return None
    return _transpose(kernel, load, (*kept, *reduction.axes, column))


def _along(position: Expr, axis: Axis) -> bool:
    return isinstance(position, Index) and coefficient(position.dim, axis.symbol) == 1


def _lies_along(load: Load, row: Axis, column: Axis) -> bool:
    """Whether an input's neighbours lie along a row, and strides lead from row to row."""
    (position,) = load.operands
    if not isinstance(position, Index) or not _along(position, row):
        return False
    stride = coefficient(position.dim, column.symbol)
    return stride is not None and stride not in (0, 1)


def _transpose(kernel: Kernel, load: Load, axes: tuple[Axis, ...]) -> Turned:
    buffer = Buffer(TRANSPOSED_NAME, load.dtype, (shape_product(axis.extent for axis in axes),))
    names: dict[Symbol, Axis] = {
        axis.symbol: e.axis(f"_i_turned{k}", axis.extent) for k, axis in enumerate(axes)
    }
    moved = e.substitute(load, {symbol: axis.symbol for symbol, axis in names.items()})
    place = e.linear(tuple(names.values()))
    source = kernel.inputs.index(load.buffer)
    store = Store(buffer, (place,), moved)
    move = write_kernel(f"{kernel.name}_turn", tuple(names.values()), store)
    read: dict[Expr, Expr] = {load: e.load(buffer, (e.linear(axes),))}
    return Turned(move, source, *kernel.with_replaced(read, buffer))
