"""Whether kernels stay in their buffers: loop nests that no proof covers are visited by sample."""

from __future__ import annotations

from collections.abc import Mapping

from monograph.ir.dims import Symbol, evaluate_dim
from monograph.kernel.bounds import unproved_accesses
from monograph.kernel.verify import verify_sampled
from monograph.program.code import Code, Launch, flattened
from monograph.targets.cpu.build import Program


class AccessVerifier:
    """Checks the accesses of a program's kernels at one size after the other."""

    def __init__(self, program: Code) -> None:
        self.program = program
        kernels = program.kernels if isinstance(program, Program) else ()
        self.unproved = {each.name: each.nest for each in kernels if unproved_accesses(each.nest)}
        """The loop nests of which it is not proved for all sizes that they stay in their buffers;
        a program that was stored has none to look at."""
        for nest in self.unproved.values():
            if not nest.sizes:
                verify_sampled(nest, {})

    def verify(self, bindings: Mapping[Symbol, int]) -> None:
        """Visit what is not proved near the ends of its loops, at the sizes of each launch."""
        for step in flattened(self.program.steps):
            nest = self.unproved.get(step.kernel) if isinstance(step, Launch) else None
            if nest is not None and nest.sizes and isinstance(step, Launch):
                given = (evaluate_dim(symbol, bindings) for symbol in step.sizes)
                verify_sampled(nest, dict(zip(nest.sizes, given, strict=True)))
