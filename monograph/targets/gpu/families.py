"""The families of GPU kernels, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable

from monograph.errors import UnsupportedError
from monograph.kernel.kernel import Kernel
from monograph.kernel.shortening import with_short_formulas
from monograph.targets.gpu.plan import Refusal
from monograph.targets.gpu.pointwise import plan_pointwise, plan_transpose
from monograph.targets.gpu.products import plan_product
from monograph.targets.gpu.reductions import plan_rows, plan_sequential
from monograph.targets.gpu.source import TritonKernel

Family = Callable[[Kernel, tuple[str, ...]], TritonKernel | Refusal]

FAMILIES: tuple[Family, ...] = (
    plan_transpose,
    plan_pointwise,
    plan_product,
    plan_rows,
    plan_sequential,
)
"""Each writes a kernel, or refuses with a reason; the first that writes it computes it."""


def triton_kernel(kernel: Kernel, comment: tuple[str, ...] = ()) -> TritonKernel:
    """A flat kernel (``kernel.flatten``) as Triton source; an error names who refused, and why."""
    short = with_short_formulas(kernel)
    refusals = []
    for family in FAMILIES:
        made = family(short, comment)
        if isinstance(made, TritonKernel):
            return made
        refusals.append(f"{family.__name__.removeprefix('plan_')}: {made.reason}")
    raise UnsupportedError(
        f"no family of GPU kernels computes {kernel.name}: {'; '.join(refusals)}"
    )
