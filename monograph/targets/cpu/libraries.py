"""Ops that NumPy computes sooner than loops of ours, by the sizes from which it does.

NumPy's LAPACK and pocketfft are called from a program as one step, which says the library's name
(``LibraryCall``). They take one matrix and one row after the other, where loops of ours share a
batch out to all threads. Their results are the ops' own definitions, and no less accurate.

The sizes were measured (``benchmarks/notes/linear-algebra.md``), and have to be known: an op of a
free size keeps its loops, which serve every size, and its group says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monograph.dataclass import dataclass
from monograph.fusion.group import Group
from monograph.ir.dims import shape_product
from monograph.ir.graph import Node
from monograph.ir.op import Op
from monograph.ops.fft import Fft, Irfft, Rfft
from monograph.ops.fft_loops import LANES
from monograph.ops.fft_steps import factors
from monograph.ops.solve import Inverse, Solve
from monograph.ops.spectral import Eig, EighValues, EigValues
from monograph.targets.cpu.assemble.program_builder import ProgramBuilder
from monograph.targets.cpu.machine import Machine
from monograph.targets.cpu.plans.plan import Launchable
from monograph.targets.plan import KernelPlan, Refusal

LAPACK = "LAPACK (NumPy)"
POCKETFFT = "pocketfft (NumPy)"

MIN_ROWS: Mapping[type[Op], int] = {
    Eig: 256,
    EigValues: 256,
    EighValues: 256,
    Inverse: 512,
    Solve: 512,
}
"""Rows of a matrix from which LAPACK takes at most 0.86 of our time (for ``eig`` 0.57)."""
MAX_PRIME_FACTOR = 160
"""A prime up to which a step of our transforms, a sum for each result, is as quick on a thread."""


@dataclass(frozen=True)
class LibraryPlan(Launchable):
    """A node that a library computes."""

    node: Node
    library: str

    def launch(self, builder: ProgramBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """One step."""
        builder.call_library(self.node, self.library)


def plan_library(machine: Machine, group: Group, node: Node) -> LibraryPlan | None:
    """The plan of an op that a library computes sooner than loops of ours; None for others."""
    if isinstance(node.op, Fft | Rfft | Irfft):
        found = _judge_transform(machine, node, node.op)
    elif type(node.op) in MIN_ROWS:
        found = _judge_matrix(node)
    else:
        return None
    if isinstance(found, KernelPlan):
        return LibraryPlan(found, node, str(found.choice))
    if found.weighed:
        group.apart.append(found.reason)
    return None


def _judge_matrix(node: Node) -> KernelPlan | Refusal:
    shape = node.operands[0].shape
    least = MIN_ROWS[type(node.op)]
    if shape_product(shape[:-2]) != 1:
        return Refusal("a batch is shared out to threads")
    if not isinstance(shape[-1], int):
        return Refusal(f"its size is free: from {least} rows on LAPACK would take less", True)
    if shape[-1] < least:
        return Refusal("a small matrix")
    return KernelPlan("library", f"from {least} rows on LAPACK takes less than loops", LAPACK)


def _judge_transform(machine: Machine, node: Node, op: Fft | Rfft | Irfft) -> KernelPlan | Refusal:
    """By the largest prime factor: it may be larger the more threads could share the rows."""
    shape = (node.results if isinstance(op, Irfft) else node.operands)[0].shape
    lengths = [dim for axis in op.axes if isinstance(dim := shape[axis], int)]
    if len(lengths) < len(op.axes):
        return Refusal("its length is free: large prime factors would take a library less", True)
    prime = max((factor for length in lengths if length for factor in factors(length)), default=1)
    elements = shape_product(shape)
    threads = machine.threads
    if isinstance(elements, int) and lengths:
        rows = elements // max(1, min(lengths))
        threads = max(1, min(threads, -(-rows // LANES)))
    if prime <= MAX_PRIME_FACTOR * threads:
        return Refusal("no factor of the length is a large prime")
    reason = f"the length has the prime factor {prime}: a sum of so many for each result"
    return KernelPlan("library", reason, POCKETFFT)
