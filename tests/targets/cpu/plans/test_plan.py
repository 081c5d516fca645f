"""Families plan or refuse, in order, and say why; what is planned is what is launched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from types import FunctionType
from typing import Any

import pytest

import monograph
from monograph import functional as F
from monograph.switches import switch_off
from monograph.targets.cpu.assemble import steps
from monograph.targets.cpu.assemble.steps import StepBuilder
from monograph.targets.cpu.attention.attend import PiecesPlan, StreamedPlan, plan_attention
from monograph.targets.cpu.build import Program, build
from monograph.targets.cpu.knobs import edit, knobs
from monograph.targets.cpu.machine import machine_named
from monograph.targets.cpu.plans.families import GROUP_FAMILIES, KERNEL_FAMILIES
from monograph.targets.cpu.plans.plan import Launchable, choose_plan
from monograph.targets.cpu.products.contract import TiledProduct
from monograph.targets.cpu.target import LOWER_COMPOSITES
from monograph.targets.cpu.tuning import Recorder, Tuning
from monograph.targets.plan import PlannedKernel, plan_text

MACHINE = machine_named("x86-64")


def built(function: Callable[..., Any], *types: str) -> Program:
    graph = monograph.trace(function, *types)
    LOWER_COMPOSITES.run(graph)
    return build(graph, MACHINE)


def only_plan(function: Callable[..., Any], *types: str) -> PlannedKernel:
    (found,) = built(function, *types).planned
    return found


def convolve(**options: Any) -> Callable[..., Any]:
    return lambda x, w: F.conv(x, w, **options)


@pytest.mark.parametrize(
    ("family", "function", "types"),
    [
        ("product", lambda x, y: x @ y, ("f32[64, 64]", "f32[64, 64]")),
        ("split reduction", lambda x: F.sum(x), ("f32[1000000]",)),
        ("loops", lambda x: F.exp(x), ("f32[100]",)),
        ("depthwise", convolve(groups=32), ("f32[1, 32, 28, 28]", "f32[32, 1, 3, 3]")),
        (
            "depthwise planes",
            convolve(groups=32, padding=((1, 1), (1, 1))),
            ("f32[1, 32, 28, 28]", "f32[32, 1, 3, 3]"),
        ),
        ("patches", convolve(stride=(4, 4)), ("f32[1, 3, 64, 64]", "f32[32, 3, 4, 4]")),
        ("windows", convolve(stride=(2, 2)), ("f32[1, 3, 37, 37]", "f32[32, 3, 6, 6]")),
        ("winograd", convolve(), ("f32[1, 64, 58, 58]", "f32[64, 64, 3, 3]")),
        (
            "transposed operand",
            lambda x, y: F.max(F.unsqueeze(x, 1) + F.unsqueeze(y, 0), axis=-1),
            ("f32[40, 64]", "f32[48, 64]"),
        ),
    ],
)
def test_each_family_plans_what_it_is_for_unless_it_is_off(
    family: str, function: Callable[..., Any], types: tuple[str, ...]
) -> None:
    found = built(function, *types).planned
    assert family in {each.plan.family for each in found}
    switch = next(x.switch for x in (*GROUP_FAMILIES, *KERNEL_FAMILIES) if x.name == family)
    if switch is not None:
        with switch_off(switch):
            found = built(function, *types).planned
        assert found and family not in {each.plan.family for each in found}


def test_the_families_before_the_chosen_one_have_refused_with_a_reason() -> None:
    plan = only_plan(lambda x: F.exp(x), "f32[100]").plan
    asked = [*GROUP_FAMILIES, *KERNEL_FAMILIES]
    assert [each.family for each in plan.refusals] == [each.name for each in asked[:-1]]
    assert all(each.reason for each in plan.refusals)


def test_a_family_that_is_switched_off_says_so() -> None:
    with switch_off("tiled_products"):
        plan = only_plan(lambda x, y: x @ y, "f32[64, 64]", "f32[64, 64]").plan
    assert ("product", "it is switched off") in {(r.family, r.reason) for r in plan.refusals}


def test_plans_name_the_kernels_that_were_launched_for_them() -> None:
    program = built(lambda x: F.sum(x), "f32[1000000]")
    (planned,) = program.planned
    assert planned.kernels == tuple(each.name for each in program.kernels)
    text = plan_text(program.planned, {each.name: each.summary for each in program.kernels})
    assert all(f"kernel   {each.name}: {each.summary}" in text for each in program.kernels)
    assert "scratch" in text


def test_winograd_says_what_it_weighed_when_it_refuses() -> None:
    found = built(convolve(), "f32[1, 4, 30, 30]", "f32[4, 4, 3, 3]").planned
    (refusal,) = {r for each in found for r in each.plan.refusals if r.family == "winograd"}
    assert refusal.weighed and "too few" in refusal.reason


PLANNED: dict[str, tuple[Any, ...]] = {
    "loops": (lambda x: F.softmax(x), "f32[100, 70]"),
    "loops in pieces": (lambda x, y: F.concat([x, y], 1), "f32[100, 70]", "f32[100, 70]"),
    "product": (lambda x, y: x @ y, "f32[64, 64]", "f32[64, 64]"),
    "split k": (lambda x, y: x @ y, "f32[16, 8192]", "f32[8192, 16]"),
    "few queries": (F.attention, "f32[1, 2, 1, 64]", *["f32[1, 2, 600, 64]"] * 2),
    "many queries": (F.attention, *["f32[1, 2, 128, 64]"] * 3),
    "convolution": (convolve(), "f32[1, 64, 58, 58]", "f32[64, 64, 3, 3]"),
}


@pytest.mark.parametrize("name", PLANNED)
def test_choosing_emits_nothing_and_gives_a_value(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is chosen, slots, steps and kernels are those from before until it is launched."""
    function, *types = PLANNED[name]
    seen: list[Launchable] = []

    def emitted(builder: Any) -> tuple[int, ...]:
        counted = (builder.slots, builder.steps, builder.prepare, builder.kernels, builder.prepared)
        return tuple(map(len, counted))

    def watched(choose: Callable[..., Any]) -> Callable[..., Any]:
        def plan(*arguments: Any) -> Any:
            builder = next(each for each in arguments if isinstance(each, StepBuilder))
            before = emitted(builder)
            found = choose(*arguments)
            assert emitted(builder) == before
            if isinstance(found, Launchable):
                seen.append(found)
            return found

        return plan

    for chooser in (choose_plan, plan_attention):
        monkeypatch.setattr(steps, chooser.__name__, watched(chooser))
    built(function, *types)
    assert seen
    for plan in seen:
        assert not closures_in(plan), plan
        assert plan == replace(plan)


def closures_in(plan: object) -> list[str]:
    """Fields of a plan, and of the plans in it, that hold a function."""
    found = []
    for each in fields(plan):  # type: ignore[arg-type]
        value = getattr(plan, each.name)
        if isinstance(value, FunctionType):
            found.append(each.name)
        elif isinstance(value, Launchable | TiledProduct | PiecesPlan | StreamedPlan):
            found += closures_in(value)
    return found


@pytest.mark.parametrize("name", ["loops", "product", "many queries"])
def test_measurements_edit_plans_before_they_are_launched(name: str) -> None:
    function, *types = PLANNED[name]
    graph = monograph.trace(function, *types)
    LOWER_COMPOSITES.run(graph)
    recorder = Recorder()
    build(graph, MACHINE, tuning=recorder)
    edits = {
        digest: {knob: values[0]}
        for digest, site in recorder.sites.items()
        for knob, values in list(knobs(site.choice, MACHINE).items())[:1]
    }
    plans = build(graph, MACHINE, tuning=Tuning(edits, edit)).planned
    changed = {str(edit(site.choice, edits[d])) for d, site in recorder.sites.items()}
    assert changed & {str(each.plan.choice) for each in plans}
