"""A plan says how a kernel is computed: the family, its tiles, scratch memory, and why.

Families are tried in the order of a literal list (``families``). Each looks at a kernel and either
plans it or refuses with a reason; neither emits anything. A plan that is chosen is then launched,
which adds slots, kernels and steps to the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeAlias

from monograph.dataclass import dataclass
from monograph.fusion.group import Group
from monograph.fusion.places import Place
from monograph.ir.graph import Value
from monograph.kernel.expr import Buffer
from monograph.kernel.kernel import Kernel
from monograph.kernel.layout import Layout
from monograph.switches import is_on

if TYPE_CHECKING:
    from monograph.targets.cpu.assemble.steps import StepBuilder

Launching: TypeAlias = "Callable[[StepBuilder, Sequence[int], Sequence[int]], None]"
"""Adds the steps of a plan that reads and writes these slots."""


@dataclass(frozen=True)
class Refusal:
    """Why a family does not compute a kernel."""

    family: str
    reason: str
    weighed: bool = False
    """Whether the family could, and would cost more: worth telling beside the group's reasons."""


@dataclass(frozen=True)
class KernelPlan:
    """How a kernel is computed; ``launch`` carries it out, and everything else can be printed."""

    family: str
    reason: str
    launch: Launching = field(compare=False, repr=False)
    choice: object = None
    """A tiling, a tile of queries and keys, a transform: what the family chose, if it chooses
    before it is launched."""
    scratch: tuple[Buffer, ...] = ()
    """Memory for what its kernels leave each other."""
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    """Values that it wants to read in another layout than they have."""
    share: float | None = None
    """Predicted time over that of computing it directly, where a cost model says so."""
    refusals: tuple[Refusal, ...] = ()
    """The families before this one, and why each of them refused."""


@dataclass(frozen=True)
class KernelRequest:
    """A kernel that is to be computed from some slots."""

    group: Group
    flat: Kernel
    read: Sequence[int]


@dataclass(frozen=True)
class GroupRequest:
    """A group that is to be computed: as one kernel, or several that each visit a part of it."""

    group: Group
    kernels: Sequence[tuple[Kernel, Sequence[Value]]]
    flat: Kernel
    """The first of them, over flat buffers."""
    outputs: Mapping[Value, Place]
    wanted: Mapping[Value, Layout]
    """Operands and results that it reads and writes in another layout than they have."""
    layouts: Mapping[Value, Layout]

    @property
    def inputs(self) -> Sequence[Value]:
        """What the first kernel reads."""
        return self.kernels[0][1]


Request: TypeAlias = KernelRequest | GroupRequest


@dataclass(frozen=True)
class Family:
    """A way to compute kernels: its name, what plans, and the switch that turns it off."""

    name: str
    plan: Callable[..., KernelPlan | Refusal]
    switch: str | None = None


def choose_plan(
    families: Sequence[Family], builder: StepBuilder, request: Request
) -> KernelPlan | tuple[Refusal, ...]:
    """The plan of the first family that has one, or why none has."""
    refusals: list[Refusal] = []
    for family in families:
        if family.switch is not None and not is_on(family.switch):
            refusals.append(Refusal(family.name, "it is switched off"))
            continue
        found = family.plan(builder, request)
        if isinstance(found, KernelPlan):
            return replace(found, refusals=tuple(refusals))
        refusals.append(found)
        if found.weighed:
            request.group.apart.append(found.reason)
    return tuple(refusals)


@dataclass
class PlannedKernel:
    """A plan that was carried out: for which group, and by which kernels."""

    group: str
    plan: KernelPlan
    kernels: tuple[str, ...] = ()


def plan_text(planned: Sequence[PlannedKernel], summaries: Mapping[str, str]) -> str:
    """Every plan: its family and reason, its kernels, and why earlier families refused."""
    return "\n\n".join(_text(each, summaries) for each in planned) + "\n"


def _text(each: PlannedKernel, summaries: Mapping[str, str]) -> str:
    plan = each.plan
    lines = [f"{each.group}: {plan.family}", f"  why      {plan.reason}"]
    if plan.choice is not None:
        lines.append(f"  choice   {plan.choice}")
    if plan.share is not None:
        lines.append(f"  predicts {plan.share:.0%} of the direct method's time")
    for name, layout in plan.layouts.items():
        strides = ", ".join(map(str, layout.strides))
        lines.append(f"  layout   %{name}: strides ({strides}), borders {layout.border}")
    for buffer in plan.scratch:
        shape = ", ".join(map(str, buffer.shape))
        lines.append(f"  scratch  {buffer.name}: {buffer.dtype}[{shape}]")
    for name in each.kernels:
        lines.append(f"  kernel   {name}: {summaries.get(name, 'joined with another')}")
    reasons: dict[str, list[str]] = {}
    for refusal in plan.refusals:
        reasons.setdefault(refusal.reason, []).append(refusal.family)
    lines += [f"  not      {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return "\n".join(lines)
