"""Memory planning: the offset of every intermediate in one block of memory, the arena.

A program runs in steps. A value that step 3 writes and step 5 reads for the last time needs its
bytes during steps 3 to 5 and no longer, so values that are never alive together may stand in the
same place. Finding the places that need the least memory is packing: each value is a box, as wide
as its life and as high as its size, that may slide up and down but not sideways. The best packing
is hard to find, but no packing can be lower than the largest sum of sizes alive in one step, and
plans are compared with that bound.

::

    offset                               x (steps 0 to 1), y (1 to 2), z (2 to 4), w (1 to 4)
      2  | . w w w w
      1  | . y y . .                     y may not stand on x: step 1 reads x and writes y.
      0  | x x z z z                     z may stand on x, which is dead in step 2.
           0 1 2 3 4   step

Two things make boxes overlap on purpose. A *view* (``alias_of``) has no box of its own. And a step
that computes *in place* may write its result over an operand that dies there (``may_share``): the
two then stand at the same offset. The search is deterministic: its effort is counted in work, not
in time, so that the same program always gets the same plan.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from monograph.dataclass import dataclass
from monograph.errors import InputError, PassError
from monograph.program.arena_packing import MAX_PAIRS_VISITED, Box, Life, pack
from monograph.switches import is_on

ALIGNMENT: Final = 64
"""Bytes that every offset and every box is a multiple of: a cache line, and the widest vector."""

SECOND_TRY_LIMIT: Final = 2000
"""Up to this many requests, a plan that misses the bound is tried again with less sharing."""


@dataclass(frozen=True, slots=True)
class Request:
    """Bytes that a program needs from step ``first``, which writes, to ``last``, which reads.

    ``alias_of`` is the index of a request that this one is a view of, from ``alias_offset`` on: it
    has no memory of its own, and keeps that request alive. ``may_share`` lists requests that this
    one may be written over, if step ``first`` is their last: the step reads each element before
    it writes the same place.
    """

    name: str
    size: int
    first: int
    last: int
    alias_of: int | None = None
    alias_offset: int = 0
    may_share: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """An offset in the arena for every request, and how good the plan is."""

    requests: tuple[Request, ...]
    offsets: tuple[int, ...]
    taken_over: tuple[int | None, ...]
    """For each request that is written in place, the request that it is written over."""
    peak: int
    """Bytes that the arena needs."""
    lower_bound: int
    """Bytes alive in the fullest step: no plan can need less."""
    requested: int
    """Bytes that would be needed if nothing were used twice (views counted once)."""
    alignment: int = ALIGNMENT

    @property
    def distance(self) -> float:
        """How far the peak lies above the lower bound, as a fraction of the bound."""
        return self.peak / self.lower_bound - 1 if self.lower_bound else 0.0


def plan(
    requests: Sequence[Request], *, alignment: int = ALIGNMENT, effort: int = MAX_PAIRS_VISITED
) -> ArenaPlan:
    """Give every request a place, such that requests alive together never overlap.

    An ``effort`` of 0 tries the quickest packing only, which is optimal for most programs.
    """
    if not is_on("arena_reuse"):
        last = max((each.last for each in requests), default=0)
        requests = [replace(each, first=0, last=last, may_share=()) for each in requests]
    lives = _lives(requests, alignment)
    shares = _most_saving_shares(requests, lives)
    bound, needed = _lower_bound(lives, shares)
    peak, places = _places(lives, shares, bound, effort)
    if peak > bound and needed != shares and len(requests) <= SECOND_TRY_LIMIT:
        fewer_peak, fewer_places = _places(lives, needed, bound, effort)
        if fewer_peak < peak:
            peak, places, shares = fewer_peak, fewer_places, needed
    return ArenaPlan(
        requests=tuple(requests),
        offsets=tuple(places.get(root, 0) + offset for root, offset in _roots(requests)),
        taken_over=tuple(shares.get(index) for index in range(len(requests))),
        peak=peak,
        lower_bound=bound,
        requested=sum(life.size for life in lives.values()),
        alignment=alignment,
    )


def _places(
    lives: Mapping[int, Life], shares: Mapping[int, int], bound: int, effort: int
) -> tuple[int, dict[int, int]]:
    """The peak, and the offset of every storage, when just these shares are used."""
    boxes = _boxes(lives, shares)
    peak, bases = pack(boxes, bound, effort)
    pairs = zip(boxes, bases, strict=True)
    return peak, {member: base for box, base in pairs for member in box.members}


# --- From requests to boxes ----------------------------------------------------------------------


def _roots(requests: Sequence[Request]) -> list[tuple[int, int]]:
    """For each request, the one that owns its bytes (itself, or for a view the last owner), and
    where in those bytes it begins.
    """
    known: dict[int, tuple[int, int]] = {}
    for start in range(len(requests)):
        path = [start]
        while (owner := requests[path[-1]].alias_of) is not None and path[-1] not in known:
            path.append(owner)
            if len(path) > len(requests):
                raise InputError(
                    f"{requests[start].name} is a view of itself", expected="views without cycles"
                )
        root, offset = known.get(path[-1], (path[-1], 0))
        for index in reversed(path):
            if index not in known:
                offset += requests[index].alias_offset if index != root else 0
                known[index] = root, offset
    return [known[index] for index in range(len(requests))]


def _lives(requests: Sequence[Request], alignment: int) -> dict[int, Life]:
    """The lives of all storages, by the index of their owner, in that order; empty ones have none.

    A view keeps its owner's storage alive.
    """
    for request in requests:
        _check(request, len(requests))
    roots = _roots(requests)
    lives = {
        index: Life(-(-request.size // alignment) * alignment, request.first, request.last)
        for index, request in enumerate(requests)
        if request.alias_of is None and request.size > 0
    }
    for index, request in enumerate(requests):
        if request.alias_of is None:
            continue
        root, offset = roots[index]
        if offset + request.size > requests[root].size:
            raise InputError(
                f"{request.name} does not fit in {requests[root].name}, which it is a view of",
                expected=f"at most {requests[root].size:,} bytes",
                found=f"{request.size:,} bytes from {offset:,} on",
            )
        if root in lives:
            life = lives[root]
            life.first = min(life.first, request.first)
            life.last = max(life.last, request.last)
    return lives


def _check(request: Request, count: int) -> None:
    if request.size < 0 or request.alias_offset < 0:
        raise InputError(f"{request.name} has a negative size or offset")
    if request.last < request.first:
        raise InputError(
            f"{request.name} is read before it is written",
            expected=f"a last step from {request.first} on",
            found=str(request.last),
        )
    named = request.may_share if request.alias_of is None else (request.alias_of,)
    if not all(0 <= index < count for index in named):
        raise InputError(
            f"{request.name} names a request that does not exist",
            expected=f"indices under {count}",
            found=", ".join(map(str, named)),
        )


def _most_saving_shares(requests: Sequence[Request], lives: Mapping[int, Life]) -> dict[int, int]:
    """Who is written over whom, such that each step saves as many bytes as it can.

    A dying storage can be taken over once. What a step saves is the sum of its takers' sizes, so
    to serve the largest taker first, moving others to another giver where that makes room for one
    more, is not merely greedy but optimal (takers that can be served together form a matroid).
    """
    takers = [index for index in lives if requests[index].may_share]
    takers.sort(key=lambda index: (-lives[index].size, index))
    roots = _roots(requests)
    choices = {taker: _givers(requests, roots, lives, taker) for taker in takers}
    shares: dict[int, int] = {}
    taker_of: dict[int, int] = {}
    for taker in takers:
        for served, giver in _handovers(taker, choices, taker_of, shares):
            shares[served] = giver
            taker_of[giver] = served
    return shares


def _handovers(
    taker: int,
    choices: Mapping[int, Sequence[int]],
    taker_of: Mapping[int, int],
    shares: Mapping[int, int],
) -> list[tuple[int, int]]:
    """The (taker, giver) pairs to set so that one more taker is served; none if it cannot be.

    A breadth-first search for the shortest chain of takers that each move to another giver.
    """
    asked_by: dict[int, int] = {}
    waiting = deque([taker])
    while waiting:
        asking = waiting.popleft()
        for giver in choices[asking]:
            if giver in asked_by:
                continue
            asked_by[giver] = asking
            if giver not in taker_of:
                return _chain_back(taker, giver, asked_by, shares)
            waiting.append(taker_of[giver])
    return []


def _chain_back(
    taker: int, free: int, asked_by: Mapping[int, int], shares: Mapping[int, int]
) -> list[tuple[int, int]]:
    chain = [(asked_by[free], free)]
    while chain[-1][0] != taker:
        left = shares[chain[-1][0]]
        chain.append((asked_by[left], left))
    return chain


def _givers(
    requests: Sequence[Request],
    roots: Sequence[tuple[int, int]],
    lives: Mapping[int, Life],
    taker: int,
) -> list[int]:
    """The storages that a request may really be written over, the tightest first."""
    life = lives[taker]
    givers = set()
    for index in requests[taker].may_share:
        root, offset = roots[index]
        if offset or root not in lives or root == taker:
            continue
        other = lives[root]
        if other.last == life.first > other.first and other.size >= life.size:
            givers.add(root)
    return sorted(givers, key=lambda root: (lives[root].size, root))


def _lower_bound(
    lives: Mapping[int, Life], shares: Mapping[int, int]
) -> tuple[int, dict[int, int]]:
    """The largest live set, and those of the shares without which a step would exceed it."""
    change: defaultdict[int, int] = defaultdict(int)
    for life in lives.values():
        change[life.first] += life.size
        change[life.last + 1] -= life.size
    alive = dict(
        zip(sorted(change), accumulate(change[step] for step in sorted(change)), strict=True)
    )
    saved: defaultdict[int, int] = defaultdict(int)
    for taker in shares:
        saved[lives[taker].first] += lives[taker].size
    bound = max((size - saved[step] for step, size in alive.items()), default=0)
    needed = {taker: giver for taker, giver in shares.items() if alive[lives[taker].first] > bound}
    return bound, needed


def _boxes(lives: Mapping[int, Life], shares: Mapping[int, int]) -> list[Box]:
    taker_of = {giver: taker for taker, giver in shares.items()}
    boxes = []
    for index in lives:
        if index in shares:
            continue
        members = [index]
        while members[-1] in taker_of:
            members.append(taker_of[members[-1]])
        boxes.append(Box(tuple(members), tuple(lives[member] for member in members)))
    return boxes


# --- Checking ------------------------------------------------------------------------------------


def verify(plan: ArenaPlan, requests: Sequence[Request]) -> None:
    """Raise unless the plan holds for the requests, by a rule that knows nothing of packing.

    A sweep over the steps keeps the storages that are alive in the order of their offsets; what is
    new must not reach into its neighbours. In a step, what is written in place comes last and
    takes the room of what it is written over.
    """
    if plan.requests != tuple(requests):
        raise PassError("the plan was made for other requests")
    lives = _lives(requests, plan.alignment)
    _verify_offsets(plan, lives)
    _verify_shares(plan, lives)
    starts: defaultdict[int, list[int]] = defaultdict(list)
    ends: defaultdict[int, list[int]] = defaultdict(list)
    for index, life in lives.items():
        starts[life.first].append(index)
        ends[life.last].append(index)
    alive: list[tuple[int, int]] = []
    for step in sorted({*starts, *ends}):
        dead = set(ends[step])
        for index in sorted(starts[step], key=lambda index: plan.taken_over[index] is not None):
            giver = plan.taken_over[index]
            if giver is not None:
                alive.remove((plan.offsets[giver], giver))
                dead.remove(giver)
            _verify_room(plan, lives, alive, index, step)
            insort(alive, (plan.offsets[index], index))
        for index in dead:
            alive.pop(bisect_left(alive, (plan.offsets[index], index)))


def _verify_offsets(plan: ArenaPlan, lives: Mapping[int, Life]) -> None:
    for index, (root, offset) in enumerate(_roots(plan.requests)):
        request = plan.requests[index]
        if request.size and plan.offsets[index] != plan.offsets[root] + offset:
            raise PassError(f"{request.name} does not stand in {plan.requests[root].name}")
    for index, life in lives.items():
        offset = plan.offsets[index]
        if offset < 0 or offset % plan.alignment or offset + life.size > plan.peak:
            raise PassError(
                f"{plan.requests[index].name} stands at a wrong offset",
                expected=f"a multiple of {plan.alignment}, within {plan.peak:,} bytes",
                found=f"{life.size:,} bytes at {offset:,}",
            )


def _verify_shares(plan: ArenaPlan, lives: Mapping[int, Life]) -> None:
    givers = [giver for giver in plan.taken_over if giver is not None]
    if len(set(givers)) < len(givers):
        raise PassError("a storage is taken over twice")
    roots = _roots(plan.requests)
    for taker, giver in enumerate(plan.taken_over):
        if giver is None:
            continue
        allowed = taker in lives and giver in _givers(plan.requests, roots, lives, taker)
        if not allowed or plan.offsets[taker] != plan.offsets[giver]:
            raise PassError(
                f"{plan.requests[taker].name} may not be written over {plan.requests[giver].name}"
            )


def _verify_room(
    plan: ArenaPlan,
    lives: Mapping[int, Life],
    alive: Sequence[tuple[int, int]],
    index: int,
    step: int,
) -> None:
    place = bisect_left(alive, (plan.offsets[index], index))
    for _, other in alive[max(place - 1, 0) : place + 1]:
        low, high = sorted((index, other), key=lambda index: plan.offsets[index])
        if plan.offsets[low] + lives[low].size > plan.offsets[high]:
            raise PassError(
                f"{plan.requests[index].name} overlaps {plan.requests[other].name} in step {step}",
                found="\n".join(
                    f"{plan.requests[one].name}: {lives[one].size:,} bytes at {plan.offsets[one]:,}"
                    for one in (low, high)
                ),
            )


# --- Showing -------------------------------------------------------------------------------------

PICTURE_ROWS: Final = 16
PICTURE_COLUMNS: Final = 64
LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""The largest storages get a letter each in the picture; the others share a sign."""


