"""Lowers equal kernels once: twelve equal layers share their loops.

Making the loops of a product takes far longer than launching them. What launching a kernel took
(scratch memory, packed weights, steps) is noted, and an equal kernel on slots of the same kind
takes the same again, on its own slots.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from monograph.dataclass import dataclass
from monograph.fusion.group import Group
from monograph.ir.dims import Symbol, substitute_dim, substitute_shape
from monograph.kernel.kernel import Kernel
from monograph.program.code import Launch, Slot, SlotKind, Step
from monograph.targets.cpu.assemble.program_builder import ProgramBuilder
from monograph.targets.cpu.tuning import Recorder


@dataclass(frozen=True)
class _Packing:
    """A packed weight: the slot that it was given, and how to make it."""

    slot: int
    digest: str
    read: tuple[int, ...]
    step: Launch


@dataclass(frozen=True)
class _Taken:
    """What a kernel took: ``made`` are its scratch slots, ``slots`` those that it was given."""

    slots: tuple[int, ...]
    made: Mapping[int, Slot]
    packings: tuple[_Packing, ...]
    steps: tuple[Launch, ...]
    reasons: tuple[str, ...]


class Repeats:
    """What the kernels of a program took, by what they are and what kind of slots they have."""

    def __init__(self, builder: ProgramBuilder) -> None:
        self._launches = builder
        self._taken: dict[Hashable, _Taken] = {}

    def again(
        self,
        group: Group,
        flat: Kernel,
        slots: Sequence[int],
        names: Mapping[Symbol, Symbol] | None = None,
    ) -> bool:
        """Take again what an equal kernel took, if there was one.

        ``names`` are what the sizes of the slots are called in the kernel, if not the same.
        """
        taken = self._taken.get(self._key(flat, slots, names or {}))
        if taken is None or isinstance(self._launches.tuning, Recorder):
            return False  # whoever records choices wants to hear of each of them
        builder = self._launches
        known = dict(zip(taken.slots, slots, strict=True))
        for number, slot in taken.made.items():
            known[number] = len(builder.slots)
            builder.slots.append(slot)
            if number in builder.packs:
                builder.packs.add(known[number])
        for each in taken.packings:
            self._pack(each, known)
        builder.steps += [_rebase_launch(step, known) for step in taken.steps]
        group.joined += taken.reasons
        return True

    def _pack(self, packing: _Packing, known: dict[int, int]) -> None:
        builder = self._launches
        key = (packing.digest, tuple(known[slot] for slot in packing.read))
        if key not in builder.prepared:
            builder.prepared[key] = known[packing.slot] = len(builder.slots)
            builder.slots.append(builder.slots[packing.slot])
            builder.prepare.append(_rebase_launch(packing.step, known))
        known[packing.slot] = builder.prepared[key]

    @contextmanager
    def noting(
        self,
        group: Group,
        flat: Kernel,
        slots: Sequence[int],
        names: Mapping[Symbol, Symbol] | None = None,
    ) -> Iterator[None]:
        """Note what is taken meanwhile."""
        builder = self._launches
        before = len(builder.slots), len(builder.steps), len(builder.prepare), len(group.joined)
        yield
        first, step, packed, reason = before
        made = dict(enumerate(builder.slots[first:], first))
        keys = [key for key, slot in builder.prepared.items() if slot >= first]
        making, steps = builder.prepare[packed:], builder.steps[step:]
        shared = self._find_shared(slots, steps, first)
        known = {*slots, *made, *(each.slot for each in shared)}
        plain = [
            each
            for each in (*making, *steps)
            if isinstance(each, Launch) and not each.checked and known.issuperset(each.slots)
        ]
        if len(plain) < len(making) + len(steps) or len(making) != len(keys):
            return  # something else than launches on what it was given, which is not worth noting
        packings = (
            *shared,
            *(
                _Packing(builder.prepared[key], *key, each)
                for key, each in zip(keys, plain, strict=False)
            ),
        )
        scratch = {k: slot for k, slot in made.items() if slot.kind is not SlotKind.PREPARED}
        self._taken[self._key(flat, slots, names or {})] = _Taken(
            tuple(slots),
            scratch,
            packings,
            tuple(plain[len(making) :]),
            tuple(group.joined[reason:]),
        )

    def _find_shared(
        self, slots: Sequence[int], steps: Sequence[Step], first: int
    ) -> list[_Packing]:
        """Packed weights that another kernel made before, of slots that this one was given."""
        read = {slot for each in steps if isinstance(each, Launch) for slot in each.slots}
        found = []
        for key, slot in self._launches.prepared.items():
            if slot >= first or slot not in read or not set(key[1]) <= set(slots):
                continue
            made_by = [
                each
                for each in self._launches.prepare
                if isinstance(each, Launch) and set(each.slots) == {*key[1], slot}
            ]
            if len(made_by) == 1:
                found.append(_Packing(slot, *key, made_by[0]))
        return found

    def _key(self, flat: Kernel, slots: Sequence[int], names: Mapping[Symbol, Symbol]) -> Hashable:
        """The kernel, the kinds of its slots, which are the same, or small, and if it loops."""
        found = [self._launches.slots[slot] for slot in slots]
        kinds = tuple(
            (
                s.kind,
                s.dtype,
                substitute_shape(s.shape, names),
                s.strides,
                None if s.span is None else substitute_dim(s.span, names),
            )
            for s in found
        )
        small = tuple(self._launches.is_small(slot) for slot in slots)
        same = tuple(slots.index(slot) for slot in slots)
        return flat.digest, kinds, same, small, self._launches.loop_depth > 0


def _rebase_launch(step: Launch, known: Mapping[int, int]) -> Launch:
    """The launch on other slots."""
    return replace(
        step,
        slots=tuple(known[slot] for slot in step.slots),
        in_place=tuple(known[slot] for slot in step.in_place),
    )
