"""Fences around memory: a testing mode in which no slot of a program has a neighbour.

Code that reads or writes past the end of a slot usually meets another slot, or the slack of an
allocation, and nobody notices. With ``MONOGRAPH_FENCES=end`` every input, output, weight, packed
weight and slot of the arena ends at a page that may not be touched; with ``begin`` it begins at
one. The access then ends the process (``faulthandler`` says where it was)::

    end      | fence |  canary  canary  x x x x x x | fence |
    begin    | fence | x x x x x x  canary  canary  | fence |

The rest of the pages is filled with a *canary*, two bytes that read as NaN in every float and as a
huge number in every integer of at least 16 bits. Outputs and the arena begin as canaries too, so
that elements that nobody wrote show in the results. After a call all canaries around them must be
as they were: what damaged one is an error that names the slot and the steps that write to it.
Inputs and weights are copied, and may not be written to at all. (Kernels that a search for
schedules measures are handed what they write as an input, and have no fences.)

Nothing is promised of an address but that elements are aligned, so that memory ends at the very
fence. Only what is written and has more than ``MAX_MALLOC_BYTES`` bytes begins at a cache line, as
streaming stores need it, and may have less than a line of canary behind it. Slots that one step
computes in place still share their memory.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from monograph.dataclass import dataclass
from monograph.errors import EvaluationError, InputError
from monograph.ir.dims import Symbol, evaluate_dim
from monograph.ir.types import Array
from monograph.program.arena import ArenaPlan
from monograph.program.code import (
    Alternate,
    Code,
    Copy,
    Interpret,
    Launch,
    LibraryCall,
    SliceView,
    Slot,
    SlotKind,
    list_slots,
    walk_steps,
)
from monograph.program.liveness import Copies
from monograph.runtime.output_memory import ALIGNMENT, MAX_MALLOC_BYTES

Side: TypeAlias = Literal["begin", "end"]

CANARY: Final = 0x7FFF
"""Two bytes: a NaN as f16 and bf16, and as f32 and f64 when it is repeated."""
_NOT_AT_ALL, _READ = 0, 1
"""What ``mprotect`` may be told to allow."""


class FenceError(EvaluationError):
    """Generated code that wrote outside of the memory that it was given."""


@dataclass(frozen=True)
class Area:
    """Bytes that fences are put around, for some slots of a program that share them."""

    slots: tuple[int, ...]
    nbytes: int
    alignment: int


class Memory:
    """Areas with a fence on both sides of each, which lie at one of them.

    ``copies`` of all areas follow one another at equal distances, for steps whose runs have memory
    of their own.
    """

    def __init__(self, areas: Sequence[Area], side: Side, copies: int = 1) -> None:
        self.areas = tuple(areas)
        page = mmap.PAGESIZE
        begins, ends, places = [], [], []
        end = 0
        for area in areas:
            begin = end + page
            end = begin + _round_up(max(area.nbytes, 1), max(page, area.alignment))
            place = begin if side == "begin" else end - area.nbytes
            begins.append(begin)
            ends.append(end)
            places.append(place // area.alignment * area.alignment)
        self.distance = end
        self._bodies = list(zip(begins, ends, strict=True))
        self._places = places
        self._copies = copies
        self._mapping = _mapping(end * copies + page)
        self._bytes = np.frombuffer(self._mapping, np.uint8)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        self._put_up_fences()

    def _put_up_fences(self) -> None:
        for copy in range(self._copies):
            fence = copy * self.distance
            for begin, end in self._bodies:
                body = self._bytes[copy * self.distance :][begin:end]
                body.view("<u2")[:] = CANARY
                self._allow(_NOT_AT_ALL, fence, mmap.PAGESIZE)
                fence = copy * self.distance + end
        self._allow(_NOT_AT_ALL, self._copies * self.distance, mmap.PAGESIZE)

    def forbid_writing(self) -> None:
        """Let the areas be read only from now on."""
        for copy in range(self._copies):
            for begin, end in self._bodies:
                self._allow(_READ, copy * self.distance + begin, end - begin)

    def _allow(self, what: int, offset: int, length: int) -> None:
        if _mprotect()(self._start + offset, length, what):
            raise _no_memory(length, os.strerror(ctypes.get_errno()))

    def address(self, area: int) -> int:
        """Where the bytes of an area begin, in the first copy."""
        return self._start + self._places[area]

    def array(self, area: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """An area as an array, which keeps all of this memory."""
        begin = self._places[area]
        found: Array = self._bytes[begin : begin + self.areas[area].nbytes].view(dtype)
        return found.reshape(shape)

    def damage(self) -> tuple[Area, int] | None:
        """An area with a damaged canary beside it, and where that is, counted from its first byte.

        Of several damaged bytes it is the one that is nearest to the area.
        """
        for copy in range(self._copies):
            start = copy * self.distance
            for area, place, (begin, end) in zip(
                self.areas, self._places, self._bodies, strict=True
            ):
                before = self._find_damage(start + begin, start + place)
                if before.size:
                    return area, int(before[-1]) - start - place
                after = self._find_damage(start + place + area.nbytes, start + end)
                if after.size:
                    return area, int(after[0]) - start - place
        return None

    def _find_damage(self, begin: int, end: int) -> Array:
        """Where between two places in the mapping there is no canary any more."""
        places = np.arange(begin, end)
        expected = np.where(places % 2, CANARY >> 8, CANARY & 0xFF)
        found: Array = places[self._bytes[begin:end] != expected]
        return found


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _mapping(length: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as error:
        raise _no_memory(length, str(error)) from error


def _no_memory(length: int, reason: str) -> EvaluationError:
    return EvaluationError(
        f"no memory for {length:,} bytes with fences",
        found=reason,
        hint="fences are for the small programs of tests; unset MONOGRAPH_FENCES",
    )


@cache
def _mprotect() -> Any:
    if os.name == "nt":
        raise InputError(
            "memory cannot be fenced on this system",
            expected="a system with mprotect",
            hint="unset MONOGRAPH_FENCES",
        )
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


# A program's memory -------------------------------------------------------------------------------


class Fences:
    """The fences of one program: weights and what is packed for all calls, the rest for each."""

    def __init__(self, program: Code, side: Side) -> None:
        self.program = program
        self.side = side

    def read(self, slots: Sequence[int], nbytes: int) -> Area:
        """The area for slots that share so many bytes, which are only read."""
        return Area(tuple(slots), nbytes, max(_itemsize(self.program.slots[k]) for k in slots))

    def written(self, slots: Sequence[int], nbytes: int) -> Area:
        """The same for what is written."""
        small = self.read(slots, nbytes)
        return small if nbytes <= MAX_MALLOC_BYTES else Area(small.slots, nbytes, ALIGNMENT)

    def copied(self, array: Array, slots: Sequence[int]) -> Array:
        """What a program is given and only reads, between fences."""
        return self._copy(array, self.read(slots, array.nbytes))

    def _copy(self, array: Array, area: Area) -> Array:
        memory = Memory([area], self.side)
        copy = memory.array(0, array.dtype, array.shape)
        copy[...] = array
        memory.forbid_writing()
        return copy

    def weights(self, arrays: Mapping[int, Array]) -> dict[int, Array]:
        """Copies of weights, by number."""
        slots: dict[int, list[int]] = {}
        for k, slot in enumerate(self.program.slots):
            if slot.kind is SlotKind.WEIGHT:
                slots.setdefault(slot.number, []).append(k)
        return {number: self.copied(array, slots[number]) for number, array in arrays.items()}

    def panels(self) -> Panels:
        """Memory for packed weights."""
        return Panels(self)

    def panels_of(self, arrays: Mapping[int, Array]) -> dict[int, Array]:
        """Copies of weights that were packed before, by slot."""
        return {
            slot: self._copy(array, self.written([slot], array.nbytes))
            for slot, array in arrays.items()
        }

    def check(self, memory: Memory) -> None:
        """An error if something was written beside an area."""
        found = memory.damage()
        if found is None:
            return
        area, offset = found
        past = offset >= area.nbytes
        distance = offset - area.nbytes if past else -offset
        where = f"{distance} bytes {'past the end of' if past else 'before'} its {area.nbytes:,}"
        raise FenceError(
            f"generated code wrote outside of {self._names(area.slots)}",
            found=f"a damaged canary, {where} bytes",
            where=f"written by {', '.join(self.writers(area.slots)) or 'no step'}",
            hint="this is a fault of the compiler; MONOGRAPH_FENCES found it",
        )

    def _names(self, slots: Sequence[int]) -> str:
        described = (self.program.slots[k] for k in slots)
        return " and ".join(
            f"{slot.kind.value} %{slot.name} ({slot.dtype}[{', '.join(map(str, slot.shape))}])"
            for slot in described
        )

    def writers(self, slots: Sequence[int]) -> list[str]:
        """The kernels, interpreted ops and copies that write to one of these slots."""
        steps = list(walk_steps(self.program.steps))
        views = {
            step.slot
            for step in steps
            if isinstance(step, SliceView | Alternate)
            and set(list_slots(step)[1:]).intersection(slots)
        }
        written = views.union(slots)
        found = []
        for step in steps:
            match step:
                case Launch() if written.intersection(step.slots[-step.outputs :]):
                    found.append(step.kernel)
                case Interpret(call, _, outputs) if written.intersection(outputs):
                    found.append(f"{self.program.fallbacks[call].op.name} (interpreted)")
                case LibraryCall(call, _, outputs, library) if written.intersection(outputs):
                    found.append(f"{self.program.fallbacks[call].op.name} ({library})")
                case Copy(_, target, _) if target in written:
                    found.append("a copy")
        return list(dict.fromkeys(found))


class Panels:
    """Memory for packed weights, each between fences."""

    def __init__(self, fences: Fences) -> None:
        self._fences = fences
        slots = fences.program.slots
        wanted = [k for k, slot in enumerate(slots) if slot.kind is SlotKind.PREPARED]
        areas = [fences.written([k], evaluate_dim(slots[k].nbytes, {})) for k in wanted]
        self._memory = Memory(areas, fences.side)
        self.arrays = {
            k: self._memory.array(number, np.dtype(np.uint8), (areas[number].nbytes,))
            for number, k in enumerate(wanted)
        }

    def finish(self) -> None:
        """Check what has been packed; from now on it is only read."""
        self._fences.check(self._memory)
        self._memory.forbid_writing()


class FencedCall:
    """One call's memory: ``words`` are the addresses, by slot, that the entry point is to read."""

    def __init__(
        self,
        fences: Fences,
        bindings: Mapping[Symbol, int],
        arena: tuple[Sequence[int], ArenaPlan],
        spread: Mapping[int, Copies],
    ) -> None:
        self._fences = fences
        self._bindings = bindings
        self._held: list[object] = []
        self._written: list[Memory] = []
        self.words: dict[int, int] = {}
        slots, plan = arena
        self._place(_group_shared_slots(slots, plan, spread))
        for copies in spread.values():
            self._spread(copies)

    def _place(self, shared: Iterable[tuple[list[int], int]], copies: int = 1) -> Memory:
        areas = [self._fences.written(slots, nbytes) for slots, nbytes in shared]
        memory = Memory(areas, self._fences.side, copies)
        self._written.append(memory)
        for number, area in enumerate(areas):
            self.words.update(dict.fromkeys(area.slots, memory.address(number)))
        return memory

    def _spread(self, copies: Copies) -> None:
        """What runs have for themselves; the line that says which copies are taken comes first."""
        step = copies.step
        line = Memory([Area((step.memory,), ALIGNMENT, ALIGNMENT)], self._fences.side)
        self._written.append(line)
        memory = self._place(
            _group_shared_slots(list(copies.offsets), copies.plan, {}), copies.count
        )
        self.words |= copies.numbers() | {
            step.memory: line.address(0),
            step.distance: memory.distance,
        }

    def input(self, slot: int, address: int) -> None:
        """Copy what a slot is given."""
        given = self._fences.program.slots[slot]
        nbytes = _span(given, self._bindings)
        source = ctypes.string_at(address, nbytes) if nbytes else b""
        copy = self._fences.copied(np.array(bytearray(source), np.uint8), [slot])
        self._held.append(copy)
        self.words[slot] = copy.ctypes.data

    def output(self, slot: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Memory for what a slot returns."""
        nbytes = dtype.itemsize * int(np.prod(shape, dtype=object))
        memory = self._place([([slot], nbytes)])
        return memory.array(0, dtype, shape)

    def check(self) -> None:
        """An error if something was written beside what was to be written."""
        for memory in self._written:
            self._fences.check(memory)


def _group_shared_slots(
    slots: Sequence[int], plan: ArenaPlan, spread: Mapping[int, Copies]
) -> list[tuple[list[int], int]]:
    """The slots of a plan, those together that are computed in place, and their bytes.

    What holds the copies of a step that spreads its runs is placed otherwise.
    """
    groups: dict[int, list[int]] = {}
    for index in range(len(slots)):
        groups.setdefault(_root(index, plan), []).append(index)
    return [
        ([slots[k] for k in members], max(plan.requests[k].size for k in members))
        for members in groups.values()
        if not spread.keys() & {slots[k] for k in members}
    ]


def _root(index: int, plan: ArenaPlan) -> int:
    """The request whose memory one was planned into."""
    while (giver := plan.taken_over[index]) is not None:
        index = giver
    return index


def _span(slot: Slot, bindings: Mapping[Symbol, int]) -> int:
    """The bytes from the first element of an input to its last one."""
    shape = [evaluate_dim(dim, bindings) for dim in slot.shape]
    if slot.strides is None or 0 in shape:
        return int(np.prod(shape, dtype=object)) * _itemsize(slot)
    steps = zip(shape, slot.strides, strict=True)
    return (1 + sum((size - 1) * stride for size, stride in steps)) * _itemsize(slot)


def _itemsize(slot: Slot) -> int:
    return slot.dtype.numpy.itemsize