def report(plan: ArenaPlan) -> str:
    """The plan for a person: what it saves, how far from ideal it is, and what stands where."""
    share = plan.peak / plan.requested if plan.requested else 1.0
    in_place = sum(giver is not None for giver in plan.taken_over)
    views = sum(request.alias_of is not None for request in plan.requests)
    nearness = f"the plan is {plan.distance:.1%} above" if plan.distance else "reached"
    figures = [
        f"arena of {readable(plan.peak)} for {len(plan.requests):,} requests "
        f"({in_place:,} in place, {views:,} views)",
        f"  without reuse  {readable(plan.requested):>12}",
        f"  planned        {readable(plan.peak):>12}  {share:6.1%} of that",
        f"  lower bound    {readable(plan.lower_bound):>12}  {nearness}",
    ]
    lives = _lives(plan.requests, plan.alignment)
    if not lives:
        return "\n".join(figures)
    return "\n".join([*figures, "", *_picture(plan, lives), "", *_legend(plan, lives)])


def readable(size: int) -> str:
    """Bytes in the largest unit that leaves at least one: 1536 is 1.50 KiB."""
    if size < 1024:
        return f"{size} B"
    number = float(size)
    for unit in ("KiB", "MiB", "GiB"):
        number /= 1024
        if number < 1024:
            return f"{number:.2f} {unit}"
    return f"{number / 1024:,.2f} TiB"


