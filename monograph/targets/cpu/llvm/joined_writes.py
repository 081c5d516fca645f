"""Combines neighbouring writes of a vector loop into whole vector stores.

The lanes of a strided write go to places far apart, one by one. But where neighbours are written
too, they can change places in registers first: two writes at ``2i`` and ``2i + 1`` (the parts of
complex numbers), or four at ``4i`` to ``4i + 3`` (the channels of a pixel), are one contiguous
store of two or four times as many lanes, and n writes at ``p, p + 1, …``, each strided over the n
lanes, are a square whose rows are contiguous once it is turned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from monograph.dataclass import dataclass
from monograph.ir.dims import Symbol
from monograph.kernel.expr import Index, Load, walk
from monograph.kernel.flatten import coefficient
from monograph.targets.cpu.llvm.assembly import Builder, Lanes, transpose_square
from monograph.targets.cpu.nests.loop_nest import Let, Prefetch, Statement, Write

PAIR_ELEMENTS = 2
INTERLEAVED_STEPS = (2, 4)
"""Distances from lane to lane at which as many writes are interleaved."""


@dataclass
class Join:
    """Writes at consecutive places, in that order, each ``step`` apart from lane to lane."""

    writes: tuple[Write, ...]
    step: int
    values: dict[int, Lanes] = field(default_factory=dict)

    def add(self, write: Write, value: Lanes) -> bool:
        """Note the value of one of the writes; whether that was the last."""
        self.values[id(write)] = value
        return len(self.values) == len(self.writes)

    def rows(self, b: Builder) -> Iterator[tuple[int, Lanes]]:
        """(how far from the first lane's first place, what is stored there)."""
        values = [self.values[id(write)] for write in self.writes]
        self.values.clear()
        if len(values) == self.step in INTERLEAVED_STEPS:
            while len(values) > 1:
                half = len(values) // 2
                values = [
                    _interleave(b, *pair) for pair in zip(values[:half], values[half:], strict=True)
                ]
            yield 0, values[0]
            return
        for lane, row in enumerate(transpose_square(b, values)):
            yield lane * self.step, row


def _interleave(b: Builder, even: Lanes, odd: Lanes) -> Lanes:
    width = even.lanes
    order = ", ".join(f"i32 {k}, i32 {width + k}" for k in range(width))
    return b.assign(
        even.element,
        PAIR_ELEMENTS * width,
        f"shufflevector {even}, {odd}, <{PAIR_ELEMENTS * width} x i32> <{order}>",
    )


def join_writes(body: Sequence[Statement], symbol: Symbol, width: int) -> dict[int, Join]:
    """The joins of a loop's body, by the identity of each write in them.

    A write waits for the others of its join, so nothing may read what it writes meanwhile.
    """
    if width == 1 or any(not isinstance(each, Let | Prefetch | Write) for each in body):
        return {}
    writes = [each for each in body if isinstance(each, Write)]
    if len(writes) < PAIR_ELEMENTS:
        return {}
    values = tuple(each.value for each in body if isinstance(each, Let | Write))
    read = {each.buffer.name for each in walk(values) if isinstance(each, Load)}
    found: dict[int, Join] = {}
    for step, run in _runs([each for each in writes if each.buffer.name not in read], symbol):
        size = step if step in INTERLEAVED_STEPS else width
        if size & (size - 1):
            continue
        for first in range(0, len(run) - size + 1, size):
            join = Join(tuple(run[first : first + size]), step)
            found.update({id(write): join for write in join.writes})
    return found


def _runs(writes: Sequence[Write], symbol: Symbol) -> Iterator[tuple[int, list[Write]]]:
    """Writes at consecutive places of one buffer, with how far apart their lanes are."""
    left = list(writes)
    while left:
        first = left[0]
        near: dict[int, Write] = {}
        for write in list(left):
            if write.buffer.name != first.buffer.name:
                continue
            distance = _distance(first, write)
            if distance is not None and distance not in near:
                near[distance] = write
                left.remove(write)
        if first in left:
            left.remove(first)
        step = coefficient(first.offset.dim, symbol) if isinstance(first.offset, Index) else None
        if not isinstance(step, int) or step < PAIR_ELEMENTS:
            continue
        run: list[Write] = []
        for distance in sorted(near):
            if run and distance - 1 not in near:
                yield step, run
                run = []
            run.append(near[distance])
        yield step, run


def _distance(first: Write, other: Write) -> int | None:
    if not isinstance(first.offset, Index) or not isinstance(other.offset, Index):
        return None
    difference = other.offset.dim - first.offset.dim
    return difference if isinstance(difference, int) else None
