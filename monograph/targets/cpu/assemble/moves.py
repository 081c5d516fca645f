"""Reuses a kernel at other offsets or sizes: calls that differ in nothing else.

Of those that begin elsewhere, the first is compiled as it is. Once there is another, the kernel is
made for pieces of its buffers (``kernel.rebased``), and every further launch of it hands over the
addresses at which its own pieces begin. Of those with sizes of other names, the first serves all,
and every launch hands over its own sizes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field, replace

from monograph.dataclass import dataclass
from monograph.ir.dims import Symbol, substitute_dim, substitute_shape
from monograph.kernel.expr import Buffer
from monograph.kernel.kernel import Kernel
from monograph.kernel.rebased import on_pieces
from monograph.kernel.size_names import list_sizes, number_sizes, rename_sizes
from monograph.program.code import Launch, Slot, SlotKind, Step

MAX_COPIED_BYTES = 1 << 20
"""Bytes of a piece that is written: more may be worth streaming, which needs aligned addresses."""


@dataclass(frozen=True)
class Moved:
    """A kernel that was met before, on these slots; some of them stand for pieces of others."""

    kernel: Kernel
    read: tuple[int, ...]
    written: tuple[int, ...]
    names: Mapping[Symbol, Symbol] = field(default_factory=dict)
    """For each size of this launch that has another name in the kernel, that name."""
    wholes: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """For each slot that is a piece, the slot that it is a piece of, and where, in bytes."""


class Moves:
    """The kernels of a program, by what they have in common."""

    def __init__(self, slots: list[Slot]) -> None:
        self._slots = slots
        self._starts: dict[str, Mapping[str, int]] = {}
        """Where a kernel on pieces began when it was first met."""
        self._names: dict[Hashable, tuple[Symbol, ...]] = {}
        """What the sizes of a kernel were called when it was first met."""

    def moved(self, flat: Kernel, read: Sequence[int], written: Sequence[int]) -> Moved | None:
        """The kernel as one that was met before, if there was one that differs so little."""
        kernel, names = self._rename(flat)
        slots = dict(zip((each.name for each in flat.buffers), (*read, *written), strict=True))
        kernel, starts = self._on_pieces(kernel, slots)
        if not names and not starts:
            return None
        wholes: dict[int, tuple[int, int]] = {}
        for buffer in kernel.buffers:
            start = starts.get(buffer.name)
            if start:
                piece = self._piece(buffer)
                wholes[piece] = slots[buffer.name], start * buffer.dtype.numpy.itemsize
                slots[buffer.name] = piece
        return Moved(
            kernel,
            tuple(slots[each.name] for each in kernel.inputs),
            tuple(slots[each.name] for each in kernel.outputs),
            names,
            wholes,
        )

    def _rename(self, flat: Kernel) -> tuple[Kernel, dict[Symbol, Symbol]]:
        sizes = list_sizes(flat)
        if not sizes:
            return flat, {}
        ranges = tuple(symbol.bounds() for symbol in sizes)
        first = self._names.setdefault((number_sizes(flat, sizes).digest, ranges), sizes)
        if first == sizes:
            return flat, {}
        names = dict(zip(sizes, first, strict=True))
        return rename_sizes(flat, names), names

    def _on_pieces(
        self, kernel: Kernel, slots: Mapping[str, int]
    ) -> tuple[Kernel, Mapping[str, int]]:
        computed = [name for name, slot in slots.items() if self._is_computed(slot)]
        pieces = on_pieces(kernel, computed)
        if pieces is None:
            return kernel, {}
        starts = pieces.starts
        if not all(_is_short(each) for each in pieces.kernel.outputs if starts.get(each.name)):
            return kernel, {}
        if self._starts.setdefault(pieces.kernel.digest, starts) == starts:
            return kernel, {}
        return pieces.kernel, starts

    def _is_computed(self, slot: int) -> bool:
        """Whether a slot is filled in every call: what is packed once is known by its own slot."""
        return self._slots[slot].kind not in (SlotKind.WEIGHT, SlotKind.PREPARED)

    def _piece(self, buffer: Buffer) -> int:
        """A slot that stands for a piece until launches say what they mean."""
        self._slots.append(Slot(SlotKind.VIEW, buffer.name, buffer.dtype, buffer.shape))
        return len(self._slots) - 1

    def settle(self, moved: Moved, steps: list[Step], step: int, slot: int) -> None:
        """Let launches and slots, from these on, say what they mean: whole slots and own sizes."""
        own = {there: here for here, there in moved.names.items()}
        steps[step:] = [_settle_slots(each, own, moved.wholes) for each in steps[step:]]
        if own:
            self._slots[slot:] = [_size_slot(each, own) for each in self._slots[slot:]]


def _settle_slots(
    step: Step, own: Mapping[Symbol, Symbol], wholes: Mapping[int, tuple[int, int]]
) -> Step:
    if not isinstance(step, Launch):
        return step
    if own:
        sizes = tuple(own.get(symbol, symbol) for symbol in step.sizes)
        extent, grain = (substitute_dim(each, own) for each in (step.extent, step.grain))
        step = replace(step, sizes=sizes, extent=extent, grain=grain)
    if wholes.keys().isdisjoint(step.slots):
        return step
    found = [wholes.get(slot, (slot, 0)) for slot in step.slots]
    before = step.offsets or (0,) * len(found)
    return replace(
        step,
        slots=tuple(whole for whole, _ in found),
        offsets=tuple(more + offset for more, (_, offset) in zip(before, found, strict=True)),
        in_place=tuple(slot for slot in step.in_place if slot not in wholes),
    )


def _is_short(buffer: Buffer) -> bool:
    extent = buffer.shape[0]
    return not isinstance(extent, int) or extent * buffer.dtype.numpy.itemsize <= MAX_COPIED_BYTES


def _size_slot(slot: Slot, own: Mapping[Symbol, Symbol]) -> Slot:
    span = None if slot.span is None else substitute_dim(slot.span, own)
    return replace(slot, shape=substitute_shape(slot.shape, own), span=span)
