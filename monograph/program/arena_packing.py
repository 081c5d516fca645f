"""Bin packing for the arena: boxes with fixed lifetimes, placed at the lowest offsets.

Most programs are packed as low as can be by placing one box after the other, the largest first,
each in the lowest gap that it fits. Where that leaves the peak above the lower bound, other orders
are tried, and then small changes of the best one: the boxes that stick out are moved forward in
the order, over and over. All of it is counted in work, not in time, so that the result is always
the same, and it ends at once when the bound is reached.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from monograph.dataclass import dataclass

MAX_PAIRS_VISITED: Final = 400_000
"""Pairs of boxes that the search may look at before it settles for what it has."""

MAX_PAIRS_SEARCHED: Final = 150_000
"""With more pairs alive together than this, one quick packing is all that is tried."""


@dataclass(slots=True)
class Life:
    """The steps, both included, during which a storage is needed, and its rounded size."""

    size: int
    first: int
    last: int


class Box:
    """Storages at one offset, each written over the one before, which is no smaller.

    The ``lives`` follow one another in time and have the step in between in common; a box of one
    life is a rectangle, a box of several is a flight of stairs going down.
    """

    __slots__ = ("area", "first", "last", "lives", "members", "size")

    def __init__(self, members: tuple[int, ...], lives: tuple[Life, ...]) -> None:
        self.members = members
        self.lives = lives
        self.first = lives[0].first
        self.last = lives[-1].last
        self.size = lives[0].size
        self.area = sum(life.size * (life.last - life.first + 1) for life in lives)

    def height_at(self, step: int) -> int:
        """The size at a step of this box's life, and the most from there on."""
        if len(self.lives) == 1:
            return self.size
        return next(life.size for life in self.lives if life.last >= step)


def pack(
    boxes: Sequence[Box], bound: int, effort: int = MAX_PAIRS_VISITED
) -> tuple[int, list[int]]:
    """The height of the lowest packing found, and the base of every box in it."""
    if _pairs(boxes) > MAX_PAIRS_SEARCHED:
        return _pack_crowd(boxes)
    search = _Search(boxes, bound, effort)
    search.try_orders()
    search.try_promotions()
    return search.peak, search.bases


def _pairs(boxes: Sequence[Box]) -> int:
    """How many pairs of boxes are alive together."""
    lasts = sorted(box.last for box in boxes)
    firsts = sorted(box.first for box in boxes)
    return sum(begun - bisect_left(lasts, first) for begun, first in enumerate(firsts))


_Neighbours = list[list[tuple[int, int, int]]]
"""For each box, those alive with it: index, own height and their height in the common steps."""


def _neighbours(boxes: Sequence[Box]) -> _Neighbours:
    neighbours: _Neighbours = [[] for _ in boxes]
    alive: list[int] = []
    for index in _by_time(boxes):
        box = boxes[index]
        alive = [other for other in alive if boxes[other].last >= box.first]
        for other in alive:
            theirs = boxes[other].height_at(box.first)
            neighbours[index].append((other, box.size, theirs))
            neighbours[other].append((index, theirs, box.size))
        alive.append(index)
    return neighbours


# --- Orders --------------------------------------------------------------------------------------


def _by_time(boxes: Sequence[Box]) -> list[int]:
    return sorted(range(len(boxes)), key=lambda index: (boxes[index].first, -boxes[index].size))


def _by_size(boxes: Sequence[Box]) -> list[int]:
    """The largest first; of equals, those of one time after the other."""
    return sorted(range(len(boxes)), key=lambda index: (-boxes[index].size, boxes[index].first))


def _by_area(boxes: Sequence[Box]) -> list[int]:
    return sorted(range(len(boxes)), key=lambda index: (-boxes[index].area, index))


def _by_length(boxes: Sequence[Box]) -> list[int]:
    def key(index: int) -> tuple[int, int]:
        box = boxes[index]
        return box.first - box.last, -box.size

    return sorted(range(len(boxes)), key=key)


def _by_crowding(boxes: Sequence[Box], neighbours: _Neighbours) -> list[int]:
    """Those first that have the most beside them, themselves included."""

    def key(index: int) -> tuple[int, int]:
        beside = sum(theirs for _, _, theirs in neighbours[index])
        return -beside - boxes[index].size, -boxes[index].size

    return sorted(range(len(boxes)), key=key)


# --- The search ----------------------------------------------------------------------------------


