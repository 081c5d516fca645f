"""Layouts of the arena that serve many sizes: one is planned with room to spare, and kept.

Packing takes longer than a short call. A layout whose slots are large enough holds for smaller
sizes too, since who shares a place is a matter of lives and not of sizes. So the first sizes get
an exact layout; sizes that do not fit into one get one with a quarter more room for every slot. A
text that grows by a word a call is planned for once every few calls, and ever less often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import le

from monograph.dataclass import dataclass
from monograph.ir.dims.size_table import SizeTable
from monograph.program.arena import ArenaPlan
from monograph.program.code import Code
from monograph.program.liveness import (
    MOST_COPIES,
    Copies,
    SlotRequest,
    count_copies,
    own_requests,
    parallel_loops,
    plan_bytes,
    plan_copies,
)

MAX_LAYOUTS = 4
"""How many a program keeps; the least recently used one goes."""
MAX_WASTE = 4
"""How many times the bytes that sizes need the slots of a layout may have for them."""
MAX_SMALL_BYTES = 1 << 20
"""Bytes of an arena that may be wasted whatever the sizes need."""


@dataclass(frozen=True, eq=False)
class ArenaLayout:
    """Where each slot lies, for all sizes at which it needs no more than the slot has."""

    plan: ArenaPlan
    copies: Mapping[int, Copies]
    offsets: Mapping[int, int]
    """By slot."""
    room: tuple[int, ...]
    """What each request has, in the order of ``ArenaLayouts.needs``."""

    def serves(self, needs: Sequence[int]) -> bool:
        """Whether sizes with these needs fit, and are not lost in it."""
        if not all(map(le, needs, self.room)):
            return False
        return self.plan.peak <= MAX_SMALL_BYTES or sum(self.room) <= MAX_WASTE * sum(needs)


class ArenaLayouts:
    """The layouts of one program."""

    def __init__(self, program: Code, requests: Sequence[SlotRequest], threads: int) -> None:
        self._requests = requests
        self._threads = threads
        self._loops = [(step, own_requests(program, step)) for step in parallel_loops(program)]
        dims = [each.nbytes for each in requests]
        for _, own in self._loops:
            dims += [each.nbytes for each in own]
        dims += [step.times for step, _ in self._loops]
        self._table = SizeTable(dims, program.sizes)
        self.kept: tuple[ArenaLayout, ...] = ()
        """Those there are, the one that was used last first."""

    def find(self, sizes: Sequence[int]) -> ArenaLayout:
        """A layout for some sizes: one that there is, or a new one."""
        needs = self.needs(sizes)
        fitting = [each for each in self.kept if each.serves(needs)]
        if fitting:
            found = min(fitting, key=lambda each: each.plan.peak)
        else:
            found = self._plan([_with_room(n) for n in needs] if self.kept else needs)
        others = [each for each in self.kept if each is not found]
        self.kept = (found, *others[: MAX_LAYOUTS - 1])
        return found

    def needs(self, sizes: Sequence[int]) -> list[int]:
        """What sizes need: bytes of all requests, then how many copies each loop's runs want."""
        values = self._table.values(sizes)
        for k in range(len(values) - len(self._loops), len(values)):
            values[k] = count_copies(values[k], self._threads)
        return values

    def _plan(self, room: Sequence[int]) -> ArenaLayout:
        begin, end = len(self._requests), len(room) - len(self._loops)
        copies = {}
        for (step, own), count in zip(self._loops, room[end:], strict=True):
            nbytes = room[begin : begin + len(own)]
            begin += len(own)
            count = min(count, self._threads, MOST_COPIES)
            copies[step.memory] = plan_copies(step, own, nbytes, count)
        plan = plan_bytes(self._requests, room[: len(self._requests)], copies)
        places = zip(self._requests, plan.offsets, strict=True)
        offsets = {each.slot: offset for each, offset in places}
        return ArenaLayout(plan, copies, offsets, tuple(room))


def _with_room(number: int) -> int:
    """A quarter more."""
    return number + (number + 3) // 4
