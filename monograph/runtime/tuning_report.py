"""What a search for better schedules found (``tuning``), for reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from monograph.dataclass import dataclass

Edits: TypeAlias = Mapping[str, int]


@dataclass(frozen=True)
class Finding:
    """What came of one site: the edits that stay, and seconds with the default and with them."""

    digest: str
    name: str
    launches: int
    edits: Edits
    before: float
    after: float
    tried: int
    complete: bool = True
    """Whether every knob was turned."""
    remembered: bool = False


@dataclass(frozen=True)
class TuningReport:
    """What a search found, and what the whole program gains by it (1.05: a twentieth)."""

    findings: tuple[Finding, ...] = ()
    skipped: int = 0
    """Sites for which there was no time."""
    seconds: float = 0.0
    gain: float = 1.0
    kept: bool = False
    """Whether the tuned program took the place of the default one."""

    @property
    def edits(self) -> dict[str, Edits]:
        """The edits by site, whether they are kept or not."""
        return {each.digest: each.edits for each in self.findings if each.edits}
