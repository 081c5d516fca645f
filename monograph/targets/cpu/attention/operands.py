"""Keys and values that stream past the queries: element types and strides.

Every panel of queries reads all keys and values that it sees. So those that have to be computed
(rotated, or widened from half precision) are computed once, before, by a kernel of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from monograph.ir.dims import Dim, Symbol, shape_product
from monograph.kernel import expr as e
from monograph.kernel.attention import Formula, Position, StreamedAttention, anywhere
from monograph.kernel.expr import Buffer, Expr, Index, Load
from monograph.kernel.flatten import coefficient
from monograph.kernel.kernel import Kernel, Store, write_kernel


def copy_operands(
    attention: StreamedAttention,
) -> tuple[StreamedAttention, tuple[Kernel, ...]]:
    """Copy keys and values that have to be computed, and read them from there.

    They are read once for each panel of queries, and should be numbers in memory by then.
    """
    kernels = []
    for what in ("key", "value"):
        depth = attention.depth if what == "key" else attention.value_depth
        shape = (*attention.batch, attention.shared, attention.keys, depth)
        formula: Formula = getattr(attention, what)
        if _is_stored(formula(anywhere(shape))):
            continue
        kernel, copied = _copy(attention, f"{what}s", shape, formula)
        kernels.append(kernel)
        attention = (
            replace(attention, key=copied) if what == "key" else replace(attention, value=copied)
        )
    return attention, tuple(kernels)


def lie_apart(attention: StreamedAttention) -> bool:
    """Whether keys or values have more than their own size between them, or nobody knows.

    Strides of whole models fall on a few sets of a cache, which then holds little of a tile.
    """
    operands = ((attention.key, attention.depth), (attention.value, attention.value_depth))
    for formula, depth in operands:
        position = anywhere((*attention.batch, attention.shared, attention.keys, depth))
        place, key = formula(position).operands[0], position[-2]
        assert isinstance(place, Index)
        assert isinstance(key, Index)
        if not isinstance(key.dim, Symbol):
            continue  # one key
        stride = coefficient(place.dim, key.dim)
        if not isinstance(stride, int) or abs(stride) > 2 * depth:
            return True
    return False


def _is_stored(element: Expr) -> bool:
    """Whether an element is read, and nothing else is done to it."""
    return isinstance(element, Load) and isinstance(element.operands[0], Index)


def _copy(
    attention: StreamedAttention, what: str, shape: Sequence[Dim], formula: Formula
) -> tuple[Kernel, Formula]:
    """A kernel that computes an operand, and the formula that reads what it leaves."""
    space = tuple(e.axis(f"_i{k}", dim) for k, dim in enumerate(shape))
    buffer = Buffer(what, attention.dtype, (shape_product(shape),))
    value = formula(tuple(e.index(axis.symbol) for axis in space))
    store = Store(buffer, (e.linear(space),), value)

    def copied(position: Position) -> Expr:
        place: Dim = 0
        for dim, each in zip(shape, position, strict=True):
            assert isinstance(each, Index)
            place = place * dim + each.dim
        return e.load(buffer, (e.index(place),))

    return write_kernel(f"{attention.name}_{what}", space, store), copied
