"""Split-K: a product over a long k as several over parts of it, and the sum of those."""

from __future__ import annotations

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, shape_product
from monograph.kernel import expr as e
from monograph.kernel.contraction import (
    Contraction,
    contiguous_axis,
    flat_position,
)
from monograph.kernel.expr import Buffer, Expr
from monograph.kernel.kernel import Kernel, Store


@dataclass(frozen=True)
class SplitK:
    """A contraction as several over parts of k, and the kernel that adds them up.

    ``rest`` reads the inputs of the original kernel whose numbers are in ``rest_inputs``, then the
    partial products.
    """

    parts: Kernel
    rest: Kernel
    rest_inputs: tuple[int, ...]


def in_pieces(contraction: Contraction, count: int) -> SplitK | None:
    """The contraction cut along k; None if no axis of k has ``count`` equal parts."""
    kernel, reduction = contraction.kernel, contraction.reduction
    known = [axis for axis in reduction.axes if isinstance(axis.extent, int)]
    cut = next((axis for axis in known if axis.extent % count == 0), None)
    if cut is None:
        return None
    piece = e.axis("_i_piece", count)
    short = e.axis(f"{cut.symbol.name}p", cut.extent // count)
    bindings: dict[Symbol, Dim] = {cut.symbol: piece.symbol * short.extent + short.symbol}
    axes = tuple(short if axis is cut else axis for axis in reduction.axes)
    partial = e.reduce("sum", axes, e.substitute(reduction.body, bindings))
    along = contiguous_axis(kernel)
    order = sorted(kernel.axes, key=lambda axis: axis.symbol is along)
    size = shape_product((count, *(axis.extent for axis in order)))
    buffer = Buffer("pieces", reduction.dtype, (size,))
    store = Store(buffer, (e.index(flat_position((piece, *order))),), partial)
    parts = Kernel(kernel.name, kernel.inputs, (buffer,), (piece, *order), (store,))
    over = e.axis("_r0_0", count)
    element = e.load(buffer, (e.index(flat_position((over, *order))),))
    replaced: dict[Expr, Expr] = {reduction: e.reduce("sum", (over,), element)}
    return SplitK(parts, *kernel.with_replaced(replaced, buffer))
