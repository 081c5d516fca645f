"""Plans as values: asks the kernel families for one of each group, and chooses.

Families are tried in the order of a literal list (``families``). Each looks at a kernel and either
plans it or refuses with a reason; neither emits anything. A plan is a value: which family, its
choices, and the kernels that it is made of. Measurements edit it (``tuning``), and nothing else;
then it is launched, which adds slots, kernels and steps to the program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self, TypeAlias

from monograph.dataclass import dataclass
from monograph.fusion.axis_map import AxisMap
from monograph.fusion.group import Group
from monograph.ir.graph import Value
from monograph.kernel.kernel import Kernel
from monograph.kernel.layout import MemoryLayout
from monograph.switches import is_on
from monograph.targets.plan import KernelPlan, Refusal

if TYPE_CHECKING:
    from monograph.targets.cpu.assemble.steps import StepBuilder
    from monograph.targets.cpu.tuning import Tuning


@dataclass(frozen=True)
class Launchable(ABC):
    """A plan of one family: what people see of it, and in its fields all that it was chosen to be.

    It is a value, which can be compared, printed and edited before anything is emitted.
    """

    plan: KernelPlan

    @abstractmethod
    def launch(self, builder: StepBuilder, read: Sequence[int], written: Sequence[int]) -> None:
        """Add the slots, kernels and steps of the plan, which reads and writes these slots."""

    def with_edits(self, tuning: Tuning) -> Self:
        """The plan with the choices that measurements prefer."""
        return self

    def with_refusals(self, refusals: tuple[Refusal, ...]) -> Self:
        """The plan, with the families before its own and why each of them refused."""
        return replace(self, plan=replace(self.plan, refusals=refusals))


@dataclass(frozen=True)
class KernelRequest:
    """A kernel that is to be computed from some slots."""

    group: Group
    flat: Kernel
    read: Sequence[int]
    written: Sequence[int] = ()


@dataclass(frozen=True)
class GroupRequest:
    """A group that is to be computed: as one kernel, or several that each visit a part of it."""

    group: Group
    kernels: Sequence[tuple[Kernel, Sequence[Value]]]
    flat: Kernel
    """The first of them, over flat buffers."""
    outputs: Mapping[Value, AxisMap]
    wanted: Mapping[Value, MemoryLayout]
    """Operands and results that it reads and writes in another layout than they have."""
    layouts: Mapping[Value, MemoryLayout]

    @property
    def inputs(self) -> Sequence[Value]:
        """What the first kernel reads."""
        return self.kernels[0][1]


Request: TypeAlias = KernelRequest | GroupRequest


@dataclass(frozen=True)
class Family:
    """A way to compute kernels: its name, what plans, and the switch that turns it off."""

    name: str
    plan: Callable[..., Launchable | Refusal]
    switch: str | None = None


def choose_plan(
    families: Sequence[Family], builder: StepBuilder, request: Request
) -> Launchable | tuple[Refusal, ...]:
    """The plan of the first family that has one, or why none has."""
    refusals: list[Refusal] = []
    for family in families:
        if family.switch is not None and not is_on(family.switch):
            refusals.append(Refusal("it is switched off").by(family.name))
            continue
        found = family.plan(builder, request)
        if isinstance(found, Launchable):
            return found.with_edits(builder.tuning).with_refusals(tuple(refusals))
        refusals.append(found.by(family.name))
        if found.weighed:
            request.group.apart.append(found.reason)
    return tuple(refusals)