def _largest(lives: Mapping[int, Life]) -> list[int]:
    return sorted(lives, key=lambda index: (-lives[index].size, index))


def _picture(plan: ArenaPlan, lives: Mapping[int, Life]) -> list[str]:
    """Rows are bands of offsets, the highest first; columns are steps, or evenly chosen ones."""
    begin = min(life.first for life in lives.values())
    steps = max(life.last for life in lives.values()) - begin + 1
    columns = min(steps, PICTURE_COLUMNS)
    width = min(PICTURE_COLUMNS // columns, 6)
    rows = min(PICTURE_ROWS, plan.peak // plan.alignment)
    cells = [["·"] * columns for _ in range(rows)]
    letters = dict(zip(_largest(lives), LETTERS, strict=False))
    for index in sorted(lives, key=lambda index: lives[index].first):
        life = lives[index]
        offset = plan.offsets[index]
        for row in _samples(offset, offset + life.size, rows, plan.peak):
            for column in _samples(life.first - begin, life.last - begin + 1, columns, steps):
                cells[row][column] = letters.get(index, "+")
    lines = []
    for row in reversed(range(rows)):
        band = "".join(cell * width for cell in cells[row])
        lines.append(f"  {readable(plan.peak * row // rows):>11} |{band}")
    first, last = f"step {begin}", str(begin + steps - 1)
    gap = max(columns * width - len(first) - len(last), 1)
    return [*lines, f"{'':14}{first}{' ' * gap}{last}" if steps > 1 else f"{'':14}{first}"]


def _samples(begin: int, end: int, count: int, extent: int) -> range:
    """Of ``count`` points in the middles of equal parts of ``extent``, those in [begin, end)."""

    def first_from(position: int) -> int:
        return max(-(-(2 * position * count - extent) // (2 * extent)), 0)

    return range(first_from(begin), first_from(end))


def _legend(plan: ArenaPlan, lives: Mapping[int, Life]) -> list[str]:
    shown = _largest(lives)[:12]
    lines = []
    for letter, index in zip(LETTERS, shown, strict=False):
        life, name = lives[index], plan.requests[index].name
        name = name if len(name) <= 24 else name[:23] + "…"
        line = f"  {letter}  {name:<24}  {readable(life.size):>11}  steps {life.first}–{life.last}"
        giver = plan.taken_over[index]
        lines.append(line if giver is None else f"{line}, over {plan.requests[giver].name[:12]}")
    if len(lives) > len(shown):
        lines.append(f"  and {len(lives) - len(shown):,} smaller")
    return lines
