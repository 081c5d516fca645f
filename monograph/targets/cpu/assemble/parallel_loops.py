"""Runs independent loops side by side: the two directions of a recurrent layer.

A step of such a loop is often too short to be shared among threads, and what comes next waits for
it. Another loop over the same time does not:

    scan forward …                     product for backward
    product for backward        ─▶     sections { scan forward …; scan backward … }
    scan backward …
"""

from __future__ import annotations

from monograph.program.code import (
    Alternate,
    Copy,
    ForLoop,
    Launch,
    Sections,
    SliceView,
    Step,
    is_independent,
    list_slots,
    walk_steps,
)
from monograph.targets.cpu.assemble.program_builder import ProgramBuilder

MAX_STEPS_BETWEEN = 16
"""Steps between two loops up to which they are brought together."""


def join_loops(builder: ProgramBuilder, ends: list[int]) -> None:
    """Join each loop with the next one; ``ends`` are numbers of steps, which become fewer."""
    steps, number = builder.steps, 0
    position = 0
    while position < len(steps):
        other = _partner(steps, position)
        if other is not None:
            steps[other] = Sections(number, ((steps[position],), (steps[other],)))
            del steps[position]
            ends[:] = [end - (end > position) for end in ends]
            number += 1
        position += 1


def _partner(steps: list[Step], position: int) -> int | None:
    """The next loop that can run beside one, which can wait until then."""
    loop = steps[position]
    if not _may_run_beside(loop):
        return None
    for other in range(position + 1, min(position + 2 + MAX_STEPS_BETWEEN, len(steps))):
        if _conflict(loop, steps[other]):
            return None
        if isinstance(steps[other], ForLoop):
            return other if _may_run_beside(steps[other]) else None
    return None


def _may_run_beside(step: Step) -> bool:
    """Whether a step is a loop in which nothing can fail, or asks Python."""
    return isinstance(step, ForLoop) and all(
        isinstance(each, ForLoop) or is_independent(each) for each in walk_steps(step.body)
    )


def _conflict(first: Step, other: Step) -> bool:
    """Whether one of two steps writes what the other one reads or writes."""
    (used, written), (used_too, written_too) = _slots(first), _slots(other)
    return not (written.isdisjoint(used_too) and written_too.isdisjoint(used))


def _slots(step: Step) -> tuple[set[int], set[int]]:
    """The slots that a step uses, and those among them that it writes; in a loop, what is in it.

    Whoever writes to a piece of a slot writes to the slot.
    """
    used: set[int] = set()
    written: set[int] = set()
    pieces: dict[int, list[int]] = {}
    for each in walk_steps((step,)):
        used.update(list_slots(each))
        match each:
            case Launch():
                written.update(each.slots[len(each.slots) - each.outputs :])
            case Copy(_, target, _):
                written.add(target)
            case SliceView() | Alternate():
                slot, *wholes = list_slots(each)
                pieces[slot] = wholes
            case _:
                written.update(list_slots(each))
    written.update(*(wholes for slot, wholes in pieces.items() if slot in written))
    return used, written | pieces.keys()
