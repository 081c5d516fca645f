"""Kernel plans: how each kernel of a program is computed, and why, as values that print.

A target asks its families in the order of a literal list; each plans a kernel or refuses with a
reason. What it chose is a ``KernelPlan``: data alone, so that every target's plans print alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from monograph.dataclass import dataclass

if TYPE_CHECKING:
    from monograph.kernel.expr import Buffer
    from monograph.kernel.layout import MemoryLayout


@dataclass(frozen=True)
class Refusal:
    """Why a family does not compute a kernel."""

    reason: str
    weighed: bool = False
    """Whether the family could, and would cost more: worth telling beside the group's reasons."""
    family: str = ""
    """Its name, which whoever asked it writes down."""

    def by(self, family: str) -> Refusal:
        """The same, with the family's name."""
        return replace(self, family=family)


@dataclass(frozen=True)
class KernelPlan:
    """How a kernel is computed."""

    family: str
    reason: str
    choice: object = None
    """A tiling, a tile of queries and keys, a transform, blocks and warps: what the family chose,
    if it chooses before it is launched."""
    scratch: tuple[Buffer, ...] = ()
    """Memory for what its kernels leave each other."""
    layouts: Mapping[str, MemoryLayout] = field(default_factory=dict)
    """Values that it wants to read in another layout than they have."""
    share: float | None = None
    """Predicted time over that of computing it directly, where a cost model says so."""
    microseconds: float | None = None
    """Predicted time, where a cost model says so."""
    refusals: tuple[Refusal, ...] = ()
    """The families before this one, and why each of them refused."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Microseconds of each contender, where they were measured beside each other."""


@dataclass(frozen=True)
class PlannedKernel:
    """A plan that was carried out: for which group, and by which kernels."""

    group: str
    plan: KernelPlan
    kernels: tuple[str, ...] = ()


def plan_text(planned: Sequence[PlannedKernel], summaries: Mapping[str, str]) -> str:
    """Every plan: its family and reason, its kernels, and why earlier families refused."""
    if not planned:
        return "no kernel has a plan\n"
    return "\n\n".join(_text(each, summaries) for each in planned) + "\n"


def _text(each: PlannedKernel, summaries: Mapping[str, str]) -> str:
    plan = each.plan
    lines = [f"{each.group}: {plan.family}", f"  why      {plan.reason}"]
    if plan.choice is not None:
        lines.append(f"  choice   {plan.choice}")
    if plan.share is not None:
        lines.append(f"  predicts {plan.share:.0%} of the direct method's time")
    if plan.microseconds is not None:
        lines.append(f"  predicts {plan.microseconds:.1f} µs")
    for name, taken in sorted(plan.measured.items(), key=lambda each: each[1]):
        lines.append(f"  measured {taken:.2f} µs by {name}")
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
