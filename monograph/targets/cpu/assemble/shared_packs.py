"""Packs an operand once for all kernels that read it packed alike.

Three projections of one input would each pack it in tiles of their own. A launch that packs the
same slots by the same kernel as an earlier one is left out, and its readers read what that left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace

from monograph.program.code import Launch, Step
from monograph.targets.cpu.assemble.program_builder import ProgramBuilder


class Sharing:
    """What the launches of a list of steps packed, by kernel and slots."""

    def __init__(self, builder: ProgramBuilder) -> None:
        self._launches = builder
        self._steps: list[Step] | None = None
        self._left: dict[Hashable, int] = {}

    def settle(self, first: int) -> None:
        """Leave out launches, from a step on, that pack what is packed already."""
        builder = self._launches
        if builder.steps is not self._steps:
            self._steps, self._left = builder.steps, {}
        added = [step for step in builder.steps[first:] if isinstance(step, Launch)]
        if len(added) < len(builder.steps) - first:
            return
        writers = Counter(slot for step in added for slot in _list_written(step))
        known: dict[int, int] = {}
        kept: list[Step] = []
        for each in added:
            step = replace(
                each,
                slots=tuple(known.get(slot, slot) for slot in each.slots),
                in_place=tuple(known.get(slot, slot) for slot in each.in_place),
            )
            target = each.slots[-1] if each.slots else None  # a check of constants has none
            if target in builder.packs and writers[target] == 1 and not step.checked:
                key = (step.kernel, step.slots[:-1], step.offsets)
                found = self._left.setdefault(key, target)
                if found != target:
                    known[target] = found
                    continue
            kept.append(step)
        builder.steps[first:] = kept


def _list_written(step: Launch) -> Sequence[int]:
    return step.slots[len(step.slots) - step.outputs :]
