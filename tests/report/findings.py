"""Findings of each kind, made by hand: what a report shows of them needs no measuring."""

from __future__ import annotations

from monograph.inspect.ablate import Ablation, Costs, Effect, Part, PartKind, State
from monograph.inspect.bisect import Bisection
from monograph.inspect.compare import Comparison, Contender, RatioSpread
from monograph.inspect.validate import StepVerdict, Validation
from monograph.report.findings import Finding

WHOLE = Costs(3, 9 << 20, 640 << 10, 2.2, 1e-7)
SLOWER = Costs(10, 13 << 20, 640 << 10, 1.9, 1e-7)


def all_findings(name: str = "m") -> list[Finding]:
    """One of each; ``name`` is what a model's own words could be."""
    fusion, noise = Part(PartKind.SWITCH, "fusion"), Part(PartKind.PASS, "cse")
    without = (
        Effect(noise, State.MEASURED, RatioSpread(1.01, 0.9, 1.1), SLOWER),
        Effect(fusion, State.MEASURED, RatioSpread(3.59, 2.96, 4.16), SLOWER),
        Effect(Part(PartKind.PASS, "dce"), State.IDLE),
    )
    alone = (Effect(fusion, State.MEASURED, RatioSpread(4.3, 4.2, 4.4), WHOLE),)
    step = StepVerdict("simplify", "within rounding", 1e-7, 1.1e-7, 1.2e-7, 0.0, "normal")
    ours = Contender(
        "monograph",
        median=0.003,
        best=0.0029,
        times_ours=RatioSpread(1.0, 1.0, 1.0),
        error=1e-7,
        verdict="within rounding",
        compile_seconds=9.2,
        memory=217 << 20,
    )
    torch = Contender(
        "torch",
        median=0.009,
        best=0.008,
        times_ours=RatioSpread(3.0, 2.5, 3.5),
        error=2e-7,
        verdict="within rounding",
        compile_seconds=0.1,
        memory=7 << 20,
    )
    return [
        Validation(name, "torch", ("normal",), (), 9, (step,), step, (), 1.0),
        Ablation(name, 0.003, WHOLE, RatioSpread(8.0, 7.0, 9.0), SLOWER, without, alone),
        Comparison(name, 15, (ours, torch, Contender("iree", "it is not installed"))),
        Bisection(
            name,
            "pass",
            "simplify",
            f"rule planted: {name}",
            ("threads=1",),
            "wrong by 0.5",
            "normal",
            12,
            1,
            f"import monograph  # {name}\n",
            {},
            7,
            1.5,
        ),
    ]
