"""Split reductions: partial results by many programs, then their combination.

    out[i] = f(sum(r < 65536: x[i, r]))          few rows keep few multiprocessors busy

    s0[p, i] = sum(r < 1024: x[i, 1024 * p + r])
    out[i] = f(sum(p < 64: s0[p, i]))

For a product that is split-K. Where more than the reduced rows is stored (softmax), the combined
results get memory of their own, and what is left is split in its turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from monograph.dataclass import dataclass
from monograph.ir.dims import shape_product
from monograph.kernel import expr as e
from monograph.kernel.expr import Axis, Buffer, Expr, Load, Reduce
from monograph.kernel.kernel import Kernel, Store, write_kernel

KINDS = frozenset(("sum", "prod", "max", "min", "any", "all"))
"""Reductions whose partial results are combined by the same reduction."""


@dataclass(frozen=True)
class SplitKernel:
    """A kernel as several, one after the other, and the memory between them."""

    stages: tuple[Kernel, ...]
    scratch: tuple[Buffer, ...]


def split_kernel(kernel: Kernel, parts: int) -> SplitKernel | None:
    """The kernel with its reductions in about so many parts; None if they do not divide."""
    stages: list[Kernel] = []
    scratch: list[Buffer] = []
    rest = kernel
    while pending := list(_innermost(rest, scratch)):
        first = pending[0]
        pieces = _cut(first.axes, parts)
        if pieces is None or any(x.kind not in KINDS for x in pending):
            return None
        rows = _rows(rest, first)
        together = [x for x in pending if _extents(x) == _extents(first) and _rows(rest, x) == rows]
        rest = _split_once(rest, together, rows, pieces, stages, scratch)
    return SplitKernel((*stages, rest), tuple(scratch)) if stages else None


def _innermost(kernel: Kernel, scratch: list[Buffer]) -> Iterator[Reduce]:
    """The reductions without others inside that read more than partial results."""
    for expr in kernel.expressions():
        if not isinstance(expr, Reduce):
            continue
        parts = list(e.walk((expr.body,)))
        reads = any(isinstance(x, Load) and x.buffer not in scratch for x in parts)
        if reads and not any(isinstance(x, Reduce) for x in parts):
            yield expr


def _extents(reduction: Reduce) -> tuple[object, ...]:
    return tuple(axis.extent for axis in reduction.axes)


def _rows(kernel: Kernel, reduction: Reduce) -> tuple[Axis, ...]:
    """The axes that a reduction has a result for each position of."""
    return tuple(axis for axis in kernel.axes if axis.symbol in reduction.symbols)


@dataclass(frozen=True)
class _Cut:
    """Which of the reduced axes is cut, and into how many pieces."""

    axis: int
    parts: int


def _cut(axes: tuple[Axis, ...], parts: int) -> _Cut | None:
    """A cut of the outermost axis that divides into about so many pieces."""
    for number, axis in enumerate(axes):
        if isinstance(axis.extent, int):
            divisors = (n for n in range(min(parts, axis.extent), 1, -1) if axis.extent % n == 0)
            largest = next(divisors, 1)
            if 2 * largest >= parts:
                return _Cut(number, largest)
    return None


def _split_once(
    kernel: Kernel,
    reductions: list[Reduce],
    rows: tuple[Axis, ...],
    cut: _Cut,
    stages: list[Kernel],
    scratch: list[Buffer],
) -> Kernel:
    """Add the stages that compute some reductions; the rest of the kernel reads their results."""
    count = shape_product(axis.extent for axis in rows)
    place = e.linear(rows)
    part = e.axis("_part", cut.parts)
    partial, combined = list[Store](), dict[Expr, Expr]()
    for each in reductions:
        results = Buffer(f"s{len(scratch)}", each.body.dtype, (cut.parts * count,))
        scratch.append(results)
        position = e.index(part.symbol * count) + place
        partial.append(Store(results, (position,), _piece(each, cut, part)))
        combined[each] = e.reduce(each.kind, (part,), e.load(results, (position,)))
    stages.append(_kernel(f"{kernel.name}_partial", (part, *rows), partial))
    if not _stores_only(kernel, rows):
        totals = list[Store]()
        for reduction, joined in list(combined.items()):
            total = Buffer(f"s{len(scratch)}", joined.dtype, (count,))
            scratch.append(total)
            totals.append(Store(total, (place,), joined))
            combined[reduction] = e.load(total, (place,))
        stages.append(_kernel(f"{kernel.name}_combine", rows, totals))
    stores = [store.mapped(lambda expr: e.replace(expr, combined)) for store in kernel.stores]
    return _kernel(kernel.name, kernel.axes, stores)


def _piece(reduction: Reduce, cut: _Cut, part: Axis) -> Expr:
    """The reduction over one piece."""
    whole = reduction.axes[cut.axis]
    assert isinstance(whole.extent, int)
    short = e.axis(whole.symbol.name, whole.extent // cut.parts)
    position = part.symbol * short.extent + short.symbol
    axes = (*reduction.axes[: cut.axis], short, *reduction.axes[cut.axis + 1 :])
    return e.reduce(reduction.kind, axes, e.substitute(reduction.body, {whole.symbol: position}))


def _stores_only(kernel: Kernel, rows: tuple[Axis, ...]) -> bool:
    """Whether a kernel has no more results than its reductions have."""
    return len(rows) == len(kernel.axes)


def _kernel(name: str, axes: tuple[Axis, ...], stores: list[Store]) -> Kernel:
    """A kernel whose inputs are what its formulas read, in the order of their names."""
    kernel = write_kernel(name, axes, *stores)
    inputs = sorted(kernel.inputs, key=lambda buffer: (buffer.name[0], int(buffer.name[1:])))
    return replace(kernel, inputs=tuple(inputs))
