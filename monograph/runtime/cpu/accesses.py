"""Verifies that kernels access only their buffers, and overwrite only what they may.

Loop nests whose accesses no proof covers are visited by sample. Those that write over what they
read must be proved to write each element once, after it was read.
"""

from __future__ import annotations

from collections.abc import Mapping

from monograph.ir.dims import Symbol, evaluate_dim
from monograph.program.code import Code, Launch, walk_steps
from monograph.targets.cpu.build import Program
from monograph.targets.cpu.nests.bounds import find_unproved_accesses
from monograph.targets.cpu.nests.loop_nest import LoopNest
from monograph.targets.cpu.nests.verify import ScheduleError, verify_sampled
from monograph.targets.cpu.nests.verify_in_place import overwrites_in_order


class AccessVerifier:
    """Checks the accesses of a program's kernels at one size after the other."""

    def __init__(self, program: Code) -> None:
        self.program = program
        kernels = program.kernels if isinstance(program, Program) else ()
        self.nests = {each.name: each.nest for each in kernels}
        """A program that was stored has none to look at."""
        self.unproved = {name for name, nest in self.nests.items() if find_unproved_accesses(nest)}
        """Those of which it is not proved for all sizes that they stay in their buffers."""
        self._visit({}, symbolic=False)

    def verify(self, bindings: Mapping[Symbol, int]) -> None:
        """Visit what is not proved near the ends of its loops, at the sizes of each launch."""
        self._visit(bindings, symbolic=True)

    def _visit(self, bindings: Mapping[Symbol, int], symbolic: bool) -> None:
        for step in walk_steps(self.program.steps):
            nest = self.nests.get(step.kernel) if isinstance(step, Launch) else None
            if nest is None or not isinstance(step, Launch) or bool(nest.sizes) != symbolic:
                continue
            in_place = _in_place(step, nest)
            if in_place or step.kernel in self.unproved:
                given = (evaluate_dim(symbol, bindings) for symbol in step.sizes)
                verify_sampled(nest, dict(zip(nest.sizes, given, strict=True)), in_place=in_place)
            if in_place and not overwrites_in_order(nest, in_place):
                raise ScheduleError(
                    f"{nest.name}: {', '.join(in_place)} may be read after it was written over",
                    expected="a nest of which it is proved that it reads each element first",
                    hint="give the output memory of its own",
                )


def _in_place(step: Launch, nest: LoopNest) -> dict[str, str]:
    """The buffers that the only output may be written over, by name."""
    if not step.in_place:
        return {}
    (output,) = nest.outputs
    slots = zip(step.runs[0], nest.inputs, strict=False)
    return {buffer.name: output.name for slot, buffer in slots if slot in step.in_place}
