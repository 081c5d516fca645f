"""Plans for kernels that no special family computes: loops over their index space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from monograph.dataclass import dataclass
from monograph.fusion.group import Group
from monograph.kernel.kernel import Kernel
from monograph.kernel.rebased import without_unread
from monograph.targets.cpu.loops.affine_pieces import cut_kernel
from monograph.targets.cpu.loops.schedule import Schedule
from monograph.targets.cpu.loops.split_reduction import SplitKernel, split_reductions
from monograph.targets.cpu.loops.transpose_operand import Turned, turn_operand
from monograph.targets.cpu.loops.unroll_window import write_out_taps
from monograph.targets.cpu.plans.plan import KernelRequest, Launchable
from monograph.targets.plan import KernelPlan, Refusal

if TYPE_CHECKING:
    from monograph.targets.cpu.assemble.program_builder import ProgramBuilder
    from monograph.targets.cpu.assemble.steps import StepBuilder
    from monograph.targets.cpu.tuning import Tuning


@dataclass(frozen=True)
class Piece:
    """A part of a kernel: which inputs it reads, by position, and its schedule."""

    kernel: Kernel
    kept: tuple[int, ...]
    schedule: Schedule


@dataclass(frozen=True)
class LoopsPlan(Launchable):
    """Loops over a kernel's own index space, or over those of its pieces."""

    group: Group
    pieces: tuple[Piece, ...]
    is_tunable: bool
    """Whether measurements may edit the schedules."""

    @property
    def kernel(self) -> Kernel:
        """The kernel of a plan that is one piece."""
        return self.pieces[0].kernel

    @property
    def digest(self) -> str:
        """Names the choice of a kernel that is one piece."""
        return self.kernel.digest

    @property
    def choice(self) -> Schedule:
        """The schedule of a kernel that is one piece."""
        return self.pieces[0].schedule

    def with_choice(self, choice: object) -> LoopsPlan:
        """The same kernel, which is one piece, by another schedule."""
        assert isinstance(choice, Schedule)
        return self._of((replace(self.pieces[0], schedule=choice),))

    def with_edits(self, tuning: Tuning) -> LoopsPlan:
        """The plan with the schedules that measurements prefer."""
        if not self.is_tunable:
            return self
        return self._of(
            tuple(
                replace(each, schedule=tuning(each.kernel.digest, each.schedule))
                for each in self.pieces
            )
        )

    def alone(self, number: int) -> LoopsPlan:
        """The plan of one piece, which reads its own inputs."""
        piece = self.pieces[number]
        whole = replace(piece, kept=tuple(range(len(piece.kernel.inputs))))
        return self._of((whole,))

    def _of(self, pieces: tuple[Piece, ...]) -> LoopsPlan:
        choice = pieces[0].schedule if len(pieces) == 1 else None
        return replace(self, plan=replace(self.plan, choice=choice), pieces=pieces)

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """A step for each piece."""
        if len(self.pieces) == 1:
            given = builder.overwritable(self.kernel, read, written)
            builder.launch_whole(self, read, written, given)
            return
        for number, piece in enumerate(self.pieces):
            builder.launch_part(self.alone(number), [read[k] for k in piece.kept], written)


def plan_whole(group: Group, kernel: Kernel, schedule: Schedule, *, is_tunable: bool) -> LoopsPlan:
    """Loops over a kernel as it is, by a schedule."""
    plan = KernelPlan("loops", "its index space is visited as it is", schedule)
    piece = Piece(kernel, tuple(range(len(kernel.inputs))), schedule)
    return LoopsPlan(plan, group, (piece,), is_tunable)


def plan_kernel(
    group: Group, flat: Kernel, choose: Callable[[Kernel], Schedule], *, is_tunable: bool
) -> LoopsPlan:
    """Loops over a kernel; one that is better cut into pieces has loops for each."""
    parts = cut_kernel(write_out_taps(flat))
    if len(parts) == 1:
        return plan_whole(group, parts[0], choose(parts[0]), is_tunable=is_tunable)
    pieces = []
    for part in parts:
        kernel, kept = without_unread(part)
        pieces.append(Piece(kernel, tuple(kept), choose(kernel)))
    reason = f"its index space is visited in {len(parts)} pieces, without conditions inside"
    return LoopsPlan(KernelPlan("loops", reason), group, tuple(pieces), is_tunable)


@dataclass(frozen=True)
class TransposedPlan(Launchable):
    """An operand is transposed, then read by loops."""

    found: Turned
    move: LoopsPlan
    rest: LoopsPlan

    def with_edits(self, tuning: Tuning) -> Self:
        """The plan with the schedules that measurements prefer."""
        move, rest = self.move.with_edits(tuning), self.rest.with_edits(tuning)
        return replace(self, move=move, rest=rest)

    def launch(self, builder: StepBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """Transpose, then the rest."""
        slot = builder.add_scratch(self.found.move.outputs[0])
        self.move.launch(builder, [read[self.found.source]], [slot])
        self.rest.launch(builder, [*(read[k] for k in self.found.kept), slot], written)


def plan_transposed(builder: StepBuilder, request: KernelRequest) -> Launchable | Refusal:
    """Transpose an operand first, so that neighbouring results share a vector."""
    found = turn_operand(request.flat)
    if found is None:
        return Refusal("no reduction reads an operand along its rows")
    reason = "the smaller operand is transposed, so that neighbouring results share a vector"
    plan = KernelPlan("transposed operand", reason, scratch=found.move.outputs)
    move = builder.plan_kernel(request.group, found.move)
    rest = builder.plan_kernel(request.group, found.rest, request.written)
    return TransposedPlan(plan, found, move, rest)


@dataclass(frozen=True)
class SplitReductionPlan(Launchable):
    """Long rows are reduced in pieces, and those joined."""

    found: SplitKernel
    pieces: LoopsPlan
    rest: LoopsPlan

    def with_edits(self, tuning: Tuning) -> Self:
        """The plan with the schedules that measurements prefer."""
        return replace(
            self, pieces=self.pieces.with_edits(tuning), rest=self.rest.with_edits(tuning)
        )

    def launch(self, builder: StepBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """The pieces, then the rest."""
        partial = [builder.add_scratch(buffer) for buffer in self.found.pieces.outputs]
        self.pieces.launch(builder, read, partial)
        rest = [*(read[k] for k in self.found.rest_inputs), *partial]
        self.rest.launch(builder, rest, written)


def plan_split_reduction(builder: StepBuilder, request: KernelRequest) -> Launchable | Refusal:
    """Reduce pieces of few long rows side by side, then join them."""
    found = split_reductions(request.flat, builder.machine.costs.fusion)
    if found is None:
        return Refusal("it has rows enough for the threads, or short ones")
    reason = "few long rows are reduced in pieces, which threads share"
    plan = KernelPlan("split reduction", reason, scratch=found.pieces.outputs)
    pieces = builder.plan_kernel(request.group, found.pieces)
    rest = builder.plan_kernel(request.group, found.rest, request.written)
    return SplitReductionPlan(plan, found, pieces, rest)


def plan_loops(builder: StepBuilder, request: KernelRequest) -> Launchable:
    """Loops over the kernel's own index space, by the schedule that ``choose`` finds."""
    return builder.plan_kernel(request.group, request.flat, request.written)
