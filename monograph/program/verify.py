"""The program verifier: every step reads what was written for it, inside its buffers.

It replays the steps of a program at given sizes against the planned arena, and keeps track of which
slot owns which bytes. Writing a slot takes its bytes from whoever had them; reading one demands
that it still has all of them:

    step 3, k2_add: %softmax is read, but %linear was written over 256 of its bytes

Within one launch, an output may overlap an input only where the launch declares that it computes
in place, and begins where that input does. Loops are replayed twice, so that what the second turn
reads of the first is seen too. ``MONOGRAPH_VERIFY=1`` runs it for every plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from monograph.dataclass import dataclass
from monograph.errors import PassError
from monograph.ir.dims import Symbol, evaluate_dim
from monograph.program.arena import ArenaPlan
from monograph.program.arena import verify as verify_plan
from monograph.program.code import (
    Alternate,
    Branch,
    Code,
    Copy,
    ForLoop,
    Interpret,
    Launch,
    LibraryCall,
    ParallelFor,
    Sections,
    SliceView,
    SlotKind,
    Step,
    WhileLoop,
)
from monograph.program.liveness import Copies, SlotRequest

GIVEN = (SlotKind.INPUT, SlotKind.WEIGHT, SlotKind.PREPARED)
"""Slots that hold something before the first step."""


@dataclass(frozen=True)
class Bytes:
    """A range of bytes in one of the memories of a program: the arena, a copy, or a slot's own."""

    memory: int
    start: int
    stop: int

    def overlaps(self, other: Bytes) -> bool:
        """Whether they have a byte in common."""
        return self.memory == other.memory and self.start < other.stop and other.start < self.stop


ARENA = -1
"""The number of the arena among the memories; a slot that is not in it is a memory of its own."""


class ProgramVerifier:
    """Checks a program for one plan of its memory after the other."""

    def __init__(self, program: Code, requests: Sequence[SlotRequest]) -> None:
        self.program = program
        self.requests = requests

    def verify(
        self, bindings: Mapping[Symbol, int], plan: ArenaPlan, copies: Mapping[int, Copies]
    ) -> None:
        """Raise a MonographError unless every step finds what it reads, inside its buffers."""
        verify_plan(plan, plan.requests)
        for each in copies.values():
            verify_plan(each.plan, each.plan.requests)
        pairs = zip(self.requests, plan.offsets, strict=True)
        offsets = {request.slot: offset for request, offset in pairs}
        places = _places(self.program, bindings, offsets, copies)
        _Replay(self.program, bindings, places).run()


def _places(
    program: Code,
    bindings: Mapping[Symbol, int],
    offsets: Mapping[int, int],
    copies: Mapping[int, Copies],
) -> list[Bytes]:
    """Where each slot lies; the copies of a parallel loop's slots are one memory for one run."""
    own = {slot: (memory, at) for memory, c in copies.items() for slot, at in c.offsets.items()}
    places = []
    for number, slot in enumerate(program.slots):
        size = 0 if slot.kind is SlotKind.NUMBER else evaluate_dim(slot.nbytes, bindings)
        memory, start = number, 0
        if number in own:
            memory, start = own[number]
        elif number in copies:
            memory, start, size = ARENA, offsets[number], copies[number].nbytes
        elif slot.kind is SlotKind.ARENA and number in offsets:
            memory, start = ARENA, offsets[number]
        places.append(Bytes(memory, start, start + size))
    return places


