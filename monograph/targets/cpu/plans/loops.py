"""Plans for kernels that no special family computes: loops over their index space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from monograph.targets.cpu.loops.split_reduction import split_reductions
from monograph.targets.cpu.loops.transpose_operand import turn_operand
from monograph.targets.cpu.plans.plan import KernelRequest, Launchable
from monograph.targets.plan import KernelPlan, Refusal

if TYPE_CHECKING:
    from monograph.targets.cpu.assemble.steps import StepBuilder


def plan_transposed(builder: StepBuilder, request: KernelRequest) -> Launchable | Refusal:
    """Transpose an operand first, so that neighbouring results share a vector."""
    found = turn_operand(request.flat)
    if found is None:
        return Refusal("no reduction reads an operand along its rows")
    group, moved = request.group, found.move.outputs[0]

    def launch(builder: StepBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        slot = builder.add_scratch(moved)
        builder.launch_flat(group, found.move, [read[found.source]], [slot])
        kept = [*(read[k] for k in found.kept), slot]
        builder.launch_flat(group, found.rest, kept, written)

    reason = "the smaller operand is transposed, so that neighbouring results share a vector"
    plan = KernelPlan("transposed operand", reason, scratch=(moved,))
    return Launchable(plan, launch)


def plan_split_reduction(builder: StepBuilder, request: KernelRequest) -> Launchable | Refusal:
    """Reduce pieces of few long rows side by side, then join them."""
    found = split_reductions(request.flat)
    if found is None:
        return Refusal("it has rows enough for the threads, or short ones")
    group = request.group

    def launch(builder: StepBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        partial = [builder.add_scratch(buffer) for buffer in found.pieces.outputs]
        builder.launch_flat(group, found.pieces, read, partial)
        rest = [*(read[k] for k in found.rest_inputs), *partial]
        builder.launch_flat(group, found.rest, rest, written)

    reason = "few long rows are reduced in pieces, which threads share"
    plan = KernelPlan("split reduction", reason, scratch=found.pieces.outputs)
    return Launchable(plan, launch)


def plan_loops(builder: StepBuilder, request: KernelRequest) -> Launchable:
    """Loops over the kernel's own index space, by the schedule that ``choose`` finds."""

    def launch(builder: StepBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        builder.launch_flat(request.group, request.flat, read, written)

    return Launchable(KernelPlan("loops", "its index space is visited as it is"), launch)
