"""Findings of other commands about a model, shown beside its graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from monograph.errors import InputError
from monograph.inspect.ablate import Ablation
from monograph.inspect.bisect import Bisection
from monograph.inspect.compare import Comparison
from monograph.inspect.jsonable import jsonable
from monograph.inspect.profile import Profile
from monograph.inspect.validate import Validation
from monograph.runtime.bundle import Json

Finding: TypeAlias = Validation | Ablation | Comparison | Bisection | Profile

KINDS: dict[type, str] = {
    Validation: "validation",
    Ablation: "ablation",
    Comparison: "comparison",
    Bisection: "bisection",
}
"""Under which name the page finds each."""


def profile_in(findings: Sequence[Finding]) -> Profile | None:
    """The profile among some findings: its times stand with the kernels, not by themselves."""
    return next((each for each in findings if isinstance(each, Profile)), None)


def finding_facts(finding: Finding) -> tuple[str, Json]:
    """The name of a finding and its figures."""
    kind = KINDS.get(type(finding))
    if kind is None or isinstance(finding, Profile):
        raise InputError(
            "a report shows no such finding",
            expected="what validate, bisect, ablate, compare or profile returned",
            found=type(finding).__name__,
        )
    figures: Json = jsonable(finding.as_json())
    return kind, figures