class _Search:
    """The best packing so far and what is left of the effort."""

    def __init__(self, boxes: Sequence[Box], bound: int, effort: int) -> None:
        self.boxes = boxes
        self.neighbours = _neighbours(boxes)
        self.bound = bound
        self.effort = effort
        self.peak = sum(box.size for box in boxes)
        self.bases: list[int] = []
        self.order: list[int] = []
        self.tightest = False
        self._consider(_by_size(boxes), tightest=False)

    @property
    def finished(self) -> bool:
        return self.peak <= self.bound or self.effort <= 0

    def try_orders(self) -> None:
        """Place the boxes one by one in several orders, in the lowest and the tightest gaps."""
        for order, tightest in self._orders():
            if self.finished:
                return
            self._consider(order, tightest)

    def _orders(self) -> Iterator[tuple[list[int], bool]]:
        yield _by_size(self.boxes), True
        for by in (_by_area, _by_length, _by_time):
            order = by(self.boxes)
            yield order, False
            yield order, True
        order = _by_crowding(self.boxes, self.neighbours)
        yield order, False
        yield order, True

    def try_promotions(self) -> None:
        """Move a box that reaches the peak forward in the order; keep what is no worse.

        A box that sticks out came too late to find a good place.
        """
        if self.finished:
            return
        chance = random.Random(len(self.boxes))
        while not self.finished:
            highest = [
                place for place, index in enumerate(self.order) if self._top(index) == self.peak
            ]
            place = chance.choice(highest)
            order = list(self.order)
            order.insert(chance.randrange(place + 1), order.pop(place))
            if chance.random() < 0.5:
                one, two = chance.randrange(len(order)), chance.randrange(len(order))
                order[one], order[two] = order[two], order[one]
            self._consider(order, self.tightest)

    def _consider(self, order: list[int], tightest: bool) -> None:
        """Place the boxes in this order, and keep the packing if it is no higher."""
        bases = [-1] * len(self.boxes)
        for index in order:
            forbidden = [
                (bases[other] - mine, bases[other] + theirs)
                for other, mine, theirs in self.neighbours[index]
                if bases[other] >= 0
            ]
            self.effort -= len(forbidden) + 2
            forbidden.sort()
            base = (_tightest_gap if tightest else _lowest_gap)(forbidden)
            if base + self.boxes[index].size > self.peak:
                return
            bases[index] = base
        self.bases, self.order, self.tightest = bases, order, tightest
        self.peak = max((self._top(index) for index in order), default=0)

    def _top(self, index: int) -> int:
        return self.bases[index] + self.boxes[index].size


def _lowest_gap(forbidden: Sequence[tuple[int, int]]) -> int:
    """The lowest base outside all of the open intervals, which are sorted."""
    base = 0
    for low, high in forbidden:
        if base <= low:
            return base
        base = max(base, high)
    return base


def _tightest_gap(forbidden: Sequence[tuple[int, int]]) -> int:
    """The base outside all of the open intervals with the least room above it."""
    base = 0
    best, least = -1, 0
    for low, high in forbidden:
        if base <= low and (best < 0 or low - base < least):
            best, least = base, low - base
        base = max(base, high)
    return base if best < 0 else best


_Column = np.ndarray[tuple[int], np.dtype[np.int64]]


def _pack_crowd(boxes: Sequence[Box]) -> tuple[int, list[int]]:
    """One quick packing of boxes of which very many are alive together.

    The lives that stand already are kept in the order of their offsets, in columns that NumPy can
    compare: where they begin and end, in bytes and in steps.
    """
    bases = [0] * len(boxes)
    columns = [np.zeros(sum(len(box.lives) for box in boxes), np.int64) for _ in range(4)]
    count = 0
    peak = 0
    for index in _by_size(boxes):
        box = boxes[index]
        base = _lowest_gap_in_crowd(box, [column[:count] for column in columns])
        for life in box.lives:
            place = int(columns[0][:count].searchsorted(base))
            ends = base, base + life.size, life.first, life.last
            for column, value in zip(columns, ends, strict=True):
                column[place + 1 : count + 1] = column[place:count]
                column[place] = value
            count += 1
        bases[index] = base
        peak = max(peak, base + box.size)
    return peak, bases


def _lowest_gap_in_crowd(box: Box, columns: Sequence[_Column]) -> int:
    """``_lowest_gap`` for the intervals that the columns forbid to a box."""
    begin, end, first, last = columns
    lows, highs = [], []
    for life in box.lives:
        beside = np.flatnonzero((first <= life.last) & (last >= life.first))
        lows.append(begin[beside] - life.size)
        highs.append(end[beside])
    low, high = np.concatenate(lows), np.concatenate(highs)
    if len(lows) > 1:
        order = low.argsort(kind="stable")
        low, high = low[order], high[order]
    free_from = np.zeros(len(low) + 1, np.int64)
    np.maximum.accumulate(high, out=free_from[1:])
    fits = low >= free_from[:-1]
    return int(free_from[fits.argmax()]) if fits.any() else int(free_from[-1])
