"""Choosing how a kernel is computed on a GPU: configurations, candidates, and what is launched.

A family (``families.FAMILIES``) is asked for its *configurations* of a kernel: block sizes, warps
and pipeline stages, each with the time that the cost model (``cost``) predicts. It may refuse, with
a reason. Nothing is written for that. ``families.candidates`` then writes the best few:

    for sequence in candidates(kernel, comment):     best predicted first; a runtime may time them
        scratch = allocate each of sequence.scratch
        for kernel in sequence.kernels:              launched in this order, on one stream
            launch(kernel, the memory of each of kernel.kernel.buffers, by name)

Most sequences are one kernel. A reduction over a few long rows, or a product with few tiles and a
long k, is one of partial results and one that combines them; between them they lie in ``scratch``,
whose buffers are named ``s0``, ``s1``… beside the inputs ``b0``… and the outputs ``o0``… of the
whole. Scratch need not be cleared, and is free again after the last kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from monograph.dataclass import dataclass
from monograph.ir.dims import Dim
from monograph.kernel.expr import Buffer
from monograph.kernel.kernel import Kernel
from monograph.targets.gpu.source import TritonKernel
from monograph.targets.plan import KernelPlan, Refusal


@dataclass(frozen=True)
class Configuration:
    """One way to cut a kernel into programs, and the time that it is predicted to take."""

    blocks: Mapping[str, int]
    """The sizes of its blocks: constants of the Triton kernel."""
    warps: int
    stages: int = 2
    microseconds: float = 0.0

    def __str__(self) -> str:
        blocks = ", ".join(f"{name} {size}" for name, size in self.blocks.items())
        return f"{blocks}; {self.warps} warps, {self.stages} stages"


@dataclass(frozen=True)
class Family:
    """A way to compute kernels: which configurations it has of one, and its source in each."""

    name: str
    reason: str
    """Why a kernel that it does not refuse is computed so."""
    configure: Callable[[Kernel], tuple[Configuration, ...] | Refusal]
    """Best first."""
    write: Callable[[Kernel, Configuration, tuple[str, ...]], TritonKernel]
    splits: Callable[[Kernel], tuple[int, ...]] = lambda kernel: ()
    """Into how many parts its reductions may be cut, where that may pay."""


@dataclass(frozen=True)
class KernelSequence:
    """What computes a group of nodes: kernels in the order of their launches."""

    kernels: tuple[TritonKernel, ...]
    plan: KernelPlan
    """Which family computes it and in which configuration, and why no earlier one does."""
    scratch: tuple[Buffer, ...] = ()
    """Memory for what one kernel leaves to another."""


def divide_up(total: Dim, size: int) -> Dim:
    """How many blocks of a size hold so many elements."""
    return (total + (size - 1)) // size


def next_power_of_two(number: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()
