"""Liveness: from which step to which one each slot of the arena is needed.

A slot needs its bytes from the step that first touches it to the one that last does; a loop touches
all of its slots from start to end, and so do lists of steps that run side by side. The runs of a
``ParallelFor`` step are independent: what only they use is planned for one run by itself, and the
arena has that many times, once a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim, Symbol, evaluate_dim
from monograph.program.arena import ALIGNMENT, ArenaPlan, Request, plan
from monograph.program.code import (
    Branch,
    Code,
    ForLoop,
    Launch,
    ParallelFor,
    Sections,
    Slot,
    SlotKind,
    Step,
    WhileLoop,
    list_slots,
    walk_steps,
)

MOST_COPIES = 64
"""Copies of a run's memory: one bit of a word each."""


@dataclass(frozen=True)
class SlotRequest:
    """A piece of the arena with its life, in steps; sizes may be symbolic."""

    slot: int
    name: str
    nbytes: Dim
    first: int
    last: int
    may_share: tuple[int, ...]

    def at(self, bindings: Mapping[Symbol, int]) -> Request:
        """The request when the symbolic sizes are these."""
        return self.of(evaluate_dim(self.nbytes, bindings))

    def of(self, nbytes: int) -> Request:
        """The request for so many bytes."""
        return Request(self.name, nbytes, self.first, self.last, may_share=self.may_share)


@dataclass(frozen=True)
class Copies:
    """What the runs of a step have each for themselves, at some sizes."""

    step: ParallelFor
    plan: ArenaPlan
    count: int
    offsets: Mapping[int, int]
    """Where each slot lies in a copy."""

    @property
    def nbytes(self) -> int:
        """Bytes of all copies, and of the line that says which are taken."""
        return ALIGNMENT + self.plan.peak * self.count

    def numbers(self) -> dict[int, int]:
        """What the step finds in the table that is no address."""
        return {self.step.distance: self.plan.peak, self.step.copies: self.count}

    def addresses(self, memory: int) -> dict[int, int]:
        """Where the slots of the first copy lie."""
        return {slot: memory + ALIGNMENT + offset for slot, offset in self.offsets.items()}


def copies_of(program: Code, bindings: Mapping[Symbol, int], threads: int) -> dict[int, Copies]:
    """The copies of each step that spreads its runs, by the slot that holds them."""
    found = {}
    for step in parallel_loops(program):
        requests = own_requests(program, step)
        nbytes = [evaluate_dim(each.nbytes, bindings) for each in requests]
        count = count_copies(evaluate_dim(step.times, bindings), threads)
        found[step.memory] = plan_copies(step, requests, nbytes, count)
    return found


def parallel_loops(program: Code) -> list[ParallelFor]:
    """The steps whose runs have memory for themselves."""
    return [step for step in walk_steps(program.steps) if isinstance(step, ParallelFor)]


def own_requests(program: Code, step: ParallelFor) -> list[SlotRequest]:
    """What one run of a step needs for itself."""
    return _requests(program.slots, step.body, frozenset(step.own))


def count_copies(times: int, threads: int) -> int:
    """How many runs of a step need memory at a time."""
    return max(1, min(threads, times, MOST_COPIES))


def plan_copies(
    step: ParallelFor, requests: Sequence[SlotRequest], nbytes: Sequence[int], count: int
) -> Copies:
    """The copies of a step whose runs need so many bytes for each request."""
    made = plan([each.of(n) for each, n in zip(requests, nbytes, strict=True)], effort=0)
    offsets = {each.slot: offset for each, offset in zip(requests, made.offsets, strict=True)}
    return Copies(step, made, count, offsets)


def arena_requests(program: Code) -> list[SlotRequest]:
    """What the program needs of the arena, and when; what runs have for themselves aside."""
    own = {slot for step in parallel_loops(program) for slot in step.own}
    slots = range(len(program.slots))
    return _requests(program.slots, program.steps, frozenset(slots) - own)


def plan_arena(
    requests: Sequence[SlotRequest], bindings: Mapping[Symbol, int], copies: Mapping[int, Copies]
) -> ArenaPlan:
    """Where each slot lies at some sizes; one that is copied takes the memory of its copies."""
    return plan_bytes(requests, [evaluate_dim(each.nbytes, bindings) for each in requests], copies)


def plan_bytes(
    requests: Sequence[SlotRequest], nbytes: Sequence[int], copies: Mapping[int, Copies]
) -> ArenaPlan:
    """``plan_arena`` for requests of so many bytes each."""
    return plan(
        [
            each.of(copies[each.slot].nbytes if each.slot in copies else n)
            for each, n in zip(requests, nbytes, strict=True)
        ],
        effort=0,
    )


def begin_times(steps: Sequence[Step]) -> list[int]:
    """When each of a program's steps begins, on the clock that lives are counted in."""
    times, now = [], 0
    for step in steps:
        times.append(now)
        now = _lives([step], now, {}, {})
    return times


def alive_bytes(found: ArenaPlan, time: int) -> int:
    """Bytes of the arena that hold something at a time; what shares a place counts once."""
    total = end = 0
    places = zip(found.offsets, found.requests, strict=True)
    for offset, each in sorted(places, key=lambda place: place[0]):
        if each.first <= time <= each.last:
            total += max(0, offset + each.size - max(offset, end))
            end = max(end, offset + each.size)
    return total


def _requests(
    slots: Sequence[Slot], steps: Sequence[Step], among: frozenset[int]
) -> list[SlotRequest]:
    """What these steps need of the arena for some slots."""
    lives: dict[int, list[int]] = {}
    shares: dict[int, tuple[int, ...]] = {}
    _lives(steps, 0, lives, shares)
    wanted = [slot for slot in sorted(among & lives.keys()) if slots[slot].kind is SlotKind.ARENA]
    number = {slot: k for k, slot in enumerate(wanted)}
    return [
        SlotRequest(
            slot,
            slots[slot].name,
            slots[slot].nbytes,
            min(lives[slot]),
            max(lives[slot]),
            tuple(number[s] for s in shares.get(slot, ()) if s in number and s != slot),
        )
        for slot in wanted
    ]


def _lives(
    steps: Sequence[Step], now: int, lives: dict[int, list[int]], shares: dict[int, tuple[int, ...]]
) -> int:
    """Note at which steps each slot is touched; a loop touches its slots from start to end."""
    for step in steps:
        start = now
        match step:
            case Launch() if step.in_place and step.outputs == 1:
                shares.setdefault(step.slots[-1], step.in_place)
            case Branch(_, then, otherwise):
                now = _lives(then, now + 1, lives, shares)
                now = _lives(otherwise, now, lives, shares)
            case WhileLoop(test, _, body, _, _):
                inner: dict[int, list[int]] = {}
                now = _lives(test, now + 1, inner, shares)
                now = _lives(body, now, inner, shares)
                for slot in inner:
                    lives.setdefault(slot, []).extend((start, now))
            case ForLoop(_, _, body) | ParallelFor(_, _, body):
                inner = {}
                now = _lives(body, now + 1, inner, shares)
                for slot in inner:
                    lives.setdefault(slot, []).extend((start, now))
            case Sections(_, parts):
                inner = {}
                for part in parts:
                    now = _lives(part, now + 1, inner, shares)
                for slot in inner:
                    lives.setdefault(slot, []).extend((start, now))
        for slot in list_slots(step):
            lives.setdefault(slot, []).extend((start, now))
        now += 1
    return now
