"""What runs, for a report: groups and their nodes, kernels, steps, and the arena over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monograph.fusion.group import Group
from monograph.inspect.explain import Explanation, arena_plan
from monograph.inspect.inputs import choose_sizes
from monograph.ir.dims import Symbol, evaluate_dim
from monograph.program.code import Copy, Interpret, Launch, LibraryCall, Step, walk_steps
from monograph.report.history import History
from monograph.runtime.bundle import Json
from monograph.runtime.compiled import Executable

Sizes = Mapping[Symbol, int]


def group_facts(executable: Executable, history: History) -> list[Json]:
    """The groups of the lowered graph: their nodes, why they are one, and the steps that run them.

    A program that was loaded has no groups.
    """
    program = executable.program if executable.is_explicable else None
    if program is None or not program.fusions:
        return []
    writers = _writers(program.steps)
    found: list[Json] = []
    begin = 0
    for group, end in zip(program.fusions[0].groups, program.ends, strict=True):
        # Products that read the same operand may run side by side in one step, made for the first.
        read = {program.slot_of.get(value) for value in group.inputs()}
        # What lies where an operand does is another view of it: nothing was run for it.
        slots = {program.slot_of.get(value) for value in group.outputs()} - read - {None}
        wrote = {step for slot in slots if slot is not None for step in writers.get(slot, ())}
        found.append(
            {
                "name": group.name,
                "kind": group.kind.value,
                "nodes": _numbers(group, history),
                "steps": sorted({*range(begin, end), *wrote}),
                "together": list(dict.fromkeys(group.joined)),
                "apart": list(dict.fromkeys(group.apart)),
            }
        )
        begin = end
    return found


def _writers(steps: Sequence[Step]) -> dict[int, set[int]]:
    """The steps that write each slot, those inside loops and branches under their outermost one."""
    found: dict[int, set[int]] = {}
    for number, step in enumerate(steps):
        for each in walk_steps((step,)):
            if isinstance(each, Launch):
                written = each.slots[-each.outputs :]
            elif isinstance(each, Interpret | LibraryCall):
                written = each.outputs
            else:
                continue
            for slot in written:
                found.setdefault(slot, set()).add(number)
    return found


def _numbers(group: Group, history: History) -> list[Json]:
    return [history.node_number(node) for node in group.nodes]


def step_facts(executable: Executable, sizes: Sizes) -> list[Json]:
    """The steps of a program, each as what it is called and the kernels that it launches."""
    code = executable.code
    if code is None:
        return []
    threads = 0 if executable.native is None else executable.native.threads
    return [_step(step, sizes, threads) for step in code.steps]


def _step(step: Step, sizes: Sizes, threads: int) -> Json:
    inside = list(walk_steps((step,)))
    launches = [each for each in inside if isinstance(each, Launch)]
    facts: dict[str, Json] = {
        "what": type(step).__name__.lower(),
        "kernels": [each.kernel for each in launches],
        "interpreted": sum(isinstance(each, Interpret) for each in inside),
        "copies": sum(isinstance(each, Copy) for each in inside),
    }
    if isinstance(step, Launch):
        chunks = _chunks(step, sizes)
        facts["chunks"] = chunks
        facts["threads"] = min(chunks, threads)
    return facts


def _chunks(step: Launch, sizes: Sizes) -> int:
    """Into how many pieces its index space is cut: no more threads than that can share it."""
    extent, grain = evaluate_dim(step.extent, sizes), evaluate_dim(step.grain, sizes)
    return max(1, -(-extent // max(1, grain))) * step.times


def arena_facts(executable: Executable, sizes: Sizes) -> Json:
    """The arena: every slot with its place, and the steps that it is alive in."""
    native = executable.native
    if native is None:
        return None
    plan = arena_plan(executable, sizes)
    slots: list[Json] = [
        [
            request.name,
            offset,
            request.size,
            request.first,
            request.last,
            NO_SLOT if over is None else over,
        ]
        for request, offset, over in zip(plan.requests, plan.offsets, plan.taken_over, strict=True)
    ]
    return {
        "peak": plan.peak,
        "bound": plan.lower_bound,
        "requested": plan.requested,
        "steps": len(native.program.steps),
        "slots": slots,
    }


NO_SLOT = -1
"""In the place of a slot that another is written over: none is."""


def kernel_facts(explained: Explanation) -> list[Json]:
    """The kernels, as ``explain`` tells of them."""
    return [
        {
            "name": each.name,
            "kind": each.kind,
            "space": each.space,
            "schedule": each.schedule,
            "launches": each.launches,
            "nodes": list(each.nodes),
            "together": list(each.together),
            "apart": list(each.apart),
            "read": each.bytes_read,
            "written": each.bytes_written,
            "flops": each.flops,
            "ms": None if each.seconds is None else each.seconds * 1e3,
            "share": each.share,
            "bound": None if each.place is None else each.place.bound,
            "reached": None if each.place is None else each.place.reached,
        }
        for each in explained.kernels
    ]


def memory_facts(explained: Explanation) -> Json:
    """Where bytes lie while it runs."""
    memory = explained.memory
    if memory is None:
        return None
    return {
        "inputs": memory.inputs,
        "outputs": memory.outputs,
        "weights": memory.weights,
        "prepared": memory.prepared,
        "requested": memory.requested,
        "peak": memory.peak,
        "bound": memory.lower_bound,
    }


def sizes_of(executable: Executable, given: Mapping[str, int]) -> Sizes:
    """The symbolic sizes at which bytes are counted."""
    return choose_sizes(executable.graph, given)


def kernel_names(kernels: Sequence[Json]) -> list[str]:
    """The names in ``kernel_facts``."""
    return [str(each["name"]) for each in kernels if isinstance(each, dict)]
