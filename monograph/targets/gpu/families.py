"""The families of GPU kernels, in the order in which they are asked, and the candidates they give.

The first family that does not refuse computes a kernel; which of its configurations is best, and
whether splitting a reduction pays, the cost model predicts and a runtime may measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from monograph.dataclass import dataclass
from monograph.errors import UnsupportedError
from monograph.kernel.expr import Buffer
from monograph.kernel.kernel import Kernel
from monograph.kernel.shortening import with_short_formulas
from monograph.targets.gpu.plan import Configuration, Family, KernelSequence
from monograph.targets.gpu.pointwise import POINTWISE, TRANSPOSE
from monograph.targets.gpu.products import PRODUCT
from monograph.targets.gpu.reductions import ROWS
from monograph.targets.gpu.sequential import SEQUENTIAL
from monograph.targets.gpu.split import split_kernel
from monograph.targets.plan import KernelPlan, Refusal

FAMILIES: tuple[Family, ...] = (TRANSPOSE, POINTWISE, PRODUCT, ROWS, SEQUENTIAL)
"""Each has configurations of a kernel, or refuses with a reason; the first that has any is used."""
MAX_CANDIDATES = 4
MAX_SLOWDOWN = 2.0
"""How much slower than the best a candidate may be predicted to be, to be tried at all."""


def candidates(
    kernel: Kernel,
    comment: tuple[str, ...] = (),
    most: int = MAX_CANDIDATES,
    slowdown: float = MAX_SLOWDOWN,
) -> tuple[KernelSequence, ...]:
    """Ways to compute a flat kernel (``kernel.flatten``), the one predicted to be fastest first.

    An error names the families that refused, and why.
    """
    plans = plans_of(kernel)
    worth = [x for x in plans if x.microseconds <= slowdown * plans[0].microseconds]
    return tuple(plan.write(comment) for plan in worth[:most])


def plans_of(kernel: Kernel) -> list[PlannedSteps]:
    """Ways to compute a flat kernel, the one predicted to be fastest first; nothing is written."""
    short = with_short_formulas(kernel)
    family, configurations, refusals = _configure(short)
    plans = [PlannedSteps((_Step(short, family, each),), refusals) for each in configurations]
    for parts in family.splits(short):
        plans += _split_plan(short, parts, refusals)
    plans.sort(key=lambda plan: plan.microseconds)
    return plans


def kernel_sequence(
    kernel: Kernel, comment: tuple[str, ...] = (), times: Mapping[str, float] | None = None
) -> KernelSequence:
    """The candidate that was measured to be fastest, or else is predicted to be.

    ``times`` are microseconds by the candidates' names.
    """
    plans = plans_of(kernel)
    known = {plan.name: plan for plan in plans}
    for name in sorted(times or {}, key=lambda each: (times or {})[each]):
        if name in known:
            found = known[name].write(comment)
            return replace(found, plan=replace(found.plan, measured=dict(times or {})))
    return plans[0].write(comment)


@dataclass(frozen=True)
class _Step:
    """A kernel in one configuration of a family."""

    kernel: Kernel
    family: Family
    configuration: Configuration


@dataclass(frozen=True)
class PlannedSteps:
    """Steps that compute a kernel one after the other; nothing is written yet."""

    steps: tuple[_Step, ...]
    refusals: tuple[Refusal, ...]
    scratch: tuple[Buffer, ...] = ()
    parts: int = 1
    """Into how many its reductions are cut."""

    @property
    def microseconds(self) -> float:
        """What it is predicted to take."""
        return sum(step.configuration.microseconds for step in self.steps)

    @property
    def name(self) -> str:
        """How its steps are cut, in words: the same for the same kernel in every process."""
        return ", then ".join(f"{x.family.name} {x.configuration}" for x in self.steps)

    def write(self, comment: tuple[str, ...]) -> KernelSequence:
        """The kernels as source."""
        kernels = tuple(
            step.family.write(step.kernel, step.configuration, comment) for step in self.steps
        )
        return KernelSequence(kernels, self.described(), self.scratch)

    def described(self) -> KernelPlan:
        """The plan as every target's is."""
        family = self.steps[0].family
        split = f"; its reductions are cut in {self.parts}" if self.parts > 1 else ""
        return KernelPlan(
            family.name,
            family.reason + split,
            ", then ".join(str(step.configuration) for step in self.steps),
            self.scratch,
            microseconds=self.microseconds,
            refusals=self.refusals,
        )


def _configure(
    kernel: Kernel,
) -> tuple[Family, tuple[Configuration, ...], tuple[Refusal, ...]]:
    """The first family that computes a kernel, its configurations, best first, and who refused."""
    refusals = list[Refusal]()
    for family in FAMILIES:
        found = family.configure(kernel)
        if not isinstance(found, Refusal):
            best_first = tuple(sorted(found, key=lambda each: each.microseconds))
            return family, best_first, tuple(refusals)
        refusals.append(found.by(family.name))
    told = "; ".join(f"{each.family}: {each.reason}" for each in refusals)
    raise UnsupportedError(f"no family of GPU kernels computes {kernel.name}: {told}")


def _split_plan(kernel: Kernel, parts: int, refusals: tuple[Refusal, ...]) -> list[PlannedSteps]:
    """The kernel with its reductions in parts, each stage in its best configuration."""
    split = split_kernel(kernel, parts)
    if split is None:
        return []
    steps = []
    for stage in split.stages:
        family, configurations, _ = _configure(stage)
        steps.append(_Step(stage, family, configurations[0]))
    return [PlannedSteps(tuple(steps), refusals, split.scratch, parts)]
