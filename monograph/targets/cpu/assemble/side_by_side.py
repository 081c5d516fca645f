"""Runs equal, independent kernels in one parallel region.

Three projections of one input are three launches of one kernel. At the end of each, a thread that
is done waits for the others; side by side they share one end, and whoever is done with one
projection goes on with the next.
"""

from __future__ import annotations

from dataclasses import replace

from monograph.program.code import Launch, Step
from monograph.targets.cpu.assemble.program_builder import ProgramBuilder

MAX_LAUNCHES = 8
"""Launches that run side by side at most: all of their results are held at one time."""


def join_equal(builder: ProgramBuilder, ends: list[int]) -> None:
    """Join neighbouring launches; ``ends`` are numbers of steps, which become fewer."""
    kept: list[Step] = []
    numbers: list[int] = [0]
    for step in builder.steps:
        last = kept[-1] if kept else None
        if isinstance(step, Launch) and isinstance(last, Launch) and _may_join(last, step):
            kept[-1] = _join(last, step)
        else:
            kept.append(step)
        numbers.append(len(kept))
    builder.steps[:] = kept
    ends[:] = [numbers[end] for end in ends]


def _may_join(first: Launch, other: Launch) -> bool:
    """Whether a launch can run beside others of the same kernel."""
    if first.kernel != other.kernel or first.times == MAX_LAUNCHES:
        return False
    if first.extent != other.extent or first.sizes != other.sizes:
        return False
    if not _has_whole_portions(other) or other.checked or other.in_place:
        return False
    if first.offsets or other.offsets:
        return False
    made, more = set(first.slots[-first.outputs :]), set(other.slots[-other.outputs :])
    return made.isdisjoint(other.slots) and more.isdisjoint(first.slots)


def _has_whole_portions(launch: Launch) -> bool:
    """Whether there are several portions, none of which is shorter than the others."""
    if not isinstance(launch.extent, int):
        return launch.grain == 1
    if not isinstance(launch.grain, int):
        return False
    return launch.extent > launch.grain and launch.extent % launch.grain == 0


def _join(first: Launch, other: Launch) -> Launch:
    slots = (
        *first.slots[: -first.outputs],
        *other.slots[: -other.outputs],
        *first.slots[-first.outputs :],
        *other.slots[-other.outputs :],
    )
    outputs = first.outputs + other.outputs
    return replace(first, slots=slots, outputs=outputs, times=first.times + 1)