class _Replay:
    """Runs through the steps and notes who owns which bytes."""

    def __init__(self, program: Code, bindings: Mapping[Symbol, int], places: list[Bytes]) -> None:
        self.program = program
        self.bindings = bindings
        self.places = places
        self.owned = {k for k, slot in enumerate(program.slots) if slot.kind in GIVEN}
        """Slots that have all of their bytes."""
        self.lost: dict[int, int] = {}
        """For each slot that lost some, the one that was written over it."""
        self.whole: dict[int, int] = {}
        """For each view, the slot that it is a piece of."""
        self.where = ""

    def run(self) -> None:
        self.steps(self.program.steps)
        self.where = "at the end"
        for number, slot in enumerate(self.program.slots):
            if slot.kind is SlotKind.OUTPUT:
                self.read(number)

    def steps(self, steps: Sequence[Step]) -> None:
        for number, step in enumerate(steps):
            match step:
                case Launch():
                    self.where = f"step {number}, {step.kernel}"
                    self.launch(step)
                case Interpret(_, inputs, outputs):
                    self.where = f"step {number}, in the interpreter"
                    self.transfer(inputs, outputs)
                case LibraryCall(_, inputs, outputs, library, _):
                    self.where = f"step {number}, {library}"
                    self.transfer(inputs, outputs)
                case Copy(source, target, _):
                    self.where = f"step {number}, a copy"
                    self.transfer((source,), (target,))
                case SliceView(slot, whole, _, _, _):
                    self.whole[slot] = whole
                case Alternate(slot, first, second, _, _):
                    self.whole[slot] = second if self.whole.get(slot) == first else first
                case Branch(condition, then, otherwise):
                    self.where = f"step {number}, a branch"
                    self.read(condition)
                    self.either(then, otherwise)
                case WhileLoop(test, condition, body, _, _):
                    self.steps(test)
                    self.where = f"step {number}, a loop"
                    self.read(condition)
                    self.either((*body, *test, *body, *test), ())
                case ForLoop(_, times, body) | ParallelFor(_, times, body):
                    for _ in range(min(evaluate_dim(times, self.bindings), 2)):
                        self.steps(body)
                case Sections(_, parts):
                    for part in parts:  # and the first again, which the others must have left alone
                        self.steps(part)
                    self.steps(parts[0])

    def either(self, first: Sequence[Step], second: Sequence[Step]) -> None:
        """Two ways to go on: what one of them loses is lost, what both write is there."""
        owned, lost = set(self.owned), dict(self.lost)
        self.steps(first)
        after, missing = self.owned, self.lost
        self.owned, self.lost = owned, lost
        self.steps(second)
        self.owned &= after
        self.lost |= missing

    def launch(self, step: Launch) -> None:
        outputs = step.slots[len(step.slots) - step.outputs :]
        inputs = step.slots[: len(step.slots) - step.outputs]
        for slot in inputs:
            for target in outputs:
                self.refuse_overlap(step, slot, target)
        self.transfer(inputs, outputs)

    def refuse_overlap(self, step: Launch, slot: int, target: int) -> None:
        """An input that lies where an output does, and is not declared to be overwritten."""
        slot, target = self.root(slot), self.root(target)
        source, written = self.places[slot], self.places[target]
        if slot == target or not source.overlaps(written):
            return
        if slot in step.in_place and step.outputs == 1 and source.start == written.start:
            return
        raise PassError(
            f"{self.where}: %{self.name(target)} is written over its input %{self.name(slot)}",
            expected="memory of its own, or a kernel that computes in place",
            found=f"{written} and {source}",
        )

    def transfer(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        for slot in inputs:
            self.read(slot)
        for slot in outputs:
            if self.program.slots[self.root(slot)].kind in GIVEN and self.size(slot):
                raise PassError(
                    f"{self.where}: %{self.name(slot)} is written, which was given",
                    expected="an output or a slot of the arena",
                    found=self.program.slots[self.root(slot)].kind.value,
                )
            self.write(slot)

    def read(self, slot: int) -> None:
        slot = self.root(slot)
        if slot in self.owned or self.size(slot) == 0:
            return
        by = self.lost.get(slot)
        what = "nothing was written to it"
        if by is not None:
            what = f"%{self.name(by)} was written over it"
        raise PassError(f"{self.where}: %{self.name(slot)} is read, but {what}")

    def write(self, slot: int) -> None:
        slot = self.root(slot)
        for other in self.neighbours(slot):
            self.owned.discard(other)
            self.lost[other] = slot
        self.owned.add(slot)

    def neighbours(self, slot: int) -> Iterator[int]:
        """The slots that lose bytes when this one is written."""
        place = self.places[slot]
        if place.memory == slot:
            return iter(())
        return (o for o in list(self.owned) if o != slot and self.places[o].overlaps(place))

    def root(self, slot: int) -> int:
        while slot in self.whole:
            slot = self.whole[slot]
        return slot

    def size(self, slot: int) -> int:
        return self.places[slot].stop - self.places[slot].start

    def name(self, slot: int) -> str:
        return self.program.slots[slot].name
