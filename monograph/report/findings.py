"""What other commands found out about a model, as a report shows it beside the graph."""

from __future__ import annotations

from typing import TypeAlias

from monograph.errors import InputError
from monograph.inspect.ablate import Ablation
from monograph.inspect.bisect import Bisection
from monograph.inspect.compare import Comparison
from monograph.inspect.jsonable import jsonable
from monograph.inspect.validate import Validation
from monograph.runtime.bundle import Json

Finding: TypeAlias = Validation | Ablation | Comparison | Bisection

KINDS: dict[type, str] = {
    Validation: "validation",
    Ablation: "ablation",
    Comparison: "comparison",
    Bisection: "bisection",
}
"""Under which name the page finds each."""


def finding_facts(finding: Finding) -> tuple[str, Json]:
    """The name of a finding and its figures."""
    kind = KINDS.get(type(finding))
    if kind is None:
        raise InputError(
            "a report shows no such finding",
            expected="what validate, bisect, ablate or compare returned",
            found=type(finding).__name__,
        )
    figures: Json = jsonable(finding.as_json())
    return kind, figures
