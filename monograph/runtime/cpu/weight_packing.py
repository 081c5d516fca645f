"""Packing a program's weights when it is compiled, one after the other.

The code that packs (``targets.cpu.entry_point``) calls back before it first uses a slot and when it
is done with it. So a weight is read when its turn comes and let go of as soon as it is packed,
where the program may do so: all panels are in memory at the end, but of what they are made of only
one piece at a time. The panels lie in one piece of memory, since each piece has huge pages of its
own.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate

import numpy as np

from monograph.errors import EvaluationError
from monograph.ir.dims import evaluate_dim
from monograph.ir.types import Array
from monograph.program.code import PREPARE, Code, SlotKind
from monograph.runtime.cpu import interrupts
from monograph.runtime.cpu.fences import Fences
from monograph.runtime.output_memory import ALIGNMENT, OutputPool
from monograph.runtime.weight_ownership import Held
from monograph.targets.cpu.machine import Library


class Packing:
    """What packs a program's weights; ``kept`` are the arrays of those that calls read too.

    ``lets_go`` says that the others belong to the program, which releases them (``holding``);
    with ``fences``, each weight and panel lies between two.
    """

    def __init__(
        self,
        program: Code,
        kept: Mapping[int, Array],
        pool: OutputPool,
        *,
        lets_go: bool,
        fences: Fences | None = None,
    ) -> None:
        self.slots = program.slots
        self.weights = program.weights
        self.kept = kept
        self.lets_go = lets_go
        self._fences = fences
        self._fenced = None if fences is None else fences.panels()
        self.panels = _panels(program, pool) if self._fenced is None else self._fenced.arrays
        self.watch = interrupts.new_watch()
        self.table = np.zeros(len(program.slots) + len(program.sizes) + 2, np.int64)
        self._reading: dict[int, Array] = {}
        self._left = Counter(
            id(program.weights[slot.number])
            for slot in program.slots
            if slot.kind is SlotKind.WEIGHT
        )

    def run(self, library: Library, threads: int) -> dict[int, Array]:
        """The panels, by slot."""
        if not self.panels:
            return {}
        self.table[-2:] = interrupts.call_back_address(), self.watch.ctypes.data
        status = ctypes.c_int32(0)
        address = self.table.ctypes.data
        interrupts.receivers[address] = self
        pack = interrupts.entry_point(library.address(PREPARE))
        code = pack(address, ctypes.addressof(status), threads)
        if code:
            raise EvaluationError("a weight could not be packed", found=f"result code {code}")
        if self._fenced is not None:
            self._fenced.finish()
        return self.panels

    def called(self, number: int) -> None:
        """What native code calls with a slot that it needs, or the complement of one it needed."""
        if number < 0:
            self._release(~number)
        else:
            self.table[number] = self._array(number).ctypes.data

    def _array(self, slot: int) -> Array:
        if slot in self.panels:
            return self.panels[slot]
        number = self.slots[slot].number
        found = self.kept.get(number)
        if found is None:
            found = in_order(self.weights[number].array())
            if self._fences is not None:
                found = self._fences.copied(found, [slot])
            self._reading[number] = found
        return found

    def _release(self, slot: int) -> None:
        """Let go of a weight, unless somebody else reads the same one."""
        number = self.slots[slot].number
        if slot in self.panels or number in self.kept:
            return
        self._reading.pop(number, None)
        data = self.weights[number]
        self._left[id(data)] -= 1
        if self.lets_go and isinstance(data, Held) and not self._left[id(data)]:
            data.release()


def _panels(program: Code, pool: OutputPool) -> dict[int, Array]:
    """Memory for all that is packed, by slot."""
    wanted = [k for k, slot in enumerate(program.slots) if slot.kind is SlotKind.PREPARED]
    if not wanted:
        return {}
    sizes = [evaluate_dim(program.slots[k].nbytes, {}) for k in wanted]
    ends = list(accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes))
    memory = pool.acquire(ends[-1]).as_array(np.uint8, ends[-1])
    starts = (0, *ends)
    return {
        k: memory[start : start + size]
        for k, start, size in zip(wanted, starts, sizes, strict=False)
    }


def in_order(array: Array) -> Array:
    """A weight as it lies in memory; only a strided one is copied."""
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)
