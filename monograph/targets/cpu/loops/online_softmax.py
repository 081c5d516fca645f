"""Online softmax: maximum and rescaled sum of a row in one pass, block by block.

    visit i < 16384: m = max(m, x[i])                    a long row, always from the second cache
    visit i < 16384: row[i] = decay(x[i] - m); s = s + row[i]
    visit i < 16384: o[i] = row[i] * (1 / s)

    for p < 16:                                          its parts, twice while they are near
      mp = max(i: x[1024*p + i])
      sp = sum(i: row[i] = decay(x[1024*p + i] - mp))
      largest[p], sums[p] = mp, sp
    m = max(p: largest[p])
    s = sum(p: sums[p] * decay(largest[p] - m))
    for p < 16:
      o[i] = row[i] * decay(largest[p] - m) * (1 / s)

No element exceeds the largest of its part, nor that the largest of the row: nothing overflows, and
what is 0 in its part would be 0 in the row. Where a part holds nothing but -inf, the lowest number
stands for its largest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, dim_min
from monograph.kernel import expr as e
from monograph.kernel.expr import Apply, Axis, Buffer, Expr, Reduce
from monograph.kernel.softmax import LARGEST_NUMBER, is_decay
from monograph.targets.cpu.loops.row_passes import Visit
from monograph.targets.cpu.nests.loop_nest import (
    Accumulator,
    Combine,
    Let,
    Loop,
    LoopKind,
    Statement,
    Write,
)

PART = Symbol("_slice", 0, None)


@dataclass(frozen=True)
class RowInParts:
    """What is done instead of the first ``visits`` of a row, and the buffers that it takes."""

    statements: tuple[Statement, ...]
    scratch: tuple[Buffer, ...]
    visits: int


@dataclass(frozen=True)
class RowParts:
    """A row as parts of ``size`` elements, visited in vectors of ``width``."""

    axis: Axis
    size: int
    width: int

    @property
    def count(self) -> int:
        """How many there are; the last one may be shorter."""
        assert isinstance(self.axis.extent, int)
        return -(-self.axis.extent // self.size)

    def elements(self, body: tuple[Statement, ...]) -> Loop:
        """A loop over the elements of one part."""
        start, extent = PART * self.size, self.axis.extent
        is_whole = isinstance(extent, int) and extent % self.size == 0
        length: Dim = self.size if is_whole else dim_min(self.size, extent - start)
        return Loop(self.axis.symbol, start, length, body, LoopKind.VECTOR, self.width)


def row_in_parts(
    visits: Sequence[Visit],
    kept: Sequence[tuple[int, Write]],
    prefetches: Sequence[Statement],
    size: int,
    width: int,
) -> RowInParts | None:
    """The visits of a softmax's row in parts; None if they are not such.

    ``kept`` are writes of values that later visits read, each with the visit that makes it.
    """
    if not _is_softmax(visits, size):
        return None
    first, second, *others = visits
    ((_, _, decay),) = second.reductions
    before = [write for at, write in kept if at == 0]
    after = [write for at, write in kept if at == 1]
    if len(kept) > len(before) + len(after) or any(w.value is not decay for w in after):
        return None
    if after and (len(others) != 1 or others[0].reductions or others[0].axes != first.axes):
        return None
    row = _Row(RowParts(first.axes[0], size, width), first, second)
    statements = (row.visited(before, after, prefetches), *row.joined())
    if after:
        statements += (row.written(others[0], after),)
    return RowInParts(statements, (row.maxima, row.sums), 3 if after else 2)


def _is_softmax(visits: Sequence[Visit], size: int) -> bool:
    """Whether the first visits find a largest element and the sum of the decays from it."""
    if len(visits) < 2 or visits[0].axes != visits[1].axes or len(visits[0].axes) != 1:
        return False
    extent = visits[0].axes[0].extent
    if not isinstance(extent, int) or extent <= size:
        return False
    if any(visit.writes or len(visit.reductions) != 1 for visit in visits[:2]):
        return False
    roots = visits[0].roots() + visits[1].roots()
    if any(isinstance(x, Reduce) for x in e.walk(roots)):
        return False
    (largest, kind, _), (_, other, decay) = visits[0].reductions[0], visits[1].reductions[0]
    if kind not in ("max", LARGEST_NUMBER) or other != "sum" or not is_decay(decay):
        return False
    (difference,) = decay.operands
    if not isinstance(difference, Apply) or difference.function != "subtract":
        return False
    return difference.operands[1] is largest


class _Row:
    """The statements of one row."""

    def __init__(self, parts: RowParts, first: Visit, second: Visit) -> None:
        self.parts = parts
        ((self.largest, self.kind, self.element),) = first.reductions
        ((self.total, _, self.decay),) = second.reductions
        shape = (parts.count,)
        self.maxima, self.sums = (
            Buffer(name, self.total.dtype, shape) for name in ("largest", "sums")
        )

    def visited(
        self, before: Sequence[Write], after: Sequence[Write], prefetches: Sequence[Statement]
    ) -> Statement:
        """The visit of each part: its largest element, and its sum from there."""
        dtype, part = self.total.dtype, e.index(PART)
        largest, total = (e.variable(f"{x.name}_part", dtype) for x in (self.largest, self.total))
        held = e.variable(f"{self.largest.name}_held", dtype)
        lowest = e.literal(float(np.finfo(dtype.numpy).min), dtype)
        decay = e.replace(self.decay, {self.largest: held})
        place = e.index(self.parts.axis.symbol)
        search: tuple[Statement, ...] = (*before, Combine(largest, self.kind, self.element, place))
        again = tuple(Write(write.buffer, write.offset, decay) for write in after)
        summing: tuple[Statement, ...] = (*prefetches, *again, Combine(total, "sum", decay, place))
        body = (
            Accumulator(largest, self.kind),
            self.parts.elements(search),
            Write(self.maxima, part, largest),
            Let(held, e.apply("maximum", largest, lowest)),
            Accumulator(total, "sum"),
            self.parts.elements(summing),
            Write(self.sums, part, total),
        )
        return Loop(PART, 0, self.parts.count, body)

    def joined(self) -> tuple[Statement, ...]:
        """The largest element of the row and its sum, of those of the parts."""
        largest, total = (e.load(x, (e.index(PART),)) for x in (self.maxima, self.sums))
        scaled = e.apply("multiply", total, self._scale)
        return (
            Accumulator(self.largest, self.kind),
            self._over_parts(Combine(self.largest, self.kind, largest, e.index(PART))),
            Accumulator(self.total, "sum"),
            self._over_parts(Combine(self.total, "sum", scaled, e.index(PART))),
        )

    @property
    def _scale(self) -> Expr:
        """What the decays of a part are multiplied by, to be those of the row."""
        largest = e.load(self.maxima, (e.index(PART),))
        return e.apply("decay", e.apply("subtract", largest, self.largest))

    def _over_parts(self, statement: Statement) -> Loop:
        """A loop over what is known of the parts."""
        count = self.parts.count
        width = min(self.parts.width, 1 << count.bit_length() - 1)
        kind = LoopKind.VECTOR if width > 1 else LoopKind.SERIAL
        return Loop(PART, 0, count, (statement,), kind, width)

    def written(self, visit: Visit, kept: Sequence[Write]) -> Statement:
        """The visit that writes, part by part, as each has its scale."""
        scale = e.variable(f"{self.total.name}_scale", self.total.dtype)
        loads = (e.load(write.buffer, (write.offset,)) for write in kept)
        visit.rewrite({load: e.apply("multiply", load, scale) for load in loads})
        body = (Let(scale, self._scale), self.parts.elements(tuple(visit.writes)))
        return Loop(PART, 0, self.parts.count, body)
